"""The compiled CPU backend: loading the library, and its functions on numpy arrays.

The library is C++ behind a plain C interface (``native/`` in the repository) and is built with the
package where there is a compiler. Where it is missing, damaged or of another version, ``available``
is false, ``reason`` says why, and the other backends do the work. Nothing here imports torch.

Axes in the library's memory are sentence, column, map, row, with rows contiguous; the arrays here
have the axes of ``dcnn.ops`` and are views of that memory where they can be. ``Network`` is a DCNN
for prediction: ids to logits in one call.
"""

import ctypes
import hashlib
import logging
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float32]

ABI = 4
ISA_VARIABLE = "DCNN_ISA"
INSTRUCTION_SETS = ("avx512", "avx2", "plain")
_STATUSES: dict[int, tuple[type[Exception], str]] = {
    1: (MemoryError, "the native backend ran out of memory"),
    2: (ValueError, "a word id lies outside the embeddings"),
    3: (ValueError, "lengths must lie between 1 and the columns, k between 1 and length + m - 1"),
}

_log = logging.getLogger("dcnn")
_pointer, _long, _int, _float = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_float


class LayerSizes(ctypes.Structure):
    """``dcnn_layer`` of the C interface."""

    _fields_ = [
        (name, ctypes.c_int64) for name in ("maps_below", "rows_below", "maps", "width", "fold")
    ]


# Name: result, arguments.
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "dcnn_isa": (ctypes.c_char_p, []),
    "dcnn_use_isa": (_int, [ctypes.c_char_p]),
    "dcnn_layer_forward": (
        _int,
        [_pointer, _long, _long, *[_pointer] * 5, _long, _pointer, _pointer, _int],
    ),
    "dcnn_layer_backward": (
        _int,
        [_pointer, _long, _long, *[_pointer] * 4, _long, *[_pointer] * 6, _int],
    ),
    "dcnn_network_new": (
        _pointer,
        [_long, _pointer, _pointer, _pointer, _long, _long, _pointer, _long, _pointer, _pointer],
    ),
    "dcnn_network_free": (None, [_pointer]),
    "dcnn_network_logits": (_int, [_pointer, _long, _pointer, _pointer, _pointer, _int]),
    "dcnn_training_forward": (_int, [*[_pointer] * 6, _int]),
    "dcnn_training_backward": (_int, [*[_pointer] * 9, _int]),
    "dcnn_cross_entropy": (_float, [_long, _long, *[_pointer] * 4]),
    "dcnn_adagrad": (None, [*[_pointer] * 4, _long, *[_float] * 6]),
    "dcnn_adagrad_rows": (
        _int,
        [*[_pointer] * 3, _long, *[_pointer] * 2, _long, _long, *[_float] * 6, _int],
    ),
    "dcnn_norm": (ctypes.c_double, [_pointer, _pointer, _long]),
    "dcnn_tanh": (None, [_pointer, _pointer, _long]),
}


def library_path() -> Path:
    """Where the library for this machine lies if it was built."""
    return Path(__file__).with_name(f"_native-{sys.platform}-{platform.machine()}.so")


def open_library(path: Path) -> ctypes.CDLL:
    """Load the library at ``path``.

    Raises:
        OSError: it is missing, damaged, or none that this version can use; the message says so.
    """
    if not path.is_file():
        raise OSError("it was not compiled when dcnn was installed (no C++ compiler?)")
    # Loading a file that was cut short can end the process: compare before, not after.
    wanted = path.with_suffix(".sha256").read_text().strip()
    if hashlib.sha256(path.read_bytes()).hexdigest() != wanted:
        raise OSError(f"{path.name} is damaged: its checksum is not that of the build")
    opened = ctypes.CDLL(str(path))
    try:
        found = opened.dcnn_abi()
        if found != ABI:
            raise OSError(f"{path.name} has interface {found}; this version of dcnn needs {ABI}")
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(opened, name)
            function.restype, function.argtypes = result, arguments
    except AttributeError as error:
        raise OSError(f"{path.name} is not dcnn's library: {error}") from error
    return opened


