"""Model folders that version 0.1 wrote load, and predict the same.

``fixtures/models-0.1`` holds one folder of every kind, and in ``predictions.json`` the ids, labels
and probabilities that version gave, with both backends of prediction.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from dcnn import Predictor
from dcnn.ops import native

FOLDER = Path(__file__).parent / "fixtures" / "models-0.1"
RECORDED = json.loads((FOLDER / "predictions.json").read_text(encoding="utf-8"))
KINDS = sorted(RECORDED["models"])


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_0_1_predicts_the_same(
    kind: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend == "native" and not native.available():
        pytest.skip(native.reason())
    monkeypatch.setenv("DCNN_BACKEND", backend)
    recorded = RECORDED["models"][kind]
    predictor = Predictor.load(FOLDER / kind)
    sentences = predictor.artifact.encoder.encode_all(RECORDED["texts"])
    starts, ends = sentences.offsets[:-1], sentences.offsets[1:]
    assert [sentences.ids[a:z].tolist() for a, z in zip(starts, ends, strict=True)] == (
        recorded["ids"]
    )
    predictions = predictor.predict(RECORDED["texts"])
    assert [list(prediction.labels) for prediction in predictions] == recorded["labels"]
    expected = np.array(recorded[backend], np.float32)
    probabilities = predictor.probabilities(RECORDED["texts"])
    np.testing.assert_allclose(probabilities, expected, rtol=0, atol=1e-6)
    if backend == "native" and native.describe() == RECORDED["instructions"]:
        # But for the softmax, which was numpy's then, and the order in which the output layer adds.
        np.testing.assert_allclose(probabilities, expected, rtol=2**-21, atol=0)


def test_every_kind_is_there() -> None:
    assert sorted(path.name for path in FOLDER.iterdir() if path.is_dir()) == KINDS
    assert len(KINDS) == 11
