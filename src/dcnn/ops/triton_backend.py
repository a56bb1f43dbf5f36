"""The layer and whole DCNNs in training on a GPU, in fused kernels.

``layer`` is that of ``dcnn.ops``, in float32, with one thing more: filters and bias may have a
leading axis of runs, (R, o, n, d, m) and (R, o, d'), and the sentences are then R groups of equal
size. ``network`` computes a whole DCNN. The time of a training step of a small network is decided
by the number of kernel launches, so ``network`` saves those between the layers: one kernel gathers
the words and computes the k of every layer, one computes dropout and output layer, and gradients
pass between layers without a change of layout. Under ``torch.func.vmap`` the mapped axis is the
axis of runs.

One kernel convolves and folds, one pools. Rows of up to ``SORTED`` columns are sorted in registers
to find the k-th largest value; longer ones are searched bit by bit, so that time grows with length
alone. Backward, one kernel writes the gradient of the convolution densely, and two compute from it
those of the input and of the filters.

Kernels need rows side by side, (sentences, maps, places, rows), and zeros around every sentence, so
an input is a view of a larger tensor (``_with_margins``). Whole networks write their sentence
matrix and pooled values into such a view; any other input is copied into one.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton import cdiv, next_power_of_2

from dcnn.ops import triton_kernels
from dcnn.ops.reference import dynamic_k

SORTED = 32  # a network of 64 takes ten seconds or more to compile
_FEWEST = 16  # columns that are sorted: fewer would only be more kernels to compile
_LANES = 128  # lanes (rows of sentences, or of their maps) per program, one in each thread
_FILTER_LANES = 512  # lanes per program of the filters' gradient, at most
_IDLE_LANES = 0.15  # idle lanes of that kernel, at most, as a share of the others
_TILES = 16, 14, 12, 8  # columns that a lane holds in registers; each size is compiled separately
_PRODUCTS_PER_TILE = 256  # tile times filter width, at most: each product is an instruction
_SHORTEST_TILE = 4  # the tile if the filters are too wide for all of _TILES
_MAPS = 3  # maps that a lane computes at once, at most
_PRODUCTS_OF_MAPS = 512  # products of these maps together, at most
_PROGRAMS = 264  # programs of an input's gradient, at least: two per multiprocessor of an H200
_SENTENCES_PER_PROGRAM = 32  # sentences whose gradients one program adds up, at most
_WARP = 32  # threads
_WARPS = 4096  # warps to use if the batch has enough sentences
_WARPS_PER_PROGRAM = 4  # Triton's own choice
_ADDED, _PARTS_AT_ONCE = 32, 32  # numbers that a program adds up over all parts; parts at a time
_PLACES = 16  # words that a program gathers at once
_NGRAMS = 8  # character n-grams of a word that a program adds up at once
_PRODUCTS = 512  # of features and classes that a program of the head takes at once

ADDS_NGRAMS = True  # ``network`` adds the vectors of character n-grams to the words of the batch
# Offsets of every word's n-grams in the list of buckets, that list, and the vectors by bucket.
Ngrams = tuple[Tensor, Tensor, Tensor]


def _side_by_side(x: Tensor) -> Tensor:
    """(sentences, maps, rows, places) -> (sentences, maps, places, rows), dense."""
    return x.transpose(2, 3).contiguous()


def _stride(places: int, m: int) -> int:
    """The places from one map of an input to the next: its columns, in whole tiles."""
    columns = places + m - 1
    tile = _tile(columns, m)
    return -(-columns // tile) * tile


def _with_margins(new: Callable[..., Tensor], shape: tuple[int, int, int, int], m: int) -> Tensor:
    """A ``new`` input (sentences, maps, places, rows), with room for zeros around every map."""
    (sentences, maps, places, rows), stride = shape, _stride(shape[2], m)
    before = -(-(stride - places) // 4) * 4  # aligned: Triton compiles others for what is not
    data = new((before + sentences * maps * stride, rows))
    return data[before:].view(sentences, maps, stride, rows)[:, :, :places]


def _copied(x: Tensor, lengths: Tensor, m: int) -> Tensor:
    """Any input (sentences, maps, rows, places) with rows side by side and zeros around it."""
    sentences, maps, rows, places = x.shape
    copy = _with_margins(x.new_zeros, (sentences, maps, places, rows), m)
    inside = torch.arange(places, device=x.device)[:, None] < lengths[:, None, None, None]
    copy.copy_(torch.where(inside, x.transpose(2, 3), 0.0))
    return copy


def _stride_of(x: Tensor) -> int:
    """In places, of an input or of pooled values."""
    return x.stride(1) // x.shape[-1]


def _turned(filters: Tensor) -> Tensor:
    """(R, o, n, d, m) -> (R, o, n, m, d), dense."""
    return filters.transpose(3, 4).contiguous()


def _layer_sizes(filters: Tensor, rows: int) -> triton_kernels.Layer:
    """Of ``_turned`` filters, and rows above them."""
    _, maps, maps_below, m, rows_below = filters.shape
    return triton_kernels.Layer(maps_below, rows_below, maps, rows, m, _LANES)


def _layer_forward(
    x: Tensor,
    lengths: Tensor,
    filters: Tensor,
    bias: Tensor,
    k: Tensor,
    width: int,
    next_m: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Values and positions (sentences, o, width, d'); values are an input of filters of ``next_m``.

    As in ``_layer_backward`` rows are side by side: ``x`` (sentences, n, s, d), with margins,
    filters (R, o, n, m, d).
    """
    (sentences, _, longest, _), (runs, maps, rows), m = x.shape, bias.shape, filters.shape[3]
    columns, per_run, sizes = longest + m - 1, sentences // runs, _layer_sizes(filters, rows)
    c = x.new_empty(sentences, maps, columns, rows)
    lanes, tile = sentences * rows, _tile(columns, m)
    at_once = _maps_at_once(maps, _MAPS, tile * m)
    triton_kernels.convolve[(cdiv(lanes, _LANES), cdiv(maps, at_once))](
        x, lengths, filters, c, lanes, longest, per_run, sizes, tile, at_once
    )
    shape = sentences, maps, width, rows
    values = x.new_empty(shape) if next_m is None else _with_margins(x.new_empty, shape, next_m)
    positions = x.new_empty(shape, dtype=torch.int32)
    lanes = sentences * maps * rows
    few = max(next_power_of_2(columns), _FEWEST)
    partners = sorting_network(few) if columns <= SORTED else ()
    triton_kernels.select[(cdiv(lanes, _LANES),)](
        *(c, lengths, k, bias, values, positions, lanes, width, _stride_of(values), longest),
        *(per_run, sizes, partners),
    )
    return values, positions


