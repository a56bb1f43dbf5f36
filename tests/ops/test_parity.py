"""One parity suite: every backend gives what the reference gives; ``parity`` has the cases.

On a machine with a CUDA device the compiled kernels are checked with the same cases; without one
Triton's interpreter runs those of them that are small.
"""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch.autograd import gradcheck
from torch.func import vmap

from dcnn.ops import native, reference, torch_backend
from dcnn.predictor import Predictor
from dcnn.text.vocabulary import Sentences
from parity import (
    BACKENDS,
    LAYERS,
    NETWORKS,
    RANDOM_NETWORKS,
    LayerCase,
    NetworkCase,
    assert_close,
    computing_with,
    double,
    expected_layer,
    expected_step,
    layer_and_gradients,
    network_step,
    pairs,
    random_layers,
    reference_logits,
)
from untrained import make_artifact

NATIVE = [name for name in BACKENDS if name.startswith("native")]
CONFIGS = list(dict.fromkeys(case.config for case in NETWORKS.values()))


@pytest.fixture
def backend(request):
    with computing_with(request.param) as chosen:
        yield chosen


def backends_of(names):
    return pytest.mark.parametrize("backend", names, indirect=True)


def module_of(name):
    """Where the layer of a backend is to come from."""
    kind = name.partition(" ")[0]
    return f"dcnn.ops.{kind}_{'torch' if kind == 'native' else 'backend'}"


def assert_layer(backend, case):
    """Through the choice, which must have given this backend's own layer."""
    arrays, layer = case.arrays(), backend.layer()
    values, positions, *gradients = layer_and_gradients(layer, backend.tensors(arrays), case.fold)
    expected_values, expected_positions, *expected_gradients = expected_layer(case)
    np.testing.assert_array_equal(positions, expected_positions)
    assert_close(values, expected_values, "values")
    for found, expected in zip(gradients, expected_gradients, strict=True):
        assert_close(found, expected, "gradients")
    for sentence, length in zip(gradients[0], case.lengths, strict=True):
        assert not sentence[:, :, length:].any()  # nothing learns from what is padded


@pytest.mark.parametrize(("backend", "case"), pairs(LAYERS), indirect=["backend"])
def test_layer(backend, case):
    assert backend.layer().__module__ == module_of(backend.name)
    assert_layer(backend, case)


@pytest.mark.parametrize("name", ["torch", *NATIVE])
@given(case=random_layers())
def test_random_layers(name, case):
    with computing_with(name) as backend:
        assert_layer(backend, case)


def test_the_cases_reach_both_sides_of_the_longest_row_that_a_gpu_sorts():
    triton_backend = pytest.importorskip("dcnn.ops.triton_backend")
    small = [case.columns for _, case in (pair.values for pair in pairs(LAYERS))]
    for columns in (-1, 0, 1):
        assert triton_backend.SORTED + columns in small


@given(case=random_layers())
def test_float64_in_torch_is_the_reference(case):
    values, positions, *_ = expected_layer.__wrapped__(case)
    tensors = [torch.from_numpy(array) for array in double(case.arrays())]
    found = torch_backend.layer(*tensors, case.fold)
    np.testing.assert_array_equal(found[1], positions)
    assert_close(found[0].numpy(), values, "double")


@settings(max_examples=8)  # finite differences take a pass per number
@given(case=random_layers(longest=12, half_rows=3, width=6))
def test_gradients_of_float64_in_torch_are_finite_differences_of_the_reference(case):
    x, lengths, filters, bias, k = double(case.arrays())
    generator = np.random.default_rng(case.seed)
    # Off the grid, so that no small step changes which columns are kept.
    inputs = [
        np.nan_to_num(array) + generator.normal(0, 0.1, array.shape) for array in (x, filters, bias)
    ]

    class Reference(torch.autograd.Function):
        """Forward by the reference, backward by torch's layer: gradcheck compares the two."""

        @staticmethod
        def forward(ctx, *leaves):
            ctx.save_for_backward(*leaves)
            x, filters, bias = (leaf.numpy() for leaf in leaves)
            return torch.from_numpy(reference.layer(x, lengths, filters, bias, k, case.fold)[0])

        @staticmethod
        def backward(ctx, gradient):
            leaves = [leaf.detach().requires_grad_() for leaf in ctx.saved_tensors]
            rest = torch.from_numpy(lengths), torch.from_numpy(k)
            with torch.enable_grad():
                values, _ = torch_backend.layer(leaves[0], rest[0], *leaves[1:], rest[1], case.fold)
            return torch.autograd.grad(values, leaves, gradient)

    leaves = [torch.from_numpy(array).requires_grad_() for array in inputs]
    assert gradcheck(Reference.apply, leaves, eps=1e-7, atol=1e-5)


