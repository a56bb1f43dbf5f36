import csv
import datetime
import gzip
import json
import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc, parquet

from arrow_writing import write_columns
from dcnn import artifact as model_folder
from dcnn.cli import predict as predict_module
from dcnn.cli.predict import predict
from dcnn.data.tables import escape_formula
from dcnn.predictor import Predictor
from untrained import make_artifact

AWKWARD = {
    "empty": "",
    "one word": "good",
    "only unknown words": "xyzzy plugh",
    "emoji": "👍🏽 👨\u200d👩\u200d👧",
    "right to left": "مرحبا بالعالم",
    "10,000 words": "not dull but good , " * 2000,
}


@pytest.fixture
def model(tmp_path):
    model_folder.save(tmp_path / "model", make_artifact(classes=("bad", "good", "so so")))
    return "model"


def test_arguments_give_one_line_each(dcnn, model):
    done = dcnn("predict", model, "not dull", "the plot is bad")
    assert done.code == 0
    assert done.err == ""
    lines = [line.split("\t") for line in done.out.splitlines()]
    assert [line[-1] for line in lines] == ["not dull", "the plot is bad"]
    for label, probability, _ in lines:
        assert label in ("bad", "good", "so so")
        assert 1 / 3 <= float(probability) <= 1


def test_top_gives_more_labels_each(dcnn, model):
    (line,) = dcnn("predict", model, "--top", 2, "not dull").out.splitlines()
    first, p, second, q, text = line.split("\t")
    assert first != second
    assert float(p) >= float(q)
    assert text == "not dull"
    assert len(dcnn("predict", model, "--top", 9, "x").out.split("\t")) == 7


def test_json_gives_every_probability(dcnn, model):
    (line,) = dcnn("predict", model, "--json", "--top", 2, "sehr schön").out.splitlines()
    values = json.loads(line)
    assert values["text"] == "sehr schön"
    assert sum(values["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert values["probability"] == max(values["probabilities"].values())
    assert values["top"][0]["label"] == values["label"]
    assert len(values["top"]) == 2


@pytest.mark.parametrize("text", AWKWARD.values(), ids=AWKWARD)
def test_awkward_texts_get_a_line_like_any_other(dcnn, model, text):
    done = dcnn("predict", model, "--json", stdin=text + "\n")
    assert done.code == 0
    assert json.loads(done.out)["text"] == text


def test_accents_typed_either_way_are_the_same_word(dcnn, model):
    first, second = dcnn("predict", model, "--json", "caf\u00e9", "cafe\u0301").out.splitlines()
    assert json.loads(first)["probabilities"] == json.loads(second)["probabilities"]


def test_a_line_without_an_end_is_refused(dcnn, model, monkeypatch):
    monkeypatch.setattr("dcnn.cli.predict.MAX_LINE", 1000)
    done = dcnn("predict", model, stdin="good\n" + "endless " * 1000)
    assert done.code == 2
    assert "standard input, line 2: longer than 1,000 characters; give one text per" in done.err


def test_lines_on_stdin_stay_in_order_and_in_number(dcnn, model):
    texts = [f"plot {i} is good \u2028 {'bad ' * (i % 9)}".strip() for i in range(5000)]
    done = dcnn("predict", model, stdin="\r\n".join(texts))
    lines = done.out.splitlines()
    assert len(lines) == 5000
    assert [line.split("\t")[2].split()[1] for line in lines] == [str(i) for i in range(5000)]


def test_a_byte_order_mark_is_no_part_of_the_first_text(dcnn, model):
    with_mark, without = (dcnn("predict", model, stdin=t) for t in ("\ufeffgood\n", "good\n"))
    assert with_mark.out == without.out


@pytest.mark.parametrize("encoding", ["nonsense", "hex", "utf-16"])
def test_an_encoding_that_does_not_fit_stdin_is_explained(dcnn, model, encoding):
    done = dcnn("predict", model, "--encoding", encoding, stdin="good")
    assert done.code == 2
    assert f"standard input cannot be read with --encoding '{encoding}'" in done.err


def test_blank_lines_of_a_text_file_are_texts(dcnn, tmp_path, model):
    (tmp_path / "blank.txt").write_text("\n\n\n")
    assert len(dcnn("predict", model, "--input", "blank.txt").out.splitlines()) == 3


def test_a_full_device_is_one_sentence(tmp_path, model):
    done = subprocess.run(
        f"{sys.executable} -m dcnn predict {model} good > /dev/full",
        shell=True, capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_a_stray_byte_spoils_only_its_own_line(dcnn, model):
    done = dcnn("predict", model, stdin=b"good\nb\xffd\ngood\n")
    lines = done.out.splitlines()
    assert (done.code, len(lines)) == (0, 3)
    assert lines[0] == lines[2]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("d.csv", b'id,text\n1,"good, very"\n2,bad\n'),
        ("d.tsv", b"text\tid\ngood, very\t1\nbad\t2\n"),
        ("d.jsonl", b'{"text": "good, very"}\n{"text": "bad"}\n'),
        ("d.txt", b"good, very\nbad\n"),
        ("d.csv.gz", gzip.compress(b'id,text\n1,"good, very"\n2,bad\n')),
    ],
    ids=["csv", "tsv", "jsonl", "txt", "csv.gz"],  # gzip's own bytes hold the time of day
)
def test_every_kind_of_file_is_read(dcnn, tmp_path, model, name, content):
    (tmp_path / name).write_bytes(content)
    done = dcnn("predict", model, "--input", name, "--output", "out.tsv")
    assert (done.code, done.out) == (0, "")
    header, *lines = (line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines())
    assert [line[header.index("text")] for line in lines] == ["good, very", "bad"]


def test_a_bad_row_leaves_the_old_output_alone(dcnn, tmp_path, model):
    (tmp_path / "out.tsv").write_text("precious\n")
    (tmp_path / "d.csv").write_text("text,id\n" + "good,1\n" * 9000 + "bad\n")
    done = dcnn("predict", model, "--input", "d.csv", "--output", "out.tsv")
    assert done.code == 2
    assert "d.csv, line 9002" in done.err
    assert (tmp_path / "out.tsv").read_text() == "precious\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d.csv", "model", "out.tsv"]


