"""Corpora are encoded into the store once; a bad file is named and does not affect the others."""

import ast
import shutil
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from dcnn.config import TextConfig
from dcnn.data import encode as encoding
from dcnn.data import store
from dcnn.data.corpora.sentiment140 import CLASSES, iterate_sentiment140
from dcnn.data.encode import FileEncoder, count_labels, encode_files, load_or_encode
from dcnn.data.readers import TableOptions
from dcnn.data.store import Store, block_name, hash_key, hashed_code
from dcnn.errors import DataError
from dcnn.ops import native
from dcnn.text.encoder import Encoder
from stored_corpora import encode, write_json_lines, write_shards

ROWS = [(f"text {i} is {'good' if i % 2 else 'bad'}", "pos" if i % 2 else "neg") for i in range(12)]


@pytest.fixture
def shards(tmp_path):
    return write_shards(tmp_path / "shards", ROWS, [5, 4, 3])


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def written(monkeypatch):
    """The texts that a block is written for, as it happens."""
    blocks = []
    tokenize = encoding.tokenize_chunk
    monkeypatch.setattr(
        encoding, "tokenize_chunk", lambda tokenizer, texts: (
            blocks.append(chunk := list(texts)) or tokenize(tokenizer, chunk)
        )
    )  # fmt: skip
    return blocks


def test_a_file_is_encoded_once_wherever_it_lies(shards, cache, written, tmp_path):
    first = encode(shards, cache)
    assert list(map(len, written)) == [4, 1, 4, 3]
    moved = shards[1].rename(tmp_path / "elsewhere.csv")
    again = encode([shards[0], moved, shards[2]], cache)
    assert len(written) == 4
    assert [file.key for file in again] == [file.key for file in first]
    encode(shards[:1], cache, text=TextConfig(tokenizer="whitespace"))
    assert len(written) == 6


def is_module(name):
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # a name in a module, not in a package
        return False


def test_the_key_includes_all_code_that_decides_the_content():
    """Else blocks that older code wrote would stay in use."""
    # The version, settings and errors: values that matter are part of the key themselves, and
    # so are the library's code and whether it is used.
    left_out = {"dcnn", "dcnn.config", "dcnn.errors", "dcnn.ops", "dcnn.ops.select"}
    found, ahead = set(), {"dcnn.data.encode", "dcnn.data.corpora.sentiment140"}
    while ahead:
        found.add(name := ahead.pop())
        source = Path(find_spec(name).origin).read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("dcnn"):
                ahead |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
        ahead = {name for name in ahead - found - left_out if is_module(name)}
    assert {Path(find_spec(name).origin) for name in found} <= set(hashed_code())


@pytest.mark.skipif(not native.available(), reason="not compiled")
def test_the_key_includes_the_code_of_the_library_where_that_tokenizes(monkeypatch):
    sources = Path(__file__).parents[2] / "native"
    code = crc32(b"".join((sources / name).read_bytes() for name in ("text.h", "text.cpp")))
    assert native.library().dcnn_text_code() == code
    store._code_hash.cache_clear()
    before = hash_key(source="a")
    store._code_hash.cache_clear()
    monkeypatch.setenv("DCNN_BACKEND", "reference")
    try:
        assert hash_key(source="a") != before
    finally:
        store._code_hash.cache_clear()


def test_other_code_gives_another_key(monkeypatch):
    before = hash_key(source="a")
    assert before == hash_key(source="a") != hash_key(source="b")
    monkeypatch.setattr("dcnn.data.store._code_hash", lambda: "changed")
    assert hash_key(source="a") != before


def test_several_processes_give_the_same_blocks(shards, cache, tmp_path):
    copy = tmp_path / "shards" / "copy.csv"
    copy.write_bytes(shards[0].read_bytes())  # the same content must not be written twice at once
    progress = []
    paths = [*shards, copy]

    def encode_in(folder, processes):
        store = Store(folder)
        encoder = FileEncoder.for_files(paths, TableOptions(), TextConfig(), store)
        return store, encode_files(paths, encoder, processes, progress.append)

    store, several = encode_in(cache, 2)
    assert progress[-1] == len(ROWS)
    other, alone = encode_in(tmp_path / "other", 1)
    assert several == alone
    for file in alone:
        for index in range(len(file.blocks)):
            block = store.folder(file.key) / block_name(index)
            assert block.read_bytes() == (other.folder(file.key) / block_name(index)).read_bytes()


def test_a_bad_file_is_named_and_the_others_are_kept(shards, cache, written):
    good = shards[1].read_bytes()
    shards[1].write_bytes(good + b'"not closed,pos\n')
    with pytest.raises(DataError, match=r"01\.csv, line 6: .*; 2 of 3 files are encoded and kept"):
        encode(shards, cache)
    shards[1].write_bytes(good)
    written.clear()
    encode(shards, cache)
    assert list(map(len, written)) == [4]


