import json

import pytest

from dcnn import artifact as model_folder
from untrained import make_artifact

TEXT = "The plot is not dull"


@pytest.fixture
def model(tmp_path):
    model_folder.save(tmp_path / "model", make_artifact())
    return "model"


def test_size_dtype_and_agreement_are_printed(dcnn, tmp_path, model):
    done = dcnn("export", model, "--out", "m.onnx")
    assert (done.code, done.err) == (0, "")
    size = (tmp_path / "m.onnx").stat().st_size
    assert done.out.startswith(f"m.onnx: {size / 1e3:.1f} kB, float32; probabilities within ")
    done = dcnn("export", model, "--out", "m.onnx", "--dtype", "int8", "--overwrite")
    assert ", int8; probabilities within" in done.out
    done = dcnn("export", model, "--out", "small", "--dtype", "float16")
    assert done.out.startswith("small: ")
    assert done.out.endswith(" kB, float16\n")


def test_what_is_written_beside_an_onnx_file_is_named(dcnn, tmp_path, model):
    (tmp_path / "shipped").mkdir()
    done = dcnn("export", model, "--out", "shipped/m.onnx")
    assert done.out.splitlines()[1:] == ["shipped/tokenizer.json", "shipped/tokenize_text.py"]


def test_a_page_is_int8_unless_another_dtype_is_asked_for(dcnn, model):
    assert dcnn("export", model, "--out", "m.html").out.endswith(" MB, int8\n")
    done = dcnn("export", model, "--format", "html", "--out", "m", "--dtype", "float32")
    assert done.out.endswith(" MB, float32\n")


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_a_small_folder_does_what_any_model_folder_does(dcnn, tmp_path, model, dtype):
    assert dcnn("export", model, "--out", "small", "--dtype", dtype).code == 0
    (tmp_path / "d.csv").write_text("text,label\nnot dull,pos\nthe plot is bad,neg\n")
    label, probability, _ = dcnn("predict", "small", TEXT).out.split("\t")
    explained = json.loads(dcnn("explain", "small", TEXT, "--json").out)
    assert explained["class"] == label
    before = dcnn("predict", model, TEXT).out.split("\t")
    assert label == before[0]
    assert float(probability) == pytest.approx(float(before[1]), abs=0.02)
    assert json.loads(dcnn("evaluate", "small", "d.csv", "--json").out)["examples"] == 2
    assert dcnn("detectors", "small", "--corpus", "d.csv").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("model", "--format", "onnx", "--out", "x.html"),
            "--out x.html is named as an HTML file, and the format is onnx; name it otherwise",
        ),
        (("model", "--format", "html", "--out", "x.onnx"), "is named as an ONNX file"),
        (("gone", "--out", "m.onnx"), "gone: no such model folder"),
        (("model", "--out", "taken.onnx"), "taken.onnx exists; pass --overwrite"),
        (("model", "--out", "m.onnx", "--dtype", "int4"), "dtype='int4' must be one of"),
        (
            ("model", "--out", "m", "--format", "tf"),
            "format='tf' must be one of onnx, html, folder",
        ),
        (("model", "--out", "no/such/m.onnx"), "there is no folder no/such; create it"),
        (("model", "--out", "no/such/m.html"), "there is no folder no/such; create it"),
        (("model", "--out", "taken.html"), "taken.html exists; pass --overwrite"),
        (("model", "--out", "model/m.onnx"), "model is a model folder, and tokenizer.json would"),
        (("model", "--out", "m.html", "--max-size", "9KB"), "allows 9 KB; raise --max-size"),
        (("model", "--out", "m.html", "--max-size", "big"), "--max-size 'big' must be a size"),
        (("model", "--out", "m.onnx", "--max-size", "9KB"), "max_size=9000 limits the size of an"),
    ],
)
def test_mistakes_get_one_sentence(dcnn, tmp_path, model, arguments, message):
    for name in ("taken.onnx", "taken.html"):
        (tmp_path / name).write_text("older")
    done = dcnn("export", *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "taken.html", "taken.onnx"]
