"""A corpus on disk is the same as one in memory, however it is split into files and blocks."""

import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dcnn.config import TextConfig
from dcnn.data import encode as encoding
from dcnn.data import split
from dcnn.data.encode import FileEncoder, drop_rarest
from dcnn.data.readers import TableOptions
from dcnn.data.store import Corpus, Store, block_name
from dcnn.errors import ConfigError, DataError, StorageError
from dcnn.text.encoder import Encoder
from stored_corpora import hold_out, make_corpus, write_shards

texts = st.lists(st.sampled_from(["good", "bad", "film", "é", "x"]), max_size=6).map(" ".join)
ROWS = [(f"word{i} good", "pos") if i % 3 else (f"word{i} so bad", "neg") for i in range(40)]


def all_examples(corpus, part=(0, 1)):
    return corpus.window(range(len(corpus.blocks)), part)


def lists(sentences):
    return [sentences.ids[a:b].tolist() for a, b in pairwise(sentences.offsets)]


@given(
    st.lists(texts, min_size=2, max_size=30),
    st.integers(1, 5),
    st.builds(TextConfig, min_count=st.integers(1, 9), max_size=st.integers(0, 3)),
    st.integers(1, 30),
)
@settings(max_examples=8)
@example(["good bad", "", "film good", ""], 4, TextConfig(), 3)  # a text without words
def test_vocabulary_and_ids_are_those_of_the_texts_in_memory(some, block_rows, config, first):
    rows = [(text, "ab"[i % 2]) for i, text in enumerate(some)]
    cut = min(first, len(rows))
    with tempfile.TemporaryDirectory() as folder:
        paths = write_shards(Path(folder), rows, [cut, len(rows) - cut])
        corpus = make_corpus(paths, Path(folder) / "cache", config, block_rows=block_rows)
        window = all_examples(corpus)
    encoder, sentences = Encoder.learn(some, config)
    assert corpus.encoder == encoder
    assert lists(window.examples.sentences) == lists(sentences)
    assert window.lengths.tolist() == sentences.lengths.tolist()
    assert window.examples.targets.tolist() == [i % 2 for i in range(len(rows))]


def test_the_dev_set_is_stratified_and_not_in_the_training_part(tmp_path):
    paths = write_shards(tmp_path / "s", ROWS, [25, 15])
    corpus = make_corpus(paths, tmp_path / "cache", split=hold_out(0.2, seed=3))
    dev, train = corpus.dev(), all_examples(corpus).examples
    assert np.bincount(dev.targets).tolist() == [3, 5]  # of 14 and 26
    assert len(train) == len(corpus) == 32
    kept = [ROWS[i][0] for i in range(40) if i not in corpus.held_out]
    encoder, _ = Encoder.learn(kept, TextConfig())
    assert sorted(corpus.encoder.vocabulary.words) == sorted(encoder.vocabulary.words)
    decoded = [[corpus.encoder.vocabulary.words[i - 1] for i in s] for s in lists(train.sentences)]
    assert [" ".join(words) for words in decoded] == kept
    assert corpus.weight_per_class == (11, 21)
    # A word that only the dev set has is unknown.
    assert all(s[0] == 0 for s in lists(dev.sentences))


def test_the_seed_decides_what_is_held_out(tmp_path):
    paths = write_shards(tmp_path / "s", ROWS, [25, 15])
    rows = [
        make_corpus(paths, tmp_path / "cache", split=hold_out(0.2, seed)).held_out.tolist()
        for seed in (1, 1, 2)
    ]
    assert rows[0] == rows[1] != rows[2]
    targets = np.array([label == "pos" for _, label in ROWS], np.int64)
    together = split.sample_rows({"neg": 14, "pos": 26}, 0.2, 1, [(["neg", "pos"], targets)])
    assert rows[0] == together.tolist()  # however many blocks there are
    assert rows[0] == [5, 10, 13, 15, 18, 28, 30, 34]


def test_a_dev_set_is_bounded_and_every_label_is_on_both_sides(monkeypatch):
    monkeypatch.setattr(split, "MAX_DEV", 100)
    targets = np.array([0] * 5_000 + [1, 1] + [0] * 5_000)
    counts = {"often": 10_000, "rare": 2}
    held_out = split.sample_rows(counts, 0.5, 0, [(["often", "rare"], targets)])
    assert np.bincount(targets[held_out]).tolist() == [100, 1]


@pytest.mark.parametrize("processes", [1, 2, 3, 50])
def test_the_parts_of_all_processes_are_the_window(tmp_path, processes):
    paths = write_shards(tmp_path / "s", ROWS, [25, 15])
    corpus = make_corpus(paths, tmp_path / "cache", split=hold_out(0.2, seed=3))
    whole, found = all_examples(corpus), []
    for rank in range(processes):
        part = all_examples(corpus, (rank, processes))
        assert part.lengths.tolist() == whole.lengths.tolist()
        assert len(part.examples) == max(part.last - part.first, 1)  # others' are not read
        found += lists(part.examples.sentences)[: part.last - part.first]
    assert found == lists(whole.examples.sentences)


