"""The format of the data and the number of files change no result of a command."""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import feather, ipc, parquet

from arrow_writing import NAMES, write_columns
from dcnn import artifact as model_folder
from dcnn.cli import predict as predict_module
from dcnn.cli.predict import predict
from dcnn.cli.train import train as train_command
from dcnn.data import tables
from dcnn.errors import DataError, MissingExtraError, UserError
from untrained import make_artifact

SETTINGS = ("model.dim=8", "model.widths=[4,3]", "model.maps=[2,2]", "model.k_top=2")


def opinions(count: int) -> dict[str, list[object]]:
    words = ["plot", "cast", "café", "score", "joke"]
    good = [i % 2 == 1 for i in range(count)]
    return {
        "text": [f"the {words[i % 5]} was {'good' if g else 'bad'}" for i, g in enumerate(good)],
        "label": ["pos" if g else "neg" for g in good],
    }


def train(data: Path, out: Path, **others: Path) -> bytes:
    """The weights of a model trained on ``data``."""
    train_command(data, out, settings=SETTINGS, epochs=2, seed=0, device="cpu", **others)
    return (out / "model.safetensors").read_bytes()


def test_the_same_rows_give_the_same_model_to_the_bit(tmp_path: Path) -> None:
    rows = opinions(40)
    weights = [
        train(write_columns(tmp_path / name, rows, rows_together=7), tmp_path / f"{name}.model")
        for name in NAMES
    ]
    shards = tmp_path / "shards"
    shards.mkdir()
    table = pa.table(rows)
    for start in range(0, 40, 10):
        name = ("0.csv", "1.parquet", "2.jsonl", "3.feather")[start // 10]
        write_columns(shards / name, table.slice(start, 10))
    weights.append(train(shards, tmp_path / "a"))
    weights.append(train(shards / "*", tmp_path / "b"))
    assert len(set(weights)) == 1
    other = train(shards / "[02].*", tmp_path / "c")
    assert other != weights[0]
    assert model_folder.load(tmp_path / "a").metadata["data"] == "shards"


def test_dev_and_test_may_be_shards(tmp_path: Path) -> None:
    data = write_columns(tmp_path / "train.csv", opinions(40))
    for part in ("dev", "test"):
        (tmp_path / part).mkdir()
        write_columns(tmp_path / part / "a.parquet", opinions(6))
    train(data, tmp_path / "m", dev=tmp_path / "dev", test=tmp_path / "test")
    strange = {"text": ["a", "b"], "label": ["pos", "new"]}
    write_columns(tmp_path / "test" / "b.arrow", strange)
    with pytest.raises(DataError, match=r"b\.arrow, row 2: the label 'new' is not in the training"):
        train(data, tmp_path / "n", test=tmp_path / "test")


def test_training_refuses_a_corpus_with_a_damaged_shard(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.parquet"):
        write_columns(tmp_path / name, opinions(20))
    bad = tmp_path / "b.parquet"
    bad.write_bytes(bad.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"b\.parquet: damaged, cut short or no \.parquet file"):
        train(tmp_path, tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    model_folder.save(tmp_path / "model", make_artifact(classes=("bad", "good", "so so")))
    return tmp_path / "model"


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in "abc":
        write_columns(folder / f"{name}.parquet", {"text": [f"{name} {i}" for i in range(3)]})
    return folder


def lines(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text().splitlines()]


@pytest.mark.parametrize("name", NAMES)
def test_predictions_do_not_depend_on_the_format(tmp_path: Path, model: Path, name: str) -> None:
    rows = opinions(50)
    source = write_columns(tmp_path / name, rows, rows_together=7)
    predict(model, [], source, tmp_path / "out.tsv", keep=False)
    predict(model, rows["text"], None, tmp_path / "expected.tsv")
    assert lines(tmp_path / "out.tsv") == lines(tmp_path / "expected.tsv")


def read_back(path: Path) -> pa.Table:
    match path.suffix:
        case ".parquet":
            return parquet.read_table(path)
        case ".feather":
            return feather.read_table(path)
        case _:
            with pa.memory_map(str(path)) as file:
                return ipc.open_file(file).read_all()


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather", ".PARQUET"])
@pytest.mark.parametrize("top", [1, 2, 9])
def test_columns_hold_what_lines_hold(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, top: int
) -> None:
    monkeypatch.setattr(tables, "ROWS_TOGETHER", 250)
    monkeypatch.setattr(predict_module, "CHUNK", 100)
    texts = [f"the plot {'good ' * (i % 4)}{i}" for i in range(700)] + ["tab\there", "\ud800x"]
    predict(model, texts, None, tmp_path / f"out{suffix}", top=top)
    predict(model, texts, None, tmp_path / "out.tsv", top=top)
    table = read_back((tmp_path / f"out{suffix}").rename(tmp_path / f"out{suffix.lower()}"))
    shown = min(top, 3)
    names = [f"{name}_{rank}" for rank in range(1, shown + 1) for name in ("label", "probability")]
    assert table.column_names == ["text"] + [name.removesuffix("_1") for name in names]
    found = [list(row.values()) for row in table.to_pylist()]
    for row in found:
        row[2::2] = [f"{probability:.6f}" for probability in row[2::2]]
    header, *expected = lines(tmp_path / "out.tsv")
    assert header == table.column_names
    assert found[:-2] == expected[:-2]
    assert [row[0] for row in found[-2:]] == ["tab\there", "?x"]
    if suffix == ".parquet":
        groups = parquet.ParquetFile(tmp_path / "out.parquet").metadata.num_row_groups
        assert groups == 3


@pytest.mark.parametrize(
    ("classes", "type_"),
    [((0, 1), pa.int64()), ((False, True), pa.bool_()), ((0.5, 1.5), pa.float64())],
)
def test_labels_keep_their_type_in_columns(tmp_path: Path, classes, type_) -> None:
    model_folder.save(tmp_path / "model", make_artifact(classes=classes))
    predict(tmp_path / "model", ["good"], None, tmp_path / "out.parquet")
    labels = read_back(tmp_path / "out.parquet")["label"]
    assert labels.type == type_
    assert labels[0].as_py() in classes


def test_a_bad_shard_stops_prediction_and_leaves_the_output_alone(
    tmp_path: Path, model: Path, shards: Path
) -> None:
    (shards / "b.parquet").write_bytes(b"PAR1 and no more")
    output = tmp_path / "out.parquet"
    output.write_text("precious")
    with pytest.raises(DataError) as caught:
        predict(model, [], shards, output)
    assert "b.parquet: damaged" in str(caught.value)
    assert str(caught.value).endswith("or pass --skip-bad-shards, to continue without such files")
    assert output.read_text() == "precious"
    single = shards / "b.parquet"
    with pytest.raises(DataError) as caught:
        predict(model, [], single, output)
    assert "--skip-bad-shards" not in str(caught.value)


@pytest.mark.parametrize("name", ["out.tsv", "out.parquet"])
def test_the_good_shards_are_not_lost(dcnn, tmp_path, model, shards, name) -> None:
    (shards / "b.parquet").write_bytes(b"PAR1 and no more")
    write_columns(shards / "d.parquet", {"txt": ["no such column"], "id": [1]})
    done = dcnn("predict", "model", "--input", "in", "--output", name, "--skip-bad-shards")
    assert done.code == 1
    first, second, third = [line for line in done.err.splitlines() if line.startswith("dcnn: ")]
    assert "b.parquet: damaged" in first
    assert first.endswith("; left out")
    assert "d.parquet has no column 'text', which in/a.parquet has" in second
    assert "in: left out 2 files" in third
    if name.endswith(".tsv"):
        found = [line[0] for line in lines(tmp_path / name)[1:]]
    else:
        found = read_back(tmp_path / name)["text"].to_pylist()
    assert found == [f"{shard} {i}" for shard in "ac" for i in range(3)]


def test_without_a_good_shard_nothing_is_written(tmp_path: Path, model, shards, capsys) -> None:
    for shard in shards.iterdir():
        shard.write_bytes(b"nothing")
    with pytest.raises(DataError, match="no rows can be read from any of its 3 files"):
        predict(model, [], shards, tmp_path / "out.tsv", skip_bad_shards=True)
    assert not (tmp_path / "out.tsv").exists()
    assert capsys.readouterr().err.count("left out") == 3


def test_all_is_well_without_bad_shards(tmp_path: Path, model: Path, shards: Path) -> None:
    predict(model, [], shards, tmp_path / "out.tsv", skip_bad_shards=True)
    assert len(lines(tmp_path / "out.tsv")) == 1 + 9


def test_mistakes_about_columns_and_shards(
    tmp_path: Path, model: Path, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        UserError, match=r"--json writes JSON Lines, and --output .*o\.parquet names"
    ):
        predict(model, ["a"], None, tmp_path / "o.parquet", as_json=True)
    with pytest.raises(UserError, match="would be one of the files of --input"):
        predict(model, [], shards, shards / "out.parquet")
    with pytest.raises(UserError, match="give --input"):
        predict(model, ["a"], skip_bad_shards=True)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"Writing o\.feather needs the extra 'data': pip"):
        predict(model, ["a"], None, tmp_path / "o.feather")


def test_a_missing_extra_is_one_sentence(dcnn, tmp_path, model, shards) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ImportError")
    done = dcnn("predict", "model", "--input", "in/a.parquet", PYTHONPATH=str(tmp_path))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("dcnn: Reading a.parquet needs the extra 'data': pip install")


def test_evaluation_and_detectors_take_shards_of_any_format(dcnn, tmp_path, model) -> None:
    (tmp_path / "in").mkdir()
    rows = {
        "text": ["not dull", "the plot is bad", "good"] * 9,
        "label": ["good", "bad"] * 13 + ["bad"],
    }
    write_columns(tmp_path / "one.csv", rows)
    for start, name in enumerate(("a.parquet", "b.arrow", "c.jsonl")):
        write_columns(tmp_path / "in" / name, pa.table(rows).slice(start * 9, 9))
    one, sharded = (dcnn("evaluate", "model", data, "--json") for data in ("one.csv", "in/*"))
    assert sharded.code == 0, sharded.err
    found = [json.loads(done.out) for done in (one, sharded)]
    assert [some["abstention"].pop("data") for some in found] == ["one.csv", "*"]
    assert found[0] == found[1]
    one, sharded = (
        dcnn("detectors", "model", "--corpus", data, "--json", "--text-column", "text")
        for data in ("one.csv", "in")
    )
    assert sharded.code == 0, sharded.err
    assert one.out == sharded.out
