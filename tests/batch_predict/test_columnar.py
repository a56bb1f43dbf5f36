"""A folder of scored shards: no row is lost or written twice, and rows keep their order."""

import gzip
import io
import json
import random
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from arrow_writing import write_columns
from dcnn import artifact as model_folder
from dcnn.batch_predict import columnar as scoring
from dcnn.batch_predict.columnar import (
    ATTEMPTS,
    ScoringConfig,
    check_reachable,
    load_scorer,
    plan_shards,
    prediction_writer,
    score_shard,
)
from dcnn.batch_predict.lines import OutputFormat
from dcnn.cli.predict import predict
from dcnn.data.labels import Place
from dcnn.data.readers import Row, TableOptions
from dcnn.errors import DataError, DcnnError, MissingExtraError, ModelFolderError, UserError
from dcnn.predictor import Predictor
from untrained import VOCABULARY_TEXT, make_artifact

WORDS = VOCABULARY_TEXT.split()


def texts_of(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [f"{' '.join(draw.choices(WORDS, k=draw.randint(0, 9)))} {i}" for i in range(count)]


@pytest.fixture
def model(tmp_path):
    model_folder.save(tmp_path / "model", make_artifact(classes=("a", "b", "c")))
    return tmp_path / "model"


@pytest.fixture
def corpus(tmp_path):
    """Shards in several formats; one has no rows, one more than are predicted together."""
    folder = tmp_path / "in"
    folder.mkdir()
    sizes = {"a.parquet": 30, "a-1.csv": 7, "B.jsonl": 1, "c.arrow": 0, "e.parquet": 90}
    for number, (name, size) in enumerate(sizes.items()):
        texts = pa.array(texts_of(size, number), pa.string())
        write_columns(folder / name, pa.table({"text": texts}))
    (folder / "d.txt.gz").write_bytes(gzip.compress(b"the plot\nis not\ndull\n"))
    return folder


def score(model, source, output, **others):
    predict(model, source=source, output=output, **{"engine": "local"} | others)


def rows_of(output: Path) -> list[dict]:
    tables = [parquet.read_table(path) for path in sorted(output.iterdir())]
    return pa.concat_tables(tables).to_pylist()


def contents(output: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in output.iterdir()}


@pytest.mark.parametrize("top", [1, 2])
def test_shards_together_equal_the_single_output_file(tmp_path, model, corpus, monkeypatch, top):
    monkeypatch.setattr(scoring, "CHUNK", 16)
    score(model, corpus, tmp_path / "out", top=top)
    predict(model, [], corpus, tmp_path / "whole.parquet", top=top)
    assert rows_of(tmp_path / "out") == parquet.read_table(tmp_path / "whole.parquet").to_pylist()
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert [name[6:-8] for name in names] == ["B", "a-1", "a", "c", "d", "e"]


def test_names_sort_like_the_inputs(tmp_path, monkeypatch):
    found = [tmp_path / f"{'x' * (i % 7)}{i}.csv" for i in range(111)]
    monkeypatch.setattr(scoring, "DIGITS", 1)
    monkeypatch.setattr(scoring, "find_shards", lambda _: found)
    monkeypatch.setattr(scoring, "is_shard", lambda *_: False)
    names = [shard.target.name for shard in plan_shards(tmp_path, tmp_path / "out")]
    assert names == sorted(names)
    assert len(set(names)) == len(found)


def test_a_scored_shard_is_not_scored_again(tmp_path, model, corpus, capsys):
    output = tmp_path / "out"
    score(model, corpus, output)
    before = {path: path.stat().st_ino for path in output.iterdir()}
    lost = output / "00005-e.parquet"
    lost.unlink()
    score(model, corpus, output)
    assert "1 of 6 shards scored, 90 rows" in capsys.readouterr().err
    after = {path: path.stat().st_ino for path in output.iterdir()}
    assert {path for path in after if after[path] != before[path]} <= {lost}
    assert len(rows_of(output)) == 131


@pytest.mark.parametrize("change", ["input", "model", "top", "damage", "a name"])
def test_a_shard_of_another_input_or_model_is_scored_again(tmp_path, model, corpus, change):
    output, top = tmp_path / "out", 1
    score(model, corpus, output)
    match change:
        case "input":
            write_columns(corpus / "a.parquet", {"text": texts_of(30, 99)})
        case "model":
            shutil.rmtree(model)
            model_folder.save(model, make_artifact(seed=5, classes=("a", "b", "c")))
        case "top":
            top = 2
        case "damage":
            whole = output / "00002-a.parquet"
            whole.write_bytes(whole.read_bytes()[:-5])
        case "a name":
            whole = output / "00002-a.parquet"
            whole.write_bytes(whole.read_bytes().replace(b"text", b"t\xffxt"))
    score(model, corpus, output, top=top)
    score(model, corpus, tmp_path / "fresh", top=top)
    assert contents(output) == contents(tmp_path / "fresh")


def test_a_new_shard_at_the_end_is_added(tmp_path, model, corpus, capsys):
    score(model, corpus, tmp_path / "out")
    write_columns(corpus / "f.csv", {"text": ["one more"]})
    score(model, corpus, tmp_path / "out")
    assert "1 of 7 shards scored, 1 rows" in capsys.readouterr().err
    assert rows_of(tmp_path / "out")[-1]["text"] == "one more"


def test_bad_shards_are_named_and_all_others_are_scored(tmp_path, model, corpus, capsys):
    good = (corpus / "a.parquet").read_bytes()
    (corpus / "a.parquet").write_bytes(good[:-9])
    write_columns(corpus / "z.csv", {"other": ["no text here"], "id": [1]})
    with pytest.raises(
        DcnnError, match="left out 2 files, reported above; all others are"
    ) as caught:
        score(model, corpus, tmp_path / "out")
    assert caught.value.exit_code == 1
    told = capsys.readouterr().err
    assert "a.parquet: damaged, cut short or no .parquet file" in told
    assert "z.csv: --text-column 'text' is no column; the columns are 'other', 'id'" in told
    assert len(rows_of(tmp_path / "out")) == 101
    (corpus / "a.parquet").write_bytes(good)
    (corpus / "z.csv").unlink()
    score(model, corpus, tmp_path / "out")
    assert len(rows_of(tmp_path / "out")) == 131


def test_the_first_readable_shard_decides_the_text_column(tmp_path, model):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.parquet").write_bytes(b"PAR1 and no more")
    for name in ("b", "c"):
        write_columns(
            tmp_path / "in" / f"{name}.parquet", {"id": ["x", "y"], "review": ["good", "bad"]}
        )
    with pytest.raises(DcnnError, match="left out 1 file"):
        score(model, tmp_path / "in", tmp_path / "out")
    found = rows_of(tmp_path / "out")
    assert [(row["id"], row["review"]) for row in found] == [("x", "good"), ("y", "bad")] * 2


def test_temporary_files_of_killed_runs_are_removed(tmp_path, model, corpus):
    output = tmp_path / "out"
    output.mkdir()
    for command in range(ATTEMPTS):  # as many were killed before, which is no fault of the shard
        (output / f".00000-B.parquet.{command}.tmp").write_bytes(b"half")
    score(model, corpus, output)
    assert all(not path.name.startswith(".") for path in output.iterdir())


def test_a_shard_that_kills_its_workers_is_left_out_and_named(tmp_path, model, corpus):
    (shard, *_) = plan_shards(corpus, tmp_path / "out")
    config = ScoringConfig(scoring.model_fingerprint(model), TableOptions("text"))
    for attempt in range(ATTEMPTS):
        assert not score_shard(load_scorer(model, config), config, shard).fault
        shard.target.unlink()
        (shard.target.parent / f".{shard.target.name}.{attempt}.tmp").write_bytes(b"half")
    fault = score_shard(load_scorer(model, config), config, shard).fault
    assert f"B.jsonl: {ATTEMPTS} workers died of it" in fault


def test_a_model_that_changed_during_the_run_is_refused(model):
    config = ScoringConfig(scoring.model_fingerprint(model), TableOptions("text"))
    path = model / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text())))
    with pytest.raises(ModelFolderError, match="has been replaced meanwhile"):
        load_scorer(model, config)


