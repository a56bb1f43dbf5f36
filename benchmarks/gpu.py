"""Training on a CUDA device: a step and the layers alone, compared with eager torch on that device.

Ours is what `dcnn train` does: the examples are on the device, every batch is another one, and its
step is recorded once and replayed. Eager torch has the same batches, gathered on the device too,
and torch's own operators, launched one by one.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from dcnn.config import TrainingConfig
from dcnn.data.batching import Examples
from dcnn.ops import select as backends
from dcnn.ops.select import for_training
from dcnn.training.batches import RunSpec
from dcnn.training.fit import choose_device
from dcnn.training.torch_runs import TorchRuns
from dcnn.training.trainer import Trainer
from eager_torch import torch_model
from layer import LayerCall
from report import MICROSECONDS, Outcome, Row
from timing import TimedCall, time_interleaved
from training import ENDLESS
from workload import CLASSES, TORCH, Workload, computing_with

DEVICE = "cuda"
BATCHES, WORDS = (256, 4096), 20
EXAMPLES = 262_144  # an epoch of 64 large steps: shuffling four would take a quarter of the time
WHAT_IS_TIMED = "all batches differ, and are gathered on the device, also those of eager torch"
STEPS = 20  # that are timed at once: a device is waited for in the end


class EagerRuns(TorchRuns):
    """Launches every operator of a step, where ``TorchRuns`` replays recorded ones."""

    def prepare(self, epoch: int, number: int) -> None:
        """Record nothing."""

    def _resident_step(self, words: int) -> None:
        self._learn_next(words)


def gpu(workload: Workload) -> Outcome:
    """A step of a small batch and of a large one; each layer of the large one.

    Raises:
        ConfigError: there is no CUDA device.
    """
    device, chosen = choose_device(DEVICE), backends.forced()
    targets = np.random.default_rng(1).integers(0, len(CLASSES), EXAMPLES)
    examples = Examples(workload.sentences(EXAMPLES, WORDS), targets)
    rows = [_step_row(workload, examples, batch, chosen) for batch in BATCHES]
    for number in range(1, workload.model.depth + 1):
        rows += _layer_rows(workload, number, chosen)
    return Outcome(for_training(device), rows, [WHAT_IS_TIMED], DEVICE)


def _step_row(workload: Workload, examples: Examples, batch: int, chosen: str) -> Row:
    config = TrainingConfig(batch_size=batch, epochs=ENDLESS)
    specs = [RunSpec(config)]
    ours = Trainer(torch_model(workload.artifact()), examples, specs, device=DEVICE)
    with computing_with("torch"):
        theirs = Trainer(torch_model(workload.artifact()), examples, specs, device=DEVICE)
        theirs.runs.__class__ = EagerRuns
    timed = [
        TimedCall("ours", _repeated(ours.step), partial(computing_with, chosen)),
        TimedCall(TORCH, _repeated(theirs.step), partial(computing_with, "torch")),
    ]
    measures = time_interleaved(timed, workload.rounds)
    own, other = (measures[key].rate(STEPS * batch) for key in ("ours", TORCH))
    name = f"training step of {batch:,} sentences of {WORDS} words"
    return Row.compare(name, "sentences/s", own, other, TORCH)


def _layer_rows(workload: Workload, number: int, chosen: str) -> list[Row]:
    call = LayerCall(workload.model, number, BATCHES[-1], WORDS, DEVICE)
    # As the layer below leaves it: rows side by side.
    call.x = call.x.detach().transpose(2, 3).contiguous().transpose(2, 3).requires_grad_()
    copy = torch.empty_like(call.x)
    rows = []
    for what, timed in (("forward", call.forward_only), ("forward and backward", call.both)):
        timed = [
            TimedCall("ours", _repeated(timed), partial(computing_with, chosen)),
            TimedCall(TORCH, _repeated(timed), partial(computing_with, "torch")),
            TimedCall("a copy of the input", _repeated(partial(copy.copy_, call.x.detach()))),
        ]
        measures = time_interleaved(timed, workload.rounds)
        name = f"layer {number}, {what}, batch of {BATCHES[-1]:,}, {WORDS} words"
        own, *others = (measures[one.name].times(MICROSECONDS / STEPS) for one in timed)
        rows += [
            Row.compare(name, "us", own, other, timed_call.name)
            for other, timed_call in zip(others, timed[1:], strict=True)
        ]
    return rows


def _repeated(call: Callable[[], object]) -> Callable[[], None]:
    """``STEPS`` calls, and a wait for the device."""

    def repeat() -> None:
        for _ in range(STEPS):
            call()
        torch.cuda.synchronize()

    return repeat
