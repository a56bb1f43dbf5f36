"""What every backend must agree on: one list of cases, what is expected of them, and how closely.

``tests/ops/test_parity.py`` goes through the cases with every backend. What is expected comes from
the reference in float64, and gradients from torch's autograd in float64, which is itself compared
with the reference and with finite differences.

No case depends on how a backend rounds. The numbers that a first layer sees lie on a coarse grid,
so that its sums are exact in any order and which columns are kept is the same everywhere, ties
included. Above it two values at the edge of a pool could be so close that rounding decides: a
network takes the first seed that keeps them apart.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from dcnn.config import DCNNConfig
from dcnn.ops import native, reference, torch_backend
from dcnn.ops import select as backends
from dcnn.ops.reference import dynamic_k
from dcnn.ops.select import choose_layer
from networks import build_model

# How far float32 may be from float64, relative to the largest entry of a tensor or to one.
TOLERANCES = {
    "values": 2e-6,  # tanh of exact sums
    "gradients": 5e-5,  # sums of up to thousands of products, which may cancel
    "logits": 1e-5,
    "double": 1e-12,  # the reference against float64 in torch
}

# Without a GPU the kernels for it run in Triton's interpreter, an operation at a time.
GPU = torch.cuda.is_available()
MOST_OPERATIONS = 1000  # of a case in the interpreter, but for these
INTERPRETED = [f"{columns} columns, small, some kept, ties" for columns in (31, 32, 33)]
BACKENDS = (
    "torch",
    *(f"native {name}" for name in native.INSTRUCTION_SETS),
    "triton",
    *(["torch cuda"] if GPU else []),
)
VOCABULARY, CLASSES = 30, 3
GRID = 8  # steps of an eighth
MARGIN = 2e-5  # between the last value that is kept and the first that is not


@dataclass(frozen=True)
class LayerCase:
    """The sizes of one layer and of its input; a sentence keeps one, some or all columns."""

    lengths: tuple[int, ...]
    maps_below: int = 1
    maps: int = 1
    rows: int = 2
    width: int = 3
    fold: bool = True
    padding: int = 0
    ties: bool = False
    k: str = "some"
    seed: int = 0

    def arrays(self):
        """x, lengths, filters, bias and k, in float32; what is padded is not a number."""
        generator = np.random.default_rng(self.seed)
        draw = partial(_on_grid, generator, self.ties)
        lengths = np.array(self.lengths)
        x = draw(len(lengths), self.maps_below, self.rows, lengths.max() + self.padding)
        for sentence, length in zip(x, lengths, strict=True):
            sentence[:, :, length:] = np.nan  # padding means nothing and must not be read
        filters = draw(self.maps, self.maps_below, self.rows, self.width)
        bias = draw(self.maps, self.rows // 2 if self.fold else self.rows)
        most = lengths + self.width - 1
        k = {"one": np.ones_like(most), "some": (most + 1) // 2, "all": most}[self.k]
        return x, lengths, filters, bias, k

    @property
    def columns(self) -> int:
        """Of the convolution of the padded batch."""
        return max(self.lengths) + self.padding + self.width - 1

    @property
    def operations(self) -> int:
        """About how many vector operations the kernels of the GPU are, forward and backward."""
        convolutions = 4 * self.maps * self.maps_below + len(self.lengths) * self.maps_below
        pooling = 40 if self.columns <= 32 else 150
        return self.columns * (convolutions * self.width + pooling)


def _on_grid(generator, ties, *shape):
    """Multiples of an eighth up to two, or -1, 0 and 1."""
    if ties:
        return generator.integers(-1, 2, shape).astype(np.float32)
    return generator.integers(-2 * GRID, 2 * GRID + 1, shape).astype(np.float32) / GRID


@dataclass(frozen=True)
class NetworkCase:
    """A network and a batch of random sentences."""

    config: DCNNConfig
    lengths: tuple[int, ...]
    padding: int = 0
    drops: bool = False
    ties: bool = False  # above one layer a tie is between sums of tanh, which no two round alike
    seed: int = 0

    def draw(self, seed: int):
        """Model in float32, ids, lengths, dropout."""
        generator = torch.Generator().manual_seed(seed)
        model = build_model(self.config, VOCABULARY, CLASSES)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.normal_(0, 0.5, generator=generator)
                if name == "embeddings" or name.startswith("layers.0"):
                    parameter.mul_(GRID).round_().div_(GRID)
                if self.ties:
                    parameter.round_()
        shape = (len(self.lengths), max(self.lengths) + self.padding)
        ids = torch.randint(VOCABULARY, shape, generator=generator)
        dropout = model.draw_dropout(len(ids), generator) if self.drops else None
        return model, ids, torch.tensor(self.lengths), dropout

    @property
    def operations(self) -> int:
        """As of a layer, summed over the layers."""
        config, below, total = self.config, 1, 0
        for number, maps in enumerate(config.maps):
            rows = config.rows(number)
            layer = LayerCase(self.lengths, below, maps, rows, config.widths[number])
            total, below = total + layer.operations, maps
        return total


def pairs(cases):
    """Every backend with every case that it has time for."""
    return [
        pytest.param(backend, case, id=f"{backend}: {name}")
        for backend in BACKENDS
        for name, case in cases.items()
        if backend != "triton" or GPU or case.operations <= MOST_OPERATIONS or name in INTERPRETED
    ]


SMALL = {"maps_below": 1, "maps": 1, "rows": 2}
LARGE = {"maps_below": 2, "maps": 3, "rows": 10}
# Vectors, blocks and tiles end at powers of two; beyond 32 columns the k-th largest is searched for
# bit by bit.
COLUMNS = (5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)
LAYERS = {
    "one word": LayerCase((1,), width=1, k="all"),
    "one word, wide filter": LayerCase((1, 1), maps_below=2, maps=2, width=5),
    "two words": LayerCase((2, 1), rows=4, maps=2),
    "all columns are kept": LayerCase((6, 1, 3), rows=4, maps=2, width=4, k="all"),
    "one column is kept": LayerCase((6, 1, 3), rows=4, maps=2, width=4, k="one"),
    "no folding, odd rows": LayerCase((6, 1), maps_below=2, maps=2, rows=3, width=4, fold=False),
    "odd sizes": LayerCase((7, 5, 1), maps_below=3, maps=3, rows=2, width=3, padding=1),
    "padding": LayerCase((4, 2, 5), rows=4, width=2, padding=3),
    "ties": LayerCase((7, 3, 6), maps=2, rows=4, ties=True),
    "ties, no folding": LayerCase((9,), maps=2, rows=3, width=2, ties=True, fold=False),
    "filter wider than the sentence": LayerCase((2, 3), width=19, maps=2, rows=4),
    "one lane less than a vector": LayerCase((9, 2), maps=3, rows=5, fold=False),
    "as many lanes as a vector": LayerCase((9, 2), maps=2, rows=16),
    "one lane more than a vector": LayerCase((9, 2), rows=17, fold=False),
    "run of one vector": LayerCase((30, 1, 7), **LARGE, width=8),
    "run a little over one vector": LayerCase((30, 1, 7), **LARGE, width=9),
    "run of three vectors": LayerCase((30, 1, 7), **LARGE, width=17),
    "many sentences": LayerCase(tuple(range(1, 41)), maps=3, rows=10, width=4),
    "first layer of SST-2": LayerCase((18, 2, 53), maps=6, rows=48, width=7),
    "second layer of SST-2": LayerCase((9, 4, 27), maps_below=6, maps=14, rows=24, width=5),
    # The native layer goes through these window after window.
    "a long first layer of SST-2": LayerCase((700, 3), maps=6, rows=48, width=7),
    "a long second layer of SST-2": LayerCase((300,), maps_below=6, maps=14, rows=24, width=5),
    "filters wider than a window": LayerCase((400, 150), maps_below=9, rows=48, width=70),
    **{
        f"{columns} columns, {size}, {k} kept{', ties' if ties else ''}": LayerCase(
            (columns - 4, 1), **sizes, width=5, k=k, ties=ties
        )
        for columns in (*COLUMNS, 1025, 4100)
        for size, sizes in (("small", SMALL), ("large", LARGE))
        for k in ("one", "some", "all")
        for ties in (False, True)
    },
}


def random_layers(longest=40, half_rows=13, width=19):
    """Layers of any sizes up to these; rows are odd where they are not folded."""
    return st.builds(
        LayerCase,
        lengths=st.lists(st.integers(1, longest), min_size=1, max_size=4).map(tuple),
        maps_below=st.integers(1, 3),
        maps=st.integers(1, 4),
        rows=st.integers(1, half_rows).map(lambda half: 2 * half),
        width=st.integers(1, width),
        fold=st.booleans(),
        padding=st.integers(0, 3),
        ties=st.booleans(),
        k=st.sampled_from(["one", "some", "all"]),
        seed=st.integers(0, 9999),
    ).map(lambda case: case if case.fold else replace(case, rows=case.rows - 1))


SST2 = DCNNConfig()
ONE = DCNNConfig(dim=2, widths=(3,), maps=(2,), k_top=2)
TWO = DCNNConfig(dim=4, widths=(3, 2), maps=(1, 2), k_top=2)
THREE = DCNNConfig(dim=8, widths=(3, 2, 2), maps=(1, 2, 1), k_top=2)
UNFOLDED = DCNNConfig(dim=3, widths=(3, 2), maps=(1, 2), k_top=3, fold=False)
SMALLEST = DCNNConfig(dim=1, widths=(1,), maps=(1,), k_top=1, fold=False)
DEEP = DCNNConfig(dim=24, widths=(4, 3, 2), maps=(2, 3, 2), k_top=2)
ODD = DCNNConfig(dim=5, widths=(5,), maps=(3,), k_top=4, fold=False)
WIDE = DCNNConfig(dim=20, widths=(10, 1), maps=(5, 7), k_top=5)
THREE_UNFOLDED = DCNNConfig(dim=7, widths=(5, 3, 4), maps=(2, 3, 2), k_top=3, fold=False)
NETWORKS = {
    "one layer": NetworkCase(ONE, (4, 1), drops=True),
    "two layers": NetworkCase(TWO, (5, 1), padding=1, drops=True),
    "three layers": NetworkCase(THREE, (6,)),
    "two layers, no folding": NetworkCase(UNFOLDED, (5, 2)),
    "smallest": NetworkCase(SMALLEST, (3, 1)),
    "one layer, ties": NetworkCase(ONE, (9, 2), ties=True),
    "SST-2, one word": NetworkCase(SST2, (1,), drops=True),
    "SST-2": NetworkCase(SST2, (18, 3, 40, 7), padding=2, drops=True),
    # 32 columns of the first layer, and of the second
    "SST-2, block edges": NetworkCase(SST2, (2, 25, 26, 27), drops=True),
    "SST-2, block edges of layer 2": NetworkCase(SST2, (55, 56, 57), drops=True),
    "SST-2, more block edges": NetworkCase(SST2, (119, 120, 121), padding=1),
    "three layers, larger": NetworkCase(DEEP, (1, 2, 30, 61), drops=True),
    "three layers, no folding": NetworkCase(THREE_UNFOLDED, (1, 2, 17, 33), padding=1, drops=True),
    "one layer, odd sizes": NetworkCase(ODD, (1, 2, 60, 61), drops=True),
    "one layer, odd sizes, ties": NetworkCase(ODD, (1, 2, 60, 61), padding=2, ties=True),
    "wide filters": NetworkCase(WIDE, (1, 5, 70), drops=True),
    "one layer, 4,096 words": NetworkCase(ODD, (4096, 1)),
    "two layers, 4,096 words": NetworkCase(TWO, (4096, 1), padding=1),
    "SST-2, 4,096 words": NetworkCase(SST2, (4096, 1)),
    "three layers, 4,096 words": NetworkCase(THREE, (4096, 1, 4095)),
}
RANDOM_NETWORKS = st.builds(
    NetworkCase,
    config=st.sampled_from([SST2, ODD, DEEP, WIDE, THREE_UNFOLDED]),
    lengths=st.lists(st.integers(1, 70), min_size=1, max_size=5).map(tuple),
    padding=st.integers(0, 3),
    drops=st.booleans(),
    ties=st.booleans(),
    seed=st.integers(0, 9999),
).map(lambda case: replace(case, ties=case.ties and case.config.depth == 1))


@dataclass(frozen=True)
class Backend:
    """A backend while it is the one that the choice gives."""

    name: str
    device: str

    def layer(self):
        """Its layer, as training would choose it."""
        return choose_layer(torch.zeros(1, device=self.device))

    def tensors(self, arrays):
        return [torch.from_numpy(array).to(self.device) for array in arrays]


@contextmanager
def computing_with(name: str) -> Iterator[Backend]:
    """Make the choice give ``name``, on a GPU if it is for one and there is one; or skip."""
    kind, _, detail = name.partition(" ")
    device = "cuda" if GPU and (kind == "triton" or detail == "cuda") else "cpu"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, backends.VARIABLE, kind)
        if kind == "triton":
            pytest.importorskip("triton")
            if not GPU:  # the interpreter stands for one
                patch.setattr(backends, "for_training", lambda _: "triton")
        if kind != "native":
            yield Backend(name, device)
            return
        if not native.available():
            pytest.skip(native.reason())
        before = native.instruction_set()
        try:
            native.use_instruction_set(detail)
        except ValueError:
            pytest.skip(f"this machine has no {detail}")
        try:
            yield Backend(name, device)
        finally:
            native.use_instruction_set(before)


def layer_and_gradients(layer, tensors, fold, projection=None):
    """Values, positions and the gradients of x, filters and bias, of a projection of the values."""
    x, lengths, filters, bias, k = tensors
    leaves = [tensor.detach().clone().requires_grad_() for tensor in (x, filters, bias)]
    values, positions = layer(leaves[0], lengths, *leaves[1:], k, fold, int(k.max()))
    if projection is None:
        projection = random_projection(values.shape)
    (values * projection.to(values)).sum().backward()
    return [t.detach().cpu().numpy() for t in (values, positions, *(leaf.grad for leaf in leaves))]


def random_projection(shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def double(arrays):
    return [a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays]


@cache
def expected_layer(case: LayerCase):
    """Values and positions of the reference, then the gradients of torch, all in float64."""
    arrays = double(case.arrays())
    tensors = [torch.from_numpy(array) for array in arrays]
    _, _, *gradients = layer_and_gradients(torch_backend.layer, tensors, case.fold)
    return *reference.layer(*arrays, case.fold), *gradients


def reference_logits(model, ids, lengths, dropout=None):
    """(B, classes) in float64, and by how much any choice above the first layer was decided."""
    weights = {name: value.detach().double().numpy() for name, value in model.named_parameters()}
    config, ids, lengths = model.config, ids.numpy(), lengths.numpy()
    x = weights["embeddings"][ids].transpose(0, 2, 1)[:, None]  # (B, 1, d, s)
    valid, margin = lengths, np.inf
    for number in range(config.depth):
        filters, bias = (weights[f"layers.{number}.{part}"] for part in ("filters", "bias"))
        k = dynamic_k(lengths, number + 1, config.depth, config.k_top)
        if number:
            margin = min(margin, _margin(x, valid, filters, k, config.fold))
        width = dynamic_k(ids.shape[1], number + 1, config.depth, config.k_top)
        x, _ = reference.layer(x, valid, filters, bias, k, config.fold, width)
        valid = k
    features = x.reshape(len(x), -1)
    if dropout is not None:
        features = features * dropout.double().numpy()
    return features @ weights["head.weight"].T + weights["head.bias"], margin


def _margin(x, valid, filters, k, fold):
    """The least distance between the last column that is kept and the first that is not."""
    c = reference.wide_convolution(x, filters)
    c = reference.fold(c) if fold else c
    least = np.inf
    for sentence, columns, kept in zip(c, valid + filters.shape[-1] - 1, k, strict=True):
        if kept < columns:
            ranked = -np.sort(-sentence[..., :columns], axis=-1)
            least = min(least, float((ranked[..., kept - 1] - ranked[..., kept]).min()))
    return least


def network_step(model, ids, lengths, dropout):
    """Logits and the gradients of all weights, of a random projection of the logits."""
    logits = model(ids, lengths, dropout)
    loss = (logits * random_projection(logits.shape).to(logits)).sum()
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    return [tensor.detach().cpu().numpy() for tensor in (logits, *gradients)]


@dataclass(frozen=True)
class Step:
    """A network's batch with what is expected of it."""

    model: torch.nn.Module
    batch: tuple
    logits: np.ndarray
    gradients: list


@cache
def expected_step(case: NetworkCase) -> Step:
    """Of the first seed at which no rounding decides; in float64, whatever backend is compared."""
    with computing_with("torch"):
        for seed in range(case.seed, case.seed + 100):
            model, ids, lengths, dropout = case.draw(seed)
            logits, margin = reference_logits(model, ids, lengths, dropout)
            if margin > MARGIN:
                break
        else:
            raise AssertionError(f"no seed of {case} keeps its choices apart")
        exact = build_model(case.config, VOCABULARY, CLASSES).double()
        exact.load_state_dict(model.state_dict())
        mask = None if dropout is None else dropout.double()
        found, *gradients = network_step(exact, ids, lengths, mask)
    assert_close(found, logits, "double")
    return Step(model, (ids, lengths, dropout), logits, gradients)


def assert_close(found, expected, quantity):
    """Shapes are the same, and no entry is further away than ``TOLERANCES`` allow."""
    assert found.shape == expected.shape
    scale = max(float(np.abs(expected).max(initial=0)), 1.0)
    furthest = float(np.abs(found - expected).max(initial=0))
    assert furthest <= TOLERANCES[quantity] * scale, f"{quantity}: {furthest} of {scale}"