def test_an_unusable_output_is_refused_before_any_work(tmp_path, model, corpus):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file is a file, and shards are scored into a folder"):
        score(model, corpus, tmp_path / "file")
    with pytest.raises(UserError, match="is among the files of --input"):
        score(model, corpus, corpus)
    with pytest.raises(UserError, match="is among the files of --input"):
        score(model, tmp_path / "**" / "*.parquet", tmp_path / "out")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "00009-old.parquet").write_text("")
    with pytest.raises(UserError, match=r"holds 00009-old\.parquet, which is no scored shard"):
        score(model, corpus, tmp_path / "other")
    with pytest.raises(DataError, match="no file matches"):
        score(model, tmp_path / "*.nothing", tmp_path / "out")


def test_a_failed_write_ends_the_run(tmp_path, model, corpus, monkeypatch):
    def refuse(*_: object, **__: object):
        raise scoring.StorageError("no room")

    monkeypatch.setattr(scoring, "write_atomically", refuse)
    with pytest.raises(scoring.StorageError, match="no room"):
        score(model, corpus, tmp_path / "out")


def test_a_missing_ray_is_named_with_its_extra(tmp_path, model, corpus, monkeypatch):
    for name in ("ray", "ray.data"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"--engine ray needs the extra 'ray': pip install"):
        score(model, corpus, tmp_path / "out", engine="ray")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": None, "engine": "local"}, "give --input and --output"),
        ({"as_json": True, "engine": "local"}, "leave out --json"),
        ({"texts": ["a"], "engine": "ray"}, "no texts"),
        ({"engine": "spark"}, "--engine 'spark' must be one of local, ray"),
        ({"workers": 2}, "--workers is for Ray; add --engine ray"),
        ({"engine": "local", "workers": 2}, "--workers is for Ray; add --engine ray"),
        ({"engine": "local", "ray_address": "auto"}, "--ray-address is for Ray"),
    ],
)
def test_contradictory_options_are_refused(tmp_path, model, corpus, options, message):
    with pytest.raises(UserError, match=message):
        predict(model, **{"source": corpus, "output": tmp_path / "out"} | options)
    assert not (tmp_path / "out").exists()


