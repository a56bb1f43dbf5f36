"""The compiled backend in training, on float32 arrays: whole DCNNs and random numbers.

``Learner`` makes a training step of a DCNN one call, and ``logits`` its evaluation; ``update`` is
Adagrad for other models. ``Generator`` draws the numbers that torch would draw from the same seed.
Nothing here imports torch; ``native_torch`` is the same for its tensors. The same number of threads
gives the same bits.
"""

import ctypes
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcnn.ops import native
from dcnn.ops.native import Array, Floats

ArrayList = Sequence[Array]
_pointer, _long = ctypes.c_void_p, ctypes.c_int64


_STATE_BYTES = 5056


class Generator:
    """Torch's generator of random numbers on a CPU, MT19937, with the bytes of its state."""

    def __init__(self, state: NDArray[np.uint8]) -> None:
        left, seeded = state[8:16].view(np.int32)
        used = state[16:24].view(np.uint64)[0]
        if state.shape != (_STATE_BYTES,) or seeded != 1 or not (1 <= left <= 624 and used <= 624):
            raise ValueError("these bytes are no state of a generator of random numbers")
        self.state = state.copy()

    @classmethod
    def seeded(cls, seed: int) -> "Generator":
        """As ``torch.Generator().manual_seed(seed)``."""
        state = np.zeros(_STATE_BYTES, np.uint8)
        native.library().dcnn_seed(native.address(state), seed)
        return cls(state)

    def uniform(self, shape: Sequence[int]) -> Floats:
        """Numbers in [0, 1)."""
        numbers: Floats = np.empty(shape, np.float32)
        given = native.address(self.state), native.address(numbers), numbers.size
        native.library().dcnn_draw_uniform(*given)
        return numbers

    def normal(self, shape: Sequence[int], deviation: float) -> Floats:
        """Normal numbers with mean 0."""
        numbers: Floats = np.empty(shape, np.float32)
        given = native.address(self.state), deviation, native.address(numbers), numbers.size
        native.library().dcnn_draw_normal(*given)
        return numbers

    def mask(self, shape: Sequence[int], keep: float) -> Floats:
        """1 / keep with probability ``keep``, else 0."""
        mask: Floats = np.empty(shape, np.float32)
        value = float(np.float32(1) / np.float32(keep))
        given = native.address(self.state), keep, value, native.address(mask), mask.size
        native.library().dcnn_draw_mask(*given)
        return mask


class _Sizes(ctypes.Structure):
    """``dcnn_sizes`` of the C interface."""

    _fields_ = [
        *((name, _long) for name in ("depth", "k_top", "vocabulary", "classes", "n_ensemble")),
        ("layers", _pointer),
    ]

    def __init__(self, filters: tuple[tuple[int, ...], ...], fold: bool, *others: int) -> None:
        shapes = (native.layer_sizes(shape, fold) for shape in filters)
        self.array = (native.LayerSizes * len(filters))(*shapes)  # keeps it in memory
        super().__init__(len(filters), *others, ctypes.addressof(self.array))


_sizes = lru_cache(maxsize=64)(_Sizes)


class _Parameters(ctypes.Structure):
    """``dcnn_parameters``: the weights."""

    _fields_ = [
        (name, _pointer) for name in ("embeddings", "filters", "biases", "head_weight", "head_bias")
    ]

    def __init__(self, weights: ArrayList) -> None:
        embeddings, *head = _places(*weights[:3])
        self.layers = _pointers(weights[3::2]), _pointers(weights[4::2])  # keeps them in memory
        super().__init__(embeddings, *map(ctypes.addressof, self.layers), *head)


class _Batch(ctypes.Structure):
    """``dcnn_batch``."""

    _fields_ = [
        *((name, _long) for name in ("sentences", "columns")),
        *((name, _pointer) for name in ("ids", "lengths", "dropout")),
    ]


def _places(*arrays: Array | None) -> list[int | None]:
    return [None if array is None else array.ctypes.data for array in arrays]


def _dense(arrays: Sequence[Array | None]) -> list[Any]:
    return [None if array is None else np.ascontiguousarray(array) for array in arrays]


def _pointers(arrays: ArrayList) -> Any:
    return native.array_of(_pointer, len(arrays))(*_places(*arrays))


class Parameter(ctypes.Structure):
    """``dcnn_parameter``: a parameter with what Adagrad keeps of it, without a gradient."""

    _fields_ = [
        *((name, _pointer) for name in ("value", "total", "average")),
        *((name, _long) for name in ("rows", "dim")),
        *((name, ctypes.c_double) for name in ("l2", "decay")),
        *((name, _pointer) for name in ("gradient", "used")),
        ("count", _long),
    ]

    def __init__(
        self,
        value: Array,
        total: Array,
        average: Array | None = None,
        l2: float = 0,
        decay: float = 0,
    ) -> None:
        self.arrays = value, total, average  # keeps them in memory
        found = [array for array in self.arrays if array is not None]
        if not all(one.dtype == np.float32 and one.flags.c_contiguous for one in found):
            raise ValueError(f"a dense float32 array is needed; got {value.dtype}")
        sizes = len(value), value.size // max(len(value), 1)
        super().__init__(*_places(*self.arrays), *sizes, l2, decay)