def set_version(folder):
    config = folder / "config.json"
    plain = json.loads(config.read_text()) | {"format_version": 99}
    config.write_text(json.dumps(plain))


def set_shape(folder):
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"dim": 8', '"dim": 16'))


def truncate(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-50])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json is missing"),
        (truncate, "model.safetensors is damaged or cut short"),
        (set_version, "format_version=99 is newer than"),
        (set_shape, "'embeddings' has shape (16, 8)"),
    ],
    ids=["missing file", "truncated", "later version", "wrong shapes"],
)
def test_a_bad_model_folder_gets_one_sentence_and_exit_code_2(
    dcnn, tmp_path, model, damage, message
):
    damage(tmp_path / model)
    done = dcnn("predict", model, "good")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("dcnn: ")
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gone", "text"), "gone: no such model folder"),
        (("model", "text", "--input", "d.csv"), "not both"),
        (("model", "--input", "d.csv"), "d.csv: no such file"),
        (("model", "--input", "model"), "model is a folder"),
        (("model", "--input", "x" * 300 + ".txt"), "File name too long"),
        (("model", "--input", "a.csv", "--output", "a.csv"), "is the file of --input"),
        (("model", "text", "--output", "."), "--output . is a folder; name a file"),
        (
            ("model", "text", "--output", "no/such/place.tsv"),
            "--output no/such/place.tsv: there is no folder no/such; create it or name another",
        ),
    ],
)
def test_mistakes_get_one_sentence(dcnn, model, arguments, message):
    done = dcnn("predict", *arguments)
    assert done.code == (1 if message == "File name too long" else 2)
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_a_text_without_a_label_has_an_empty_field_or_null(tmp_path, model, capsys):
    texts = ["not dull", "the plot is bad", "good"]
    folder = tmp_path / model
    predict(folder, texts, top=2)
    fields = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    limit = max(float(line[1]) for line in fields) - 1e-5  # reached by one of them
    predict(folder, texts, top=2, abstain_below=limit)
    shown = capsys.readouterr()
    found = [line.split("\t") for line in shown.out.splitlines()]
    sure = [float(line[1]) >= limit for line in fields]
    assert sure.count(True) == 1
    for before, after, kept in zip(fields, found, sure, strict=True):
        assert after == (before if kept else ["", before[1], "", *before[3:]])
    assert "2 of 3 texts have no label: their highest probability is below" in shown.err
    predict(folder, texts, output=tmp_path / "o.parquet", abstain_below=limit)
    labels = parquet.read_table(tmp_path / "o.parquet").column("label").to_pylist()
    assert labels == [line[0] or None for line in found]


