"""The compiled layer in training: ``layer`` of ``dcnn.ops`` on float32 tensors of a CPU.

As in ``triton_backend``, filters and bias may carry a leading axis of runs, (R, o, n, d, m) and
(R, o, d'), and the sentences are then R groups of equal size: under ``torch.func.vmap`` that is how
a stack of runs is computed. Sentences are spread over torch's number of threads; as many threads
give the same bits.


A whole DCNN in training on a CPU: one call of the library forward, one back.

Beside the layers, this spares the steps between them: gathering words,
changing layouts, dropout, the fully connected top, and their gradients. All tensors may carry a
leading axis of runs; under ``torch.func.vmap`` the mapped axis is that axis.

``forward`` and ``backward`` are the two calls; ``network`` is what autograd makes of them. The
gradient of the embeddings is dense, or on demand sparse: the words of the batch alone, so that
nothing goes through a large table that holds little but zeros.

"""

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dcnn.ops import native
from dcnn.ops import torch_backend as fused
from dcnn.ops.reference import dynamic_k


def _rows_last(tensor: Tensor) -> Tensor:
    """(B, n, d, s) as the library keeps it, (B, s, n, d); most often a view."""
    return tensor.permute(0, 3, 1, 2).contiguous()


class _Layer(torch.autograd.Function):
    """Arguments as ``layer``; filters and bias always with an axis of runs."""

    @staticmethod
    def forward(
        x: Tensor, lengths: Tensor, filters: Tensor, bias: Tensor, k: Tensor, fold: bool, width: int
    ) -> tuple[Tensor, Tensor]:
        """Values and positions."""
        x, filters, bias = _rows_last(x), filters.contiguous(), bias.contiguous()
        lengths, k = lengths.contiguous(), k.contiguous()
        runs, sentences = len(filters), len(x) // len(filters)
        sizes = native.layer_sizes(filters.shape[1:], fold)
        values = x.new_empty(len(x), width, *bias.shape[1:])
        positions = torch.empty_like(values, dtype=torch.int32)
        for run in range(runs):
            first = run * sentences
            native.check(
                native.library().dcnn_layer_forward(
                    ctypes.addressof(sizes),
                    sentences,
                    x.shape[1],
                    x[first].data_ptr(),
                    lengths[first].data_ptr(),
                    filters[run].data_ptr(),
                    bias[run].data_ptr(),
                    k[first].data_ptr(),
                    width,
                    values[first].data_ptr(),
                    positions[first].data_ptr(),
                    torch.get_num_threads(),
                )
            )
        return values.permute(0, 2, 3, 1), positions.permute(0, 2, 3, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep what the backward pass needs."""
        x, lengths, filters, _, k, ctx.fold, _ = inputs
        values, positions = output
        ctx.mark_non_differentiable(positions)
        ctx.save_for_backward(x, lengths, filters, k, values, positions)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_values: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of input, filters and bias."""
        x, lengths, filters, k, values, positions = ctx.saved_tensors
        x, filters = _rows_last(x), filters.contiguous()
        lengths, k = lengths.contiguous(), k.contiguous()
        values, positions = _rows_last(values), _rows_last(positions)
        gradient_values = _rows_last(gradient_values)
        runs, sentences = len(filters), len(x) // len(filters)
        sizes = native.layer_sizes(filters.shape[1:], ctx.fold)
        gradient_x, gradient_filters = torch.empty_like(x), torch.empty_like(filters)
        gradient_bias = values.new_empty(runs, *values.shape[2:])
        for run in range(runs):
            first = run * sentences
            native.check(
                native.library().dcnn_layer_backward(
                    ctypes.addressof(sizes),
                    sentences,
                    x.shape[1],
                    x[first].data_ptr(),
                    lengths[first].data_ptr(),
                    filters[run].data_ptr(),
                    k[first].data_ptr(),
                    values.shape[1],
                    values[first].data_ptr(),
                    positions[first].data_ptr(),
                    gradient_values[first].data_ptr(),
                    gradient_x[first].data_ptr(),
                    gradient_filters[run].data_ptr(),
                    gradient_bias[run].data_ptr(),
                    torch.get_num_threads(),
                )
            )
        return gradient_x.permute(0, 2, 3, 1), None, gradient_filters, gradient_bias, *[None] * 3

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *arguments: Any
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        """A mapped axis is the axis of runs."""
        return fused.call_mapped(_Layer, info.batch_size, in_dims, arguments)


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
    return fused.call(_Layer, x, lengths, filters, bias, k, fold_rows, width)


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
        (name, _pointer) for name in ("embeddings", "filters", "biases", "top_weight", "top_bias")
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
    """The arguments of one run as the library takes them, and what keeps their memory alive."""

    def __init__(
        self, batch: Sequence[Tensor | None], fold: bool, k_top: int, n_ensemble: int
    ) -> None:
        self._alive: list[Any] = [batch]
        self._batch, self._fold, self._k_top, self._n_ensemble = batch, fold, k_top, n_ensemble

    def sizes(self, weights: Sequence[Tensor]) -> int:
        """``weights`` are embeddings, top weight and bias, then filters and bias of each layer."""
        embeddings, _, top_bias, *layers = weights
        shapes = tuple(filters.shape for filters in layers[::2])
        counts = len(embeddings), len(top_bias), self._n_ensemble
        return self._address(*_sizes(shapes, self._fold, self._k_top, *counts))

    def batch(self) -> int:
        """Ids (B, s), lengths (B,) and dropout."""
        ids, lengths, dropout = self._batch
        assert ids is not None and lengths is not None  # noqa: S101, PT018
        mask = None if dropout is None else dropout.data_ptr()
        return self._address(_Batch(*ids.shape, ids.data_ptr(), lengths.data_ptr(), mask))

    def parameters(self, weights: Sequence[Tensor]) -> int:
        """Weights, or the gradients of them."""
        embeddings, top_weight, top_bias, *layers = weights
        filters, biases = self._array(layers[::2]), self._array(layers[1::2])
        parameters = _Parameters(
            embeddings.data_ptr(),
            ctypes.addressof(filters),
            ctypes.addressof(biases),
            top_weight.data_ptr(),
            top_bias.data_ptr(),
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


def _runs(ids: Tensor) -> range | list[None]:
    """The numbers of the runs; without an axis of runs, one that has none."""
    return range(len(ids)) if ids.dim() == 3 else [None]


def _of_run(run: int | None, tensors: Sequence[Any]) -> list[Any]:
    return [tensor if tensor is None or run is None else tensor[run] for tensor in tensors]


def forward(
    batch: Sequence[Any], fold: bool, k_top: int, weights: Sequence[Tensor], n_ensemble: int = 1
) -> tuple[Tensor, list[Tensor]]:
    """Logits, and for the way back the values and then the positions that every layer pooled.

    The logits are (B, members * classes), one member after the other; see
    ``SentenceModel.divide``.

    Args:
        batch: ids, lengths and dropout, as for ``network``.
        fold: whether every layer folds.
        k_top: values a row keeps at the top.
        weights: as for ``network``.
        n_ensemble: parts of the rows with logits of their own.
    """
    ids, lengths, dropout = batch
    if n_ensemble < 1 or weights[-1].shape[-1] % n_ensemble:
        raise ValueError(f"{weights[-1].shape[-1]} rows cannot be divided among {n_ensemble}")
    _check(ids, lengths, dropout, weights, fold, k_top)
    batch, weights = _dense([ids.long(), lengths.long(), dropout]), _dense(weights)
    layers, depth = weights[3:], len(weights[3:]) // 2
    logits = weights[0].new_empty(*ids.shape[:-1], n_ensemble * weights[2].shape[-1])
    kept = [dynamic_k(ids.shape[-1], number, depth, k_top) for number in range(1, depth + 1)]
    values = [
        weights[0].new_empty(*ids.shape[:-1], k, *bias.shape[-2:])
        for k, bias in zip(kept, layers[1::2], strict=True)
    ]
    positions = [torch.empty_like(value, dtype=torch.int32) for value in values]
    for run in _runs(ids):
        call, own = _Call(_of_run(run, batch), fold, k_top, n_ensemble), _of_run(run, weights)
        native.check(
            native.library().dcnn_training_forward(
                call.sizes(own),
                call.batch(),
                call.parameters(own),
                call.pointers(_of_run(run, values)),
                call.pointers(_of_run(run, positions)),
                _of_run(run, [logits])[0].data_ptr(),
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
        batch: as for ``forward``, as all that follows.
        fold: likewise.
        k_top: likewise.
        weights: likewise.
        pooled: what ``forward`` gave beside the logits.
        gradient_logits: (B, members * classes).
        n_ensemble: likewise.
        sparse: whether the gradient of the embeddings is sparse; not with an axis of runs.
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
    for run in _runs(ids):
        call, own = _Call(_of_run(run, batch), fold, k_top, n_ensemble), _of_run(run, weights)
        kept = _of_run(run, pooled)
        native.check(
            native.library().dcnn_training_backward(
                call.sizes(own),
                call.batch(),
                call.parameters(own),
                call.pointers(kept[: len(kept) // 2]),
                call.pointers(kept[len(kept) // 2 :]),
                _of_run(run, [gradient_logits])[0].data_ptr(),
                call.parameters(_of_run(run, gradients)),
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
    """Logits, and for the way back what every layer pooled."""

    @staticmethod
    def forward(
        ids: Tensor,
        lengths: Tensor,
        dropout: Tensor | None,
        fold: bool,
        k_top: int,
        *weights: Tensor,
    ) -> tuple[Tensor, ...]:
        """``weights`` as in ``_Call.sizes``."""
        logits, pooled = forward([ids, lengths, dropout], fold, k_top, weights)
        return logits, *pooled

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep what the backward pass needs."""
        ids, lengths, dropout, ctx.fold, ctx.k_top, *weights = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.weights = len(weights)
        ctx.save_for_backward(ids, lengths, dropout, *weights, *output[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_logits: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of all weights."""
        saved, first = ctx.saved_tensors, 3 + ctx.weights
        gradients = backward(
            saved[:3], ctx.fold, ctx.k_top, saved[3:first], saved[first:], gradient_logits
        )
        return *[None] * 5, *gradients

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *arguments: Any
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """A mapped axis is the axis of runs."""

        def mapped(value: Any, dim: int | None) -> Any:
            if not isinstance(value, Tensor):
                return value
            if dim is None:
                return value.expand(info.batch_size, *value.shape)
            return value.movedim(dim, 0)

        outputs = _Network.apply(  # type: ignore[no-untyped-call]
            *(mapped(value, dim) for value, dim in zip(arguments, in_dims, strict=True))
        )
        return outputs, (0,) * len(outputs)


def _check(
    ids: Tensor,
    lengths: Tensor,
    dropout: Tensor | None,
    weights: Sequence[Tensor],
    fold: bool,
    k_top: int,
) -> None:
    """The library trusts what it is told: sizes, types and places must be those of the tensors."""
    floats = [*weights, *([] if dropout is None else [dropout])]
    for tensor in (ids, lengths, *floats):
        if tensor.device.type != "cpu":
            raise ValueError(f"a tensor on {tensor.device} is not on the CPU")
    for tensor in floats:
        if tensor.dtype != torch.float32:
            raise ValueError(f"a tensor of {tensor.dtype} is not float32")
    if lengths.shape != ids.shape[:-1]:
        raise ValueError(f"lengths {lengths.shape} do not fit ids {ids.shape}")
    embeddings, top_weight, top_bias, *layers = weights
    shapes = [
        (filters.shape[-4:], bias.shape[-2:])
        for filters, bias in zip(layers[::2], layers[1::2], strict=True)
    ]
    top = top_weight.shape[-2:]
    features = native.check_network(embeddings.shape[-1], shapes, top, fold, k_top)
    if top[0] != top_bias.shape[-1]:
        raise ValueError(f"top weight {top} does not fit {top_bias.shape[-1]} classes")
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
        k_top: values a row keeps at the top.
        weights: embeddings, top weight, top bias, then filters and bias of each layer.
    """
    logits: Tensor = _Network.apply(  # type: ignore[no-untyped-call]
        ids, lengths, dropout, fold, k_top, *weights
    )[0]
    return logits
