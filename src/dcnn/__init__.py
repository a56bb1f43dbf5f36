"""The Dynamic Convolutional Neural Network for sentences, as software.

    >>> from dcnn import DCNNClassifier
    >>> model = DCNNClassifier().fit(texts, labels)
    >>> model.predict(["not a dull moment in it"])

Public names load when they are first used: ``import dcnn`` imports neither torch nor scikit-learn,
and predicting from a model folder never does.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dcnn.classifier import DCNNClassifier
    from dcnn.config import Config
    from dcnn.errors import DcnnError
    from dcnn.inspection import explain
    from dcnn.predictor import Predictor

__version__ = "0.1.0"

_HOMES = {
    "Config": "dcnn.config",
    "DCNNClassifier": "dcnn.classifier",
    "DcnnError": "dcnn.errors",
    "Predictor": "dcnn.predictor",
    "explain": "dcnn.inspection",
}

__all__ = ["Config", "DCNNClassifier", "DcnnError", "Predictor", "__version__", "explain"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'dcnn' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