ODD = ['say "no", or\r\nnot', "a\ttab", "plain", "süß 🙂", ""]


@pytest.mark.parametrize("top", [1, 2])
def test_the_suffix_of_the_output_names_its_format(dcnn, model, tmp_path, top):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in ODD))
    names = [f"o.{suffix}" for suffix in ("tsv", "txt", "csv", "jsonl", "JSON", "parquet")]
    for name in names:
        done = dcnn("predict", model, "--input", "in.jsonl", "--output", name, "--top", top)
        assert done.code == 0, done.err
    with (tmp_path / "o.csv").open(newline="", encoding="utf-8") as stream:
        header, *rows = csv.reader(stream)
    table = parquet.read_table(tmp_path / "o.parquet")
    assert header == table.column_names
    assert header == ["text", "label", "probability", "label_2", "probability_2"][: 1 + 2 * top]
    assert [row[0] for row in rows] == ODD
    assert [row[1] for row in rows] == table["label"].to_pylist()
    lines = (tmp_path / "o.jsonl").read_text().splitlines()
    assert [json.loads(line)["label"] for line in lines] == table["label"].to_pylist()
    assert '{"text": "süß 🙂", ' in lines[3]  # readable, not escaped
    assert (tmp_path / "o.JSON").read_text().splitlines() == lines
    tabs = [line.split("\t") for line in (tmp_path / "o.tsv").read_text().splitlines()]
    assert [row[1:] for row in tabs] == [header[1:], *(row[1:] for row in rows)]
    plain = [line.split("\t") for line in (tmp_path / "o.txt").read_text().splitlines()]
    assert [[row[-1], *row[:-1]] for row in plain] == tabs[1:]


def test_a_multi_label_csv_has_lists_in_its_cells(dcnn, tmp_path):
    artifact = make_artifact(classes=("a", "b"))
    model_folder.save(tmp_path / "several", replace(artifact, thresholds=(0.0, 0.0)))
    done = dcnn("predict", "several", "good", "--output", "o.csv", "--labels-separator", ";")
    assert done.code == 0, done.err
    header, line = (tmp_path / "o.csv").read_text().splitlines()
    assert header == "text,labels,probabilities"
    assert sorted(line.split(",")[1].split(";")) == ["a", "b"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--output", "o.xlsx"), "--output o.xlsx: the suffix '.xlsx' names no format that can"),
        (("--output", "o.csv.gz"), "the suffix '.gz' names no format that can be written; use one"),
        (("--output", "o.csv", "--json"), "--json writes JSON Lines, and --output o.csv names"),
        (("--output", "o.tsv", "--json"), "leave out --json, or name a .jsonl file"),
    ],
)
def test_a_suffix_that_names_another_format_is_refused(dcnn, model, tmp_path, arguments, message):
    done = dcnn("predict", model, "good", *arguments)
    assert done.code == 2
    assert message in done.err
    assert not (tmp_path / arguments[1]).exists()


TABLE = {
    "id": [7, 8, 9],
    "review": ["good, very", "not \t dull", 'say "bad"'],
    "label": ["=a", "-3", "b"],
}
OWN = ("label_predicted", "probability")