def test_the_command_scores_a_folder(dcnn, model, corpus):
    done = dcnn("predict", "model", "--input", "in", "--output", "out", "--engine", "local")
    assert (done.code, done.out) == (0, "")
    assert "out: 6 of 6 shards scored, 131 rows in " in done.err


def test_abstentions_are_counted_and_top_is_refused_for_multi_label(
    tmp_path, model, corpus, capsys
):
    score(model, corpus, tmp_path / "out", abstain_below=0.6)
    left = sum(row["label"] is None for row in rows_of(tmp_path / "out"))
    assert 0 < left < 131
    assert f"{left} of 131 texts have no label" in capsys.readouterr().err
    several = make_artifact(classes=("a|b", "c"), thresholds=(0.3, 0.5))
    model_folder.save(tmp_path / "several", several)
    with pytest.raises(UserError, match="--top 2 is for single-label models"):
        score(tmp_path / "several", corpus, tmp_path / "o", top=2)
    assert not (tmp_path / "o").exists()
    # Columns need no separator, so a label may hold it.
    predict(tmp_path / "several", ["good"], output=tmp_path / "one.parquet")


LABELS = {
    "strings": ("a", "b", "c"),
    "integers": (3, 1, 2),
    "booleans": (True, False),
    "numbers": (1, 2.5, 3),
    "several types": (1, "x", 2.5),
    "beyond 64 bits": (1, 10**30),
}


@pytest.mark.parametrize("classes", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize(
    ("top", "below", "multi_label"),
    [(1, 0.0, False), (9, 0.0, False), (2, 0.6, False), (1, 0.0, True)],
)
def test_columns_equal_the_predictions(classes, top, below, multi_label):
    thresholds = (0.3, 0.5, 0.7)[: len(classes)] if multi_label else None
    predictor = Predictor(make_artifact(classes=classes, thresholds=thresholds))
    texts = texts_of(60)
    predictions = predictor.predict(texts, below)
    stream = io.BytesIO()
    with prediction_writer(stream, ".parquet", predictor, OutputFormat(False, top, below)) as write:
        abstained = write([Row(text, None, None, Place("", 0)) for text in texts])
    columns = parquet.read_table(stream).columns[1:]
    assert abstained == sum(one.abstained for one in predictions)
    kinds = {type(label) for label in classes}
    said = str if str in kinds or 10**30 in classes else (lambda label: label)
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True))
    for row, one in zip(rows, predictions, strict=True):
        if multi_label:
            expected = [[said(x) for x, _ in one.ranked_labels], [p for _, p in one.ranked_labels]]
        else:
            ranked = [(None if one.abstained else said(x), p) for x, p in one.ranked[:top]]
            expected = [value for pair in ranked for value in pair]
        assert list(row) == expected


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:99999"])
def test_an_unreachable_cluster_is_named(address):
    with pytest.raises(UserError, match=rf"there is no Ray at {address} \(.*leave out"):
        check_reachable(address)
    check_reachable("auto")  # which Ray looks up
