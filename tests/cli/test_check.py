"""``dcnn check``: findings as a table, as a file and as an exit code."""

import csv
import json

import pytest

from dcnn import artifact as model_folder
from untrained import make_artifact

SETTINGS = ("--set", "model.dim=8", "--set", "model.widths=[3]", "--set", "model.maps=[2]", "--set")
SETTINGS += ("model.k_top=2", "--set", "text.min_count=1", "--set", "training.n_ensemble=1")
QUICK = (*SETTINGS, "--set", "text.char_ngrams=[]", "--set", "training.epochs=6", "--device", "cpu")


def write(path, count=60, start=0):
    words = ("bad", "good")
    rows = (f"a {words[n % 2]} film {n},{words[n % 2]}\n" for n in range(start, start + count))
    path.write_text("text,label\n" + "".join(rows))


def plant(path):
    """Two conflicting texts, a duplicate, and a label error."""
    write(path)
    lines = path.read_text().splitlines()
    lines[5] = "a good film indeed,bad"  # of a text that is good elsewhere
    lines[8] = "a good film indeed,good"
    lines[11] = lines[9]
    lines[21] = lines[21].rpartition(",")[0] + ",good"
    path.write_text("\n".join(lines) + "\n")


def test_what_was_planted_is_found_printed_and_written(dcnn, tmp_path):
    plant(tmp_path / "d.csv")
    done = dcnn("check", "d.csv", "--out", "f.csv", *QUICK)
    assert done.code == 1, done.err
    with (tmp_path / "f.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    found = {(row["level"], row["kind"], row["where"]) for row in rows}
    assert {
        ("error", "conflicting labels", "d.csv, line 6"),
        ("error", "conflicting labels", "d.csv, line 9"),
        ("warning", "duplicate", "d.csv, line 12"),
        ("warning", "likely label error", "d.csv, line 22"),
    } <= found
    assert all(row["detail"] for row in rows)
    for word in ("conflicting labels", "likely label error", "Words per text", "Scripts: Latin 60"):
        assert word in done.out
    # An example is one line, however long: in the cell of a table it would be a narrow column.
    assert (
        "\nerror    conflicting labels        2\n         d.csv, line 6: the same text" in done.out
    )
    assert "the same text has 'good' in d.csv, line 9 — a good film indeed\n" in done.out
    assert "All findings are in f.csv" in done.out
    plain = json.loads(dcnn("check", "d.csv", "--json", "--folds", 0).out)
    assert plain["counts"]["conflicting labels"] == 2
    assert "likely label error" not in plain["counts"]
    assert plain["data"]["texts"] == 60


def test_rows_without_a_label_are_found_and_the_others_checked(dcnn, tmp_path):
    plant(tmp_path / "d.csv")
    with (tmp_path / "d.csv").open("a") as stream:
        stream.write("a film that nobody labelled, \n")
    done = dcnn("check", "d.csv", "--folds", 0, "--json")
    assert done.code == 1, done.err
    plain = json.loads(done.out)
    assert plain["counts"]["no label"] == 1
    assert plain["counts"]["conflicting labels"] == 2
    (found,) = [one for one in plain["findings"] if one["kind"] == "no label"]
    assert (found["where"], found["text"]) == ("d.csv, line 62", "a film that nobody labelled")
    assert plain["data"]["texts"] == 60


def test_a_multi_label_text_may_have_no_label(dcnn, tmp_path):
    rows = (f"film number {n},{('a|b', 'a', '', 'b')[n % 4]}\n" for n in range(40))
    (tmp_path / "d.csv").write_text("text,label\n" + "".join(rows))
    done = dcnn("check", "d.csv", "--folds", 0, "--labels-separator", "|", "--json")
    assert "no label" not in json.loads(done.out)["counts"]
    assert json.loads(done.out)["data"]["texts"] == 40


def test_a_file_without_any_label_is_refused(dcnn, tmp_path):
    (tmp_path / "d.csv").write_text("text,label\na film,\nanother,\n")
    done = dcnn("check", "d.csv", "--folds", 0)
    assert done.code == 2
    assert "d.csv: no row has a label yet; fill in the column label" in done.err


def test_the_exit_code_is_0_unless_a_finding_is_an_error(dcnn, tmp_path):
    # Words of their own, so that no text is nearly like another.
    words = [f"{n * 7919 % 99991:05d} {n * 104729 % 99991:05d} {n}" for n in range(40)]
    rows = [f"{word},{'ab'[n % 2]}" for n, word in enumerate(words)]
    (tmp_path / "d.csv").write_text("text,label\n" + "\n".join(rows[:24]) + "\n")
    (tmp_path / "t.csv").write_text("text,label\n" + "\n".join(rows[24:]) + "\n")
    clean = dcnn("check", "d.csv", "--test", "t.csv", "--folds", 0)
    assert clean.code == 0
    assert "Nothing was found." in clean.out
    with (tmp_path / "d.csv").open("a") as stream:
        stream.write(rows[0] + "\n")
    warned = dcnn("check", "d.csv", "--folds", 0)
    assert (warned.code, "duplicate" in warned.out) == (0, True)
    with (tmp_path / "d.csv").open("a") as stream:
        stream.write(rows[30] + "\n")
    leaking = dcnn("check", "d.csv", "--test", "t.csv", "--folds", 0)
    assert leaking.code == 1
    assert "t.csv, line 8: also in d.csv, line 27" in leaking.out


def test_a_model_judges_labels_in_place_of_a_cross_validation(dcnn, tmp_path):
    model_folder.save(tmp_path / "m", make_artifact(classes=("bad", "good")))
    write(tmp_path / "d.csv", 30)
    with (tmp_path / "d.csv").open("a") as stream:
        stream.write("what a film,odd\n")
    done = dcnn("check", "d.csv", "--model", "m", "--json")
    assert done.code == 1
    found = [one for one in json.loads(done.out)["findings"] if one["kind"] == "unknown label"]
    assert [one["where"] for one in found] == ["d.csv, line 32"]
    assert found[0]["detail"] == "the model does not know 'odd'"
    assert "training on" not in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--out", "f.xls"), "--out f.xls: the suffix '.xls' names no format that can be written"),
        (("--out", "no/f.csv"), "--out no/f.csv: there is no folder no; create it or name another"),
        (("--folds", 1), "--folds 1 trains on nothing; take 2 or more, or 0 to leave it out"),
        (("--model", "gone"), "gone: no such model folder"),
        (("--test", "gone.csv"), "gone.csv: no such file"),
        (("--model", "several"), "d.csv has one label per row, where the training set of several"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_2(dcnn, tmp_path, arguments, message):
    write(tmp_path / "d.csv")
    model_folder.save(tmp_path / "several", make_artifact(thresholds=(0.5, 0.5)))
    done = dcnn("check", "d.csv", *arguments, "-q")
    assert done.code == 2
    assert done.err.startswith(f"dcnn: {message}")
    assert len(done.err.strip().splitlines()) == 1
