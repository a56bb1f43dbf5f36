"""Files become blocks once; a bad one is named and takes nothing from the others."""

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

from dcnn.data import encode as encoding
from dcnn.data.readers import TableOptions
from dcnn.data.store import count_labels
from dcnn.errors import DataError
from dcnn.text.tokenizer import Tokenizer
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
    """The files that blocks are written for, as it happens."""
    blocks = []
    write = encoding.write_block
    monkeypatch.setattr(
        encoding, "write_block", lambda path, rows, *more: (
            blocks.append(rows[0].origin.source.rpartition("/")[2]) or write(path, rows, *more)
        )
    )  # fmt: skip
    return blocks


def test_a_file_is_encoded_once_wherever_it_lies(shards, cache, written, tmp_path):
    first = encode(shards, cache)
    assert written == ["00.csv", "00.csv", "01.csv", "02.csv"]
    moved = shards[1].rename(tmp_path / "elsewhere.csv")
    again = encode([shards[0], moved, shards[2]], cache)
    assert len(written) == 4
    assert [file.key for file in again] == [file.key for file in first]
    encode(shards[:1], cache, tokenizer=Tokenizer("whitespace"))
    assert len(written) == 6


def test_whatever_code_reads_or_splits_a_file_is_part_of_its_key():
    """Else a change of that code would leave blocks of the old way in use."""
    left_out = {"dcnn.data.columns", "dcnn.text.vocabulary"}  # words of errors, names of types
    found, ahead = set(), {"dcnn.data.readers", "dcnn.data.encode"}
    while ahead:
        found.add(name := ahead.pop())
        source = Path(find_spec(name).origin).read_text(encoding="utf-8")
        imported = {
            node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)
        }
        ours = {name for name in imported if name.startswith(("dcnn.data.", "dcnn.text."))}
        ahead |= ours - found - left_out
    assert {module.__name__ for module in encoding._CODE} == found


def test_several_processes_give_the_same_blocks(shards, cache, tmp_path):
    copy = tmp_path / "shards" / "copy.csv"
    copy.write_bytes(shards[0].read_bytes())  # the same content must not be written twice at once
    told = []
    paths = [*shards, copy]
    reading = encoding.Reading.of(paths, TableOptions(), Tokenizer())
    several = encoding.encode_files(paths, reading, cache, 2, told.append)
    assert told[-1] == len(ROWS)
    alone = encoding.encode_files(paths, reading, tmp_path / "other", 1)
    assert several == alone
    for file in alone:
        for number in range(len(file.blocks)):
            block, other = file.path(cache, number), file.path(tmp_path / "other", number)
            assert block.read_bytes() == other.read_bytes()


def test_a_bad_file_is_named_and_the_others_are_kept(shards, cache, written):
    good = shards[1].read_bytes()
    shards[1].write_bytes(good + b'"not closed,pos\n')
    with pytest.raises(DataError, match=r"01\.csv, line 6: .*; 2 of 3 files are encoded and kept"):
        encode(shards, cache)
    shards[1].write_bytes(good)
    written.clear()
    encode(shards, cache)
    assert written == ["01.csv"]


def test_a_damaged_block_is_made_again(shards, cache, written):
    files = encode(shards, cache)
    block = files[0].path(cache, 1)
    good = block.read_bytes()
    block.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    written.clear()
    encode(shards, cache)
    assert written == ["00.csv", "00.csv"]
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


def test_labels_that_nothing_can_be_learned_from_are_refused(tmp_path, cache):
    one = write_shards(tmp_path / "one", [("a", "x"), ("b", "x")], [2])
    with pytest.raises(DataError, match="every row has the label 'x'"):
        count(one, cache)
    single = write_shards(tmp_path / "single", [*ROWS, ("a", "rare")], [12, 1])
    with pytest.raises(DataError, match=r"01\.csv: the label 'rare' has a single example"):
        count(single, cache)


def test_several_labels_a_row_are_refused_at_once_and_in_a_later_file(tmp_path, cache):
    one, several = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    one.write_text('{"text": "good", "label": "x"}\n{"text": "bad", "label": "y"}\n')
    several.write_text('{"text": "good", "label": ["x", "y"]}\n')
    with pytest.raises(DataError, match=r"b\.jsonl has several labels a row.*--no-stream"):
        encode([several], cache)
    with pytest.raises(DataError, match=r"b\.jsonl, line 1: .* is a list of labels, where .*a\.j"):
        encode([one, several], cache)


def test_a_column_for_each_label_is_refused_before_anything_is_encoded(tmp_path, cache):
    path = tmp_path / "flags.csv"
    path.write_text("text,nice,spam\ngood,1,0\nbuy,0,1\n")
    options = TableOptions(label_columns=("nice", "spam"))
    with pytest.raises(DataError, match=r"flags\.csv has several labels a row.*--no-stream"):
        encode([path], cache, options=options)
    assert not cache.exists()
