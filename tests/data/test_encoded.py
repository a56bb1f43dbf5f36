import shutil
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from dcnn.config import TextConfig
from dcnn.data.corpora.sentiment140 import iterate_sentiment140
from dcnn.data.encoded import load_or_encode
from dcnn.errors import DataError
from dcnn.text.encoder import Encoder

TEXTS = ["good good film", "", "bad film", "so-so"]
TARGETS = [1, 0, 0, 1]


@dataclass
class Corpus:
    """A source, a cache, and how often the source was read."""

    folder: Path
    reads: int = 0
    config: TextConfig = field(default_factory=TextConfig)
    reading: str = "lines"

    @property
    def source(self):
        return self.folder / "source.txt"

    @property
    def entries(self):
        return sorted((self.folder / "cache" / "encoded").iterdir())

    def read(self):
        self.reads += 1
        return zip(self.source.read_text().split("\n"), TARGETS, strict=True)

    def load(self):
        return load_or_encode(
            [self.source], self.reading, self.read, self.config, cache=self.folder / "cache"
        )


@pytest.fixture
def corpus(tmp_path):
    corpus = Corpus(tmp_path)
    corpus.source.write_text("\n".join(TEXTS))
    return corpus


def check(loaded):
    encoder, sentences = Encoder.learn(TEXTS, TextConfig())
    assert loaded.encoder == encoder
    assert loaded.sentences.ids.tolist() == sentences.ids.tolist()
    assert loaded.sentences.offsets.tolist() == sentences.offsets.tolist()
    assert loaded.targets.tolist() == TARGETS


def test_a_corpus_is_read_once_and_is_the_same_from_the_cache(corpus):
    made, loaded = corpus.load(), corpus.load()
    check(made)
    check(loaded)
    assert corpus.reads == 1
    for before, after in (
        (made.sentences.ids, loaded.sentences.ids),
        (made.sentences.offsets, loaded.sentences.offsets),
        (made.targets, loaded.targets),
    ):
        assert before.dtype == after.dtype
        assert after.flags.writeable


def test_writing_to_a_loaded_array_leaves_the_cache_as_it_is(corpus):
    corpus.load()
    corpus.load().sentences.ids[:] = 7
    check(corpus.load())
    assert corpus.reads == 1


@pytest.mark.parametrize("change", ["source", "setting", "reading"])
def test_whatever_the_ids_depend_on_makes_another_entry(corpus, change):
    corpus.load()
    match change:
        case "source":
            corpus.source.write_text("\n".join(reversed(TEXTS)))
        case "setting":
            corpus.config = TextConfig(lowercase=False)
        case "reading":
            corpus.reading = "lines backwards"
    corpus.load()
    assert (corpus.reads, len(corpus.entries)) == (2, 2)


def test_the_time_of_the_source_and_the_vectors_change_no_ids(corpus):
    corpus.load()
    corpus.source.touch()
    corpus.config = TextConfig(vectors="glove.txt")
    corpus.load()
    assert corpus.reads == 1


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [flip_a_byte, Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])],
    ids=["flipped", "missing", "cut"],
)
@pytest.mark.parametrize(
    "name", ["ids.npy", "offsets.npy", "targets.npy", "tokenizer.json", "entry.json"]
)
def test_a_damaged_entry_is_made_again(corpus, name, damage):
    corpus.load()
    damage(corpus.entries[0] / name)
    check(corpus.load())
    check(corpus.load())
    assert corpus.reads == 2


@pytest.mark.parametrize("content", ["[]", "{}", '{"key": 1, "sha256": []}', "\xff", "[" * 10_000])
def test_a_foreign_entry_is_made_again(corpus, content):
    corpus.load()
    (corpus.entries[0] / "entry.json").write_text(content, encoding="latin-1")
    check(corpus.load())
    assert corpus.reads == 2


def test_the_entry_of_another_corpus_is_not_taken_for_this_one(corpus):
    corpus.load()
    [ours] = corpus.entries
    corpus.config = TextConfig(lowercase=False)
    corpus.load()
    [other] = set(corpus.entries) - {ours}
    shutil.rmtree(ours)
    shutil.copytree(other, ours)
    corpus.config = TextConfig()
    check(corpus.load())
    assert corpus.reads == 3


def test_a_cache_that_cannot_be_written_is_done_without(corpus, caplog):
    (corpus.folder / "cache").write_text("a file where the folder should be")
    with caplog.at_level("INFO", "dcnn"):
        check(corpus.load())
    assert "not kept for the next time" in caplog.text


def test_a_missing_source_is_named(corpus):
    corpus.source.unlink()
    with pytest.raises(DataError, match=r"source\.txt: cannot be read"):
        corpus.load()


@pytest.mark.corpora
def test_the_tweets_of_the_paper_are_encoded_and_cached(corpora, tmp_path):
    source = corpora / "twitter" / "sentiment140.train.csv.xz"
    config = TextConfig(tokenizer="tweet", max_size=76_642)

    def load(read):
        return load_or_encode([source], "tweets", read, config, cache=tmp_path, processes=2)

    tweets = load(partial(iterate_sentiment140, source))
    assert np.bincount(tweets.targets).tolist() == [800_000, 800_000]
    assert len(tweets.sentences) == 1_600_000
    assert len(tweets.encoder.vocabulary) == 76_643
    again = load(lambda: pytest.fail("the source was read again"))
    assert np.array_equal(again.sentences.ids, tweets.sentences.ids)
    assert again.encoder == tweets.encoder
