"""The compiled backend in training, on float32 tensors of a CPU: a layer, and whole DCNNs.

``layer`` is that of ``dcnn.ops`` with gradients. ``forward`` and ``backward`` compute a whole DCNN
in one call each: beside the layers, they gather words, change layouts, apply dropout and the output
layer, and compute their gradients. ``network`` is what autograd makes of them. The gradient of the
embeddings is dense, or sparse on demand: of the words of the batch alone, so that nothing goes
through a large table that holds little but zeros.

Sentences are spread over torch's number of threads; the same number gives the same bits.
"""

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dcnn.ops import native
from dcnn.ops.reference import dynamic_k

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
    """``dcnn_parameters``: weights, or the gradients of them."""

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


def _arguments(
    batch: Tensors, fold: bool, k_top: int, weights: Tensors, n_ensemble: int, pooled: Tensors
) -> list[Any]:
    """Sizes, batch, weights, values and positions, as the library takes them."""
    filters, depth = tuple(values.shape for values in weights[3::2]), len(pooled) // 2
    sizes = _sizes(filters, fold, k_top, len(weights[0]), len(weights[2]), n_ensemble)
    structures = sizes, _Batch(*batch[0].shape, *_places(*batch)), _Parameters(weights)
    return [*map(ctypes.byref, structures), _pointers(pooled[:depth]), _pointers(pooled[depth:])]


def forward(
    batch: Sequence[Any], fold: bool, k_top: int, weights: Tensors, n_ensemble: int = 1
) -> tuple[Tensor, list[Tensor]]:
    """Logits, and for ``backward`` the values and then the positions that every layer pooled.

    ``batch`` is ids, lengths and dropout; all but ``n_ensemble`` is as for ``network``. The logits
    are (B, n_ensemble * classes): those of the networks that the rows are an ensemble of.
    """
    ids, lengths, dropout = batch
    if n_ensemble < 1 or weights[-1].shape[-1] % n_ensemble:
        raise ValueError(f"{weights[-1].shape[-1]} rows cannot be divided among {n_ensemble}")
    _check(batch, weights, fold, k_top)
    batch, weights = _dense([ids.long(), lengths.long(), dropout]), _dense(weights)
    biases, new_empty = weights[4::2], weights[0].new_empty
    logits = new_empty(len(ids), n_ensemble * len(weights[2]))
    kept = [dynamic_k(ids.shape[1], i + 1, len(biases), k_top) for i in range(len(biases))]
    values = [new_empty(len(ids), k, *bias.shape) for k, bias in zip(kept, biases, strict=True)]
    pooled = values + [torch.empty_like(value, dtype=torch.int32) for value in values]
    arguments = _arguments(batch, fold, k_top, weights, n_ensemble, pooled)
    threads = torch.get_num_threads()
    native.check(native.library().dcnn_training_forward(*arguments, logits.data_ptr(), threads))
    return logits, pooled


def backward(
    batch: Sequence[Any],
    fold: bool,
    k_top: int,
    weights: Tensors,
    pooled: Tensors,
    of_logits: Tensor,
    n_ensemble: int = 1,
    *,
    sparse: bool = False,
) -> list[Tensor]:
    """The gradients of all weights from that of the logits (B, n_ensemble * classes).

    Arguments are as for ``forward``, which returned ``pooled``. With ``sparse``, so is the gradient
    of the embeddings.
    """
    ids, lengths, dropout = batch
    batch = _dense([ids.long(), lengths.long(), dropout])
    weights, pooled, of_logits = _dense(weights), _dense(pooled), of_logits.contiguous()
    embeddings, *others = weights
    rows = count = None
    if sparse:
        rows, count = torch.empty(ids.numel(), dtype=torch.int64), ctypes.c_int64()
        of_words = embeddings.new_empty(ids.numel(), embeddings.shape[1])
    else:
        of_words = torch.zeros_like(embeddings)
    gradients = [of_words, *map(torch.empty_like, others)]
    status = native.library().dcnn_training_backward(
        *_arguments(batch, fold, k_top, weights, n_ensemble, pooled),
        of_logits.data_ptr(),
        ctypes.byref(_Parameters(gradients)),
        *_places(rows),
        None if count is None else ctypes.byref(count),
        torch.get_num_threads(),
    )
    native.check(status)
    if rows is not None and count is not None:
        gradients[0] = _sparse(rows, of_words, count.value, embeddings.shape)
    return gradients


def batch_words(ids: Tensor, lengths: Tensor, words: int) -> tuple[Tensor, Tensor]:
    """The distinct ids of a batch (B, s), ascending and below ``words``, and ids that number them.

    Past a sentence's end these are 0.
    """
    ids, lengths = _dense([ids.long(), lengths.long()])
    found, local, count = ids.new_empty(ids.numel()), torch.empty_like(ids), ctypes.c_int64()
    batch = _Batch(*ids.shape, *_places(ids, lengths, None))
    pointers = found.data_ptr(), ctypes.byref(count), local.data_ptr()
    native.check(native.library().dcnn_batch_words(ctypes.byref(batch), words, *pointers))
    return found[: count.value], local


