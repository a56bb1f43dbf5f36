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


def _rows_last(tensor: Tensor) -> Tensor:
    """(B, n, d, s) as the library keeps it, (B, s, n, d); most often a view."""
    return tensor.permute(0, 3, 1, 2).contiguous()


class _Layer(torch.autograd.Function):
    """Arguments as ``layer``."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        lengths: Tensor,
        filters: Tensor,
        bias: Tensor,
        k: Tensor,
        fold: bool,
        width: int,
    ) -> tuple[Tensor, Tensor]:
        """Values and positions."""
        x, filters, bias = _rows_last(x), filters.contiguous(), bias.contiguous()
        lengths, k = lengths.contiguous(), k.contiguous()
        sizes = native.layer_sizes(filters.shape, fold)
        values = x.new_empty(len(x), width, *bias.shape)
        positions = torch.empty_like(values, dtype=torch.int32)
        native.check(
            native.library().dcnn_layer_forward(
                ctypes.addressof(sizes),
                *x.shape[:2],
                *_places(x, lengths, filters, bias, k),
                width,
                *_places(values, positions),
                torch.get_num_threads(),
            )
        )
        ctx.fold = fold
        ctx.save_for_backward(x, lengths, filters, k, values, positions)
        ctx.mark_non_differentiable(positions)
        return values.permute(0, 2, 3, 1), positions.permute(0, 2, 3, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_values: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of input, filters and bias."""
        x, lengths, filters, k, values, positions = ctx.saved_tensors
        gradient_values = _rows_last(gradient_values)
        sizes = native.layer_sizes(filters.shape, ctx.fold)
        of_x, of_filters = torch.empty_like(x), torch.empty_like(filters)
        of_bias = values.new_empty(values.shape[2:])
        native.check(
            native.library().dcnn_layer_backward(
                ctypes.addressof(sizes),
                *x.shape[:2],
                *_places(x, lengths, filters, k),
                values.shape[1],
                *_places(values, positions, gradient_values, of_x, of_filters, of_bias),
                torch.get_num_threads(),
            )
        )
        return of_x.permute(0, 2, 3, 1), None, of_filters, of_bias, *[None] * 3


def _places(*tensors: Tensor) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]


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


_pointer, _long = ctypes.c_void_p, ctypes.c_int64


class _Sizes(ctypes.Structure):
    """``dcnn_sizes`` of the C interface."""

    _fields_ = [
        *((name, _long) for name in ("depth", "k_top", "vocabulary", "classes", "members")),
        ("layers", _pointer),
    ]


class _Parameters(ctypes.Structure):
    """``dcnn_parameters``."""

    _fields_ = [
        (name, _pointer) for name in ("embeddings", "filters", "biases", "head_weight", "head_bias")
    ]


class _Batch(ctypes.Structure):
    """``dcnn_batch``."""

    _fields_ = [
        ("sentences", _long),
        ("columns", _long),
        *((name, _pointer) for name in ("ids", "lengths", "dropout")),
    ]


@lru_cache(maxsize=64)
def _sizes(
    filters: tuple[torch.Size, ...],
    fold: bool,
    k_top: int,
    vocabulary: int,
    classes: int,
    n_ensemble: int,
) -> tuple[_Sizes, Any]:
    """The sizes of a network, and the array that they point to."""
    shapes = (native.LayerSizes * len(filters))(
        *(native.layer_sizes(shape, fold) for shape in filters)
    )
    place = ctypes.addressof(shapes)
    return _Sizes(len(filters), k_top, vocabulary, classes, n_ensemble, place), shapes