def test_a_damaged_block_is_encoded_again(shards, cache, written):
    files = encode(shards, cache)
    block = Store(cache).folder(files[0].key) / block_name(1)
    good = block.read_bytes()
    block.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    written.clear()
    encode(shards, cache)
    assert list(map(len, written)) == [4, 1]
    assert block.read_bytes() == good


def test_a_file_without_rows_is_no_fault_among_others(shards, cache):
    shards[0].write_text("text,label\n")
    files = encode(shards, cache)
    assert [len(file.blocks) for file in files] == [0, 1, 1]


def test_a_column_that_is_missing_later_is_named_with_the_file_that_has_it(shards, cache):
    shards[2].write_text("text,lable\ngood,pos\n")
    with pytest.raises(DataError, match=r"02\.csv has no column 'label', which .*00\.csv has"):
        encode(shards, cache)


def count(paths, cache):
    return count_labels(encode(paths, cache), "shards", splits=True)


def test_labels_are_counted_over_all_files(shards, cache):
    assert count(shards, cache) == {"neg": 6, "pos": 6}


def test_labels_of_another_type_are_refused_and_both_files_named(tmp_path, cache):
    rows = [("a", 1), ("b", 0), ("c", 1), ("d", 0)]
    first = write_json_lines(tmp_path / "a.jsonl", rows)
    second = write_json_lines(tmp_path / "b.jsonl", [(text, str(label)) for text, label in rows])
    with pytest.raises(DataError, match=r"b\.jsonl: its labels are strings, .*a\.jsonl .*integers"):
        count([first, second], cache)


def test_labels_of_another_coding_are_refused_and_both_files_named(tmp_path, cache):
    rows = [*ROWS, *((text, "04"[label == "pos"]) for text, label in ROWS)]
    paths = write_shards(tmp_path / "s", rows, [12, 12])
    with pytest.raises(DataError, match=r"01\.csv: its labels are '0', '4', and .*00\.csv has"):
        count(paths, cache)


def test_a_corpus_may_be_sorted_by_label(tmp_path, cache):
    rows = sorted(ROWS, key=lambda row: row[1])
    assert len(count(write_shards(tmp_path / "s", rows, [6, 6]), cache)) == 2


def test_labels_that_cannot_be_learned_are_refused(tmp_path, cache):
    one = write_shards(tmp_path / "one", [("a", "x"), ("b", "x")], [2])
    with pytest.raises(DataError, match="every row has the label 'x'"):
        count(one, cache)
    single = write_shards(tmp_path / "single", [*ROWS, ("a", "rare")], [12, 1])
    with pytest.raises(DataError, match=r"01\.csv: the label 'rare' has a single example"):
        count(single, cache)


def test_several_labels_per_row_are_refused_at_once_and_in_a_later_file(tmp_path, cache):
    one, several = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    one.write_text('{"text": "good", "label": "x"}\n{"text": "bad", "label": "y"}\n')
    several.write_text('{"text": "good", "label": ["x", "y"]}\n')
    with pytest.raises(DataError, match=r"b\.jsonl is multi-label.*--no-stream"):
        encode([several], cache)
    with pytest.raises(DataError, match=r"b\.jsonl, line 1: .* is a list of labels, where .*a\.j"):
        encode([one, several], cache)


def test_a_column_for_each_label_is_refused_before_anything_is_encoded(tmp_path, cache):
    path = tmp_path / "flags.csv"
    path.write_text("text,nice,spam\ngood,1,0\nbuy,0,1\n")
    options = TableOptions(label_columns=("nice", "spam"))
    with pytest.raises(DataError, match=r"flags\.csv is multi-label.*--no-stream"):
        encode([path], cache, options=options)
    assert not cache.exists()


TEXTS = ["good good film", "", "bad film", "so-so"]
TARGETS = [1, 0, 0, 1]


@dataclass
class Source:
    """A source, a store, and how often the source was read."""

    folder: Path
    reads: int = 0
    config: TextConfig = field(default_factory=TextConfig)
    reading: str = "lines"

    @property
    def path(self):
        return self.folder / "source.txt"

    @property
    def entries(self):
        """Folders of the encoded source, and of its corpus, in the order of writing."""
        folders = [path for path in (self.folder / "cache" / "store").iterdir() if path.is_dir()]
        return sorted(folders, key=lambda path: (path / "entry.json").stat().st_mtime_ns)

    def read(self):
        self.reads += 1
        return zip(self.path.read_text().split("\n"), TARGETS, strict=True)

    def load(self):
        encoder, train, dev = load_or_encode(
            [self.path],
            self.reading,
            self.read,
            self.config,
            ("bad", "good"),
            Store(self.folder / "cache"),
        )
        assert len(dev) == 0
        return encoder, train


@pytest.fixture
def corpus(tmp_path):
    corpus = Source(tmp_path)
    corpus.path.write_text("\n".join(TEXTS))
    return corpus


