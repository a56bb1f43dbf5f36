"""Networks as torch modules, without initialized parameters."""

from dcnn.models import MODELS


def build_model(config, vocabulary, classes):
    """The network that ``config``, a model section of the settings, describes."""
    return MODELS[config.kind](config, vocabulary, classes)
