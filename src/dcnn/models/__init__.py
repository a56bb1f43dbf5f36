"""The sentence models of the paper as torch modules: DCNN, Max-TDNN and NBoW.

Each module maps ``ids (B, s)`` and ``lengths (B,)`` to logits ``(B, classes)``. A sentence's logits
depend neither on padding nor on the other sentences of its batch.
"""

from dcnn.models.baselines import MaxTDNN, NBoW
from dcnn.models.dcnn import DCNN, SentenceModel

# By ``model.kind``; called with that section of the settings and the numbers of words and classes.
MODELS: dict[str, type[SentenceModel]] = {"dcnn": DCNN, "max-tdnn": MaxTDNN, "nbow": NBoW}

__all__ = ["DCNN", "MODELS", "SentenceModel"]