class Rates(ctypes.Structure):
    """``dcnn_rates``: learning rate, eps, largest norm and share of the newest in an average."""

    _fields_ = [(name, ctypes.c_double) for name in ("rate", "eps", "largest_norm", "ema_weight")]


class Gradient(NamedTuple):
    """The gradient of a parameter of ``shape``: of its ``rows``, ascending, or of all of them."""

    rows: NDArray[np.int64] | None
    values: Floats
    shape: tuple[int, ...]


def update(
    parameters: Sequence[Parameter],
    gradients: Sequence[Gradient],
    rates: Rates,
    threads: int = 1,
) -> float:
    """One update in place; returns the norm of the gradients, 0 if ``largest_norm`` is infinite.

    A gradient of some rows gives the same update as a dense one with zeros in all other rows. These
    are skipped if neither L2, decay nor an average changes them.
    """
    array, kept = native.array_of(Parameter, len(parameters))(*parameters), []
    for own, (rows, values, shape) in zip(array, gradients, strict=True):
        rows, values = _dense([rows, values])
        if values.dtype != np.float32 or math.prod(shape) != own.rows * own.dim:
            wanted = f"{own.rows} x {own.dim}"
            raise ValueError(
                f"a gradient of {wanted} in float32 is needed; got {values.dtype} {shape}"
            )
        own.gradient, own.used = _places(values, rows)
        own.count = own.rows if rows is None else len(rows)
        kept.append((values, rows))
    norm = ctypes.c_double()
    pointers = ctypes.byref(rates), ctypes.byref(norm)
    native.check(native.library().dcnn_update(array, len(array), *pointers, threads))
    return norm.value


class _Targets(ctypes.Structure):
    """``dcnn_targets``."""

    _fields_ = [("targets", _pointer), ("weights", _pointer), ("multi_label", _long)]


class Learner:
    """A DCNN that learns: a batch to the updated weights in one call.

    ``parameters`` are the embeddings, the head's weight and bias, the filters and bias of each
    layer, and with ``bags`` the vectors of character n-grams. Every network of an ensemble learns
    as if it were alone.
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        fold: bool,
        k_top: int,
        n_ensemble: int = 1,
        multi_label: bool = False,
        bags: tuple[Array, Array] | None = None,
    ) -> None:
        self._parameters = parameters  # keeps them in memory
        weights = [parameter.arrays[0] for parameter in parameters]
        ngrams = None if bags is None else weights.pop()
        self._features = _check_weights(weights, fold, k_top)
        self._classes, self._multi_label = len(weights[2]), multi_label
        if n_ensemble < 1 or weights[-1].shape[-1] % n_ensemble:
            raise ValueError(f"{weights[-1].shape[-1]} rows cannot be divided among {n_ensemble}")
        filters = tuple(values.shape for values in weights[3::2])
        sizes = _sizes(filters, fold, k_top, len(weights[0]), self._classes, n_ensemble)
        given = None
        if bags is not None and ngrams is not None:
            offsets, buckets = bags
            if offsets.dtype != np.int64 or buckets.dtype != np.int32:
                raise ValueError(f"bags are int64 and int32; got {offsets.dtype}, {buckets.dtype}")
            if ngrams.shape[1] != weights[0].shape[1] or int(offsets[-1]) > len(buckets):
                raise ValueError(f"n-grams {ngrams.shape} do not fit in")
            self._bags = _dense(bags)  # keeps them in memory
            places = _places(*self._bags)
            given = ctypes.byref(native.BagsOfNgrams(len(offsets) - 1, len(ngrams), *places))
        library = native.library()
        array = native.array_of(Parameter, len(parameters))(*parameters)
        self._handle = library.dcnn_learner_new(ctypes.byref(sizes), given, array)
        if not self._handle:
            raise ValueError("a bucket lies outside the n-grams, or memory is short")
        self._step, self._free = library.dcnn_learner_step, library.dcnn_learner_free
        self._loss, self._norm = ctypes.c_double(), ctypes.c_double()
        self._results = ctypes.byref(self._loss), ctypes.byref(self._norm)

    def step(
        self,
        batch: Sequence[Any],
        targets: Array,
        weights: Array | None,
        rates: Rates,
        threads: int = 1,
    ) -> tuple[float, float]:
        """Update the parameters; returns the mean loss, and the norm as ``update`` does.

        ``batch`` is ids (B, s), lengths (B,) and dropout (B, features) or none; ``targets`` are
        (B, classes), and ``weights`` (B,) or none.
        """
        given = self._given(batch, targets, weights)
        pointers = *given, ctypes.byref(rates), *self._results
        native.check(self._step(self._handle, *pointers, threads))
        return self._loss.value, self._norm.value

    def gradients(
        self, batch: Sequence[Any], targets: Array, weights: Array | None, threads: int = 1
    ) -> tuple[float, list[Gradient]]:
        """The loss, and the gradients of the parameters in their order.

        Gradients of embeddings and n-grams have the rows that the batch uses.
        """
        given = self._given(batch, targets, weights)
        found = native.array_of(Parameter, len(self._parameters))()
        gradients = native.library().dcnn_learner_gradients
        native.check(gradients(self._handle, *given, self._results[0], found, threads))
        shapes = [parameter.arrays[0].shape for parameter in self._parameters]
        return self._loss.value, list(map(_gradient, found, shapes))

    def _given(self, batch: Sequence[Any], targets: Array, weights: Array | None) -> list[Any]:
        """The batch as the library takes it."""
        ids, lengths, dropout = batch
        sentences, floats = ids.shape[0], [dropout, targets, weights]
        shapes = (sentences, self._features), (sentences, self._classes), (sentences,)
        for array, shape in zip(floats, shapes, strict=True):
            if array is not None and (array.dtype != np.float32 or array.shape != shape):
                raise ValueError(f"float32 of {shape} is needed; got {array.dtype} {array.shape}")
        if lengths.shape != ids.shape[:-1]:
            raise ValueError(f"lengths {lengths.shape} do not fit ids {ids.shape}")
        kept = [native.dense(ids, np.int64), native.dense(lengths, np.int64), *_dense(floats)]
        places = _places(*kept)
        structures = _Batch(*ids.shape, *places[:3]), _Targets(*places[3:], self._multi_label)
        structures[0].kept = kept  # in memory
        return list(map(ctypes.byref, structures))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._free(self._handle)


def _gradient(found: Parameter, shape: tuple[int, ...]) -> Gradient:
    """A copy of a gradient in the library's memory."""

    def copied(address: int, kind: Any, *sizes: int) -> Array:
        size = np.dtype(kind).itemsize * math.prod(sizes)
        data = ctypes.string_at(address, size) if size else b""
        return np.frombuffer(data, kind).reshape(sizes).copy()

    if not found.used and found.count == found.rows:
        return Gradient(None, copied(found.gradient, np.float32, *shape), shape)
    rows = copied(found.used, np.int64, found.count)
    return Gradient(rows, copied(found.gradient, np.float32, found.count, shape[1]), shape)