def test_weights_are_stored_and_summed_per_class(tmp_path):
    rows = [("good", "pos", 2), ("bad", "neg", 0.5), ("fine", "pos", 1), ("poor", "neg", 0)]
    paths = write_shards(tmp_path / "s", rows, [3, 1], weights=True)
    options = TableOptions(weight_column="weight")
    corpus = make_corpus(paths, tmp_path / "cache", options=options)
    assert all_examples(corpus).examples.weights.tolist() == [2, 0.5, 1, 0]
    assert corpus.weight_per_class == (0.5, 3)
    paths = write_shards(tmp_path / "z", [("a", "x", 0), ("b", "y", 0)], [2], weights=True)
    with pytest.raises(DataError, match="every training example has weight 0"):
        make_corpus(paths, tmp_path / "cache", options=options)


def test_a_corpus_is_loaded_again_and_a_missing_block_is_named(tmp_path):
    paths, store = write_shards(tmp_path / "s", ROWS, [40]), Store(tmp_path / "cache")
    corpus = make_corpus(paths, store.cache)
    loaded = Corpus.load(store, corpus.key)
    assert loaded.encoder == corpus.encoder
    assert lists(all_examples(loaded).examples.sentences) == lists(
        all_examples(corpus).examples.sentences
    )
    (store.folder(corpus.blocks[0].key) / block_name(1)).unlink()
    with pytest.raises(DataError, match=r"00001\.safetensors: a part of the encoded corpus is mis"):
        all_examples(loaded)
    table = store.folder(corpus.key) / block_name(0)
    table.write_bytes(table.read_bytes()[:-1])
    with pytest.raises(DataError, match="no complete corpus"):
        Corpus.load(store, corpus.key)


def test_processes_that_need_the_same_entry_write_it_once(tmp_path, monkeypatch):
    # A lock belongs to an open file, so threads exclude one another as processes do.
    paths, cache, written = write_shards(tmp_path / "s", ROWS, [40]), tmp_path / "cache", []
    save = encoding.save_tensors

    def save_slowly(path, tensors):
        time.sleep(0.01)
        written.append(path.name)
        save(path, tensors)

    monkeypatch.setattr(encoding, "save_tensors", save_slowly)
    with ThreadPoolExecutor(3) as several:
        found = list(several.map(lambda _: make_corpus(paths, cache), range(3)))
    blocks = [block_name(index) for index in range(10)]
    assert written == [*blocks, *blocks, "held_out.safetensors"]
    assert len({corpus.key for corpus in found}) == 1
    assert len({str(lists(all_examples(corpus).examples.sentences)) for corpus in found}) == 1


def test_waiting_for_a_lock_can_be_given_up(tmp_path):
    class EnoughError(Exception):
        pass

    def give_up():
        raise EnoughError

    store = Store(tmp_path)
    with store.lock("key"), pytest.raises(EnoughError), store.lock("key", give_up):
        pass
    with store.lock("key", give_up), store.lock("other", give_up):
        pass  # the lock was released, and other entries have locks of their own


def test_a_store_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with (
        pytest.raises(StorageError, match=r"key\.lock could not be written .*; .*DCNN_CACHE"),
        Store(tmp_path / "file").lock("key"),
    ):
        pass


def test_frequent_words_are_counted_exactly_though_rare_ones_are_dropped():
    counts = Counter()
    for block in range(100):
        counts.update({"the": 7, "of": 5} | {f"rare{block}-{i}": 1 for i in range(20)})
        if len(counts) > 50:
            counts = drop_rarest(counts, 25)
    assert counts.most_common(2) == [("the", 700), ("of", 500)]
    assert list(counts)[:2] == ["the", "of"]
    assert len(counts) <= 50


def test_a_vocabulary_is_learned_with_a_bound_on_the_words_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "MAX_COUNTED_WORDS", 8)
    paths = write_shards(tmp_path / "s", ROWS, [40])
    corpus = make_corpus(paths, tmp_path / "cache", TextConfig(min_count=2))
    assert corpus.encoder.vocabulary.words == ("good", "so", "bad")


def test_subwords_are_not_learned_from_disk(tmp_path):
    paths = write_shards(tmp_path, ROWS, [40])
    with pytest.raises(ConfigError, match=r"text\.tokenizer=bpe is learned .*--no-stream"):
        FileEncoder.for_files(
            paths, TableOptions(), TextConfig(tokenizer="bpe"), Store(tmp_path / "cache")
        )
