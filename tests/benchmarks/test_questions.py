"""The builder of the unlabelled questions, on samples in the formats of the three collections."""

import json
import lzma
import sys

import pytest

from dcnn.errors import DataError
from questions import main, questions_of


@pytest.fixture
def clones(tmp_path):
    simple, web, trivia = (tmp_path / name for name in ("simple", "web", "trivia"))
    for folder in (simple, web / "main", trivia / "categories"):
        folder.mkdir(parents=True)
    (simple / "annotated_wd_data_train.txt").write_text(
        "Q126799\tR19\tQ29303\twhere was Ann Bell born\nQ1\tP2\tQ3\twho wrote it?\n"
    )
    entries = [{"qId": "wqr000000", "answers": ["x"], "qText": "Who wrote it?"}]
    (web / "main" / "test.json").write_text(json.dumps(entries))
    (trivia / "categories" / "animals").write_bytes(
        b"#Q How many legs has a spider?\n^ eight\nA six\nB eight\n\n#Q Name \xe9 bird.\n^ owl\n"
    )
    trec = tmp_path / "trec"
    trec.mkdir()
    (trec / "train_5500.label").write_text("NUM:count How many legs has a spider ?\n")
    (trec / "TREC_10.label").write_text("HUM:ind Who ?\n")
    return tmp_path


def test_each_question_is_kept_once_and_none_of_trec(clones, monkeypatch, capsys):
    out = clones / "data" / "questions.txt.xz"
    folders = [str(clones / name) for name in ("simple", "web", "trivia")]
    trec = str(clones / "trec")
    monkeypatch.setattr(sys, "argv", ["questions.py", *folders, "--trec", trec, "--out", str(out)])
    main()
    with lzma.open(out, "rt", encoding="utf-8") as stream:
        kept = stream.read().splitlines()
    assert sorted(kept) == ["Who wrote it?", "where was Ann Bell born?"]
    assert capsys.readouterr().out.startswith("2 questions in ")


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match="none of the three collections"):
        list(questions_of(tmp_path))