def compose(ids: Tensor, bags: tuple[Tensor, Tensor], embeddings: Tensor, ngrams: Tensor) -> Tensor:
    """Vectors (ids, d) of words with character n-grams; see ``reference.compose``."""
    tables, given = (embeddings.numpy(), ngrams.numpy()), (bags[0].numpy(), bags[1].numpy())
    vectors = native.compose(ids.numpy(), given, *tables, torch.get_num_threads())
    return torch.from_numpy(vectors)


def compose_backward(
    ids: Tensor,
    bags: tuple[Tensor, Tensor],
    embeddings: Tensor,
    ngrams: Tensor,
    of_vectors: Tensor,
) -> tuple[Tensor, Tensor]:
    """The gradients of embeddings and n-grams, both sparse, from that of the vectors (ids, d).

    The ids ascend, none comes twice.
    """
    offsets, buckets = _dense(bags)
    of_vectors = of_vectors.contiguous()
    given = native.BagsOfNgrams(len(offsets) - 1, len(ngrams), *_places(offsets, buckets))
    starts, words = offsets.numpy(), ids.numpy()  # numpy takes half the time for a few
    sizes = int((starts[words + 1] - starts[words]).sum()), len(ids) + 1
    of_ngrams, of_words = (embeddings.new_empty(size, embeddings.shape[1]) for size in sizes)
    used, rows = (torch.empty(size, dtype=torch.int64) for size in sizes)
    counts = ctypes.c_int64(), ctypes.c_int64()
    status = native.library().dcnn_compose_backward(
        *(ctypes.byref(given), len(ids), ids.data_ptr(), *embeddings.shape, of_vectors.data_ptr()),
        *(*_places(rows, of_words), ctypes.byref(counts[0])),
        *(*_places(used, of_ngrams), ctypes.byref(counts[1]), torch.get_num_threads()),
    )
    native.check(status)
    return (
        _sparse(rows, of_words, counts[0].value, embeddings.shape),
        _sparse(used, of_ngrams, counts[1].value, ngrams.shape),
    )


def _sparse(rows: Tensor, values: Tensor, count: int, shape: torch.Size) -> Tensor:
    """The first ``count`` rows, which ascend and of which none comes twice."""
    # By the context alone: some releases of torch warn of the argument.
    with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
        return torch.sparse_coo_tensor(rows[None, :count], values[:count], shape, is_coalesced=True)


def cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """The mean cross-entropy with ``targets`` (B, classes), and its gradient (B, classes)."""
    for tensor in (logits, targets, *([] if weights is None else [weights])):
        if tensor.dtype != torch.float32 or tensor.device.type != "cpu":
            raise ValueError(f"a float32 tensor on the CPU is needed; got {tensor.dtype}")
    if logits.shape != targets.shape or (weights is not None and len(weights) != len(logits)):
        raise ValueError(f"logits {logits.shape} and targets {targets.shape} do not agree")
    logits, targets, weights = _dense([logits, targets, weights])
    gradient = torch.empty_like(logits)
    places = _places(logits, targets, weights, gradient)
    loss = native.library().dcnn_cross_entropy(*logits.shape, *places)
    return torch.tensor(loss), gradient


class _Network(torch.autograd.Function):
    """Logits of ``network``, with its arguments."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        """Logits."""
        *batch, ctx.fold, ctx.k_top = given[:5]
        weights = given[5:]
        logits, pooled = forward(batch, ctx.fold, ctx.k_top, weights)
        ctx.pooled_from = 3 + len(weights)
        ctx.save_for_backward(*batch, *weights, *pooled)
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_logits: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of all weights."""
        saved, first = ctx.saved_tensors, ctx.pooled_from
        weights, pooled = saved[3:first], saved[first:]
        gradients = backward(saved[:3], ctx.fold, ctx.k_top, weights, pooled, of_logits)
        return *[None] * 5, *gradients


def _check(batch: Sequence[Any], weights: Tensors, fold: bool, k_top: int) -> None:
    """The library trusts its arguments: sizes, types and places must be those of the tensors."""
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
    embeddings, head_weight, head_bias, *layers = weights
    shapes = [(f.shape, bias.shape) for f, bias in zip(layers[::2], layers[1::2], strict=True)]
    head = head_weight.shape
    features = native.check_network(embeddings.shape[-1], shapes, head, fold, k_top)
    if head[0] != len(head_bias):
        raise ValueError(f"head weight {tuple(head)} does not fit {len(head_bias)} classes")
    if dropout is not None and dropout.shape != (*ids.shape[:-1], features):
        raise ValueError(f"dropout {dropout.shape} does not fit {ids.shape[:-1]} x {features}")


def network(
    ids: Tensor, lengths: Tensor, dropout: Tensor | None, fold: bool, k_top: int, *weights: Tensor
) -> Tensor:
    """Logits (B, classes) of a DCNN for ids (B, s) and lengths (B,).

    ``dropout`` (B, features) is a mask on the penultimate layer, or none; ``weights`` are the
    embeddings, the head's weight and bias, then the filters and bias of each layer.
    """
    logits: Tensor = _Network.apply(  # type: ignore[no-untyped-call]
        ids, lengths, dropout, fold, k_top, *weights
    )
    return logits
