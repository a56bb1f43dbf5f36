"""``dcnn learning-curve``: a point per size and draw, a picture, and a judgement."""

import json

import pytest

SETTINGS = ("--set", "model.dim=8", "--set", "model.widths=[3]", "--set", "model.maps=[2]", "--set")
SETTINGS += ("model.k_top=2", "--set", "text.min_count=1", "--set", "training.n_ensemble=1")
QUICK = (*SETTINGS, "--set", "text.char_ngrams=[]", "--epochs", 6, "--device", "cpu")


def write(path, count=60, start=0):
    words = ("bad", "good")
    rows = (f"a {words[n % 2]} film {n},{words[n % 2]}\n" for n in range(start, start + count))
    path.write_text("text,label\n" + "".join(rows))


def test_points_table_picture_and_judgement_agree(dcnn, tmp_path):
    write(tmp_path / "d.csv", 64)
    write(tmp_path / "t.csv", 20, start=100)
    command = ("learning-curve", "d.csv", "--test", "t.csv", "--steps", 2, "--draws", 2, *QUICK)
    done = dcnn(*command, "--plot", "c.svg", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert [point["examples"] for point in found["points"]] == [32, 64, 32, 64]
    assert "draw 2/2, 64 examples: accuracy" in done.err
    assert "The curve is in c.svg." in done.err
    picture = (tmp_path / "c.svg").read_text()
    for word in ("training examples", "accuracy", "macro F1", "d.csv"):
        assert word in picture
    people = dcnn(*command).out
    assert found["judgement"] in people
    assert found["judgement"].startswith("From 32 to 64 examples accuracy changed by")
    last = [point["accuracy"] for point in found["points"] if point["examples"] == 64]
    assert f"{100 * sum(last) / 2:.2f}" in people


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--steps", 1), "--steps 1: input should be"),
        (("--draws", 0), "--draws 0: input should be"),
        (("--plot", "c.pdf"), "dcnn: --plot c.pdf: a picture is an SVG or a PNG; name a file that"),
        (("--plot", "no/c.svg"), "dcnn: --plot no/c.svg: there is no folder no; create it"),
        (("--test", "gone.csv"), "dcnn: gone.csv: no such file"),
        (("--test", "other.csv"), "the label 'odd' is not in the training set"),
    ],
)
def test_mistakes_are_one_sentence(dcnn, tmp_path, arguments, message):
    write(tmp_path / "d.csv")
    (tmp_path / "other.csv").write_text("text,label\nx,odd\n")
    done = dcnn("learning-curve", "d.csv", *arguments)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