@cache
def _load() -> tuple[ctypes.CDLL | None, str]:
    """The library, or none and why; the reason is logged once."""
    path = library_path()
    try:
        loaded = open_library(path)
    except OSError as error:
        # That none was compiled is reported at the install and when training starts.
        level = logging.WARNING if path.exists() else logging.DEBUG
        _log.log(level, "the native backend is not available: %s; run `make native`", error)
        return None, str(error)
    if wanted := os.environ.get(ISA_VARIABLE):
        _use(loaded, wanted)
    return loaded, ""


def available() -> bool:
    """Whether the library is there and fit for use."""
    return _load()[0] is not None


def reason() -> str:
    """Why ``available`` is false; empty if it is true."""
    return _load()[1]


def describe() -> str:
    """One line on the library: the instruction set it uses, or why it is not available."""
    if available():
        return f"native backend: {instruction_set()}"
    return f"native backend: not available ({reason()}); numpy and torch do its work"


def library() -> ctypes.CDLL:
    """The functions of ``native/dcnn_native.h``.

    Raises:
        RuntimeError: there is no library; the message says why.
    """
    loaded, why = _load()
    if loaded is None:
        raise RuntimeError(f"the native backend is not available: {why}; run `make native`")
    return loaded


def instruction_set() -> str:
    """The one in use: ``avx512``, ``avx2`` or ``plain``."""
    name: bytes = library().dcnn_isa()
    return name.decode()


def use_instruction_set(name: str) -> None:
    """Take another one from now on; ``DCNN_ISA`` does so from the start.

    Raises:
        ValueError: this machine does not have it.
    """
    _use(library(), name)


def _use(loaded: ctypes.CDLL, name: str) -> None:
    if name not in INSTRUCTION_SETS or not loaded.dcnn_use_isa(name.encode()):
        raise ValueError(
            f"{ISA_VARIABLE}={name!r} is not an instruction set of this machine; "
            f"choose among {', '.join(INSTRUCTION_SETS)} or leave it unset"
        )


def check(status: int) -> None:
    """Raise what a status of the library stands for."""
    if status:
        kind, message = _STATUSES[status]
        raise kind(message)


def dense(array: Array, dtype: type[np.generic]) -> Array:
    """``array`` in the library's memory order; a copy only where it is not so already."""
    return np.ascontiguousarray(array, dtype)


def address(array: Array) -> int:
    """Where the values of ``array`` lie."""
    at: int = array.ctypes.data
    return at


@cache
def array_of(kind: Any, count: int) -> Any:
    """The type of an array; ctypes would make a new class each time that none is in use."""
    return kind * count


def layer_sizes(filters: Sequence[int], fold_rows: bool) -> LayerSizes:
    """From the shape (o, n, d, m) of the filters."""
    maps, maps_below, rows_below, width = filters
    if fold_rows and rows_below % 2:
        raise ValueError(f"{rows_below} rows cannot be folded in pairs")
    return LayerSizes(maps_below, rows_below, maps, width, fold_rows)


def check_network(
    dim: int,
    layers: Sequence[tuple[Sequence[int], Sequence[int]]],
    top: Sequence[int],
    fold_rows: bool,
    k_top: int,
) -> int:
    """How many features a network has. The library trusts the sizes that it is given.

    Args:
        dim: of a word embedding.
        layers: shapes (o, n, d, m) and (o, d') of each layer's filters and bias.
        top: shape of the fully connected weights.
        fold_rows: whether every layer folds.
        k_top: values that each row keeps at the top.

    Raises:
        ValueError: the shapes do not fit together.
    """
    maps, rows = 1, dim
    for filters, bias in layers:
        agree = tuple(filters[1:3]) == (maps, rows)
        maps, rows = filters[0], rows // 2 if fold_rows else rows
        if not agree or tuple(bias) != (maps, rows):
            raise ValueError(f"filters {tuple(filters)} and bias {tuple(bias)} do not fit in")
    features = maps * rows * k_top
    if top[1] != features:
        raise ValueError(f"head.weight {tuple(top)} does not fit {features} values")
    return features


