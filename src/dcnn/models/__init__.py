"""The sentence models of the paper as torch modules: DCNN, Max-TDNN and NBoW.

Each module maps ``ids (B, s)`` and ``lengths (B,)`` to logits ``(B, classes)``. A sentence's logits
depend neither on padding nor on the other sentences of its batch.
"""

from collections.abc import Callable
from typing import Any

from dcnn.models.dcnn import DCNN
from dcnn.models.max_tdnn import MaxTDNN
from dcnn.models.nbow import NBoW
from dcnn.models.sentence_model import SentenceModel

# By ``model.kind``: from the model section of the settings and the numbers of words and classes to
# a network whose parameters are not yet initialized.
MODELS: dict[str, Callable[[Any, int, int], SentenceModel]] = {
    "dcnn": DCNN,
    "max-tdnn": MaxTDNN,
    "nbow": NBoW,
}

__all__ = ["DCNN", "MODELS", "SentenceModel"]
