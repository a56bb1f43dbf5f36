"""``dcnn train --keep-examples``: texts stay in the folder on request, and the card says so."""

import json

import pytest

from dcnn import artifact as model_folder
from dcnn.artifact import EXAMPLES
from dcnn.cli.train import count_labels
from dcnn.data.labels import number_labels
from dcnn.errors import ConfigError, ModelFolderError, UserError
from dcnn.hub import push
from dcnn.training.warm_start import choose_examples
from untrained import make_artifact

SMALL = (
    "--set", "model.dim=4", "--set", "model.widths=[3]", "--set", "model.maps=[1]",
    "--set", "model.k_top=2", "--set", "training.dev_fraction=0.25", "--epochs", 1,
)  # fmt: skip


@pytest.fixture
def data(tmp_path):
    rows = [f"text number {n} is {'good' if n % 3 else 'bad'},{'pos' if n % 3 else 'neg'}"
            for n in range(40)]  # fmt: skip
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    return rows


def test_texts_of_dev_are_kept_on_request_only(dcnn, tmp_path, data):
    done = dcnn("train", "train.csv", "--out", "without", *SMALL)
    assert done.code == 0, done.err
    assert not (tmp_path / "without" / EXAMPLES).exists()
    assert EXAMPLES not in (tmp_path / "without" / "README.md").read_text()
    assert dcnn("train", "train.csv", "--out", "with", "--keep-examples", 4, *SMALL).code == 0
    model = model_folder.load(tmp_path / "with")
    assert [label for _, label in model.examples] == ["neg", "pos", "neg", "pos"]
    assert {f"{text},{label}" for text, label in model.examples} <= set(data)
    card = (tmp_path / "with" / "README.md").read_text()
    assert (
        f"The folder holds 4 texts of the data it was trained and evaluated with, in `{EXAMPLES}`,"
        " with their labels." in card
    )
    counts = model.metadata["label_counts"]
    assert sum(counts.values()) == model.metadata["examples"]["train"]
    assert "label_counts" not in card


def test_the_folder_with_texts_is_a_model_folder_and_push_leaves_them_out(tmp_path):
    artifact = make_artifact()
    kept = (("a <b>good</b> plot", "pos"), ("電影\n", "neg"), ("both", ("pos", "neg")))
    model_folder.save(tmp_path / "m", artifact.__class__(**{**vars(artifact), "examples": kept}))
    assert model_folder.load(tmp_path / "m").examples == kept
    assert model_folder.is_model_folder(tmp_path / "m")
    push(tmp_path / "m", str(tmp_path / "shared"))
    assert not (tmp_path / "shared" / EXAMPLES).exists()
    assert EXAMPLES not in (tmp_path / "shared" / "README.md").read_text()
    assert model_folder.load(tmp_path / "shared").examples == ()
    model_folder.save(tmp_path / "m", artifact, overwrite=True)
    assert not (tmp_path / "m" / EXAMPLES).exists()  # nothing of an old model stays


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "{}",
        "[1]",
        '[{"text": "a"}]',
        '[{"text": 1, "label": "a"}]',
        "[{}]",
        '[{"text": "a", "label": [1]}]',
    ],
)
def test_damaged_examples_are_refused(tmp_path, content):
    model_folder.save(tmp_path / "m", make_artifact())
    (tmp_path / "m" / EXAMPLES).write_text(content)
    with pytest.raises(ModelFolderError, match=r"examples\.json is damaged"):
        model_folder.load(tmp_path / "m")


def test_examples_take_turns_by_label_and_are_short():
    labels = ["a", "a", "a", "b", "b", "c"]
    texts = ["one", "two", "three", "x" * 501, "four", " "]
    examples = number_labels(texts, labels, classes=("a", "b", "c"))
    (first, *_), second, third = found = choose_examples(examples, 3, seed=0)
    assert [label for _, label in found] == ["a", "b", "a"]
    assert second == ("four", "b")
    assert {first, third[0]} < {"one", "two", "three"}
    assert len({choose_examples(examples, 1, seed) for seed in range(20)}) == 3  # a random sample
    assert choose_examples(examples.select([1]), 3, seed=0) == (("two", "a"),)
    assert choose_examples(examples, 0, seed=0) == ()
    for count in (-1, 1001):
        with pytest.raises(ConfigError, match=f"keep_examples={count} must be from 0 to 1,000"):
            choose_examples(examples, count, seed=0)
    assert count_labels(examples) == {"a": 3, "b": 2, "c": 1}


def test_labels_of_multi_label_texts_are_counted_and_named():
    sets = [("a", "b"), (), ("b",)]
    examples = number_labels(["x", "y", "z"], sets, classes=("a", "b"), multi_label=True)
    assert count_labels(examples) == {"a": 1, "b": 2}
    found = choose_examples(examples, 9, seed=0)
    assert found == (("y", ()), ("x", ("a", "b")), ("z", ("b",)))


def test_a_corpus_on_disk_keeps_none_of_its_own(dcnn, tmp_path, data):
    done = dcnn("train", "train.csv", "--out", "m", "--stream", "--keep-examples", 2, *SMALL,
                DCNN_CACHE=str(tmp_path / "cache"))  # fmt: skip
    assert done.code == UserError.exit_code
    assert "--keep-examples 2 takes texts of dev" in done.err
    assert not (tmp_path / "m").exists()
    (tmp_path / "dev.csv").write_text((tmp_path / "train.csv").read_text())
    done = dcnn("train", "train.csv", "--dev", "dev.csv", "--out", "m", "--stream",
                "--keep-examples", 2, *SMALL, DCNN_CACHE=str(tmp_path / "cache"))  # fmt: skip
    assert done.code == 0, done.err
    model = model_folder.load(tmp_path / "m")
    assert len(model.examples) == 2
    assert model.metadata["label_counts"] == {"neg": 14, "pos": 26}
    assert json.loads((tmp_path / "m" / EXAMPLES).read_text())[0]["label"] == "neg"
