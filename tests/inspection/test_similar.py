"""The index of texts in a model folder: what it finds, what it holds, and what it refuses."""

import numpy as np
import pytest
import safetensors.numpy

from dcnn import artifact as model_folder
from dcnn.artifact import INDEX
from dcnn.config import NBoWConfig
from dcnn.errors import DataError, ModelFolderError
from dcnn.inspection.similar import TextIndex
from dcnn.predictor import Predictor
from untrained import VOCABULARY_TEXT, make_artifact

WORDS = VOCABULARY_TEXT.split()
TEXTS = [" ".join(np.random.default_rng(n).choice(WORDS, 1 + n % 9)) for n in range(60)]
LABELS = ["pos" if n % 2 else "neg" for n in range(60)]


@pytest.fixture(params=["dcnn", "nbow"])
def predictor(request):
    return Predictor(make_artifact(NBoWConfig(dim=8) if request.param == "nbow" else None))


def test_the_most_similar_texts_are_those_of_the_largest_cosine(predictor, tmp_path):
    index = TextIndex.build(predictor, TEXTS, LABELS)
    index.save(tmp_path)
    read = TextIndex.load(tmp_path, predictor.artifact)
    features = predictor.features(TEXTS).astype(np.float64)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    for number in (0, 7, 30):
        found = read.search(predictor, TEXTS[number], 5)
        assert found == index.search(predictor, TEXTS[number], 5)
        cosines = features @ features[number]
        expected = np.sort(cosines)[::-1][:5]
        np.testing.assert_allclose([one.similarity for one in found], expected, atol=2e-3)
        assert found[0].similarity == pytest.approx(1, abs=2e-3)
        for one in found:
            places = [i for i, text in enumerate(TEXTS) if text == one.text]
            assert one.label in {LABELS[i] for i in places}
    assert len(read.search(predictor, "good", 1000)) == len(TEXTS)


def test_features_are_what_the_output_layer_reads(predictor):
    weights = predictor.artifact.weights
    features = predictor.features(TEXTS)
    logits = features @ weights["head.weight"].T + weights["head.bias"]
    expected = predictor.logits(predictor.artifact.encoder.encode_all(TEXTS))
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_labels_of_several_kinds_and_any_text_are_kept_as_they_are(tmp_path):
    predictor = Predictor(make_artifact())
    labels = ["neg", ("a", "b"), {"x": 0.2, "y": 0.8}, ()]
    texts = ["電影 👍🏽", "<b>good</b>\n\x00", "plain", "lone \ud800"]
    TextIndex.build(predictor, texts, labels).save(tmp_path)
    found = TextIndex.load(tmp_path, predictor.artifact).search(predictor, "good", 4)
    assert {one.text: one.label for one in found} == {
        texts[0]: "neg",
        texts[1]: "a, b",
        "plain": "y",
        "lone ?": "",
    }


def test_no_index_and_no_text(tmp_path):
    predictor = Predictor(make_artifact())
    assert TextIndex.load(tmp_path, predictor.artifact) is None
    with pytest.raises(DataError, match="no text of 1 to 2,000 characters"):
        TextIndex.build(predictor, [], [])


@pytest.mark.parametrize("change", ["cut", "features", "ends", "dtype", "nan"])
def test_a_damaged_index_is_refused(tmp_path, change):
    predictor = Predictor(make_artifact())
    TextIndex.build(predictor, TEXTS, LABELS).save(tmp_path)
    path = tmp_path / INDEX
    arrays = safetensors.numpy.load(path.read_bytes())
    if change == "cut":
        path.write_bytes(path.read_bytes()[:-50])
    else:
        if change == "features":
            arrays["features"] = arrays["features"][:-1]
        elif change == "ends":
            arrays["ends"] = arrays["ends"][::-1].copy()
        elif change == "dtype":
            arrays["features"] = arrays["features"].astype(np.float32)
        else:
            arrays["features"][3, 2] = np.nan
        path.write_bytes(safetensors.numpy.save(arrays))
    with pytest.raises(ModelFolderError, match=r"is damaged.*write it again with `dcnn index`"):
        TextIndex.load(tmp_path, predictor.artifact)


def test_an_index_of_another_model_is_refused(tmp_path):
    TextIndex.build(Predictor(make_artifact()), TEXTS, LABELS).save(tmp_path)
    with pytest.raises(ModelFolderError, match="is of another model"):
        TextIndex.load(tmp_path, make_artifact(seed=1))


@pytest.fixture
def folder(tmp_path):
    model_folder.save(tmp_path / "model", make_artifact())
    rows = "".join(f'"{text}",{label}\n' for text, label in zip(TEXTS, LABELS, strict=True))
    (tmp_path / "train.csv").write_text(f"text,label\n{rows}", encoding="utf-8")
    return tmp_path / "model"


def test_the_command_writes_an_index_that_explain_uses(dcnn, folder):
    done = dcnn("index", "model", "train.csv", "--limit", 20)
    assert (done.code, done.out) == (0, "")
    assert "20 of 60 texts are in model" in done.err
    assert (folder / INDEX).stat().st_size < 20_000
    assert model_folder.is_model_folder(folder)
    predictor = Predictor.load(folder)
    expected = TextIndex.load(folder, predictor.artifact).search(predictor, "good plot", 3)
    printed = dcnn("explain", "model", "good plot", "--similar", 3).out
    for one in expected:
        assert f"  {one.similarity:+.3f}  {one.label}  {one.text}\n" in printed
    first = (folder / INDEX).read_bytes()
    dcnn("index", "model", "train.csv", "--limit", 20)
    assert (folder / INDEX).read_bytes() == first  # the same texts again


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("explain", "model", "good", "--similar", 3), "write one with: dcnn index model FILE"),
        (("explain", "model", "good", "--similar", 101), "--similar"),
        (("index", "gone", "train.csv"), "gone: no such model folder"),
        (("index", "model", "gone.csv"), "gone.csv"),
        (("index", "model", "train.csv", "--limit", 0), "--limit"),
        (("index", "model", "empty.csv"), "no text of 1 to 2,000 characters"),
    ],
)
def test_mistakes_get_one_sentence(dcnn, tmp_path, folder, arguments, message):
    (tmp_path / "empty.csv").write_text("text,label\n ,a\n", encoding="utf-8")
    done = dcnn(*arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert not (folder / INDEX).exists()
