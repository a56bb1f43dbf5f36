"""The layer and whole DCNNs in training on a GPU, in fused kernels.

``layer`` is that of ``dcnn.ops``, in float32, with one thing more: filters and bias may have a
leading axis of runs, (R, o, n, d, m) and (R, o, d'), and the sentences are then R groups of equal
size. ``network`` computes a whole DCNN. In a step of a small network the number of kernels takes
the time, so it leaves out those between the layers: words are gathered with the k of every layer,
dropout and output layer are one kernel, and the gradients go back without a change of layout. Under
``torch.func.vmap`` the mapped axis is the axis of runs.

One kernel convolves and folds, one pools. Rows of up to ``SORTED`` columns are sorted in registers
to find the k-th largest value; longer ones are searched bit by bit, so that time grows with length
alone. Backward, one kernel writes the gradient of the convolution densely, and two compute from it
those of the input and of the filters.

Kernels need rows side by side: an input of (sentences, maps, rows, places) lies in memory as
(sentences, maps, places, rows), and is copied if it does not.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton import cdiv, next_power_of_2

from dcnn.ops import triton_kernels
from dcnn.ops.reference import dynamic_k

SORTED = 64
_FEWEST = 16  # columns that are sorted: fewer would only be more kernels to compile
_LANES = 128  # rows of maps of sentences that a program computes, one in each of its threads
_LONGEST_TILE = 16  # columns that a lane holds in registers,
_PRODUCTS_PER_TILE = 256  # and times filter width: each is an instruction that is compiled
_SENTENCES_PER_PROGRAM = 16  # whose part of the filters' gradient one program adds up, at most,
_PROGRAMS = 64  # and as many groups of them there should be if the batch has them
_ADDED, _PARTS_AT_ONCE = 32, 32  # numbers that a program adds up over all parts; parts at a time


def _side_by_side(x: Tensor) -> Tensor:
    """(sentences, maps, rows, places) -> (sentences, maps, places, rows), dense."""
    return x.transpose(2, 3).contiguous()


def turned(filters: Tensor) -> Tensor:
    """(R, o, n, d, m) -> (R, o, n, m, d), dense."""
    return filters.transpose(3, 4).contiguous()


class LayerOnBatch:
    """A layer on a batch: its sizes, and its kernels called with them.

    All that comes and goes is dense, with rows side by side: ``x`` (sentences, n, s, d), filters
    (R, o, n, m, d), pooled values (sentences, o, width, d').

    Args:
        x: its shape.
        filters: their shape, (R, o, n, d, m).
        bias: its shape, (R, o, d').
    """

    def __init__(self, x: Sequence[int], filters: Sequence[int], bias: Sequence[int]) -> None:
        self.sentences, self.maps_below, self.longest, self.rows_below = x
        self.runs, self.maps, _, _, self.m = filters
        self.rows = bias[-1]
        self.columns = self.longest + self.m - 1
        self.per_run = self.sentences // self.runs
        self._shape = {
            "MAPS_BELOW": self.maps_below,
            "ROWS_BELOW": self.rows_below,
            "MAPS": self.maps,
            "ROWS": self.rows,
            "M": self.m,
            "LANES": _LANES,
        }

    def forward(
        self, x: Tensor, lengths: Tensor, filters: Tensor, bias: Tensor, k: Tensor, width: int
    ) -> tuple[Tensor, Tensor]:
        """Values and positions."""
        c = self._convolve(x, lengths, filters)
        values = x.new_empty(self.sentences, self.maps, width, self.rows)
        positions = torch.empty_like(values, dtype=torch.int32)
        self._pool(c, lengths, k, bias, values, positions)
        return values, positions

    def backward(
        self,
        x: Tensor,
        lengths: Tensor,
        filters: Tensor,
        gradient_values: Tensor,
        values: Tensor,
        positions: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of ``x``, of the filters (R, o, n, d, m) and of the bias (R, o, d')."""
        gradient_c = self._convolution_gradient(gradient_values, values, positions)
        of_filters, of_bias = self._filter_gradient(x, gradient_c, lengths)
        return self._input_gradient(gradient_c, lengths, filters), of_filters, of_bias

    def _convolve(self, x: Tensor, lengths: Tensor, filters: Tensor) -> Tensor:
        """(sentences, o, columns, d')."""
        lanes = self.sentences * self.rows
        c = x.new_empty(self.sentences, self.maps, self.columns, self.rows)
        triton_kernels.convolve[(cdiv(lanes, _LANES), self.maps)](
            x,
            lengths,
            filters,
            c,
            lanes,
            self.longest,
            self.columns,
            self.per_run,
            **self._shape,
            TILE=_tile(self.columns, self.m),
        )
        return c

    def _pool(
        self,
        c: Tensor,
        lengths: Tensor,
        k: Tensor,
        bias: Tensor,
        values: Tensor,
        positions: Tensor,
    ) -> None:
        """Fill ``values`` and ``positions``."""
        lanes = self.sentences * self.maps * self.rows
        kernel, sorting = triton_kernels.select_among_many, {}
        if self.columns <= SORTED:
            columns = max(next_power_of_2(self.columns), _FEWEST)
            kernel, sorting = triton_kernels.select, {"PARTNERS": sorting_network(columns)}
        kernel[(cdiv(lanes, _LANES),)](
            c,
            lengths,
            k,
            bias,
            values,
            positions,
            lanes,
            values.shape[2],
            self.columns,
            self.per_run,
            MAPS=self.maps,
            ROWS=self.rows,
            M=self.m,
            LANES=_LANES,
            **sorting,
        )

    def _convolution_gradient(
        self, gradient_values: Tensor, values: Tensor, positions: Tensor
    ) -> Tensor:
        """(sentences, o, columns, d')."""
        lanes = self.sentences * self.maps * self.rows
        gradient_c = values.new_empty(self.sentences, self.maps, self.columns, self.rows)
        triton_kernels.convolution_gradient[(cdiv(lanes, _LANES),)](
            gradient_values,
            values,
            positions,
            gradient_c,
            lanes,
            values.shape[2],
            self.columns,
            ROWS=self.rows,
            TILE=_tile(self.columns, self.m),
            LANES=_LANES,
        )
        return gradient_c

    def _input_gradient(self, gradient_c: Tensor, lengths: Tensor, filters: Tensor) -> Tensor:
        lanes = self.sentences * self.rows_below
        of_x = filters.new_empty(self.sentences, self.maps_below, self.longest, self.rows_below)
        triton_kernels.input_gradient[(cdiv(lanes, _LANES), self.maps_below)](
            gradient_c,
            lengths,
            filters,
            of_x,
            lanes,
            self.longest,
            self.columns,
            self.per_run,
            **self._shape,
            TILE=_tile(self.longest, self.m),
        )
        return of_x

    def _filter_gradient(
        self, x: Tensor, gradient_c: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(R, o, n, d, m) and (R, o, d')."""
        at_once, parts = split(self.per_run, self.sentences)
        filters = self.maps * self.maps_below * self.rows_below * self.m
        biases = self.maps * self.rows
        sums = x.new_empty(self.runs, parts, filters + biases)
        lanes = cdiv(self.maps * self.rows_below, _LANES)
        triton_kernels.filter_gradient[(self.runs * parts, self.maps_below, lanes)](
            x,
            gradient_c,
            lengths,
            sums,
            self.longest,
            self.columns,
            self.per_run,
            parts,
            **self._shape,
            TILE=_tile(self.columns, self.m),
            SENTENCES=at_once,
        )
        of_filters = x.new_empty(self.runs, self.maps, self.maps_below, self.rows_below, self.m)
        of_bias = x.new_empty(self.runs, self.maps, self.rows)
        triton_kernels.add_parts[(cdiv(filters + biases, _ADDED), self.runs)](
            sums,
            of_filters,
            of_bias,
            parts,
            ROWS_BELOW=self.rows_below,
            M=self.m,
            FILTERS=filters,
            BIASES=biases,
            PARTS=_PARTS_AT_ONCE,
            LANES=_ADDED,
        )
        return of_filters, of_bias


def split(per_run: int, sentences: int) -> tuple[int, int]:
    """How many sentences of a run a program adds up, and in how many parts a run falls.

    Few sentences in each, so that a small batch keeps the device busy too; not too few, since the
    parts have to be added in the end.
    """
    at_once = min(next_power_of_2(cdiv(sentences, _PROGRAMS)), _SENTENCES_PER_PROGRAM)
    at_once = min(at_once, next_power_of_2(per_run))
    return at_once, cdiv(per_run, at_once)


def _tile(columns: int, m: int) -> int:
    """The columns of a tile, so that few of the last tile's are too many."""
    longest = min(_LONGEST_TILE, max(_PRODUCTS_PER_TILE // m // 4 * 4, 4))
    tiles = -(-columns // longest)
    return -(-columns // tiles // 4) * 4


@cache
def sorting_network(columns: int) -> tuple[tuple[int, ...], ...]:
    """Batcher's odd-even merge sort: the partner of each column at each stage.

    A column without a partner is its own.

    Args:
        columns: a power of two.
    """
    stages = []
    merged = 1  # columns that are in order already, in groups
    while merged < columns:
        apart = merged
        while apart:
            partners = list(range(columns))
            for first in range(apart % merged, columns - apart, 2 * apart):
                for left in range(first, min(first + apart, columns - apart)):
                    right = left + apart
                    if left // (2 * merged) == right // (2 * merged):
                        partners[left], partners[right] = right, left
            stages.append(tuple(partners))
            apart //= 2
        merged *= 2
    return tuple(stages)


class _Layer(torch.autograd.Function):
    """Arguments as ``layer``; filters and bias always with an axis of runs."""

    @staticmethod
    def forward(
        x: Tensor,
        lengths: Tensor,
        filters: Tensor,
        bias: Tensor,
        k: Tensor,
        fold: bool,  # noqa: ARG004 - the shapes of filters and bias say it
        width: int,
    ) -> tuple[Tensor, Tensor]:
        """Values and positions."""
        x, lengths, bias, k = _side_by_side(x), *(v.contiguous() for v in (lengths, bias, k))
        layer = LayerOnBatch(x.shape, filters.shape, bias.shape)
        values, positions = layer.forward(x, lengths, turned(filters), bias, k, width)
        return values.transpose(2, 3), positions.transpose(2, 3)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep what the backward pass needs."""
        x, lengths, filters, bias, _, _, _ = inputs
        values, positions = output
        ctx.mark_non_differentiable(positions)
        ctx.set_materialize_grads(False)  # else zeros are made for the positions
        ctx.save_for_backward(x, lengths, filters, bias, values, positions)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_values: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of input, filters and bias."""
        x, lengths, filters, bias, values, positions = ctx.saved_tensors
        x = _side_by_side(x)
        layer = LayerOnBatch(x.shape, filters.shape, bias.shape)
        pooled = map(_side_by_side, (gradient_values, values, positions))
        of_x, of_filters, of_bias = layer.backward(
            x, lengths.contiguous(), turned(filters), *pooled
        )
        return of_x.transpose(2, 3), None, of_filters, of_bias, None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *arguments: Any
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        """A mapped axis is the axis of runs."""
        *tensors, fold, width = arguments
        runs = info.batch_size

        def batched(tensor: Tensor, dim: int | None) -> Tensor:
            if dim is None:
                return tensor.expand(runs, *tensor.shape)
            return tensor.movedim(dim, 0)

        x, lengths, filters, bias, k = map(batched, tensors, in_dims)
        values, positions = _Layer.apply(  # type: ignore[no-untyped-call]
            x.flatten(0, 1), lengths.flatten(), filters[:, 0], bias[:, 0], k.flatten(), fold, width
        )
        return (values.unflatten(0, (runs, -1)), positions.unflatten(0, (runs, -1))), (0, 0)


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
    if filters.dim() == 4:
        filters, bias = filters[None], bias[None]
    if 0 in x.stride():  # an expanded axis has no place for its gradient
        x = x.contiguous()
    pooled: tuple[Tensor, Tensor] = _Layer.apply(  # type: ignore[no-untyped-call]
        x, lengths, filters, bias, k, fold_rows, width
    )
    return pooled


_PLACES = 16  # words that a program gathers at once
_PRODUCTS = 512  # of features and classes that a program of the head takes at once


class _Network(torch.autograd.Function):
    """Logits, and for the backward pass the inputs, pooled values and positions of each layer."""

    @staticmethod
    def forward(
        ids: Tensor,
        lengths: Tensor,
        dropout: Tensor | None,
        fold: bool,  # noqa: ARG004 - the shapes of the weights say it
        k_top: int,
        *weights: Tensor,
    ) -> tuple[Tensor, ...]:
        """``weights``, with an axis of runs: embeddings, head weight and bias, then the layers'."""
        ids, lengths = ids.contiguous(), lengths.contiguous()
        embeddings, head_weight, head_bias, *layers = (value.contiguous() for value in weights)
        (runs, per_run, longest), (_, vocabulary, dim) = ids.shape, embeddings.shape
        sentences, depth = runs * per_run, len(layers) // 2
        x = embeddings.new_empty(sentences, 1, longest, dim)
        ks = torch.empty(depth, sentences, dtype=torch.int32, device=ids.device)
        triton_kernels.gather[(sentences,)](
            ids,
            lengths,
            embeddings,
            x,
            ks,
            longest,
            per_run,
            vocabulary,
            sentences,
            DIM=dim,
            DEPTH=depth,
            K_TOP=k_top,
            PLACES=_PLACES,
            ROWS=next_power_of_2(dim),
        )
        kept = []
        valid = lengths.view(-1)
        for number, (filters, bias) in enumerate(zip(layers[::2], layers[1::2], strict=True)):
            layer = LayerOnBatch(x.shape, filters.shape, bias.shape)
            across = turned(filters)
            width = dynamic_k(longest, number + 1, depth, k_top)
            values, positions = layer.forward(x, valid, across, bias, ks[number], width)
            kept += [x, positions, across]
            x, valid = values, ks[number]
        logits = embeddings.new_empty(runs, per_run, head_bias.shape[-1])
        shape = _head_shape(x, head_bias, dropout)
        triton_kernels.head[(sentences,)](
            x, _or_any(dropout, x), head_weight, head_bias, logits, per_run, **shape
        )
        return logits, ks, x, *kept

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep what the backward pass needs."""
        ids, lengths, dropout, _, _, *weights = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)  # else zeros are made for all but the logits
        ctx.weights = len(weights)
        ctx.save_for_backward(ids, lengths, dropout, *weights, *output[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_logits: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of all weights."""
        ids, lengths, dropout, *rest = ctx.saved_tensors
        ids, lengths = ids.contiguous(), lengths.contiguous()
        weights, (ks, values, *kept) = rest[: ctx.weights], rest[ctx.weights :]
        embeddings, head_weight, _, *layers = weights
        gradient, *of_head = _head_gradient(gradient_logits, values, dropout, head_weight)
        of_layers: list[Tensor] = []
        for number in reversed(range(len(layers) // 2)):
            filters, bias = layers[2 * number : 2 * number + 2]
            x, positions, across = kept[3 * number : 3 * number + 3]
            layer = LayerOnBatch(x.shape, filters.shape, bias.shape)
            valid = ks[number - 1] if number else lengths.view(-1)
            gradient, of_filters, of_bias = layer.backward(
                x, valid, across, gradient, values, positions
            )
            of_layers = [of_filters, of_bias, *of_layers]
            values = x
        of_embeddings = torch.zeros_like(embeddings, memory_format=torch.contiguous_format)
        (_, per_run, longest), (_, vocabulary, dim) = ids.shape, embeddings.shape
        triton_kernels.scatter[(ids[..., 0].numel(),)](
            ids,
            lengths,
            gradient,
            of_embeddings,
            longest,
            per_run,
            vocabulary,
            DIM=dim,
            PLACES=_PLACES,
            ROWS=next_power_of_2(dim),
        )
        return *[None] * 5, of_embeddings, *of_head, *of_layers

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *arguments: Any
    ) -> tuple[tuple[Tensor, ...], tuple[int | None, ...]]:
        """The mapped axis takes the place of the axis of one run that ``network`` made."""

        def mapped(value: Any, dim: int | None) -> Any:
            if not isinstance(value, Tensor):
                return value
            if dim is None:
                return value.expand(info.batch_size, *value.shape[1:])
            return value.movedim(dim, 0).squeeze(1)

        logits, *others = _Network.apply(  # type: ignore[no-untyped-call]
            *(mapped(value, dim) for value, dim in zip(arguments, in_dims, strict=True))
        )
        return (logits.unsqueeze(1), *others), (0, *[None] * len(others))


def _or_any(dropout: Tensor | None, other: Tensor) -> Tensor:
    """A kernel needs a pointer even where it reads nothing."""
    return other if dropout is None else dropout.contiguous()


def _head_shape(pooled: Tensor, bias: Tensor, dropout: Tensor | None) -> dict[str, Any]:
    """``pooled`` is (sentences, maps, k, rows)."""
    _, maps, k, rows = pooled.shape
    wide = next_power_of_2(bias.shape[-1])
    return {
        "MAPS": maps,
        "ROWS": rows,
        "K": k,
        "CLASSES": bias.shape[-1],
        "DROPS": dropout is not None,
        "BLOCK": max(_PRODUCTS // wide, 32),
        "WIDE": wide,
    }


def _head_gradient(
    gradient_logits: Tensor, pooled: Tensor, dropout: Tensor | None, weight: Tensor
) -> Sequence[Tensor]:
    """The gradients of the pooled values, of the head's weight and of its bias."""
    runs, per_run, classes = gradient_logits.shape
    (at_once, parts), features = split(per_run, runs * per_run), weight.shape[-1]
    of_pooled = torch.empty_like(pooled)
    of_weight = pooled.new_empty(runs, parts, classes, features)
    of_bias = pooled.new_empty(runs, parts, classes)
    shape = _head_shape(pooled, of_bias, dropout)
    triton_kernels.head_gradient[(runs * parts, cdiv(features, shape["BLOCK"]))](
        gradient_logits.contiguous(),
        pooled,
        _or_any(dropout, pooled),
        weight.contiguous(),
        of_pooled,
        of_weight,
        of_bias,
        per_run,
        parts,
        **shape,
        SENTENCES=at_once,
    )
    return of_pooled, of_weight.sum(dim=1), of_bias.sum(dim=1)


def network(
    ids: Tensor,
    lengths: Tensor,
    dropout: Tensor | None,
    fold: bool,
    k_top: int,
    *weights: Tensor,
) -> Tensor:
    """Logits (B, classes) of a DCNN; see ``dcnn.ops.native_training.network``."""
    of_one_run = [None if value is None else value[None] for value in (ids, lengths, dropout)]
    logits: Tensor = _Network.apply(  # type: ignore[no-untyped-call]
        *of_one_run, fold, k_top, *(weight[None] for weight in weights)
    )[0]
    return logits[0]