@backends_of(BACKENDS)
def test_what_is_not_a_number_stays_in_its_own_sentence(backend):
    case = LayerCase((5, 5), rows=4)
    arrays = case.arrays()
    expected, expected_positions = reference.layer(*double(arrays), case.fold)
    arrays[0][0] = np.nan
    values, positions = backend.layer()(*backend.tensors(arrays), case.fold)
    np.testing.assert_array_equal(positions[1].cpu(), expected_positions[1])
    assert_close(values[1].cpu().numpy(), expected[1], "values")


@pytest.mark.parametrize("length", [6, 70])
@backends_of(BACKENDS)
def test_what_is_not_a_number_is_kept_and_not_pooled_away(backend, length):
    """A network that broke must show."""
    x = np.zeros((1, 1, 1, length), np.float32)
    x[..., [1, 4]] = np.nan
    one = np.ones((1, 1, 1, 1), np.float32)
    arrays = [x, np.array([length]), one, one[0, 0], np.array([3])]
    values, positions = backend.layer()(*backend.tensors(arrays), False)
    assert positions.flatten().tolist() == [0, 1, 4]
    assert values.isnan().flatten().tolist() == [False, True, True]


@pytest.mark.parametrize(("length", "fold"), [(6, False), (6, True), (70, False)])
@backends_of(BACKENDS)
def test_every_backend_ranks_what_is_not_finite_as_the_reference_does(backend, length, fold):
    """Not-a-numbers first, then infinity; never what is padded."""
    generator = np.random.default_rng(length)
    shape = (2, 1, 2, length)
    odd = generator.random(shape) < np.array([0.5, 1])[:, None, None, None]
    choices = np.array([np.nan, np.inf, -np.inf], np.float32)
    x = np.where(odd, generator.choice(choices, shape), generator.integers(-1, 2, shape))
    x, lengths = x.astype(np.float32), np.array([length, length - 2])
    filters, bias = np.ones((1, 1, 2, 1), np.float32), np.zeros((1, 2 - fold), np.float32)
    arrays = [x, lengths, filters, bias, np.array([length // 2, length - 2])]
    with np.errstate(invalid="ignore"):  # the sum of two infinities is not a number
        expected, expected_positions = reference.layer(*arrays, fold)
        values, positions = backend.layer()(*backend.tensors(arrays), fold)
    np.testing.assert_array_equal(positions.cpu(), expected_positions)
    np.testing.assert_allclose(values.cpu(), expected, atol=1e-6)


@backends_of(BACKENDS)
def test_an_expanded_input_gets_its_gradient(backend):
    case = LayerCase((5, 3), rows=4)
    x, *rest = case.arrays()
    x = np.nan_to_num(x[:1])
    gradients = []
    for layer, arrays in (
        (backend.layer(), backend.tensors([x, *rest])),
        (torch_backend.layer, [torch.from_numpy(a) for a in double([x, *rest])]),
    ):
        leaf = arrays[0].requires_grad_()
        values, _ = layer(leaf.expand(2, -1, -1, -1), *arrays[1:], case.fold)
        gradients.append(torch.autograd.grad(values.sum(), leaf)[0].cpu().numpy())
    assert_close(*gradients, "gradients")


@backends_of([name for name in BACKENDS if name not in NATIVE])  # which computes run by run
@pytest.mark.parametrize(
    "case",
    [
        LayerCase((7, 1, 4), rows=4, maps=2, ties=True),
        LayerCase((6, 2), maps_below=2, maps=2, rows=3, width=4, fold=False),
    ],
    ids=["folding", "no folding"],
)
def test_a_mapped_axis_is_an_axis_of_runs(backend, case):
    layer, runs = backend.layer(), []
    for seed in range(2):
        x, *rest = replace(case, seed=seed).arrays()
        runs.append([np.nan_to_num(x), *rest])
    width = int(runs[0][-1].max())
    mapped = vmap(lambda *inputs: layer(*inputs, case.fold, width))
    together = [np.stack(parts) for parts in zip(*runs, strict=True)]
    projection = torch.randn(2, len(case.lengths), case.maps, len(runs[0][3][0]), width)
    found = layer_and_gradients(
        lambda *inputs: mapped(*inputs[:5]), backend.tensors(together), case.fold, projection
    )
    for run, arrays in enumerate(runs):
        tensors = backend.tensors(arrays)
        alone = layer_and_gradients(layer, tensors, case.fold, projection[run])
        np.testing.assert_array_equal(found[1][run], alone[1])
        for both, one in zip(found, alone, strict=True):
            assert_close(both[run], one, "gradients")


def assert_network(backend, case):
    step = expected_step(case)
    model = step.model.to(backend.device)
    batch = [part if part is None else part.to(backend.device) for part in step.batch]
    try:
        logits, *gradients = network_step(model, *batch)
    finally:
        model.to("cpu")
    assert_close(logits, step.logits, "logits")
    for found, expected in zip(gradients, step.gradients, strict=True):
        assert_close(found, expected, "gradients")


@pytest.mark.parametrize(("backend", "case"), pairs(NETWORKS), indirect=["backend"])
def test_network(backend, case):
    assert_network(backend, case)


@pytest.mark.parametrize("name", ["torch", *NATIVE])
@settings(max_examples=30)
@given(case=RANDOM_NETWORKS)
def test_random_networks(name, case):
    with computing_with(name) as backend:
        assert_network(backend, case)


def predictor_of(case, model, ids, lengths, threads=1):
    """The network as a model folder holds it, and the sentences of a batch."""
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    artifact = replace(make_artifact(case.config, classes=("a", "b", "c")), weights=weights)
    rows = [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)]
    return Predictor(artifact, threads), Sentences.from_lists(rows)


@pytest.mark.parametrize(
    ("name", "case"),
    [
        pytest.param(name, case, id=f"{name}: {title}")
        for name in ("reference", *NATIVE)
        for title, case in NETWORKS.items()
    ],
)
def test_prediction(name, case):
    model, (ids, lengths, _) = expected_step(case).model, expected_step(case).batch
    expected, _ = reference_logits(model, ids, lengths)
    with computing_with(name):
        predictor, sentences = predictor_of(case, model, ids, lengths)
        assert predictor.backend == name.partition(" ")[0]
        assert_close(predictor.logits(sentences), expected, "logits")


@backends_of(NATIVE)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_threads_and_batch_mates_change_no_bit_of_a_prediction(backend, config):
    lengths = (1, 2, 3, 7, 18, 57, 58, 59, 113, 114, 115, 4096, *range(1, 60))
    case = NetworkCase(config, lengths)
    model, *batch, _ = case.draw(0)
    predictor, sentences = predictor_of(case, model, *batch)
    together = predictor.logits(sentences)
    for threads in (2, 5):
        threaded, _ = predictor_of(case, model, *batch, threads)
        np.testing.assert_array_equal(threaded.logits(sentences), together)
    for number in range(len(sentences)):
        alone = predictor.logits(sentences.select(np.array([number])))
        np.testing.assert_array_equal(alone[0], together[number])


@backends_of(NATIVE)
@pytest.mark.parametrize("threads", [2, 3, 64])
def test_threads_change_no_bit_of_a_layer(backend, threads):
    case = LAYERS["many sentences"]
    alone = native.layer(*case.arrays(), case.fold)
    for one, threaded in zip(
        alone, native.layer(*case.arrays(), case.fold, threads=threads), strict=True
    ):
        np.testing.assert_array_equal(one, threaded)
    # The layer of training is the same one.
    trained = backend.layer()(*backend.tensors(case.arrays()), case.fold)
    for one, other in zip(alone, trained, strict=True):
        np.testing.assert_array_equal(one, other)


@contextmanager
def torch_threads(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@backends_of(NATIVE)
def test_as_many_threads_give_the_same_gradients_bit_for_bit(backend):
    layer, network = LAYERS["many sentences"], NETWORKS["SST-2"]
    step, found = expected_step(network), {}
    for threads in (1, 2, 2):
        with torch_threads(threads):
            tensors = backend.tensors(layer.arrays())
            again = [
                *layer_and_gradients(backend.layer(), tensors, layer.fold),
                *network_step(step.model, *step.batch),
            ]
        for one, other in zip(found.setdefault(threads, again), again, strict=True):
            np.testing.assert_array_equal(one, other)
    for place, (one, other) in enumerate(zip(found[1], found[2], strict=True)):
        assert_close(one, other, "gradients")
        if place in (0, 1, 5):  # values, positions and logits, whatever the threads
            np.testing.assert_array_equal(one, other)
