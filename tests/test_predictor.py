"""Prediction, in numpy or native, gives what the torch modules give, and imports nothing heavy."""

import copy
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from dcnn import artifact as model_folder
from dcnn.config import DCNNConfig, MaxTDNNConfig, NBoWConfig
from dcnn.errors import ModelFolderError
from dcnn.predictor import Predictor
from networks import build_model
from untrained import VOCABULARY_TEXT, make_artifact

CONFIGS = [
    DCNNConfig(dim=8, widths=(4, 3), maps=(2, 3), k_top=3),
    DCNNConfig(dim=5, widths=(5,), maps=(3,), k_top=4, fold=False),
    DCNNConfig(dim=8, widths=(4, 3, 2), maps=(2, 3, 2), k_top=2),
    MaxTDNNConfig(dim=5, width=4),
    NBoWConfig(dim=5),
]
WORDS = VOCABULARY_TEXT.split()
TEXTS = [" ".join(np.resize(WORDS, length)) for length in (1, 2, 3, 7, 15, 16, 17, 60)] + [
    "",
    "nothing known here",
]


@pytest.mark.parametrize("backend", ["torch", "auto"])  # torch leaves numpy to predict
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_prediction_gives_what_torch_gives(config, backend, monkeypatch):
    monkeypatch.setenv("DCNN_BACKEND", backend)
    artifact = make_artifact(config)
    predictor = Predictor(artifact)
    sentences = artifact.encoder.encode_all(TEXTS)
    model = build_model(config, len(artifact.encoder.vocabulary), 2).eval()
    model.load_state_dict({name: torch.tensor(v) for name, v in artifact.weights.items()})
    ids, lengths = sentences.padded(np.arange(len(TEXTS)))
    with torch.no_grad():
        expected = model(torch.from_numpy(ids), torch.from_numpy(lengths)).numpy()
    np.testing.assert_allclose(predictor.logits(sentences), expected, atol=2e-5)


def test_a_prediction_does_not_depend_on_the_batch():
    predictor = Predictor(make_artifact())
    together = predictor.probabilities(TEXTS)
    alone = np.concatenate([predictor.probabilities([text]) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_copies_predict_the_same():
    predictor = Predictor(make_artifact(), threads=2)
    for twin in (copy.deepcopy(predictor), pickle.loads(pickle.dumps(predictor))):
        assert twin.threads == 2
        np.testing.assert_array_equal(twin.probabilities(TEXTS), predictor.probabilities(TEXTS))


def test_labels_come_most_probable_first():
    predictor = Predictor(make_artifact(classes=("a", "b", "c")))
    for prediction, row in zip(
        predictor.predict(TEXTS), predictor.probabilities(TEXTS), strict=True
    ):
        probabilities = [p for _, p in prediction.ranked]
        assert probabilities == sorted(probabilities, reverse=True)
        assert sum(probabilities) == pytest.approx(1, abs=1e-6)
        assert prediction.label == "abc"[row.argmax()]
        assert prediction.probability == pytest.approx(row.max())


def test_ten_thousand_words_and_no_texts_at_all():
    predictor = Predictor(make_artifact())
    (prediction,) = predictor.predict(["not dull but good , " * 2500])
    assert 0.5 <= prediction.probability <= 1
    assert predictor.predict([]) == []


def test_predicting_needs_numpy_and_safetensors_only(tmp_path):
    model_folder.save(tmp_path / "model", make_artifact())
    script = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'sklearn', 'scipy', 'rich', 'typer', 'tqdm'):\n"
        "            raise ImportError(name + ' must not be needed')\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "from dcnn import Predictor\n"
        "print(Predictor.load(sys.argv[1]).predict(['not good'])[0].label)\n"
        "third = {m.split('.')[0] for m, v in sys.modules.items() if getattr(v, '__file__', None)\n"
        "         and 'site-packages' in (v.__file__ or '')}\n"
        "print(sorted(m for m in third if m not in ('dcnn', 'coverage') and m[0] != '_'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "model"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    label, modules = done.stdout.splitlines()
    assert label in ("neg", "pos")
    assert modules == "['numpy', 'safetensors']"


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", ["layers.0.filters", "head.bias", "embeddings"])
def test_weights_that_are_not_finite_are_refused(name, value):
    # Backends would give different results.
    artifact = make_artifact()
    weights = {key: values.copy() for key, values in artifact.weights.items()}
    weights[name].flat[3 % weights[name].size] = value
    with pytest.raises(ModelFolderError, match=f"'{name}' holds values that are not finite"):
        Predictor(replace(artifact, weights=weights))