def check(loaded, config=None):
    encoder, sentences = Encoder.learn(TEXTS, config or TextConfig())
    assert loaded[0] == encoder
    assert loaded[1].sentences.ids.tolist() == sentences.ids.tolist()
    assert loaded[1].sentences.offsets.tolist() == sentences.offsets.tolist()
    assert loaded[1].targets.tolist() == TARGETS
    assert (loaded[1].sentences.ids.dtype, loaded[1].targets.dtype) == (np.int32, np.int64)


@pytest.mark.parametrize("tokenizer", ["words", "bpe"])
def test_a_corpus_is_read_once_and_is_the_same_from_the_store(corpus, tokenizer):
    corpus.config = TextConfig(tokenizer=tokenizer, n_subwords=12)
    check(corpus.load(), corpus.config)
    check(corpus.load(), corpus.config)
    assert corpus.reads == 1
    corpus.config = replace(corpus.config, max_size=2)  # another vocabulary of the same tokens
    check(corpus.load(), corpus.config)
    assert corpus.reads == 1


@pytest.mark.parametrize("change", ["source", "setting", "reading"])
def test_whatever_the_ids_depend_on_makes_another_entry(corpus, change):
    corpus.load()
    match change:
        case "source":
            corpus.path.write_text("\n".join(reversed(TEXTS)))
        case "setting":
            corpus.config = TextConfig(lowercase=False)
        case "reading":
            corpus.reading = "lines backwards"
    corpus.load()
    assert (corpus.reads, len(corpus.entries)) == (2, 4)


def test_the_time_of_the_source_and_the_vectors_change_no_ids(corpus):
    corpus.load()
    corpus.path.touch()
    corpus.config = TextConfig(vectors="glove.txt")
    corpus.load()
    assert corpus.reads == 1


def test_vectors_that_decide_words_do_so_on_disk_too(corpus, tmp_path):
    path, once = tmp_path / "vectors.txt", TEXTS[0].split()[0].lower()
    for words in (f"first 1\n{once} 2\n", "second 1\n"):
        path.write_text(words)
        for config in (
            TextConfig(vectors=str(path), vectors_words=1),
            TextConfig(vectors=str(path), min_count=99, char_ngrams=(3, 5)),
        ):
            corpus.config = config
            check(corpus.load(), config)
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
@pytest.mark.parametrize("entry", [0, 1], ids=["file", "corpus"])
@pytest.mark.parametrize(
    "name", ["00000.safetensors", "tokenizer.json", "metadata.json", "entry.json"]
)
def test_a_damaged_entry_is_written_again(corpus, name, damage, entry):
    corpus.load()
    damage(corpus.entries[entry] / name)
    check(corpus.load())
    check(corpus.load())
    assert corpus.reads == 2 - entry


@pytest.mark.parametrize("content", ["[]", "{}", '{"key": 1, "sha256": []}', "\xff", "[" * 10_000])
def test_a_foreign_entry_is_written_again(corpus, content):
    corpus.load()
    (corpus.entries[0] / "entry.json").write_text(content, encoding="latin-1")
    check(corpus.load())
    assert corpus.reads == 2


def test_the_entry_of_another_corpus_is_not_taken_for_this_one(corpus):
    corpus.load()
    ours = corpus.entries[0]
    corpus.config = TextConfig(lowercase=False)
    corpus.load()
    other = corpus.entries[2]
    shutil.rmtree(ours)
    shutil.copytree(other, ours)
    corpus.config = TextConfig()
    check(corpus.load())
    assert corpus.reads == 3


def test_a_store_that_cannot_be_written_is_done_without(corpus, caplog):
    (corpus.folder / "cache").write_text("a file where the folder should be")
    with caplog.at_level("INFO", "dcnn"):
        check(corpus.load())
    assert "not kept for the next time" in caplog.text


def test_a_missing_source_is_named(corpus):
    corpus.path.unlink()
    with pytest.raises(DataError, match=r"source\.txt: cannot be read"):
        corpus.load()


@pytest.mark.corpora
@pytest.mark.scale
def test_the_tweets_of_the_paper_are_encoded_and_stored(corpora, tmp_path):
    source = corpora / "twitter" / "sentiment140.train.csv.xz"
    config = TextConfig(tokenizer="tweet", max_size=76_642)

    def load(read):
        return load_or_encode([source], "tweets", read, config, CLASSES, Store(tmp_path), 2)

    encoder, tweets, _ = load(partial(iterate_sentiment140, source))
    assert np.bincount(tweets.targets).tolist() == [800_000, 800_000]
    assert len(tweets) == 1_600_000
    assert len(encoder.vocabulary) == 76_643
    again = load(lambda: pytest.fail("the source was read again"))
    assert np.array_equal(again[1].sentences.ids, tweets.sentences.ids)
    assert again[0] == encoder
