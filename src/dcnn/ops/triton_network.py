"""A whole DCNN in training on a GPU: the layers of ``dcnn.ops.triton_backend`` and all around them.

In a step of a small network what takes time is the number of kernels. This spares those between the
layers: words are gathered with the k of every layer, dropout and top are one kernel, and the
gradients go down without a change of layout. Within, all tensors have a leading axis of runs; under
``torch.func.vmap`` the mapped axis is that axis.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton import cdiv, next_power_of_2

from dcnn.ops import triton_network_kernels
from dcnn.ops.k_schedule import dynamic_k
from dcnn.ops.triton_backend import LayerOnBatch, split, turned

_PLACES = 16  # words that a program gathers at once
_PRODUCTS = 512  # of features and classes that a program of the top takes at once


class _Network(torch.autograd.Function):
    """Logits, and for the way back the inputs, pooled values and positions of every layer."""

    @staticmethod
    def forward(
        ids: Tensor,
        lengths: Tensor,
        dropout: Tensor | None,
        fold: bool,  # noqa: ARG004 - the shapes of the weights say it
        k_top: int,
        *weights: Tensor,
    ) -> tuple[Tensor, ...]:
        """``weights``, with an axis of runs: embeddings, top weight and bias, then the layers'."""
        ids, lengths = ids.contiguous(), lengths.contiguous()
        embeddings, top_weight, top_bias, *layers = (value.contiguous() for value in weights)
        (runs, per_run, longest), (_, vocabulary, dim) = ids.shape, embeddings.shape
        sentences, depth = runs * per_run, len(layers) // 2
        x = embeddings.new_empty(sentences, 1, longest, dim)
        ks = torch.empty(depth, sentences, dtype=torch.int32, device=ids.device)
        triton_network_kernels.gather[(sentences,)](
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
        logits = embeddings.new_empty(runs, per_run, top_bias.shape[-1])
        shape = _top_shape(x, top_bias, dropout)
        triton_network_kernels.top[(sentences,)](
            x, _or_any(dropout, x), top_weight, top_bias, logits, per_run, **shape
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
        embeddings, top_weight, _, *layers = weights
        gradient, *of_top = _top_gradient(gradient_logits, values, dropout, top_weight)
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
        triton_network_kernels.scatter[(ids[..., 0].numel(),)](
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
        return *[None] * 5, of_embeddings, *of_top, *of_layers

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
    """A kernel wants a pointer even where it does not look."""
    return other if dropout is None else dropout.contiguous()


def _top_shape(pooled: Tensor, bias: Tensor, dropout: Tensor | None) -> dict[str, Any]:
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


def _top_gradient(
    gradient_logits: Tensor, pooled: Tensor, dropout: Tensor | None, weight: Tensor
) -> Sequence[Tensor]:
    """The gradients of the pooled values, of the top's weight and of its bias."""
    runs, per_run, classes = gradient_logits.shape
    (at_once, parts), features = split(per_run, runs * per_run), weight.shape[-1]
    of_pooled = torch.empty_like(pooled)
    of_weight = pooled.new_empty(runs, parts, classes, features)
    of_bias = pooled.new_empty(runs, parts, classes)
    shape = _top_shape(pooled, of_bias, dropout)
    triton_network_kernels.top_gradient[(runs * parts, cdiv(features, shape["BLOCK"]))](
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
