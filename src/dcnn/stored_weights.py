"""Weights as a file holds them: float32, float16, or int8 with a scale a word.

In memory weights are always float32; a smaller type is only how they travel.

- ``float16`` rounds every value to the nearest half-precision number.
- ``int8`` does so to all but the embeddings, nearly all of a network's size. A word's vector is
  whole numbers from -127 to 127 times the word's own scale, so that a word with small values loses
  no more of itself than one with large ones. The scale is a half-precision number: its product with
  any of the whole numbers is exact in float32, and storing what was loaded changes nothing.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dcnn.errors import UserError

StoredDtype = Literal["float32", "float16", "int8"]
STORED_DTYPES: tuple[StoredDtype, ...] = get_args(StoredDtype)
EMBEDDINGS, SCALES = "embeddings", "embeddings.scale"

Weights = dict[str, NDArray[np.float32]]
Stored = dict[str, NDArray[Any]]

_LARGEST = 127  # symmetric: -128 is left unused


def pack(weights: Mapping[str, NDArray[np.float32]], dtype: StoredDtype) -> Stored:
    """``weights`` as a file of this type holds them.

    Raises:
        UserError: a value is larger than half precision can say.
    """
    if dtype == "float32":
        return dict(weights)
    packed: Stored = {}
    for name, values in weights.items():
        if dtype == "int8" and name == EMBEDDINGS:
            packed[name], packed[SCALES] = _quantize(values)
        else:
            packed[name] = _halved(name, values)
    return packed


def unpack(stored: Mapping[str, NDArray[Any]]) -> Weights:
    """The float32 weights of what ``pack`` made.

    Raises:
        ValueError: a scale or a whole number is none that ``pack`` writes.
    """
    weights = {
        name: values.astype(np.float32, copy=False)
        for name, values in stored.items()
        if name != SCALES
    }
    if SCALES in stored:
        scales = stored[SCALES].astype(np.float32)
        if not (np.isfinite(scales) & (scales >= 0)).all():
            raise ValueError(f"'{SCALES}' must hold finite numbers of 0 or more")
        if stored[EMBEDDINGS].min(initial=0) < -_LARGEST:
            raise ValueError(f"'{EMBEDDINGS}' must hold whole numbers from -{_LARGEST}")
        weights[EMBEDDINGS] *= scales[:, None]
    return weights


def stored_form(
    shapes: Mapping[str, tuple[int, ...]], dtype: StoredDtype
) -> dict[str, tuple[tuple[int, ...], str]]:
    """Name to shape and safetensors' name of the type, for parameters of these shapes."""
    general = "F32" if dtype == "float32" else "F16"
    form = {name: (shape, general) for name, shape in shapes.items()}
    if dtype == "int8":
        words = shapes[EMBEDDINGS][0]
        form[EMBEDDINGS], form[SCALES] = (shapes[EMBEDDINGS], "I8"), ((words,), "F16")
    return form


def _halved(name: str, values: NDArray[np.float32]) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):
        halved = values.astype(np.float16)
    if not np.isfinite(halved).all():
        largest = np.abs(values).max()
        raise UserError(
            f"'{name}' holds values up to {largest:.3g} where float16 ends at 65504; "
            "choose the dtype float32"
        )
    return halved


def _quantize(values: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """(words, d) -> whole numbers (words, d) and scales (words,): within half a scale each."""
    largest = np.abs(values).max(axis=1).astype(np.float64)
    scales = _halved(f"{EMBEDDINGS} / {_LARGEST}", (largest / _LARGEST).astype(np.float32))
    # Among the smallest half-precision numbers the nearest scale can be so much too small that
    # 127 of them do not reach the largest value; the next one does.
    too_small = largest > (_LARGEST + 0.5) * scales.astype(np.float64)
    scales = np.where(too_small, np.nextafter(scales, np.float16(np.inf)), scales)
    steps = np.where(scales > 0, scales, 1).astype(np.float64)
    numbers = np.rint(values / steps[:, None]).clip(-_LARGEST, _LARGEST)
    return numbers.astype(np.int8), scales
