"""The compiled backend in training, on float32 tensors of a CPU: a layer, and whole DCNNs.

``layer`` is that of ``dcnn.ops`` with gradients. ``Learner`` makes a training step of a DCNN one
call, without autograd, and ``logits`` its evaluation; ``update`` is Adagrad for other models.

The work is spread over torch's number of threads; the same number gives the same bits.
"""

import ctypes
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dcnn.ops import native

Tensors = Sequence[Tensor]
_pointer, _long = ctypes.c_void_p, ctypes.c_int64


def _rows_last(tensor: Tensor) -> Tensor:
    """(B, n, d, s) as the library keeps it, (B, s, n, d); most often a view."""
    return tensor.permute(0, 3, 1, 2).contiguous()


class _Layer(torch.autograd.Function):
    """Arguments as ``layer``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
        """Values and positions."""
        lengths, filters, bias, k, ctx.fold, width = others
        x = _rows_last(x)
        lengths, filters, k = _dense([lengths, filters, k])
        given = x.permute(0, 2, 3, 1), lengths, filters, bias, k
        arguments: list[Any] = [tensor.detach().numpy() for tensor in given]
        arguments += [ctx.fold, width, torch.get_num_threads()]
        values, positions = map(torch.from_numpy, native.layer(*arguments))
        ctx.save_for_backward(x, lengths, filters, k, values, positions)
        ctx.mark_non_differentiable(positions)
        return values, positions

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_values: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of input, filters and bias."""
        x, lengths, filters, k, *pooled = ctx.saved_tensors
        values, positions, of_values = map(_rows_last, (*pooled, of_values))
        sizes = native.layer_sizes(filters.shape, ctx.fold)
        of_x, of_filters = torch.empty_like(x), torch.empty_like(filters)
        of_bias = values.new_empty(values.shape[2:])
        status = native.library().dcnn_layer_backward(
            ctypes.byref(sizes),
            *x.shape[:2],
            *_places(x, lengths, filters, k),
            values.shape[1],
            *_places(values, positions, of_values, of_x, of_filters, of_bias),
            torch.get_num_threads(),
        )
        native.check(status)
        return of_x.permute(0, 2, 3, 1), None, of_filters, of_bias, *[None] * 3


def _places(*tensors: Tensor | None) -> list[int | None]:
    return [None if tensor is None else tensor.data_ptr() for tensor in tensors]


def _dense(tensors: Sequence[Any]) -> list[Any]:
    return [None if tensor is None else tensor.contiguous() for tensor in tensors]


