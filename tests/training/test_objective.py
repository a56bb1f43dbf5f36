import numpy as np
import pytest
import torch

from dcnn.metrics import target_distributions
from dcnn.training.batches import example_weights
from dcnn.training.objective import cross_entropy


def test_hard_targets_become_distributions():
    assert target_distributions(np.array([0, 2]), 3).tolist() == [[1, 0, 0], [0, 0, 1]]


def test_smoothing_spreads_a_share_over_all_classes():
    smoothed = target_distributions(np.array([1]), 4, label_smoothing=0.2)
    np.testing.assert_allclose(smoothed, [[0.05, 0.85, 0.05, 0.05]], rtol=1e-6)


def test_soft_targets_stay_as_they_are():
    soft = np.array([[0.25, 0.75]])
    assert target_distributions(soft, 2, label_smoothing=0.2).tolist() == soft.tolist()


def test_cross_entropy_is_torchs_for_hard_soft_and_weighted_targets():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 3, generator=generator, dtype=torch.double)
    hard = torch.tensor([0, 1, 2, 0, 1, 2])
    soft = torch.softmax(torch.randn(6, 3, generator=generator, dtype=torch.double), dim=-1)
    weights = torch.rand(6, generator=generator, dtype=torch.double)
    expected = torch.nn.functional.cross_entropy
    one_hot = torch.nn.functional.one_hot(hard, 3).double()
    torch.testing.assert_close(cross_entropy(logits, one_hot), expected(logits, hard))
    torch.testing.assert_close(cross_entropy(logits, soft), expected(logits, soft))
    each = expected(logits, soft, reduction="none")
    torch.testing.assert_close(cross_entropy(logits, soft, weights), (each * weights).mean())


def test_equal_examples_need_no_weights():
    assert example_weights(np.array([0, 1]), 2, balanced=False, weights=None) is None


def test_balanced_classes_count_the_same_in_total():
    targets = np.array([0, 0, 0, 1])
    weights = example_weights(targets, 2, balanced=True, weights=None)
    assert weights[targets == 0].sum() == pytest.approx(weights[targets == 1].sum())
    assert weights.mean() == pytest.approx(1)


def test_sample_weights_keep_their_ratios():
    weights = example_weights(np.array([0, 1, 1]), 2, False, np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(weights, [0.5, 1.0, 1.5])


def test_balance_holds_for_weighted_examples():
    targets = np.array([0, 0, 1])
    weights = example_weights(targets, 2, True, np.array([1.0, 3.0, 1.0]))
    assert weights[:2].sum() == pytest.approx(weights[2])
    assert weights[1] == pytest.approx(3 * weights[0])
