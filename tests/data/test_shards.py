import logging
import re
from pathlib import Path

import pyarrow as pa
import pytest

from arrow_writing import NAMES, write_columns
from dcnn.data.labels import check_training_labels
from dcnn.data.readers import (
    TableOptions,
    find_shards,
    is_shard,
    read_labelled,
    read_rows,
)
from dcnn.errors import DataError
from reading import pairs, texts


def columns(*rows: tuple[str, object]) -> dict[str, list[object]]:
    return {"text": [text for text, _ in rows], "label": [label for _, label in rows]}


def fault(path: Path, **options: str) -> str:
    with pytest.raises(DataError) as caught:
        list(read_rows(path, TableOptions(**options), labels=True))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A folder with shards in every format, one row each, written in no order."""
    folder = tmp_path / "shards"
    folder.mkdir()
    for place in (3, 0, 6, 1, 5, 2, 4):
        kind = NAMES[place].removesuffix(Path(NAMES[place]).suffix)
        name = f"{place}{Path(NAMES[place]).suffix}"
        made = write_columns(folder / NAMES[place], columns((f"text {place} {kind}", "x")))
        made.rename(folder / name)
    return folder


def test_a_folder_is_all_its_files_in_order(shards: Path) -> None:
    found = texts(shards)
    assert [text.split()[1] for text in found] == list("0123456")


def test_a_pattern_is_what_matches_it_in_order(shards: Path, monkeypatch) -> None:
    assert [text.split()[1] for text in texts(shards / "*.[ap]*")] == list("345")
    assert [text.split()[1] for text in texts(shards / "[03].*")] == list("03")
    monkeypatch.chdir(shards.parent)
    assert len(texts(Path("shards/*"))) == 7
    assert len(texts(Path("**/*.arrow"))) == 2


def test_a_pattern_follows_no_loops_of_links_and_no_hidden_folders(shards: Path) -> None:
    (shards / "loop").symlink_to(shards)
    (shards / ".git").mkdir()
    (shards / ".git" / "a.csv").write_text("text,label\na,x\n")
    found = find_shards(shards / "**" / "*.csv")
    assert found == [shards / "0.csv"]
    assert len(find_shards(shards / "**")) == 7
    with pytest.raises(DataError, match=r"not a pattern .*write \*\* alone"):
        find_shards(shards / "**.csv")


def test_marks_and_metadata_are_passed_over(shards: Path, caplog) -> None:
    caplog.set_level(logging.INFO, "dcnn")
    for name in ("_SUCCESS", "_metadata.csv", ".hidden.csv", "state.json", "dataset_info.json"):
        (shards / name).write_text("no data")
    (shards / "deeper.csv").mkdir()
    (shards / "README.md").write_text("about them")
    for given in (shards, shards / "*"):
        assert len(texts(given)) == 7
    assert [record.message for record in caplog.records if "7 files" in record.message] == [
        f"{given}: reading 7 files; left out, as no data files: 'README.md'"
        for given in (shards, shards / "*")
    ]


def test_a_name_that_looks_like_a_pattern_is_a_name_where_it_exists(tmp_path: Path) -> None:
    write_columns(tmp_path / "a[1].csv", columns(("brackets", "x")))
    write_columns(tmp_path / "a1.csv", columns(("plain", "x")))
    assert texts(tmp_path / "a[1].csv") == ["brackets"]


def test_nothing_to_read_is_said(tmp_path: Path) -> None:
    assert "*.parquet: no file matches this pattern" in fault(tmp_path / "*.parquet")
    assert "is a folder without data files of its own; name another" in fault(tmp_path)
    (tmp_path / "part").mkdir()
    assert "give a pattern such as" in fault(tmp_path)
    (tmp_path / "a.xlsx").write_text("x")
    assert "'.xlsx' names no format" in fault(tmp_path / "*.xlsx")
    (tmp_path / "model.safetensors").write_text("x")
    assert "is a folder that holds a model" in fault(tmp_path)


def test_the_order_of_columns_may_differ(tmp_path: Path) -> None:
    write_columns(tmp_path / "a.parquet", {"text": ["one"], "label": ["x"], "id": [1]})
    write_columns(tmp_path / "b.csv", {"id": [1], "label": ["y"], "text": ["two"]})
    write_columns(tmp_path / "c.parquet", {"label": ["z"], "text": ["three"]})
    assert pairs(tmp_path) == [("one", "x"), ("two", "y"), ("three", "z")]


def test_columns_are_guessed_once_and_needed_everywhere(tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.INFO, "dcnn")
    write_columns(tmp_path / "a.csv", {"review": ["one"], "stars": ["x"]})
    write_columns(tmp_path / "b.csv", {"review": ["two"], "stars": ["y"]})
    assert len(pairs(tmp_path)) == 2
    assert sum("(guessed;" in record.message for record in caplog.records) == 1
    # Alone it would be guessed to hold other columns, and they would be taken for the same.
    write_columns(tmp_path / "c.parquet", {"text": ["three"], "star": ["z"]})
    assert re.search(
        r"c\.parquet has no column 'review', which .*a\.csv has; the columns are 'text', 'star'",
        fault(tmp_path),
    )
    (tmp_path / "c.parquet").unlink()
    write_columns(tmp_path / "c.jsonl", {"review": ["three"], "star": ["z"]})
    assert "c.jsonl has no column 'stars'" in fault(tmp_path)
    assert "did you mean 'star'?" in fault(tmp_path)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".jsonl"])
@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (1, "1", r"the label '1' is a string, where \S*a\.\w+ has an integer"),
        ("1", 1, r"the label 1 is an integer, where \S*a\.\w+ has a string"),
        (1, 1.0, r"the label 1.0 is a number with a fraction, where \S*a\.\w+ has an integer"),
        (True, "true", r"the label 'true' is a string, where \S*a\.\w+ has a boolean"),
    ],
)
def test_labels_that_change_their_type_are_refused(
    tmp_path: Path, suffix: str, first: object, second: object, words: str
) -> None:
    write_columns(tmp_path / f"a{suffix}", columns(("one", first)))
    write_columns(tmp_path / f"b{suffix}", columns(("two", second)))
    assert re.search(rf"b\{suffix}, \w+ 1: {words}; write the labels of all", fault(tmp_path))


def test_labels_without_a_type_go_with_any(tmp_path: Path) -> None:
    write_columns(tmp_path / "a.csv", columns(("one", "1")))
    write_columns(tmp_path / "b.parquet", columns(("two", 1)))
    write_columns(tmp_path / "c.tsv", columns(("three", "1")))
    categories = pa.array(["4"]).dictionary_encode()
    assert [label for _, label in pairs(tmp_path)] == ["1", "1", "1"]
    (tmp_path / "b.parquet").unlink()
    write_columns(tmp_path / "d.arrow", pa.table({"text": ["four"], "label": categories}))
    write_columns(tmp_path / "e.parquet", columns(("five", "5")))
    assert [label for _, label in pairs(tmp_path)] == ["1", "1", "4", "5"]


def test_one_file_may_mix_types_as_it_always_could(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": 1}\n{"text": "b", "label": "x"}\n')
    assert [label for _, label in pairs(tmp_path / "a.jsonl")] == ["1", "x"]


@pytest.mark.parametrize("name", NAMES)
def test_a_shard_without_rows_is_no_fault(tmp_path: Path, name: str) -> None:
    none = {"text": pa.array([], pa.string()), "label": pa.array([], pa.string())}
    write_columns(tmp_path / name, pa.table(none))
    write_columns(tmp_path / f"0-{name}", columns(("one", "x")))
    write_columns(tmp_path / f"z-{name}", columns(("two", "y")))
    assert pairs(tmp_path) == [("one", "x"), ("two", "y")]
    for other in tmp_path.glob("*-*"):
        write_columns(other, pa.table(none))
    assert "no rows can be read from any of its 3 files" in fault(tmp_path)


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.parquet", "c.parquet"):
        write_columns(tmp_path / name, columns(*[(f"text {i}", "x") for i in range(100)]))
    bad = tmp_path / "b.parquet"
    bad.write_bytes(bad.read_bytes()[:-20])
    rows = read_rows(tmp_path, labels=True)
    assert len([next(rows) for _ in range(100)]) == 100
    with pytest.raises(DataError, match=r"b\.parquet: damaged, cut short"):
        next(rows)
    with pytest.raises(DataError, match=r"b\.parquet: damaged, cut short"):
        read_labelled(tmp_path)


def test_bad_shards_can_be_left_out_whole(tmp_path: Path) -> None:
    for name in "abcdef":
        rows = [(f"{name} {i}", "x") for i in range(3)]
        write_columns(tmp_path / f"{name}.jsonl", columns(*rows))
    # What a bad shard has told, here that labels are integers, does not count.
    (tmp_path / "a.jsonl").write_text('{"text": "a 0", "label": 1}\n{"text": "half')
    write_columns(tmp_path / "c.jsonl", {"txt": ["c"], "label": ["x"]})
    write_columns(tmp_path / "e.jsonl", columns(("e 0", 1)))
    bad: list[str] = []
    found = list(
        read_rows(tmp_path, labels=True, on_bad_shard=lambda error: bad.append(str(error)))
    )
    assert [row.text for row in found] == [f"{name} {i}" for name in "bdf" for i in range(3)]
    assert [re.findall(r"(\w\.jsonl)", error)[0] for error in bad] == [
        "a.jsonl",
        "c.jsonl",
        "e.jsonl",
    ]


def test_later_errors_name_the_shard_and_its_row(tmp_path: Path) -> None:
    write_columns(tmp_path / "a.csv", columns(("one", "x"), ("two", "y"), ("three", "x")))
    write_columns(tmp_path / "b.parquet", columns(("four", "y"), ("five", "rare")))
    found = read_labelled(tmp_path)
    assert found.source == str(tmp_path)
    with pytest.raises(DataError, match=r"b\.parquet, row 2: the label 'rare' has a single"):
        check_training_labels(found, splits=True)
    with pytest.raises(DataError, match=r"b\.parquet, row 2: the label 'rare' is not in the tr"):
        found.select([4, 0]).with_classes(["x", "y"])
    with pytest.raises(DataError, match=r"a\.csv, line 3: the label 'y' is not in the training"):
        found.select([1, 4]).with_classes(["x"])


def test_what_would_be_read_the_next_time_is_known(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    write_columns(tmp_path / "in" / "a.csv", columns(("one", "x")))
    assert is_shard(Path("in"), Path("in/out.parquet"))
    assert not is_shard(Path("in"), Path("in/out.html"))
    assert not is_shard(Path("in"), Path("out.parquet"))
    assert is_shard(Path("in/*.csv"), tmp_path / "in" / "b.csv")
    assert not is_shard(Path("in/*.csv"), Path("b.csv"))
    assert is_shard(Path("in/a.csv"), tmp_path / "in" / "a.csv")
    assert find_shards(Path("in/*.csv")) == [Path("in/a.csv")]
