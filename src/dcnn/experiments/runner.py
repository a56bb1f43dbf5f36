"""From an experiment's name to the files in ``results/``: read, train, predict test once, write."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dcnn import artifact as model_folder
from dcnn.artifact import Artifact
from dcnn.data.corpora import find_corpus
from dcnn.experiments import provenance
from dcnn.experiments.networks import Report, TrainedNetwork, train_networks
from dcnn.experiments.ngrams import TrainedNGrams, train_ngrams
from dcnn.experiments.recipes import Recipe
from dcnn.experiments.results import Result, fingerprint, write_result
from dcnn.experiments.tasks import Task, load_task
from dcnn.ops.choice import backend_name

GLOVE = "glove"  # in a recipe's text.vectors: the file that `dcnn data fetch glove` brings
NGRAM_RECIPE = "ngram"


@dataclass(frozen=True)
class Setting:
    """Where an experiment finds its data and leaves its results.

    Attributes:
        experiment: sst2, sst5, trec or twitter.
        data: the data folder.
        results: the results folder.
        device: cpu or cuda.
        cache: of encoded corpora; none is the user's.
        check: whether corpus files must be the known ones.
        save: where trained model folders are left, or none.
        processes: for tokenizing.
    """

    experiment: str
    data: Path
    results: Path
    device: str
    cache: Path | None = None
    check: bool = True
    save: Path | None = None
    processes: int = 1

    def load(self, recipe: Recipe) -> tuple[Task, Recipe]:
        """The corpus, and the recipe with the place of its vectors filled in."""
        name = "sst" if self.experiment.startswith("sst") else self.experiment
        sources = find_corpus(name, self.data, check=self.check)
        if recipe.config.text.vectors == GLOVE:
            vectors = find_corpus(GLOVE, self.data, check=self.check)["vectors"].path
            text = replace(recipe.config.text, vectors=str(vectors))
            recipe = replace(recipe, config=replace(recipe.config, text=text))
        return load_task(self.experiment, recipe, sources, self.cache, self.processes), recipe


def run_networks(
    setting: Setting, recipe: Recipe, seeds: Sequence[int], report: Report
) -> list[Result]:
    """Train ``seeds`` side by side, and write a result each; of several, their ensemble's too."""
    torch.set_num_threads(1)
    task, located = setting.load(recipe)
    networks = train_networks(task, located, seeds, setting.device, report)
    results = []
    for network in networks:
        if setting.save is not None:
            _save_model(setting, task, recipe, network)
        results.append(_network_result(setting, task, recipe, network))
    if len(networks) > 1 and recipe.config.model.kind == "dcnn":
        results.append(_ensemble_result(setting, task, recipe, networks))
    for result in results:
        write_result(setting.results, result)
    return results


def _network_result(
    setting: Setting, task: Task, recipe: Recipe, network: TrainedNetwork
) -> Result:
    return _result(
        setting,
        task,
        network.test_probabilities.argmax(axis=1),
        model=recipe.config.model.kind,
        recipe=recipe.name,
        seed=network.seed,
        dev_accuracy=network.dev_accuracy,
        epochs=network.epochs,
        seconds=round(network.seconds, 1),
        sentences_per_second=round(network.sentences_per_second),
        parameters=sum(value.size for value in network.weights.values()),
        backend=backend_name(torch.device(setting.device)),
        settings=recipe.to_dict(),
        notes={"seeds_side_by_side": network.side_by_side},
    )


def _ensemble_result(
    setting: Setting, task: Task, recipe: Recipe, networks: Sequence[TrainedNetwork]
) -> Result:
    """The mean of the networks' probabilities: a line of its own, never mixed with single runs."""
    mean = np.mean([network.test_probabilities for network in networks], axis=0)
    return _result(
        setting,
        task,
        mean.argmax(axis=1),
        model="dcnn-ensemble",
        recipe=recipe.name,
        seed=networks[0].seed,
        dev_accuracy=None,
        epochs=None,
        seconds=round(networks[0].seconds, 1),
        sentences_per_second=None,
        parameters=sum(value.size for one in networks for value in one.weights.values()),
        backend=backend_name(torch.device(setting.device)),
        settings=recipe.to_dict(),
        notes={"seeds": [network.seed for network in networks]},
    )


def _save_model(setting: Setting, task: Task, recipe: Recipe, network: TrainedNetwork) -> None:
    assert setting.save is not None  # noqa: S101
    name = f"{setting.experiment}-{recipe.config.model.kind}-{recipe.name}-seed{network.seed}"
    config = recipe.config.with_training(seed=network.seed)
    facts: dict[str, Any] = {
        "data": setting.experiment,
        "examples": task.sizes,
        "dev_accuracy": network.dev_accuracy,
        "epochs": network.epochs,
    }
    artifact = Artifact(config, task.classes, task.encoder, network.weights, facts)
    model_folder.save(setting.save / name, artifact, overwrite=True)


def run_ngrams(setting: Setting, recipe: Recipe, model: str) -> Result:
    """Fit an n-gram model, on whole sentences or on phrases too, whichever dev prefers."""
    choices = [recipe]
    if setting.experiment.startswith("sst"):
        choices.append(replace(recipe, data=replace(recipe.data, phrases=False)))
    trained: list[tuple[TrainedNGrams, Task, Recipe]] = []
    for choice in choices:
        task, _ = setting.load(choice)
        trained.append((train_ngrams(model, task, choice.data.folds), task, choice))
    best, task, chosen = max(trained, key=lambda one: one[0].dev_accuracy)
    result = _result(
        setting,
        task,
        best.test_predictions,
        model=model,
        recipe=NGRAM_RECIPE,
        seed=0,
        dev_accuracy=best.dev_accuracy,
        epochs=None,
        seconds=round(sum(one.seconds for one, _, _ in trained), 1),
        sentences_per_second=None,
        parameters=None,
        backend="scikit-learn",
        settings=chosen.to_dict(),
        notes={"setting": best.setting, "features": best.features},
    )
    write_result(setting.results, result)
    return result


def _result(setting: Setting, task: Task, predicted: NDArray[Any], **facts: Any) -> Result:
    """A result with what all models have in common."""
    truth = task.test.targets
    correct = predicted == truth
    return Result(
        experiment=setting.experiment,
        selection=task.selection,
        test_accuracy=float(correct.mean()),
        test_predictions=tuple(predicted.tolist()),
        test_correct=tuple(correct.tolist()),
        test_truth_sha256=fingerprint(truth.tolist()),
        classes=task.classes,
        examples=task.sizes,
        hardware=provenance.hardware(setting.device),
        versions=provenance.versions(),
        commit=provenance.commit(),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        **facts,
    )
