"""Training on a CUDA device: a whole step, and the layers alone, beside eager torch on that device.

Ours is what `dcnn experiment` trains with: a stack, here of one run, whose steps are recorded once
and replayed, with all examples on the device. Eager torch is a plain run: torch's own operators,
launched one by one, and batches from the host.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from dcnn.compare import TimedCall, time_in_turns
from dcnn.config import TrainingConfig
from dcnn.data.batching import Examples
from dcnn.ops import select as backends
from dcnn.ops.select import for_training
from dcnn.training.callbacks import Callback
from dcnn.training.fit import choose_device
from dcnn.training.stack import RunSpec, Stack
from dcnn.training.trainer import Run
from eager_torch import torch_model
from layer import LayerCall
from report import MICROSECONDS, Outcome, Row
from training import ENDLESS
from workload import CLASSES, TORCH, Workload, computing_with

DEVICE = "cuda"
BATCHES, WORDS = (256, 4096), 20
EXAMPLES = 16_384
WHAT_IS_TIMED = (
    "our step is replayed on a batch that is on the device, as all batches of a stack are; eager "
    "torch's brings each batch from the host"
)
STEPS = 20  # that are timed at once: a device is waited for in the end


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
    return Outcome(for_training(device.type), rows, [WHAT_IS_TIMED], DEVICE)


def _step_row(workload: Workload, examples: Examples, batch: int, chosen: str) -> Row:
    config = TrainingConfig(batch_size=batch, epochs=ENDLESS)
    ours = _stacked_step(workload, examples, config)
    with computing_with("torch"):
        run = Run(
            torch_model(workload.artifact()).to(DEVICE),
            examples,
            None,
            config,
            torch.device(DEVICE),
            Callback(),
        )
    timed = [
        TimedCall("ours", _repeated(ours), partial(computing_with, chosen)),
        TimedCall(TORCH, _repeated(run.step), partial(computing_with, "torch")),
    ]
    measures = time_in_turns(timed, workload.rounds)
    own, theirs = (measures[key].rate(STEPS * batch) for key in ("ours", TORCH))
    name = f"training step of {batch:,} sentences of {WORDS} words"
    return Row.compare(name, "sentences/s", own, theirs, TORCH)


def _stacked_step(
    workload: Workload, examples: Examples, config: TrainingConfig
) -> Callable[[], object]:
    model = torch_model(workload.artifact())
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    stack = Stack(model, examples, [RunSpec(config, weights)], DEVICE)
    generator = torch.Generator(DEVICE).manual_seed(0)
    size = (1, config.batch_size)
    indices = torch.randint(EXAMPLES, size, generator=generator, device=DEVICE)
    progress = torch.zeros(1, device=DEVICE)
    step = stack.make_step(indices, progress)
    return lambda: step(indices, WORDS, progress)


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
        measures = time_in_turns(timed, workload.rounds)
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
