"""The kernels of ``dcnn.ops.triton_network`` below and above the layers; names as in its layers.

``dcnn.ops.triton_kernels`` has the layers themselves.
"""

import triton
import triton.language as tl

from dcnn.ops.triton_kernels import compiled


@compiled
def gather(
    ids,
    lengths,
    embeddings,
    x,
    ks,
    longest,
    per_run,
    vocabulary,
    count,
    DIM: tl.constexpr,
    DEPTH: tl.constexpr,
    K_TOP: tl.constexpr,
    PLACES: tl.constexpr,
    ROWS: tl.constexpr,
):
    """The sentence matrix of one sentence, (places, rows), and the k of each of its layers."""
    sentence = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + sentence).to(tl.int32)
    row = tl.arange(0, ROWS)[None, :]
    table = embeddings + (sentence // per_run) * vocabulary * DIM
    for start in range(0, length, PLACES):
        place = start + tl.arange(0, PLACES)
        inside = place < length
        word = tl.load(ids + sentence * longest + place, mask=inside, other=0).to(tl.int64)[:, None]
        inside = inside[:, None] & (row < DIM)
        values = tl.load(table + word * DIM + row, mask=inside)
        tl.store(x + (sentence * longest + place[:, None]) * DIM + row, values, mask=inside)
    for layer in tl.static_range(1, DEPTH + 1):  # Eq. 4, the ceiling in integers
        k = tl.maximum(((DEPTH - layer) * length + (DEPTH - 1)) // DEPTH, K_TOP)
        tl.store(ks + (layer - 1) * count + sentence, k)


@compiled
def scatter(
    ids,
    lengths,
    gradient_x,
    gradient_embeddings,
    longest,
    per_run,
    vocabulary,
    DIM: tl.constexpr,
    PLACES: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Add the gradient of each word of a sentence to that of its embedding."""
    sentence = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + sentence).to(tl.int32)
    row = tl.arange(0, ROWS)[None, :]
    table = gradient_embeddings + (sentence // per_run) * vocabulary * DIM
    for start in range(0, length, PLACES):
        place = start + tl.arange(0, PLACES)
        inside = place < length
        word = tl.load(ids + sentence * longest + place, mask=inside, other=0).to(tl.int64)[:, None]
        inside = inside[:, None] & (row < DIM)
        at = (sentence * longest + place[:, None]) * DIM + row
        gradient = tl.load(gradient_x + at, mask=inside, other=0.0)
        tl.atomic_add(table + word * DIM + row, gradient, mask=inside, sem="relaxed")


@triton.jit
def _feature(number, ROWS: tl.constexpr, K: tl.constexpr):
    """Where a feature, counted by map, row and slot, lies among (maps, slots, rows)."""
    return (number // (ROWS * K) * K + number % K) * ROWS + number // K % ROWS


@compiled
def top(
    pooled,
    dropout,
    weight,
    bias,
    logits,
    per_run,
    MAPS: tl.constexpr,
    ROWS: tl.constexpr,
    K: tl.constexpr,
    CLASSES: tl.constexpr,
    DROPS: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
):
    """The logits of one sentence."""
    FEATURES: tl.constexpr = MAPS * ROWS * K
    sentence = tl.program_id(0).to(tl.int64)
    run = sentence // per_run
    label = tl.arange(0, WIDE)
    total = tl.zeros((WIDE, BLOCK), tl.float32)
    for start in range(0, FEATURES, BLOCK):
        number = start + tl.arange(0, BLOCK)
        inside = number < FEATURES
        at = sentence * FEATURES + _feature(number, ROWS, K)
        value = tl.load(pooled + at, mask=inside, other=0.0)
        if DROPS:
            value *= tl.load(dropout + sentence * FEATURES + number, mask=inside, other=0.0)
        of_class = (run * CLASSES + label[:, None]) * FEATURES + number[None, :]
        both = (label < CLASSES)[:, None] & inside[None, :]
        total += value[None, :] * tl.load(weight + of_class, mask=both, other=0.0)
    shift = tl.load(bias + run * CLASSES + label, mask=label < CLASSES, other=0.0)
    out = logits + sentence * CLASSES + label
    tl.store(out, tl.sum(total, axis=1) + shift, mask=label < CLASSES)


@compiled
def top_gradient(
    gradient_logits,
    pooled,
    dropout,
    weight,
    gradient_pooled,
    gradient_weight,
    gradient_bias,
    per_run,
    parts,
    MAPS: tl.constexpr,
    ROWS: tl.constexpr,
    K: tl.constexpr,
    CLASSES: tl.constexpr,
    DROPS: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
    SENTENCES: tl.constexpr,
):
    """A block of features over a part of the sentences of a run."""
    FEATURES: tl.constexpr = MAPS * ROWS * K
    group = tl.program_id(0)
    run, part = group // parts, group % parts
    number = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = number < FEATURES
    label = tl.arange(0, WIDE)
    both = (label < CLASSES)[:, None] & inside[None, :]
    of_class = (run * CLASSES + label[:, None]) * FEATURES + number[None, :]
    weights = tl.load(weight + of_class, mask=both, other=0.0)
    total = tl.zeros((WIDE, BLOCK), tl.float32)
    of_bias = tl.zeros((WIDE,), tl.float32)
    for offset in range(tl.minimum(SENTENCES, per_run - part * SENTENCES)):
        sentence = (run * per_run + part * SENTENCES + offset).to(tl.int64)
        logit = gradient_logits + sentence * CLASSES + label
        gradient = tl.load(logit, mask=label < CLASSES, other=0.0)
        of_bias += gradient
        of_value = tl.sum(gradient[:, None] * weights, axis=0)
        at = sentence * FEATURES + _feature(number, ROWS, K)
        value = tl.load(pooled + at, mask=inside, other=0.0)
        if DROPS:
            mask = tl.load(dropout + sentence * FEATURES + number, mask=inside, other=0.0)
            value, of_value = value * mask, of_value * mask
        tl.store(gradient_pooled + at, of_value, mask=inside)
        total += gradient[:, None] * value[None, :]
    of_class = (group * CLASSES + label[:, None]) * FEATURES + number[None, :]
    tl.store(gradient_weight + of_class, total, mask=both)
    if tl.program_id(1) == 0:
        tl.store(gradient_bias + group * CLASSES + label, of_bias, mask=label < CLASSES)
