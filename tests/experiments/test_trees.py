"""RecNN and RecNTN in the Stanford experiments: what is learned, evaluated, refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dcnn.data.corpora.registry import Source
from dcnn.errors import ConfigError
from dcnn.experiments.recipes import load_recipe
from dcnn.experiments.results import read_result
from dcnn.experiments.runs import ExperimentEnv, run_networks
from dcnn.experiments.tasks import load_task
from dcnn.experiments.trees import TreeTrainer, train_trees

TREES = [
    "(3 (2 a) (4 (4 good) (2 film)))",
    "(1 (2 a) (1 (1 (2 not) (4 good)) (2 film)))",
    "(0 (2 a) (0 (0 bad) (2 film)))",
    "(3 (2 a) (3 (3 (2 not) (0 bad)) (2 film)))",
    "(2 (2 the) (2 film))",
]
SETTINGS = """
[text]
tokenizer = "whitespace"
[recnn.model]
dim = 6
[recntn.model]
dim = 6
[training]
epochs = 30
batch_size = 4
learning_rate = 0.2
word_dropout = 0.0
"""


@pytest.fixture
def corpus(tmp_path):
    """Twenty trees as train, dev and test; and how a recipe is made and its task loaded."""
    path = tmp_path / "trees.txt"
    path.write_text("\n".join(TREES * 4) + "\n")
    sources = {part: Source(path, "") for part in ("train", "dev", "test")}

    def load(experiment, model, more=""):
        (tmp_path / "small.toml").write_text(SETTINGS + more)
        recipe = load_recipe(experiment, str(tmp_path / "small.toml"), model)
        return load_task(experiment, recipe, sources), recipe

    return load


def ignore(*_):
    """No report."""


@pytest.mark.parametrize("experiment", ["sst2", "sst5"])
@pytest.mark.parametrize("model", ["recnn", "recntn"])
def test_twenty_trees_are_learned_by_heart(corpus, experiment, model):
    task, recipe = corpus(experiment, model)
    (network,) = train_trees(task, recipe, [0], "cpu", ignore)
    assert network.dev_accuracy == 1
    assert (network.test_probabilities.argmax(axis=1) == task.test.targets).all()
    assert network.test_probabilities.shape == (len(task.test), len(task.classes))


def test_neutral_nodes_of_two_classes_have_no_loss_and_neutral_roots_no_evaluation(corpus):
    task, _ = corpus("sst2", "recnn")
    labels = task.trees["train"].labels
    assert ((task.node_weights == 0) == (labels == 2)).all()
    assert (task.node_targets.argmax(axis=1) == (labels > 2))[labels != 2].all()
    assert task.sizes == {"train": 20, "dev": 16, "test": 16}
    assert len(task.trees["train"]) == 20
    fine, _ = corpus("sst5", "recnn")
    assert (fine.node_weights == 1).all()
    assert fine.sizes == {"train": 20, "dev": 20, "test": 20}
    np.testing.assert_array_equal(fine.test.targets, [3, 1, 0, 3, 2] * 4)


def test_the_weight_of_sentences_is_that_of_roots(corpus):
    task, _ = corpus("sst5", "recnn", "[data]\nsentence_weight = 3.0\n")
    roots = np.zeros(len(task.node_weights), bool)
    roots[task.trees["train"].roots] = True
    assert np.unique(task.node_weights[roots] / task.node_weights[~roots][0]).round(5) == [3]


def test_runs_that_train_together_learn_as_one_that_trains_alone(corpus):
    task, recipe = corpus("sst5", "recntn")
    alone, together = (TreeTrainer(task, recipe, seeds, "cpu") for seeds in ([0], [0, 1]))
    for epoch in range(2):
        losses = alone.epoch(epoch), together.epoch(epoch)
        assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-5)
    for name, value in alone.weights.items():
        torch.testing.assert_close(value[0], together.weights[name][0], rtol=1e-4, atol=1e-5)
        assert name.endswith("bias") or not torch.equal(
            together.weights[name][0], together.weights[name][1]
        )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("[data]\nswaps = 2\n", "data.swaps=2 has no effect in sst5 with recnn"),
        ("[data]\nauthors_tokens = true\n", "data.authors_tokens=True has no effect in sst5 with"),
        (
            '[recnn.training]\nclass_weights = "balanced"\n',
            "training.class_weights=balanced has no",
        ),
    ],
)
def test_a_setting_without_effect_is_refused(corpus, more, message):
    with pytest.raises(ConfigError, match=message):
        corpus("sst5", "recnn", more)


def test_results_are_written_as_for_every_model(corpus, tmp_path):
    _, recipe = corpus("sst5", "recnn", "[recnn.training]\nepochs = 2\n")
    (tmp_path / "data" / "sst").mkdir(parents=True)
    for part in ("train", "dev", "test"):
        trees = (tmp_path / "trees.txt").read_text()
        (tmp_path / "data" / "sst" / f"{part}.txt").write_text(trees)
    env = ExperimentEnv("sst5", tmp_path / "data", tmp_path / "results", "cpu", check=False)
    run_networks(env, recipe, [0, 1], ignore)
    result = read_result(tmp_path / "results" / "sst5" / "recnn-small-seed1.json")
    assert result.settings["model"] == {"kind": "recnn", "dim": 6, "dropout": 0.0}
    assert result.epochs in (1, 2)
    with pytest.raises(ConfigError, match="--save: a model folder holds dcnn, max-tdnn, nbow, not"):
        run_networks(replace(env, save=tmp_path / "models"), recipe, [0], ignore)


def test_a_task_without_trees_is_refused(dcnn):
    refused = dcnn("experiment", "trec", "--models", "recntn")
    assert refused.code == 2
    assert "--models recntn: it composes along parse trees, which trec does not" in refused.err
