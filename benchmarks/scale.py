"""Training on a billion sentences: rates of one core, and a simulation of many processes.

    python benchmarks/scale.py                    # two minutes
    python benchmarks/scale.py --sentences 50000 --out scale.json

Measured in CPU seconds, so that other work on the machine does not count: encoding, preparing the
corpus, making batches, and training steps, with the network of SST binary. Simulated for more
processes than there are cores: real batches of a real corpus are split as under ``torchrun``,
which gives the largest part (all processes wait for it) and the bytes per step; their times
follow from the rates above and from the latency and bandwidth of the network in the result.
Writes ``results/bench/scale.json``.
"""

import json
import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dcnn.config import DCNNConfig, TextConfig, TrainingConfig
from dcnn.data.batching import training_order
from dcnn.data.encode import FileEncoder, count_labels, encode_files, prepare_corpus
from dcnn.data.readers import TableOptions
from dcnn.data.store import Corpus, Store
from dcnn.models import DCNN
from dcnn.training.batches import RunSpec, StoreBatches
from dcnn.training.trainer import Trainer
from larger_than_memory import write_shards
from results import RESULTS, make_parser, provenance, write_json

BILLION = 1_000_000_000
TEXT = TextConfig(tokenizer="tweet", max_size=30_000)
# Without L2 on the embeddings a step touches the words of its batch alone. A batch has at most
# 16,384 words, about a thousand tweets.
TRAINING = TrainingConfig(batch_size=1024, l2_embeddings=0.0)
PROCESSES = (1, 2, 4, 8, 16, 32, 64)
STEPS = 40  # of each measurement
LATENCY, BANDWIDTH = 50e-6, 1.25e9  # seconds per message; bytes per second of 10 Gbit/s


def cpu_seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of a call, and its result."""
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def make_corpus(shards: Path, cache: Path) -> tuple[Corpus, dict[str, float]]:
    """Encode and prepare in one process; the corpus and the rates."""
    paths = sorted(shards.glob("*.parquet"))
    store = Store(cache)
    encoder = FileEncoder.for_files(paths, TableOptions(), TEXT, store)
    encoding, files = cpu_seconds(lambda: encode_files(paths, encoder))
    classes = sorted(count_labels(files, str(shards), splits=True))
    preparing, corpus = cpu_seconds(
        lambda: prepare_corpus(files, encoder.tokenizer, TEXT, TRAINING, classes, store)
    )
    rows = sum(block.rows for file in files for block in file.blocks)
    size = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    return corpus, {
        "encoded_per_second": round(rows / encoding),
        "prepared_per_second": round(rows / preparing),
        "bytes_per_sentence": round(size / rows, 1),
        "words_per_sentence": round(
            float(np.mean(corpus.window(range(min(4, len(corpus.blocks)))).lengths)), 1
        ),
    }


def measure_training(corpus: Corpus, config: TrainingConfig) -> dict[str, float]:
    """Sentences per second of one process: batches alone, and whole steps."""
    source = StoreBatches(corpus, config)
    source.batch(0, 0)  # the window is read now
    steps = min(STEPS, len(corpus) // config.batch_size)
    batches, made = cpu_seconds(lambda: [source.batch(0, number) for number in range(steps)])
    model = DCNN(DCNNConfig(), len(corpus.encoder.vocabulary), len(corpus.classes))
    model.initialize(torch.Generator().manual_seed(0))
    trainer = Trainer(model, source, [RunSpec(config)])
    trainer.step()
    before = trainer.state.sentences
    training, _ = cpu_seconds(lambda: [trainer.step() for _ in range(steps - 1)])
    drawing, _ = cpu_seconds(
        lambda: [
            model.draw_dropout(config.batch_size, trainer.runs.generator) for _ in range(steps)
        ]
    )
    return {
        "batches_per_second": round(sum(len(batch.lengths) for batch in made) / batches),
        "trained_per_second": round((trainer.state.sentences - before) / training),
        "dropout_per_second": round(steps * config.batch_size / drawing),
    }


def simulate(corpus: Corpus, processes: int, rates: dict[str, float]) -> dict[str, float]:
    """A step in ``processes`` processes, one core each."""
    window = corpus.window(StoreBatches(corpus, TRAINING).order_of_blocks(0)[0])
    order = training_order(window.lengths, TRAINING.batch_size, TRAINING.seed, 0, 0)[:STEPS]
    bounds = [len(window.lengths) * rank // processes for rank in range(processes + 1)]
    part_sizes = [np.histogram(indices, bounds)[0].max() / len(indices) for indices in order]
    part_words = [
        len(np.unique(window.examples.sentences.select(part).ids))
        for indices in order
        for part in np.split(np.sort(indices), np.searchsorted(np.sort(indices), bounds[1:-1]))
    ]
    dim, shapes = DCNNConfig().dim, DCNNConfig().parameter_shapes(1, len(corpus.classes))
    dense = 4 * sum(math.prod(shape) for name, shape in shapes.items() if name != "embeddings")
    rows = 4 * (1 + dim) * float(np.mean(part_words))
    batch, share = float(np.mean(list(map(len, order)))), float(np.mean(part_sizes))
    # All draw the dropout of the whole batch; the rest of a step is shared.
    drawing = batch / rates["dropout_per_second"]
    computing = share * (batch / rates["trained_per_second"] - drawing) + drawing
    sent = (2 * dense + (processes - 1) * rows) if processes > 1 else 0.0
    talking = 2 * LATENCY * math.ceil(math.log2(processes)) + sent / BANDWIDTH
    rate = batch / (computing + talking)
    return {
        "processes": processes,
        "largest_part": round(share * processes, 3),
        "bytes_a_step": round(sent),
        "milliseconds_computing": round(1000 * computing, 2),
        "milliseconds_talking": round(1000 * talking, 2),
        "sentences_per_second": round(rate),
        "hours_a_billion": round(BILLION / rate / 3600, 2),
    }


def main() -> None:
    """Measure, simulate and write."""
    parser = make_parser(__doc__, RESULTS / "scale.json")
    parser.add_argument("--sentences", type=int, default=500_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_shards(Path(folder) / "shards", options.sentences)
        corpus, rates = make_corpus(Path(folder) / "shards", Path(folder) / "cache")
        rates |= measure_training(corpus, TRAINING)
        small = measure_training(corpus, replace(TRAINING, batch_size=256))
        rates["trained_per_second_in_batches_of_256"] = small["trained_per_second"]
        simulated = [simulate(corpus, processes, rates) for processes in PROCESSES]
    report = {
        "sentences": options.sentences,
        "batch": TRAINING.batch_size,  # at most
        "one_core": rates,
        "assumed": {"latency_seconds": LATENCY, "bytes_per_second": BANDWIDTH},
        "simulated": simulated,
    } | provenance()
    print(json.dumps(report, indent=1))
    write_json(options.out, report)


if __name__ == "__main__":
    main()