class _Call:
    """The arguments of a call as the library takes them, and what keeps their memory alive."""

    def __init__(
        self, batch: Sequence[Tensor | None], fold: bool, k_top: int, n_ensemble: int
    ) -> None:
        self._alive: list[Any] = [batch]
        self._batch, self._fold, self._k_top, self._n_ensemble = batch, fold, k_top, n_ensemble

    def sizes(self, weights: Sequence[Tensor]) -> int:
        """``weights`` are embeddings, head weight and bias, then filters and bias of each layer."""
        embeddings, _, head_bias, *layers = weights
        shapes = tuple(filters.shape for filters in layers[::2])
        counts = len(embeddings), len(head_bias), self._n_ensemble
        return self._address(*_sizes(shapes, self._fold, self._k_top, *counts))

    def batch(self) -> int:
        """Ids (B, s), lengths (B,) and dropout."""
        ids, lengths, dropout = self._batch
        assert ids is not None and lengths is not None  # noqa: S101, PT018
        mask = None if dropout is None else dropout.data_ptr()
        return self._address(_Batch(*ids.shape, ids.data_ptr(), lengths.data_ptr(), mask))

    def parameters(self, weights: Sequence[Tensor]) -> int:
        """Weights, or the gradients of them."""
        embeddings, head_weight, head_bias, *layers = weights
        filters, biases = self._array(layers[::2]), self._array(layers[1::2])
        parameters = _Parameters(
            embeddings.data_ptr(),
            ctypes.addressof(filters),
            ctypes.addressof(biases),
            head_weight.data_ptr(),
            head_bias.data_ptr(),
        )
        return self._address(parameters, weights)

    def pointers(self, tensors: Sequence[Tensor]) -> int:
        """An array of the places of ``tensors``."""
        return self._address(self._array(tensors))

    def _array(self, tensors: Sequence[Tensor]) -> Any:
        kind = native.array_of(_pointer, len(tensors))
        array = kind(*(tensor.data_ptr() for tensor in tensors))
        self._alive.append(array)
        return array

    def _address(self, structure: Any, *more: Any) -> int:
        self._alive += [structure, *more]
        return ctypes.addressof(structure)


def _dense(tensors: Sequence[Any]) -> list[Any]:
    return [None if tensor is None else tensor.contiguous() for tensor in tensors]


def forward(
    batch: Sequence[Any], fold: bool, k_top: int, weights: Sequence[Tensor], n_ensemble: int = 1
) -> tuple[Tensor, list[Tensor]]:
    """Logits, and for ``backward`` the values and then the positions that every layer pooled.

    The logits are (B, n_ensemble * classes), one network after the other.

    Args:
        batch: ids, lengths and dropout, as for ``network``.
        fold: whether every layer folds.
        k_top: values that each row keeps at the top.
        weights: as for ``network``.
        n_ensemble: networks that the rows are an ensemble of, each with logits of its own.
    """
    ids, lengths, dropout = batch
    if n_ensemble < 1 or weights[-1].shape[-1] % n_ensemble:
        raise ValueError(f"{weights[-1].shape[-1]} rows cannot be divided among {n_ensemble}")
    _check(ids, lengths, dropout, weights, fold, k_top)
    batch, weights = _dense([ids.long(), lengths.long(), dropout]), _dense(weights)
    layers, depth = weights[3:], len(weights[3:]) // 2
    logits = weights[0].new_empty(len(ids), n_ensemble * len(weights[2]))
    kept = [dynamic_k(ids.shape[-1], number, depth, k_top) for number in range(1, depth + 1)]
    values = [
        weights[0].new_empty(len(ids), k, *bias.shape)
        for k, bias in zip(kept, layers[1::2], strict=True)
    ]
    positions = [torch.empty_like(value, dtype=torch.int32) for value in values]
    call = _Call(batch, fold, k_top, n_ensemble)
    native.check(
        native.library().dcnn_training_forward(
            call.sizes(weights),
            call.batch(),
            call.parameters(weights),
            call.pointers(values),
            call.pointers(positions),
            logits.data_ptr(),
            torch.get_num_threads(),
        )
    )
    return logits, [*values, *positions]