def _check(batch: Sequence[Any], weights: ArrayList, fold: bool, k_top: int) -> None:
    """Check types and sizes of the arrays, since the library trusts its arguments."""
    ids, lengths, dropout = batch
    for array in [*weights, *([] if dropout is None else [dropout])]:
        if array.dtype != np.float32:
            raise ValueError(f"an array of {array.dtype} is not float32")
    if lengths.shape != ids.shape[:-1]:
        raise ValueError(f"lengths {lengths.shape} do not fit ids {ids.shape}")
    features = _check_weights(weights, fold, k_top)
    if dropout is not None and dropout.shape != (*ids.shape[:-1], features):
        raise ValueError(f"dropout {dropout.shape} does not fit {ids.shape[:-1]} x {features}")


def _check_weights(weights: ArrayList, fold: bool, k_top: int) -> int:
    """How many features a network of these weights has."""
    embeddings, head_weight, head_bias, *layers = weights
    shapes = [(f.shape, bias.shape) for f, bias in zip(layers[::2], layers[1::2], strict=True)]
    head = head_weight.shape
    features = native.check_network(embeddings.shape[-1], shapes, head, fold, k_top)
    if head[0] != len(head_bias):
        raise ValueError(f"head weight {tuple(head)} does not fit {len(head_bias)} classes")
    return features


def logits(
    ids: Array,
    lengths: Array,
    dropout: Array | None,
    fold: bool,
    k_top: int,
    *weights: Array,
    threads: int = 1,
) -> Floats:
    """Logits (B, classes) of a DCNN for ids (B, s) and lengths (B,), without gradients.

    ``dropout`` (B, features) is a mask on the penultimate layer, or none; ``weights`` are the
    embeddings, the head's weight and bias, then the filters and bias of each layer.
    """
    _check((ids, lengths, dropout), weights, fold, k_top)
    batch = [native.dense(ids, np.int64), native.dense(lengths, np.int64), *_dense([dropout])]
    dense = _dense(weights)
    filters, classes = tuple(values.shape for values in dense[3::2]), len(dense[2])
    structures = (
        _sizes(filters, fold, k_top, len(dense[0]), classes, 1),
        _Batch(*ids.shape, *_places(*batch)),
        _Parameters(dense),
    )
    found: Floats = np.empty((len(ids), classes), np.float32)
    arguments = *map(ctypes.byref, structures), found.ctypes.data, threads
    native.check(native.library().dcnn_training_logits(*arguments))
    return found
