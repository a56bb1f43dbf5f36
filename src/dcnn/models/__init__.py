"""The sentence models of the paper as torch modules: DCNN, Max-TDNN and NBoW.

Each module maps ``ids (B, s)`` and ``lengths (B,)`` to logits ``(B, classes)``. A sentence's logits
depend neither on padding nor on the other sentences of its batch.
"""

from dcnn.config import DCNNConfig, MaxTDNNConfig, ModelConfig, NBoWConfig
from dcnn.models.dcnn import DCNN
from dcnn.models.max_tdnn import MaxTDNN
from dcnn.models.nbow import NBoW
from dcnn.models.sentence_model import SentenceModel

__all__ = ["DCNN", "SentenceModel", "build_model"]


def build_model(config: ModelConfig, vocabulary: int, classes: int) -> SentenceModel:
    """Make the network, its parameters not yet initialised."""
    match config:
        case DCNNConfig():
            return DCNN(config, vocabulary, classes)
        case MaxTDNNConfig():
            return MaxTDNN(config, vocabulary, classes)
        case NBoWConfig():
            return NBoW(config, vocabulary, classes)
