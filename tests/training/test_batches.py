"""Where batches come from: every example once per epoch, in an order that the seed decides."""

import tracemalloc
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from dcnn.config import DCNNConfig, TrainingConfig
from dcnn.data.batching import Examples
from dcnn.errors import TrainingStoppedError
from dcnn.text.vocabulary import Sentences
from dcnn.training.batches import (
    MemoryBatches,
    RunSpec,
    StoreBatches,
    class_factors,
    example_weights,
)
from dcnn.training.callbacks import Callback
from dcnn.training.trainer import Checkpoint
from networks import build_model, train
from stored_corpora import hold_out, make_corpus, write_shards

CONFIG = TrainingConfig(batch_size=3, epochs=2, seed=5, evaluations_per_epoch=2)
SMALL = DCNNConfig(dim=8, widths=(4, 3), maps=(2, 3), k_top=2, dropout=0.2)
# Every text has a word of its own, so that a batch shows which texts it holds.
ROWS = [
    (f"w{i} {'good ' * (i % 5)}{'x' if i % 3 else 'y'}", "pos" if i % 3 else "neg")
    for i in range(60)
]


@pytest.fixture
def corpus(tmp_path):
    paths = write_shards(tmp_path / "shards", ROWS, [25, 7, 28])
    return make_corpus(paths, tmp_path / "cache", split=hold_out(0.1, seed=1))


def feed_of(corpus, rank=(0, 1)):
    return StoreBatches(corpus, CONFIG, rank, window_blocks=4)


def batches(feed, epoch=0):
    number = 0
    while feed.done(epoch, number)[0] < feed.done(epoch, number)[1]:
        yield feed.batch(epoch, number)
        number += 1


def rows_of(batch):
    return [tuple(ids[:length]) for ids, length in zip(batch.ids, batch.lengths, strict=True)]


def test_an_epoch_has_every_training_example_once(corpus):
    seen = [row for batch in batches(feed_of(corpus)) for row in rows_of(batch)]
    window = corpus.window(range(len(corpus.blocks))).examples
    ids, offsets = window.sentences.ids, window.sentences.offsets
    assert sorted(seen) == sorted(tuple(ids[a:b]) for a, b in pairwise(offsets))


def test_the_seed_and_the_epoch_decide_the_order(corpus):
    first, again = ([rows_of(b) for b in batches(feed_of(corpus))] for _ in range(2))
    assert first == again
    assert first != [rows_of(b) for b in batches(feed_of(corpus), epoch=1)]
    feed = feed_of(corpus)
    windows = [set(places) for places in feed.order_of_blocks(0)]
    assert windows != [set(places) for places in feed.order_of_blocks(1)]


def test_any_batch_can_be_asked_for_as_a_resumed_run_does(corpus):
    walked, feed = [rows_of(batch) for batch in batches(feed_of(corpus))], feed_of(corpus)
    for number in (len(walked) - 1, 0, len(walked) // 2):
        assert rows_of(feed.batch(0, number)) == walked[number]
        done = sum(map(len, walked[: number + 1]))
        assert feed.done(0, number + 1) == (done, len(corpus))


@pytest.mark.parametrize("processes", [2, 3, 40])
@pytest.mark.parametrize("kind", ["memory", "corpus"])
def test_parts_are_of_one_batch_and_weigh_what_they_are_of_it(corpus, kind, processes):
    def feed(rank):
        if kind == "corpus":
            return feed_of(corpus, rank)
        window = corpus.window(range(len(corpus.blocks)))
        return MemoryBatches(window.examples, RunSpec(CONFIG), 2, rank)

    parts = [feed((rank, processes)) for rank in range(processes)]
    whole, number = feed((0, 1)), 0
    while whole.done(0, number)[0] < whole.done(0, number)[1]:
        batch, seen = whole.batch(0, number), {}
        for part in (feed.batch(0, number) for feed in parts):
            assert (part.part.sentences, part.part.words) == batch.ids.shape
            if not part.weights.any():
                continue  # it has none of the sentences
            assert part.weights * len(batch.ids) == pytest.approx(len(part.ids))
            seen |= dict(zip(part.part.places.tolist(), rows_of(part), strict=True))
        assert [seen[place] for place in range(len(batch.ids))] == rows_of(batch)
        number += 1


def test_targets_of_many_classes_are_made_for_a_batch():
    sentences = Sentences.from_flat(np.zeros(20_000, np.int32), np.full(10_000, 2))
    examples = Examples(sentences, np.arange(10_000))
    settings = replace(CONFIG, class_weights="balanced")
    tracemalloc.start()
    try:
        batch = MemoryBatches(examples, RunSpec(settings), 10_000).batch(0, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert batch.targets.shape == (CONFIG.batch_size, 10_000)
    assert batch.targets.argmax(axis=1).tolist() == batch.order.tolist()
    assert peak < 20e6  # those of all examples are 400 MB


def new_model(corpus):
    model = build_model(SMALL, len(corpus.encoder.vocabulary), 2)
    model.initialize(torch.Generator().manual_seed(0))
    return model


class StopAt(Callback):
    def __init__(self, step):
        self.step, self.records = step, []

    def on_step(self, progress):
        self.stop = progress.step == self.step

    def on_evaluation(self, record):
        self.records.append(record)


def test_training_reads_every_window_once_per_epoch(corpus, monkeypatch):
    reads, window = [], type(corpus).window

    def counted(self, places, part=(0, 1)):
        reads.append(tuple(places))
        return window(self, places, part)

    monkeypatch.setattr(type(corpus), "window", counted)
    one_block = StoreBatches(corpus, CONFIG, window_blocks=1)
    train(new_model(corpus), one_block, corpus.dev(), CONFIG)
    assert len(reads) == CONFIG.epochs * len(corpus.blocks) > 4


@pytest.mark.parametrize("step", [11, 19])
def test_a_stopped_run_continues_to_the_same_weights(corpus, tmp_path, step):
    whole, resumed = new_model(corpus), new_model(corpus)
    dev = corpus.dev()
    callback = StopAt(0)
    train(whole, feed_of(corpus), dev, CONFIG, callback=callback)
    assert [record.epoch for record in callback.records] == [1, 1, 2, 2]
    checkpoint = Checkpoint(tmp_path / "c", {})
    with pytest.raises(TrainingStoppedError):
        train(resumed, feed_of(corpus), dev, CONFIG, checkpoint=checkpoint, callback=StopAt(step))
    resumed = new_model(corpus)
    train(resumed, feed_of(corpus), dev, CONFIG, checkpoint=checkpoint, resume=True)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_classes_weigh_as_they_do_in_memory(balanced, weighted):
    generator = np.random.default_rng(0)
    targets = generator.integers(0, 3, 50)
    weights = generator.uniform(0, 2, 50).astype(np.float32) if weighted else None
    ones = np.ones(50) if weights is None else weights.astype(np.float64)
    factors = class_factors(np.bincount(targets, ones, 4), 50, balanced)  # a class may be empty
    expected = example_weights(targets, 4, balanced, weights)
    if expected is None:
        assert factors is None
    else:
        np.testing.assert_allclose(ones * factors[targets], expected, rtol=1e-5)