def layer(
    x: Array,
    lengths: Array,
    filters: Array,
    bias: Array,
    k: Array,
    fold_rows: bool,
    width: int | None = None,
    threads: int = 1,
) -> tuple[Array, Array]:
    """One layer in float32, forward; see ``dcnn.ops``. Sentences are spread over ``threads``."""
    sizes = layer_sizes(filters.shape, fold_rows)
    kept = int(k.max()) if width is None else width
    x = dense(x.transpose(0, 3, 1, 2), np.float32)  # (B, s, n, d)
    lengths, k = dense(lengths, np.int64), dense(k, np.int64)
    filters, bias = dense(filters, np.float32), dense(bias, np.float32)
    if x.shape[2:] != filters.shape[1:3] or bias.size * (1 + fold_rows) != filters[:, 0, :, 0].size:
        raise ValueError(f"x {x.shape}, filters {filters.shape}, bias {bias.shape} do not agree")
    values = np.empty((len(x), kept, *bias.shape), np.float32)
    positions = np.empty(values.shape, np.int32)
    check(
        library().dcnn_layer_forward(
            ctypes.addressof(sizes),
            *x.shape[:2],
            *map(address, (x, lengths, filters, bias, k)),
            kept,
            address(values),
            address(positions),
            threads,
        )
    )
    return values.transpose(0, 2, 3, 1), positions.transpose(0, 2, 3, 1)


def tanh(x: Floats) -> Floats:
    """The tanh of the layers, for its test."""
    x = dense(x, np.float32)
    y = np.empty_like(x)
    library().dcnn_tanh(address(x), address(y), x.size)
    return y


class Network:
    """The weights as the library reads them.

    Args:
        weights: the parameters by the names of the model folder.
        fold: whether every layer folds.
        k_top: values that each row keeps at the top.
    """

    def __init__(self, weights: Mapping[str, Array], fold: bool, k_top: int) -> None:
        lib = library()
        depth = sum(name.endswith(".filters") for name in weights)

        def floats(name: str) -> Floats:
            return dense(weights[name], np.float32)

        filters = [floats(f"layers.{i}.filters") for i in range(depth)]
        biases = [floats(f"layers.{i}.bias") for i in range(depth)]
        top_weight, top_bias = floats("head.weight"), floats("head.bias")
        self._embeddings = floats("embeddings")  # the library reads them where they are
        self.classes = len(top_bias)
        shapes = [(f.shape, bias.shape) for f, bias in zip(filters, biases, strict=True)]
        check_network(self._embeddings.shape[1], shapes, top_weight.shape, fold, k_top)
        sizes = (LayerSizes * depth)(*(layer_sizes(f.shape, fold) for f in filters))
        pointers = [
            (ctypes.c_void_p * depth)(*map(address, arrays)) for arrays in (filters, biases)
        ]
        self._handle = lib.dcnn_network_new(
            depth,
            ctypes.addressof(sizes),
            *map(ctypes.addressof, pointers),
            k_top,
            len(self._embeddings),
            address(self._embeddings),
            self.classes,
            address(top_weight),
            address(top_bias),
        )
        if not self._handle:
            raise MemoryError("the native backend ran out of memory")
        self._logits, self._free = lib.dcnn_network_logits, lib.dcnn_network_free

    def logits(self, ids: Array, offsets: Array, threads: int = 1) -> Floats:
        """(sentences, classes); sentence i is ``ids[offsets[i]:offsets[i + 1]]``."""
        ids, offsets = dense(ids, np.int32), dense(offsets, np.int64)
        sentences = len(offsets) - 1
        result: Floats = np.empty((sentences, self.classes), np.float32)
        if offsets[-1] > len(ids):  # that they ascend is checked in the library
            raise ValueError(f"offsets {offsets} go past the {len(ids)} ids")
        check(self._logits(self._handle, sentences, *map(address, (ids, offsets, result)), threads))
        return result

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._free(self._handle)
