"""The sentence models of the paper as torch modules: DCNN, Max-TDNN and NBoW.

Each module maps ``ids (B, s)`` and ``lengths (B,)`` to logits ``(B, classes)``. A sentence's logits
do not depend on padding, on its batch mates or on its place among them.
"""

from dcnn.models.build import build_model
from dcnn.models.sentence_model import SentenceModel

__all__ = ["SentenceModel", "build_model"]