def read_table(path):
    """The columns of a table in any format, and its rows as texts."""
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return list(rows[0]), [[str(value) for value in row.values()] for row in rows]
    if path.suffix in (".csv", ".tsv"):
        with path.open(newline="") as stream:
            header, *rows = csv.reader(stream, delimiter="," if path.suffix == ".csv" else "\t")
        return header, rows
    table = (
        ipc.open_file(path).read_all() if path.suffix != ".parquet" else parquet.read_table(path)
    )
    return table.column_names, [[str(v) for v in row.values()] for row in table.to_pylist()]


@pytest.mark.parametrize("source", ["in.csv", "in.jsonl", "in.parquet", "in.feather"])
@pytest.mark.parametrize("target", ["o.csv", "o.tsv", "o.jsonl", "o.parquet", "o.arrow"])
def test_all_columns_of_the_input_are_kept(dcnn, model, tmp_path, source, target):
    write_columns(tmp_path / source, pa.table(TABLE))
    done = dcnn("predict", model, "--input", source, "--output", target)
    assert done.code == 0, done.err
    assert "the input has a column 'label'; the prediction is in 'label_predicted'" in done.err
    header, rows = read_table(tmp_path / target)
    assert tuple(header[:5]) == (*TABLE, *OWN)
    given = [list(map(str, row)) for row in zip(*TABLE.values(), strict=True)]
    if target == "o.tsv":
        given[1][1] = "not   dull"
    assert [row[:3] for row in rows] == given
    expected = dcnn("predict", model, *TABLE["review"]).out.splitlines()
    assert [row[3] for row in rows] == [line.split("\t")[0] for line in expected]
    dcnn("predict", model, "--input", source, "--output", target, "--no-keep")
    assert read_table(tmp_path / target)[0][:3] == ["text", "label", "probability"]


def test_types_of_columns_are_kept_from_file_to_file(dcnn, model, tmp_path):
    when = datetime.datetime(2024, 5, 6, 7, 8, tzinfo=datetime.UTC)
    table = pa.table(
        {
            "text": ["good", "bad"],
            "n": pa.array([1, None], pa.int16()),
            "when": [when, None],
            "kind": pa.array(["a", "b"]).dictionary_encode(),
            "tags": [["x"], []],
        }
    )
    parquet.write_table(table, tmp_path / "in.parquet")
    dcnn("predict", model, "--input", "in.parquet", "--output", "o.parquet")
    found = parquet.read_table(tmp_path / "o.parquet")
    assert found.select(table.column_names).to_pylist() == table.to_pylist()
    assert found.schema.field("n").type == pa.int16()
    assert found.schema.field("when").type == parquet.read_schema(tmp_path / "in.parquet")[2].type
    assert found.schema.field("kind").type == pa.string()


def test_all_gives_a_column_per_label(dcnn, model, tmp_path):
    (tmp_path / "in.csv").write_text("text\ngood\nnot dull\n")
    for name in ("o.csv", "o.parquet"):
        done = dcnn("predict", model, "--input", "in.csv", "--output", name, "--all", "--top", 2)
        assert done.code == 0, done.err
        header, rows = read_table(tmp_path / name)
        assert header[5:] == [f"probability_of_{label}" for label in ("bad", "good", "so so")]
        for row in rows:
            shares = list(map(float, row[5:]))
            assert sum(shares) == pytest.approx(1, abs=1e-5)
            assert max(shares) == float(row[2])
            assert ["bad", "good", "so so"][shares.index(max(shares))] == row[1]
    line = dcnn("predict", model, "good", "--all").out.strip().split("\t")
    assert line[2:-1] == [f"{float(share):.6f}" for share in rows[0][5:]]


@given(st.text(max_size=6), st.sampled_from(["", "=", "+", "-", "@", "\t", "\r", "\uff1d"]))
def test_an_escaped_cell_is_a_number_or_begins_with_nothing_that_runs(end, start):
    shown = escape_formula(start + end)
    assert shown in (start + end, f"'{start}{end}")
    assert shown[:1] not in tuple("=@\t\r\uff1d")
    if shown[:1] in ("+", "-"):
        float(shown)