def _layer_backward(
    x: Tensor, lengths: Tensor, filters: Tensor, *pooled: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of ``x``, of the filters (R, o, n, d, m) and of the bias (R, o, d').

    ``pooled`` are the gradient of the values, the values and the positions.
    """
    of_values, values, positions = pooled
    sentences, maps_below, longest, rows_below = x.shape
    _, maps, width, rows = values.shape
    runs, m = len(filters), filters.shape[3]
    per_run, sizes = sentences // runs, _layer_sizes(filters, rows)
    tile, tile_below, stride = _tile(longest + m - 1, m), _tile(longest, m), _stride(longest, m)

    lanes = sentences * maps * rows
    # Columns that are read past the last map; past any other map they are the next map's.
    past = max(0, cdiv(longest, tile_below) * tile_below + m - 1 - stride)
    of_c = x.new_empty(sentences * maps * stride + past, rows)
    triton_kernels.convolution_gradient[(cdiv(lanes, _LANES),)](
        *(of_values, values, positions, of_c, lanes, width, _stride_of(values), longest, past),
        *(sizes, tile),
    )

    block = _filter_lanes(maps_below * maps * rows)
    programs = cdiv(maps_below * maps * rows, block)
    at_once, parts = _split(per_run, sentences, programs * block // _WARP)
    numbers = filters[0].numel() + maps * rows  # of all filters and biases of a run
    sums = x.new_empty(runs, parts, numbers)
    triton_kernels.filter_gradient[(runs * parts, programs)](
        *(x, of_c, lengths, sums, longest, per_run, at_once),
        *(sizes._replace(block=block), tile),
        num_warps=block // _WARP,
    )
    of_filters = x.new_empty(runs, maps, maps_below, rows_below, m)
    of_bias = x.new_empty(runs, maps, rows)
    triton_kernels.add_parts[(cdiv(numbers, _ADDED), runs)](
        sums, of_filters, of_bias, parts, sizes, _PARTS_AT_ONCE, _ADDED
    )

    of_x, lanes, halves = x.new_empty(x.shape), sentences * rows, maps_below * rows_below // rows
    programs = cdiv(lanes, _LANES)
    most = min(_MAPS * rows_below // rows, programs * halves // _PROGRAMS)
    at_once = _maps_at_once(halves, most, tile_below * m)
    triton_kernels.input_gradient[(programs, cdiv(halves, at_once))](
        of_c, lengths, filters, of_x, lanes, longest, stride, per_run, sizes, tile_below, at_once
    )
    return of_x, of_filters, of_bias


def _maps_at_once(maps: int, most: int, products: int) -> int:
    """How many maps a lane computes, at ``products`` per map; lanes have nearly equal numbers."""
    most = max(1, min(most, _PRODUCTS_OF_MAPS // products))
    return -(-maps // -(-maps // most))


def _filter_lanes(lanes: int) -> int:
    """Lanes of a program that adds up filters: many share what they read, and few are idle."""
    block = _FILTER_LANES
    while block > _WARP and cdiv(lanes, block) * block > (1 + _IDLE_LANES) * lanes:
        block //= 2
    return block


def _split(per_run: int, sentences: int, warps: int) -> tuple[int, int]:
    """How many sentences of a run one program adds up, and how many such parts a run has.

    ``warps`` is the number of warps per part. Parts are small, so that even a small batch keeps the
    device busy, but not too small, since they have to be added in the end.
    """
    at_once = min(next_power_of_2(cdiv(sentences * warps, _WARPS)), _SENTENCES_PER_PROGRAM)
    at_once = min(at_once, next_power_of_2(per_run))
    return at_once, cdiv(per_run, at_once)


def _tile(columns: int, m: int) -> int:
    """The columns of a tile, chosen so that the last tile is nearly full."""
    fitting = [tile for tile in _TILES if tile * m <= _PRODUCTS_PER_TILE] or [_SHORTEST_TILE]
    tiles = -(-columns // fitting[0])
    return min(tile for tile in fitting if tile * tiles >= columns)


@cache
def sorting_network(columns: int) -> tuple[tuple[int, ...], ...]:
    """Batcher's odd-even merge sort: at each stage, the column that each column is compared with.

    The number of columns is a power of two. A column without a partner is its own partner.
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
        x: Tensor, lengths: Tensor, filters: Tensor, bias: Tensor, k: Tensor, width: int
    ) -> tuple[Tensor, Tensor]:
        """Values and positions."""
        lengths, bias, k = (value.contiguous() for value in (lengths, bias, k))
        x = _copied(x, lengths, filters.shape[-1])
        values, positions = _layer_forward(x, lengths, _turned(filters), bias, k, width)
        return values.transpose(2, 3), positions.transpose(2, 3)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep what the backward pass needs."""
        x, lengths, filters, _, _, _ = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # else zeros are made for the positions
        ctx.save_for_backward(x, lengths, filters, *output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_values: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of input, filters and bias."""
        x, lengths, filters, *pooled = ctx.saved_tensors
        of_x, of_filters, of_bias = _layer_backward(
            _copied(x, lengths, filters.shape[-1]),
            lengths.contiguous(),
            _turned(filters),
            *map(_side_by_side, (of_values, *pooled)),
        )
        return of_x.transpose(2, 3), None, of_filters, of_bias, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *arguments: Any
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        """A mapped axis is the axis of runs."""
        *tensors, width = arguments
        runs = info.batch_size
        x, lengths, filters, bias, k = (
            tensor.expand(runs, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip(tensors, in_dims, strict=False)
        )
        values, positions = _Layer.apply(  # type: ignore[no-untyped-call]
            x.flatten(0, 1), lengths.flatten(), filters[:, 0], bias[:, 0], k.flatten(), width
        )
        return (values.unflatten(0, (runs, -1)), positions.unflatten(0, (runs, -1))), (0, 0)


def layer(
    x: Tensor,
    lengths: Tensor,
    filters: Tensor,
    bias: Tensor,
    k: Tensor,
    fold_rows: bool,  # noqa: ARG001 - the shapes of filters and bias say it
    width: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Wide convolution, folding, dynamic k-max pooling, bias and tanh; see ``dcnn.ops``."""
    width = int(k.max()) if width is None else width
    if filters.dim() == 4:
        filters, bias = filters[None], bias[None]
    if 0 in x.stride():  # an expanded axis has no place for its gradient
        x = x.contiguous()
    pooled: tuple[Tensor, Tensor] = _Layer.apply(  # type: ignore[no-untyped-call]
        x, lengths, filters, bias, k, width
    )
    return pooled


class _Network(torch.autograd.Function):
    """Logits, and for the backward pass the inputs, pooled values and positions of each layer."""

    @staticmethod
    def forward(
        ids: Tensor,
        lengths: Tensor,
        dropout: Tensor | None,
        offsets: Tensor | None,
        buckets: Tensor | None,
        k_top: int,
        *weights: Tensor,
    ) -> tuple[Tensor, ...]:
        """``weights``, with an axis of runs: embeddings, head weight and bias, then the layers'.

        With ``offsets`` and ``buckets``, which all runs share, the last are the n-grams' vectors.
        """
        ids, lengths = ids.contiguous(), lengths.contiguous()
        embeddings, head_weight, head_bias, *layers = (value.contiguous() for value in weights)
        (runs, per_run, longest), (_, vocabulary, dim) = ids.shape, embeddings.shape
        ngrams = None if offsets is None else layers.pop()
        sentences, depth = runs * per_run, len(layers) // 2
        ms = [filters.shape[-1] for filters in layers[::2]]
        x = _with_margins(embeddings.new_empty, (sentences, 1, longest, dim), ms[0])
        ks = torch.empty(depth, sentences, dtype=torch.int32, device=ids.device)
        words = triton_kernels.Words(dim, next_power_of_2(dim), _PLACES, depth, k_top)
        triton_kernels.gather[(sentences,)](
            ids, lengths, embeddings, x, ks, longest, _stride_of(x), per_run, vocabulary, words
        )
        if ngrams is not None:
            triton_kernels.gather_ngrams[(sentences * longest,)](
                *(ids, lengths, offsets, buckets, ngrams, x, longest, _stride_of(x), per_run),
                *(ngrams.shape[1], words._replace(places=_NGRAMS)),
            )
        kept = []
        valid = lengths.view(-1)
        for number, (filters, bias) in enumerate(zip(layers[::2], layers[1::2], strict=True)):
            turned, width = _turned(filters), dynamic_k(longest, number + 1, depth, k_top)
            next_m = ms[number + 1] if number + 1 < depth else None
            values, positions = _layer_forward(x, valid, turned, bias, ks[number], width, next_m)
            kept += [x, positions, turned]
            x, valid = values, ks[number]
        logits = embeddings.new_empty(runs, per_run, head_bias.shape[-1])
        mask, sizes = _head_sizes(x, logits, dropout)
        triton_kernels.head[(sentences,)](x, mask, head_weight, head_bias, logits, per_run, sizes)
        return logits, ks, x, *kept

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep what the backward pass needs."""
        ids, lengths, dropout, offsets, buckets, ctx.k_top, *weights = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)  # else zeros are made for all but the logits
        ctx.weights = len(weights)
        ctx.save_for_backward(ids, lengths, dropout, offsets, buckets, *weights, *output[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_logits: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of all weights."""
        ids, lengths, dropout, offsets, buckets, *rest = ctx.saved_tensors
        ids, lengths = ids.contiguous(), lengths.contiguous()
        weights, (ks, values, *kept) = rest[: ctx.weights], rest[ctx.weights :]
        embeddings, head_weight = weights[:2]
        gradient, *of_head = _head_gradient(of_logits, values, dropout, head_weight)
        of_layers: list[Tensor] = []
        for number in reversed(range(len(ks))):
            x, positions, turned = kept[3 * number : 3 * number + 3]
            valid = ks[number - 1] if number else lengths.view(-1)
            gradient, *of_layer = _layer_backward(x, valid, turned, gradient, values, positions)
            of_layers = [*of_layer, *of_layers]
            values = x
        of_embeddings = torch.zeros_like(embeddings, memory_format=torch.contiguous_format)
        (_, per_run, longest), (_, vocabulary, dim) = ids.shape, embeddings.shape
        words = triton_kernels.Words(dim, next_power_of_2(dim), _PLACES, len(ks), ctx.k_top)
        triton_kernels.scatter[(ids[..., 0].numel(),)](
            ids, lengths, gradient, of_embeddings, longest, per_run, vocabulary, words
        )
        if offsets is not None:
            of_ngrams = torch.zeros_like(weights[-1], memory_format=torch.contiguous_format)
            triton_kernels.scatter_ngrams[(ids.numel(),)](
                *(ids, lengths, offsets, buckets, gradient, of_ngrams, longest, per_run),
                *(of_ngrams.shape[1], words._replace(places=_NGRAMS)),
            )
            of_layers.append(of_ngrams)
        return *[None] * 6, of_embeddings, *of_head, *of_layers

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

        batch, ngrams = map(mapped, arguments[:3], in_dims), arguments[3:5]
        logits, *others = _Network.apply(  # type: ignore[no-untyped-call]
            *batch, *ngrams, *map(mapped, arguments[5:], in_dims[5:])
        )
        return (logits.unsqueeze(1), *others), (0, *[None] * len(others))


def _head_sizes(
    pooled: Tensor, logits: Tensor, dropout: Tensor | None
) -> tuple[Tensor, triton_kernels.Head]:
    """The dropout mask, or any tensor where there is none, and the sizes of the head.

    ``pooled`` is (sentences, maps, k, rows), ``logits`` (runs, sentences, classes).
    """
    (_, maps, k, rows), classes = pooled.shape, logits.shape[-1]
    wide = next_power_of_2(classes)
    block, drops = max(_PRODUCTS // wide, 32), dropout is not None
    mask = pooled if dropout is None else dropout.contiguous()
    return mask, triton_kernels.Head(maps, rows, k, classes, wide, block, drops)


def _head_gradient(
    of_logits: Tensor, pooled: Tensor, dropout: Tensor | None, weight: Tensor
) -> Sequence[Tensor]:
    """The gradients of the pooled values, of the head's weight and of its bias."""
    runs, per_run, classes = of_logits.shape
    mask, sizes = _head_sizes(pooled, of_logits, dropout)
    features = weight.shape[-1]
    blocks = cdiv(features, sizes.block)
    at_once, parts = _split(per_run, runs * per_run, blocks * _WARPS_PER_PROGRAM)
    of_pooled = torch.empty_like(pooled)
    of_weight = pooled.new_empty(runs, parts, classes, features)
    of_bias = pooled.new_empty(runs, parts, classes)
    given = of_logits.contiguous(), pooled, mask, weight.contiguous()
    triton_kernels.head_gradient[(runs * parts, blocks)](
        *given, of_pooled, of_weight, of_bias, per_run, sizes._replace(sentences=at_once)
    )
    return of_pooled, of_weight.sum(dim=1), of_bias.sum(dim=1)


def network(
    ids: Tensor,
    lengths: Tensor,
    dropout: Tensor | None,
    fold: bool,  # noqa: ARG001 - the shapes of the weights say it
    k_top: int,
    *weights: Tensor,
    ngrams: Ngrams | None = None,
) -> Tensor:
    """Logits (B, classes) of a DCNN; see ``dcnn.ops.native_training.logits``.

    With ``ngrams``, a word's vector is its embedding, or that of the unknown word if it has none,
    plus those of its character n-grams: of the words of the batch alone.
    """
    of_one_run = [None if value is None else value[None] for value in (ids, lengths, dropout)]
    offsets, buckets, *vectors = ngrams or (None, None)
    logits: Tensor = _Network.apply(  # type: ignore[no-untyped-call]
        *of_one_run, offsets, buckets, k_top, *(weight[None] for weight in (*weights, *vectors))
    )[0]
    return logits[0]
