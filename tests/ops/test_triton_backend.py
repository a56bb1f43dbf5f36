"""The fused GPU layer's own: many blocks, and an axis of runs; the rest is in test_parity.

In Triton's interpreter, which runs every program of the grid one by one, or on a GPU where one is.
"""

import pytest
import torch

from dcnn.ops import torch_backend

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

pytest.importorskip("triton")
from dcnn.ops import triton_backend, triton_kernels  # noqa: E402

ORDERED = ("sorted", "searched")


@pytest.fixture(autouse=True)
def _unwritten_memory_is_not_a_number():
    """As it may be on a GPU: a kernel that reads what none wrote gives what is not a number."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def draw(shape, seed, ties):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return (values.round() if ties else values).to(DEVICE)


# runs, sentences a run, maps below, rows, length, maps, filter width, folding, few distinct values
CASES = {
    "two runs, two maps below": (2, 3, 2, 6, 4, 3, 2, True, False),
    "no folding, odd rows": (2, 2, 2, 3, 6, 2, 4, False, False),
    "ties": (2, 3, 1, 4, 7, 2, 3, True, True),
}


def test_many_blocks_of_rows_and_parts_of_sentences(monkeypatch):
    """Small tiles stand for a large problem: the same paths, in the interpreter's time."""
    monkeypatch.setattr(triton_backend, "_LANES", 32)
    monkeypatch.setattr(triton_backend, "_TILES", (4,))
    monkeypatch.setattr(triton_backend, "_PROGRAMS", 1)
    monkeypatch.setattr(triton_backend, "_SENTENCES_PER_PROGRAM", 2)
    monkeypatch.setattr(triton_backend, "_WARPS", 1)
    monkeypatch.setattr(triton_backend, "_FILTER_LANES", 32)
    monkeypatch.setattr(triton_backend, "_PARTS_AT_ONCE", 2)
    x, filters = draw((5, 1, 12, 4), 2, False), draw((1, 7, 1, 12, 3), 3, False)
    bias = draw((1, 7, 6), 4, False)
    lengths = torch.tensor([4, 1, 3, 2, 4]).to(DEVICE)
    k = torch.tensor([2, 2, 1, 2, 3]).to(DEVICE)
    expected = gradients(
        lambda x, filters, bias: run_by_run(x, lengths, filters, bias, k, True), x, filters, bias
    )
    fused = gradients(
        lambda x, filters, bias: triton_backend.layer(x, lengths, filters, bias, k, True),
        x,
        filters,
        bias,
    )
    for got, wanted in zip(fused, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def problem(request):
    runs, per_run, maps_below, rows, length, maps, width, fold, ties = request.param
    sentences = runs * per_run
    lengths = torch.randint(1, length + 1, (sentences,), generator=torch.Generator().manual_seed(1))
    lengths[0], lengths[-1] = length, 1
    k = torch.minimum((lengths + 3) // 2, lengths + width - 1)
    x = draw((sentences, maps_below, rows, length), 2, ties)
    if maps_below == 1:  # as the embeddings come: rows contiguous
        x = draw((sentences, length, rows), 2, ties).transpose(1, 2).unsqueeze(1)
    filters = draw((runs, maps, maps_below, rows, width), 3, ties)
    bias = draw((runs, maps, rows // 2 if fold else rows), 4, ties)
    return x, lengths.to(DEVICE), filters, bias, k.to(DEVICE), fold


def gradients(layer, x, filters, bias):
    """Values, positions and the gradients of a random projection."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in (x, filters, bias)]
    values, positions = layer(*leaves)
    (values * draw(values.shape, 5, False)).sum().backward()
    return values.detach(), positions.long(), *(leaf.grad for leaf in leaves)


def run_by_run(x, lengths, filters, bias, k, fold):
    runs, width = len(filters), int(k.max())
    parts = [
        torch_backend.layer(*inputs, fold, width)
        for inputs in zip(
            x.chunk(runs), lengths.chunk(runs), filters, bias, k.chunk(runs), strict=True
        )
    ]
    values, positions = zip(*parts, strict=True)
    return torch.cat(values), torch.cat(positions)


@pytest.mark.parametrize("longest_sorted", [triton_backend.SORTED, 0], ids=ORDERED)
def test_layer_and_gradients_equal_the_torch_backend_run_by_run(
    problem, longest_sorted, monkeypatch
):
    monkeypatch.setattr(triton_backend, "SORTED", longest_sorted)
    x, lengths, filters, bias, k, fold = problem
    expected = gradients(
        lambda x, filters, bias: run_by_run(x, lengths, filters, bias, k, fold), x, filters, bias
    )
    fused = gradients(
        lambda x, filters, bias: triton_backend.layer(x, lengths, filters, bias, k, fold),
        x,
        filters,
        bias,
    )
    torch.testing.assert_close(fused[1], expected[1], rtol=0, atol=0)
    for got, wanted in zip(fused, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", [16, 32, 64])
def test_a_sorting_network_sorts_all_zeros_and_ones_tried(columns):
    """What sorts every sequence of zeros and ones sorts everything; here, many of them."""
    rows = torch.rand(500, columns, generator=torch.Generator().manual_seed(0))
    rows = (rows < torch.linspace(0, 1, 500)[:, None]).float()
    expected = rows.sort(dim=1, descending=True).values
    for partners in triton_backend.sorting_network(columns):
        assert [partners[partner] for partner in partners] == list(range(columns))
        other = rows[:, list(partners)]
        is_left = torch.tensor(partners) > torch.arange(columns)
        rows = torch.where(is_left, torch.maximum(rows, other), torch.minimum(rows, other))
    assert torch.equal(rows, expected)


@pytest.mark.parametrize("partners", [triton_backend.sorting_network(8), ()], ids=ORDERED)
def test_the_two_zeros_are_one_value(partners):
    """Given to the kernel itself: a sum that starts from 0 is hardly ever -0."""
    c = torch.tensor([0.0, -0.0, -1.0, 0.0, -0.0]).to(DEVICE)
    lengths, k = torch.tensor([5]).to(DEVICE), torch.tensor([3]).to(DEVICE)
    bias, values = torch.zeros(1).to(DEVICE), torch.ones(3).to(DEVICE)
    positions = torch.empty_like(values, dtype=torch.int32)
    sizes = triton_kernels.Layer(maps_below=1, rows_below=1, maps=1, rows=1, m=1, block=32)
    given = c, lengths, k, bias, values, positions
    triton_kernels.select[(1,)](*given, 1, 3, 3, 5, 1, sizes, partners)
    assert positions.tolist() == [0, 1, 3]
    assert not values.any()


def test_what_is_not_a_number_stays_in_its_run():
    """Tiles are longer than sentences, and the next sentence may be that of a run that diverged."""
    x, filters = draw((4, 2, 4, 5), 1, False), draw((2, 3, 2, 4, 3), 2, False)
    bias, lengths, k = draw((2, 3, 2), 3, False), torch.full((4,), 5), torch.full((4,), 3)
    lengths, k = lengths.to(DEVICE), k.to(DEVICE)

    def layer(x, filters, bias):
        return triton_backend.layer(x, lengths, filters, bias, k, True)

    healthy = gradients(layer, x, filters, bias)
    for sick, well in ((slice(0, 2), slice(2, 4)), (slice(2, 4), slice(0, 2))):
        broken = x.clone()
        broken[sick] = float("nan")
        run = well.start // 2
        values, _, of_x, of_filters, of_bias = gradients(layer, broken, filters, bias)
        own = values[well], of_x[well], of_filters[run], of_bias[run]
        wanted = healthy[0][well], healthy[2][well], healthy[3][run], healthy[4][run]
        for got, expected in zip(own, wanted, strict=True):
            torch.testing.assert_close(got, expected)
        assert of_filters[1 - run].isnan().any()