def test_formulas_are_escaped_on_request(dcnn, model, tmp_path):
    rows = ["=1+1", "@x", "-2", "-2+3", "+49 30", "good = bad"]
    (tmp_path / "in.csv").write_text("text,=n\n" + "".join(f"{row},1\n" for row in rows))
    for name in ("o.csv", "o.tsv"):
        dcnn("predict", model, "--input", "in.csv", "--output", name)
        assert [row[0] for row in read_table(tmp_path / name)[1]] == rows
        dcnn("predict", model, "--input", "in.csv", "--output", name, "--escape-formulas")
        header, found = read_table(tmp_path / name)
        assert header[:2] == ["text", "'=n"]
        assert [row[0] for row in found] == ["'=1+1", "'@x", "-2", "'-2+3", "'+49 30", "good = bad"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--input", "in.csv", "--keep"), "--keep is about the columns of --input in --output"),
        (("good", "--no-keep"), "--no-keep is about the columns of --input in --output; give both"),
        (("--input", "in.csv", "--output", "o.txt", "--keep"), "--output o.txt has lines; name a"),
        (("good", "--escape-formulas"), "--escape-formulas is for spreadsheets; name a .csv or"),
        (("good", "--escape-formulas", "--output", "o.parquet"), "is for spreadsheets; name a"),
        (("--input", "in", "--output", "o.csv"), "in/b.csv, line 2: 'more' is not among the col"),
        (("--input", "twice.csv", "--output", "o.csv"), "the column 'label_predicted' of the in"),
        (("--input", "nameless.csv", "--output", "o.csv"), "more than one column has no name, so"),
        (("--input", "mixed.jsonl", "--output", "o.jsonl"), "line 2: the key 'label' of the input"),
        (("--input", "types.jsonl", "--output", "o.parquet"), "'n' begins with values of the type"),
    ],
)
def test_columns_that_cannot_be_kept_are_one_sentence(
    dcnn, model, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.setattr(predict_module, "CHUNK", 2)
    (tmp_path / "in").mkdir()
    files = {
        "in.csv": "text,n\ngood,1\n",
        "in/a.csv": "text,n\ngood,1\n",
        "in/b.csv": "text,n,more\ngood,1,2\n",
        "twice.csv": "text,label,label_predicted\ngood,a,b\n",
        "nameless.csv": "text,,\ngood,1,2\n",
        "mixed.jsonl": '{"text": "good"}\n{"text": "bad", "label": 1}\n',
        "types.jsonl": '{"text": "a", "n": 1}\n' * 2 + '{"text": "a", "n": "x"}\n',
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    done = dcnn("predict", model, *arguments)
    assert done.code == 2
    assert message in done.err
    assert not list(tmp_path.glob("o.*"))


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("train", "an existing model or unfinished run."),
        ("distill", "an existing model or unfinished run."),
        ("tune", "an existing model or search."),
        ("export", "existing files or an existing model folder."),
        ("pull", "an existing model folder."),
    ],
)
def test_overwrite_names_what_the_command_replaces(dcnn, command, what):
    assert f"Replace {what}" in " ".join(dcnn(command, "--help").out.split())


def test_texts_with_thousands_of_labels_are_predicted_few_at_a_time(dcnn, tmp_path, monkeypatch):
    artifact = make_artifact(classes=tuple(f"label {n}" for n in range(20_000)))
    model_folder.save(tmp_path / "m", artifact)
    (tmp_path / "texts.txt").write_text("not dull\n" * 120)
    together, original = [], Predictor.predict

    def counted(predictor, texts, *options):
        together.append(len(texts))
        return original(predictor, texts, *options)

    monkeypatch.setattr(Predictor, "predict", counted)
    for name in ("out.csv", "out.jsonl"):
        assert dcnn("predict", "m", "--input", "texts.txt", "--output", name).code == 0
    assert together == 2 * [53, 53, 14]  # a million labels and their probabilities
