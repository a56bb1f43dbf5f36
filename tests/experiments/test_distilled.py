"""Experiments with a pretrained teacher: what students learn from, and what is recorded."""

import lzma
import shutil
from itertools import pairwise

import numpy as np
import pytest

from dcnn.config import ConfigError
from dcnn.data.corpora.sst import read_trees
from dcnn.experiments.distilled import read_texts
from dcnn.experiments.recipes import DistillationConfig, load_recipe
from dcnn.experiments.results import read_result
from dcnn.experiments.runs import ExperimentEnv
from dcnn.predictor import Predictor
from tiny_encoder import save_encoder

TREES = [
    "(3 (2 a) (4 (4 good) (2 film)))",
    "(1 (2 a) (0 (0 bad) (2 film)))",
    "(2 (2 the) (2 film))",
    "(4 (2 a) (4 (2 very) (4 good)))",
    "(0 (2 so) (0 (0 bad) (2 plot)))",
] * 4
WORDS = ["a", "good", "bad", "film", "the", "very", "so", "plot"]


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Samples of the trees and of unlabelled text, and an encoder of random weights."""
    monkeypatch.setenv("DCNN_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "data"
    (folder / "sst").mkdir(parents=True)
    for part in ("train", "dev", "test"):
        (folder / "sst" / f"{part}.txt").write_text("\n".join(TREES) + "\n")
    (folder / "unlabelled").mkdir()
    lines = ["The film isn't so good.", "a good film", "A very very very bad, bad plot indeed"]
    (folder / "unlabelled" / "imdb.sentences.txt.xz").write_bytes(
        lzma.compress("\n".join(lines).encode() + b"\n")
    )
    save_encoder(tmp_path / "encoder", WORDS)
    return tmp_path


SETTINGS = """
[text]
tokenizer = "whitespace"
[model]
dim = 8
widths = [4, 3]
maps = [2, 2]
k_top = 2
[training]
epochs = 1
batch_size = 8
[distillation]
encoder = "some/encoder"
unlabelled = ["imdb"]
spans = 2.0
swaps = 2
copies = 1
fine_tuning_epochs = 1
"""


def load(corpus, experiment):
    own = SETTINGS if experiment.startswith("sst") else SETTINGS.replace("swaps = 2\n", "")
    (corpus / "small.toml").write_text(own)
    recipe = load_recipe(experiment, str(corpus / "small.toml"))
    encoder = str(corpus / "encoder")
    env = ExperimentEnv(
        experiment, corpus / "data", corpus / "results", "cpu", check=False, encoder=encoder
    )
    return env.load(recipe)[0]


@pytest.mark.parametrize("experiment", ["sst2", "sst5"])
def test_sentences_of_dev_and_test_are_not_learned(corpus, experiment):
    task = load(corpus, experiment)
    sentences = [tree[0] for tree in read_trees(corpus / "data/sst/test.txt")]
    # Neutral sentences are in neither set of the binary task.
    held_out = {" ".join(one.words) for one in sentences if experiment == "sst5" or one.label != 2}
    vocabulary = task.encoder.vocabulary
    ids, offsets = task.train.sentences.ids, task.train.sentences.offsets
    learned = [
        " ".join(vocabulary.words[one - 1] for one in ids[a:b]) for a, b in pairwise(offsets)
    ]
    labelled = task.notes["teacher"]["texts"]["labelled"]
    neutral = {"a", "film", "the", "the film", "very", "so", "plot"}
    assert neutral.isdisjoint(learned[:labelled]) == (experiment == "sst2")
    assert neutral <= set(learned)  # the teacher labels them
    assert len(task.dev) == len(
        [one for one in sentences if experiment == "sst5" or one.label != 2]
    )
    assert len(learned) > labelled
    assert not held_out & set(learned[labelled:])
    assert "the film is n't so good ." in learned
    assert task.train.targets.shape == (len(learned), len(task.classes))
    np.testing.assert_allclose(task.train.targets.sum(axis=1), 1, atol=1e-5)


def test_unlabelled_text_beside_tweets_is_left_to_their_tokenizer(corpus):
    (corpus / "small.toml").write_text(SETTINGS.replace("swaps = 2\n", ""))
    recipe = load_recipe("twitter", str(corpus / "small.toml"))
    tweets = corpus / "data" / "twitter"
    tweets.mkdir()
    rows = "".join(f"{number % 2},it isn't tweet {number}\n" for number in range(200))
    (tweets / "sentiment140.train.csv.xz").write_bytes(lzma.compress(rows.encode()))
    row = '"4","1","Mon May 11 2009","query","someone","a good day"\n'
    (tweets / "testdata.manual.2009.06.14.csv").write_text(row)
    env = ExperimentEnv("twitter", corpus / "data", corpus / "results", "cpu", check=False)
    parts = read_texts("twitter", recipe, env.find("twitter"), env.find)
    assert "The film isn't so good." in parts[3]


def run_experiment(dcnn, corpus, experiment, *more):
    done = dcnn(
        "experiment", experiment, "--recipe", corpus / "small.toml", "--sample",
        "--data", corpus / "data", "--results", corpus / "results", "--device", "cpu",
        "--teacher", corpus / "encoder", "--jobs", 1, *more,
    )  # fmt: skip
    assert done.code == 0, done.err


def test_results_record_the_teacher(corpus, dcnn):
    (corpus / "small.toml").write_text(SETTINGS)
    run_experiment(dcnn, corpus, "sst2", "--seeds", 2)
    result = read_result(corpus / "results" / "sst2" / "dcnn-small-seed1.json")
    assert len(result.notes["teacher"]["weights_sha256"]) == 64
    assert 0 <= result.notes["teacher"]["test_accuracy"] <= 1
    assert result.settings["distillation"]["encoder"] == "some/encoder"


def test_the_test_set_is_predicted_with_the_weights_as_they_are_stored(corpus, dcnn):
    (corpus / "small.toml").write_text(SETTINGS + '[storage]\ndtype = "int8"\n')
    run_experiment(dcnn, corpus, "sst2", "--seeds", 1, "--save", corpus / "models")
    result = read_result(corpus / "results" / "sst2" / "dcnn-small-seed0.json")
    folder = corpus / "models" / "sst2-dcnn-small-seed0"
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert result.notes["stored"]["bytes"] == pytest.approx(size, abs=200)  # the card has a name
    assert 0 <= result.notes["stored"]["float32_test_accuracy"] <= 1
    texts = [" ".join(tree[0].words) for tree in read_trees(corpus / "data/sst/test.txt")]
    labels = [tree[0].label for tree in read_trees(corpus / "data/sst/test.txt")]
    kept = [text for text, label in zip(texts, labels, strict=True) if label != 2]
    stored = np.load(corpus / "results" / "sst2" / "dcnn-small-seed0.npz")["probabilities"]
    found = Predictor.load(folder).probabilities(kept)
    np.testing.assert_allclose(stored, found, atol=1e-6)


def test_each_seed_can_have_a_teacher_of_its_own(corpus, dcnn):
    (corpus / "small.toml").write_text(SETTINGS + "teacher_per_seed = true\n")
    run_experiment(dcnn, corpus, "sst2", "--seeds", 2)
    paths = [corpus / "results" / "sst2" / f"dcnn-small-seed{seed}.json" for seed in (0, 1)]
    assert [read_result(path).notes["teacher"]["seed"] for path in paths] == [0, 1]
    assert len(list((corpus / "cache" / "teachers").iterdir())) == 2


def test_the_teacher_is_asked_once_for_all_seeds(corpus, monkeypatch):
    load(corpus, "sst2")
    monkeypatch.setattr(
        "dcnn.training.encoders.EncoderTeacher.prepare", lambda _: pytest.fail("asked again")
    )
    load(corpus, "sst2")


def test_trec_learns_all_questions_after_a_tenth_was_held_out(corpus):
    folder = corpus / "data" / "trec"
    folder.mkdir()
    lines = [f"{'HUM:ind' if i % 2 else 'LOC:city'} Who {i} good film ?\n" for i in range(40)]
    (folder / "train_5500.label").write_text("".join(lines))
    shutil.copy(folder / "train_5500.label", folder / "TREC_10.label")
    task = load(corpus, "trec")
    assert task.dev is None
    assert task.notes["teacher"]["texts"]["labelled"] == 40
    assert len(task.held_out.dev) == 4
    assert task.held_out.notes["teacher"]["texts"]["labelled"] == 36


def test_the_dev_accuracy_of_trec_is_that_of_the_held_out_questions(corpus, dcnn):
    folder = corpus / "data" / "trec"
    folder.mkdir()
    lines = [f"{'HUM:ind' if i % 2 else 'LOC:city'} Who {i} good film ?\n" for i in range(40)]
    (folder / "train_5500.label").write_text("".join(lines))
    shutil.copy(folder / "train_5500.label", folder / "TREC_10.label")
    (corpus / "small.toml").write_text(SETTINGS.replace("swaps = 2\n", ""))
    run_experiment(dcnn, corpus, "trec", "--seeds", 1)
    result = read_result(corpus / "results" / "trec" / "dcnn-small-seed0.json")
    assert result.selection == "dev"
    assert result.dev_accuracy in {0, 0.25, 0.5, 0.75, 1}  # of four questions
    assert result.examples["train"] > 40


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoder": "e", "teachers": 2}, "leave out one of them"),
        ({"unlabelled": ("imdb",)}, "needs an encoder"),
        ({"teacher_per_seed": True}, "teacher_per_seed=True needs an encoder"),
        ({"copies": 3}, "copies=3 needs an encoder"),
        ({"swaps": 3}, "swaps=3 needs teachers"),
    ],
)
def test_settings_without_a_teacher_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        DistillationConfig(**settings)