def backward(
    batch: Sequence[Any],
    fold: bool,
    k_top: int,
    weights: Sequence[Tensor],
    pooled: Sequence[Tensor],
    gradient_logits: Tensor,
    n_ensemble: int = 1,
    *,
    sparse: bool = False,
) -> list[Tensor]:
    """The gradients of all weights from that of the logits.

    Args:
        batch: as for ``forward``; so are ``fold``, ``k_top``, ``weights`` and ``n_ensemble``.
        fold: see there.
        k_top: see there.
        weights: see there.
        pooled: what ``forward`` returned beside the logits.
        gradient_logits: (B, n_ensemble * classes).
        n_ensemble: see there.
        sparse: whether the gradient of the embeddings is sparse.
    """
    ids, lengths, dropout = batch
    batch = _dense([ids.long(), lengths.long(), dropout])
    weights, pooled = _dense(weights), _dense(pooled)
    gradient_logits = gradient_logits.contiguous()
    embeddings, *others = weights
    if sparse:
        rows, count = torch.empty(ids.numel(), dtype=torch.int64), ctypes.c_int64()
        of_words = embeddings.new_empty(ids.numel(), embeddings.shape[1])
        sparsely: tuple[int | None, int | None] = rows.data_ptr(), ctypes.addressof(count)
    else:
        of_words, sparsely = torch.zeros_like(embeddings), (None, None)
    gradients = [of_words, *map(torch.empty_like, others)]
    call = _Call(batch, fold, k_top, n_ensemble)
    native.check(
        native.library().dcnn_training_backward(
            call.sizes(weights),
            call.batch(),
            call.parameters(weights),
            call.pointers(pooled[: len(pooled) // 2]),
            call.pointers(pooled[len(pooled) // 2 :]),
            gradient_logits.data_ptr(),
            call.parameters(gradients),
            *sparsely,
            torch.get_num_threads(),
        )
    )
    if sparse:
        # By the context alone: some releases of torch warn of the argument.
        with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
            gradients[0] = torch.sparse_coo_tensor(
                rows[None, : count.value],
                of_words[: count.value],
                embeddings.shape,
                is_coalesced=True,  # the ids ascend, and none comes twice
            )
    return gradients


def cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """The mean cross-entropy with ``targets`` (B, classes), and its gradient (B, classes)."""
    given = [logits, targets, *([] if weights is None else [weights])]
    for tensor in given:
        if tensor.dtype != torch.float32 or tensor.device.type != "cpu":
            raise ValueError(f"a float32 tensor on the CPU is needed; got {tensor.dtype}")
    if logits.shape != targets.shape or (weights is not None and len(weights) != len(logits)):
        raise ValueError(f"logits {logits.shape} and targets {targets.shape} do not agree")
    logits, targets, weights = _dense([logits, targets, weights])
    gradient = torch.empty_like(logits)
    loss = native.library().dcnn_cross_entropy(
        *logits.shape,
        logits.data_ptr(),
        targets.data_ptr(),
        None if weights is None else weights.data_ptr(),
        gradient.data_ptr(),
    )
    return torch.tensor(loss), gradient


class _Network(torch.autograd.Function):
    """Logits of ``network``."""

    @staticmethod
    def forward(
        ctx: Any,
        ids: Tensor,
        lengths: Tensor,
        dropout: Tensor | None,
        fold: bool,
        k_top: int,
        *weights: Tensor,
    ) -> Tensor:
        """``weights`` as in ``_Call.sizes``."""
        logits, pooled = forward([ids, lengths, dropout], fold, k_top, weights)
        ctx.fold, ctx.k_top, ctx.weights = fold, k_top, len(weights)
        ctx.save_for_backward(ids, lengths, dropout, *weights, *pooled)
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_logits: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of all weights."""
        saved, first = ctx.saved_tensors, 3 + ctx.weights
        gradients = backward(
            saved[:3], ctx.fold, ctx.k_top, saved[3:first], saved[first:], gradient_logits
        )
        return *[None] * 5, *gradients


def _check(
    ids: Tensor,
    lengths: Tensor,
    dropout: Tensor | None,
    weights: Sequence[Tensor],
    fold: bool,
    k_top: int,
) -> None:
    """The library trusts its arguments: sizes, types and places must be those of the tensors."""
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
    shapes = [
        (filters.shape[-4:], bias.shape[-2:])
        for filters, bias in zip(layers[::2], layers[1::2], strict=True)
    ]
    head = head_weight.shape
    features = native.check_network(embeddings.shape[-1], shapes, head, fold, k_top)
    if head[0] != len(head_bias):
        raise ValueError(f"head weight {tuple(head)} does not fit {len(head_bias)} classes")
    if dropout is not None and dropout.shape != (*ids.shape[:-1], features):
        raise ValueError(f"dropout {dropout.shape} does not fit {ids.shape[:-1]} x {features}")


def network(
    ids: Tensor,
    lengths: Tensor,
    dropout: Tensor | None,
    fold: bool,
    k_top: int,
    *weights: Tensor,
) -> Tensor:
    """Logits (B, classes) of a DCNN.

    Args:
        ids: (B, s).
        lengths: (B,).
        dropout: (B, features), a mask on the penultimate layer, or none.
        fold: whether every layer folds.
        k_top: values that each row keeps at the top.
        weights: embeddings, head weight, head bias, then filters and bias of each layer.
    """
    logits: Tensor = _Network.apply(  # type: ignore[no-untyped-call]
        ids, lengths, dropout, fold, k_top, *weights
    )
    return logits
