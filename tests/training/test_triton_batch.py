"""The ends of a stack's step on a GPU against the same in torch operations."""

import numpy as np
import pytest
import torch

from dcnn.text.vocabulary import UNKNOWN, Sentences
from dcnn.training.stack_data import NONE, DeviceSentences

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

pytest.importorskip("triton")
from dcnn.training import triton_step as triton_batch  # noqa: E402


def test_words_and_lengths_are_those_of_the_sentences():
    lists = [[3, 4, 5], [6], [7, 8, 9, 1, 2]]
    sentences = DeviceSentences(Sentences.from_lists(lists), torch.device(DEVICE))
    indices = torch.tensor([[2, 0], [1, NONE]], device=DEVICE)
    draws = torch.rand(2, 2, 5, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    dropped = torch.tensor([0.0, 0.6], device=DEVICE)
    parts = (sentences.ids, sentences.starts, sentences.lengths)
    draws[0, 0, 0] = 0.0  # not below a share of nothing
    ids, lengths = triton_batch.padded(indices, *parts, draws, dropped, UNKNOWN)
    expected, expected_lengths = sentences.padded(indices, 5)
    expected = expected.masked_fill(draws < dropped[:, None, None], UNKNOWN)
    assert torch.equal(ids.long(), expected)
    assert torch.equal(lengths, expected_lengths)
    assert expected[1].ne(sentences.padded(indices, 5)[0][1]).any()
    assert lengths.tolist() == [[5, 3], [1, 1]]


@pytest.mark.parametrize("own_targets", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("classes", [2, 5])
def test_losses_and_gradients_are_those_of_torch(own_targets, weighted, classes, monkeypatch):
    monkeypatch.setattr(triton_batch, "_BLOCK", 8)  # several blocks a run
    generator = np.random.default_rng(0)
    targets = generator.random((2 if own_targets else 1, 9, classes))  # need not add up to one
    targets = torch.tensor(targets, dtype=torch.float32, device=DEVICE)
    indices = torch.tensor(generator.integers(0, 9, (2, 7)), device=DEVICE)
    indices[1, 4:] = NONE
    importance = torch.rand(9, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    logits = torch.randn(2, 7, classes, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    logits[0, 0, 0] = 1e4  # its power is beyond all floats
    logits.requires_grad_()
    upstream = torch.tensor([1.0, 3.0], device=DEVICE)

    losses = triton_batch.cross_entropy(logits, indices, targets, importance if weighted else None)
    gradient = torch.autograd.grad((losses * upstream).sum(), logits)[0]

    for run in range(2):
        chosen = indices[run][indices[run] >= 0]
        own = targets[run if own_targets else 0][chosen]
        each = -(own * torch.log_softmax(logits[run, : len(chosen)], dim=-1)).sum(dim=-1)
        mean = (each * importance[chosen] if weighted else each).mean()
        torch.testing.assert_close(losses[run], mean)
        expected = torch.autograd.grad(mean * upstream[run], logits)[0]
        torch.testing.assert_close(gradient[run], expected[run])
