"""From logits to probabilities: what is above the fully connected layer.

Softmax where every text has one label; sigmoid, label by label, where a text may have several.
"""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.floating[Any])


def softmax(logits: NDArray[Number]) -> NDArray[Number]:
    """Probabilities along the last axis, which add up to one."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probabilities: NDArray[Number] = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return probabilities


def sigmoid(logits: NDArray[Number]) -> NDArray[Number]:
    """The probability of every label on its own; no exponential overflows."""
    small = np.exp(-np.abs(logits))  # in (0, 1]
    probabilities: NDArray[Number] = np.where(logits >= 0, np.ones_like(small), small) / (1 + small)
    return probabilities
