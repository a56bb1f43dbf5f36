"""From a model section of the config to the module that it describes."""

from dcnn.config import DCNNConfig, MaxTDNNConfig, ModelConfig, NBoWConfig
from dcnn.models.dcnn import DCNN
from dcnn.models.max_tdnn import MaxTDNN
from dcnn.models.nbow import NBoW
from dcnn.models.sentence_model import SentenceModel


def build_model(config: ModelConfig, vocabulary: int, classes: int) -> SentenceModel:
    """Make the network, its parameters not yet initialised."""
    match config:
        case DCNNConfig():
            return DCNN(config, vocabulary, classes)
        case MaxTDNNConfig():
            return MaxTDNN(config, vocabulary, classes)
        case NBoWConfig():
            return NBoW(config, vocabulary, classes)