def layer(
    x: Tensor,
    lengths: Tensor,
    filters: Tensor,
    bias: Tensor,
    k: Tensor,
    fold_rows: bool,
    width: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Wide convolution, folding, dynamic k-max pooling, bias and tanh; see ``dcnn.ops``."""
    width = int(k.max()) if width is None else width
    pooled: tuple[Tensor, Tensor] = _Layer.apply(  # type: ignore[no-untyped-call]
        x, lengths, filters, bias, k, fold_rows, width
    )
    return pooled


class _Sizes(ctypes.Structure):
    """``dcnn_sizes`` of the C interface."""

    _fields_ = [
        *((name, _long) for name in ("depth", "k_top", "vocabulary", "classes", "n_ensemble")),
        ("layers", _pointer),
    ]

    def __init__(self, filters: tuple[torch.Size, ...], fold: bool, *others: int) -> None:
        shapes = (native.layer_sizes(shape, fold) for shape in filters)
        self.array = (native.LayerSizes * len(filters))(*shapes)  # keeps it in memory
        super().__init__(len(filters), *others, ctypes.addressof(self.array))


_sizes = lru_cache(maxsize=64)(_Sizes)


class _Parameters(ctypes.Structure):
    """``dcnn_parameters``: the weights."""

    _fields_ = [
        (name, _pointer) for name in ("embeddings", "filters", "biases", "head_weight", "head_bias")
    ]

    def __init__(self, weights: Tensors) -> None:
        embeddings, *head = _places(*weights[:3])
        self.layers = _pointers(weights[3::2]), _pointers(weights[4::2])  # keeps them in memory
        super().__init__(embeddings, *map(ctypes.addressof, self.layers), *head)


class _Batch(ctypes.Structure):
    """``dcnn_batch``."""

    _fields_ = [
        *((name, _long) for name in ("sentences", "columns")),
        *((name, _pointer) for name in ("ids", "lengths", "dropout")),
    ]


def _pointers(tensors: Tensors) -> Any:
    return native.array_of(_pointer, len(tensors))(*_places(*tensors))


def compose(ids: Tensor, bags: tuple[Tensor, Tensor], embeddings: Tensor, ngrams: Tensor) -> Tensor:
    """Vectors (ids, d) of words with character n-grams; see ``reference.compose``."""
    tables, given = (embeddings.numpy(), ngrams.numpy()), (bags[0].numpy(), bags[1].numpy())
    vectors = native.compose(ids.numpy(), given, *tables, torch.get_num_threads())
    return torch.from_numpy(vectors)


def draw_mask(mask: Tensor, keep: float, generator: torch.Generator) -> Tensor:
    """Fill ``mask`` with 1 / keep with probability ``keep``, else 0, as torch would draw it."""
    state = generator.get_state()
    value = float(np.float32(1) / np.float32(keep))
    places = state.data_ptr(), keep, value, mask.data_ptr()
    native.library().dcnn_draw_mask(*places, mask.numel())
    generator.set_state(state)
    return mask


def _sparse(rows: Tensor, values: Tensor, shape: torch.Size) -> Tensor:
    """A sparse tensor of distinct rows, in ascending order."""
    # By the context manager: some releases of torch warn about the argument.
    with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
        return torch.sparse_coo_tensor(rows[None], values, shape, is_coalesced=True)


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
        self, value: Tensor, total: Tensor, average: Tensor | None = None, *numbers: float
    ) -> None:
        """``numbers`` are L2 and decay."""
        self.tensors = value, total, average  # keeps them in memory
        found = [tensor for tensor in self.tensors if tensor is not None]
        kinds = {(one.dtype, one.device.type, one.is_contiguous()) for one in found}
        if kinds != {(torch.float32, "cpu", True)}:
            raise ValueError(f"a dense float32 tensor is needed; got {value.dtype}")
        sizes = len(value), value.numel() // max(len(value), 1)
        super().__init__(*_places(*self.tensors), *sizes, *numbers)


class Rates(ctypes.Structure):
    """``dcnn_rates``: learning rate, eps, largest norm and share of the newest in an average."""

    _fields_ = [(name, ctypes.c_double) for name in ("rate", "eps", "largest_norm", "fresh")]


def update(parameters: Sequence[Parameter], gradients: Tensors, rates: Rates) -> float:
    """One update in place; returns the norm of the gradients, 0 if ``largest_norm`` is infinite.

    A sparse gradient gives the same update as a dense one with zeros in all other rows. These rows
    are skipped if neither L2, decay nor an average changes them.
    """
    array, kept = native.array_of(Parameter, len(parameters))(*parameters), []
    for own, gradient in zip(array, gradients, strict=True):
        values, rows = gradient, None
        if gradient.is_sparse:
            values = gradient.coalesce()
            rows, values = values.indices()[0].contiguous(), values.values()
        values = values.contiguous()
        if values.dtype != torch.float32 or gradient.numel() != own.rows * own.dim:
            wanted, received = f"{own.rows} x {own.dim}", f"{gradient.dtype} {gradient.shape}"
            raise ValueError(f"a gradient of {wanted} in float32 is needed; got {received}")
        own.gradient, own.used = _places(values, rows)
        own.count = own.rows if rows is None else len(rows)
        kept.append((values, rows))
    norm = ctypes.c_double()
    pointers = ctypes.byref(rates), ctypes.byref(norm)
    threads = torch.get_num_threads()
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
        bags: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self._parameters = parameters  # keeps them in memory
        weights = [parameter.tensors[0] for parameter in parameters]
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
            if (offsets.dtype, buckets.dtype) != (torch.int64, torch.int32):
                raise ValueError(f"bags are int64 and int32; got {offsets.dtype}, {buckets.dtype}")
            if ngrams.shape[1] != weights[0].shape[1] or int(offsets[-1]) > len(buckets):
                raise ValueError(f"n-grams {tuple(ngrams.shape)} do not fit in")
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
        self, batch: Sequence[Any], targets: Tensor, weights: Tensor | None, rates: Rates
    ) -> tuple[float, float]:
        """Update the parameters; returns the mean loss, and the norm as ``update`` does.

        ``batch`` is ids (B, s), lengths (B,) and dropout (B, features) or none; ``targets`` are
        (B, classes), and ``weights`` (B,) or none.
        """
        given, threads = self._given(batch, targets, weights), torch.get_num_threads()
        pointers = *given, ctypes.byref(rates), *self._results
        native.check(self._step(self._handle, *pointers, threads))
        return self._loss.value, self._norm.value

    def gradients(
        self, batch: Sequence[Any], targets: Tensor, weights: Tensor | None
    ) -> tuple[float, list[Tensor]]:
        """The loss, and the gradients of the parameters in their order.

        Gradients of embeddings and n-grams are sparse: they have the rows that the batch uses.
        """
        given, threads = self._given(batch, targets, weights), torch.get_num_threads()
        found = native.array_of(Parameter, len(self._parameters))()
        gradients = native.library().dcnn_learner_gradients
        native.check(gradients(self._handle, *given, self._results[0], found, threads))
        shapes = [parameter.tensors[0].shape for parameter in self._parameters]
        return self._loss.value, list(map(_gradient, found, shapes))

    def _given(self, batch: Sequence[Any], targets: Tensor, weights: Tensor | None) -> list[Any]:
        """The batch as the library takes it."""
        ids, lengths, dropout = batch
        sentences, floats = ids.shape[0], [dropout, targets, weights]
        shapes = (sentences, self._features), (sentences, self._classes), (sentences,)
        for tensor, shape in zip(floats, shapes, strict=True):
            if tensor is not None and (tensor.dtype != torch.float32 or tensor.shape != shape):
                raise ValueError(f"float32 of {shape} is needed; got {tensor.dtype} {tensor.shape}")
        if lengths.shape != ids.shape[:-1]:
            raise ValueError(f"lengths {lengths.shape} do not fit ids {ids.shape}")
        kept = _dense([ids.long(), lengths.long(), *floats])
        places = _places(*kept)
        structures = _Batch(*ids.shape, *places[:3]), _Targets(*places[3:], self._multi_label)
        structures[0].kept = kept  # in memory
        return list(map(ctypes.byref, structures))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._free(self._handle)


def _gradient(found: Parameter, shape: torch.Size) -> Tensor:
    """A copy of a gradient in the library's memory, sparse where not all rows have one."""

    def copied(address: int, kind: Any, *sizes: int) -> Tensor:
        size = np.dtype(kind).itemsize * math.prod(sizes)
        data = ctypes.string_at(address, size) if size else b""
        return torch.from_numpy(np.frombuffer(data, kind).reshape(sizes).copy())

    if not found.used and found.count == found.rows:
        return copied(found.gradient, np.float32, *shape)
    rows = copied(found.used, np.int64, found.count)
    return _sparse(rows, copied(found.gradient, np.float32, found.count, shape[1]), shape)


def _check(batch: Sequence[Any], weights: Tensors, fold: bool, k_top: int) -> None:
    """Check devices, types and sizes of the tensors, since the library trusts its arguments."""
    ids, lengths, dropout = batch
    floats = [*weights, *([] if dropout is None else [dropout])]
    for tensor in (ids, lengths, *floats):
        if tensor.device.type != "cpu":
            raise ValueError(f"a tensor on {tensor.device} is not on the CPU")
    for tensor in floats:
        if tensor.dtype != torch.float32:
            raise ValueError(f"a tensor of {tensor.dtype} is not float32")
    if lengths.shape != ids.shape[:-1]:
        raise ValueError(f"lengths {lengths.shape} do not fit ids {ids.shape}")
    features = _check_weights(weights, fold, k_top)
    if dropout is not None and dropout.shape != (*ids.shape[:-1], features):
        raise ValueError(f"dropout {dropout.shape} does not fit {ids.shape[:-1]} x {features}")


def _check_weights(weights: Tensors, fold: bool, k_top: int) -> int:
    """How many features a network of these weights has."""
    embeddings, head_weight, head_bias, *layers = weights
    shapes = [(f.shape, bias.shape) for f, bias in zip(layers[::2], layers[1::2], strict=True)]
    head = head_weight.shape
    features = native.check_network(embeddings.shape[-1], shapes, head, fold, k_top)
    if head[0] != len(head_bias):
        raise ValueError(f"head weight {tuple(head)} does not fit {len(head_bias)} classes")
    return features


@torch.no_grad()
def logits(
    ids: Tensor, lengths: Tensor, dropout: Tensor | None, fold: bool, k_top: int, *weights: Tensor
) -> Tensor:
    """Logits (B, classes) of a DCNN for ids (B, s) and lengths (B,), without gradients.

    ``dropout`` (B, features) is a mask on the penultimate layer, or none; ``weights`` are the
    embeddings, the head's weight and bias, then the filters and bias of each layer.
    """
    _check((ids, lengths, dropout), weights, fold, k_top)
    batch, dense = _dense([ids.long(), lengths.long(), dropout]), _dense(weights)
    filters, classes = tuple(values.shape for values in dense[3::2]), len(dense[2])
    structures = (
        _sizes(filters, fold, k_top, len(dense[0]), classes, 1),
        _Batch(*ids.shape, *_places(*batch)),
        _Parameters(dense),
    )
    found: Tensor = dense[0].new_empty(len(ids), classes)
    arguments = *map(ctypes.byref, structures), found.data_ptr(), torch.get_num_threads()
    native.check(native.library().dcnn_training_logits(*arguments))
    return found
