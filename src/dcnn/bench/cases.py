"""The cases by name, and how one is run."""

from collections.abc import Callable

from dcnn.bench.conditions import busy_machine, missing_native
from dcnn.bench.gpu import gpu
from dcnn.bench.layer import layer
from dcnn.bench.prediction import predict_batch, predict_one
from dcnn.bench.processes import startup
from dcnn.bench.report import Outcome, Report, machine_load
from dcnn.bench.training import train_step
from dcnn.bench.workload import Workload

Case = Callable[[Workload], Outcome]

RUNS: dict[str, Case] = {
    "predict-one": predict_one,
    "predict-batch": predict_batch,
    "train-step": train_step,
    "startup": startup,
    "layer": layer,
    "gpu": gpu,
}


def run_case(name: str, workload: Workload) -> Report:
    """Measure the case ``name``, one of ``RUNS``."""
    load = machine_load()
    outcome = RUNS[name](workload)
    notes = missing_native() + busy_machine(load) + outcome.notes
    return Report.make(name, outcome._replace(notes=notes), load)
