"""A tiny network and sizes, for the tests of the benchmarks."""

from dcnn.config import DCNNConfig
from workload import Workload

TINY = Workload(
    model=DCNNConfig(dim=8, widths=(4, 3), maps=(2, 3), k_top=3),
    vocabulary=50,
    rounds=1,
    calls=2,
    file_texts=30,
    training_texts=(40, 10),
    epochs=1,
)
