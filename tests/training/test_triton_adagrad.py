"""The one-pass update against the same update in torch operations."""

import pytest
import torch

from dcnn.training import stack_adagrad

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

pytest.importorskip("triton")
from dcnn.training import triton_adagrad  # noqa: E402


@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 1500), (1, 1)])
@pytest.mark.parametrize("averages", [True, False])
def test_one_pass_equals_the_separate_operations(shape, averages):
    generator = torch.Generator().manual_seed(0)
    value, gradient, average = (
        torch.randn(shape, generator=generator).to(DEVICE) for _ in range(3)
    )
    total = torch.rand(shape, generator=generator).to(DEVICE)
    scalars = [torch.rand(shape[0], generator=generator).to(DEVICE) for _ in range(6)]
    updated = []
    for update in (triton_adagrad.update, stack_adagrad.update):
        state = [value.clone(), total.clone(), average.clone() if averages else None]
        update(state[0], gradient.clone(), state[1], state[2], scalars)
        updated.append(state)
    for fused, plain in zip(*updated, strict=True):
        if fused is not None:
            torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-6)
    assert not torch.equal(updated[0][0], value)
