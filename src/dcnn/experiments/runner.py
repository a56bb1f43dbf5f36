"""From an experiment's name to the files in ``results/``: read, train, predict test once, write."""

import datetime
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dcnn import artifact as model_folder
from dcnn.artifact import Artifact
from dcnn.data.checksums import file_sha256
from dcnn.data.corpora import find_corpus
from dcnn.errors import ConfigError
from dcnn.experiments import provenance
from dcnn.experiments.networks import Report, TrainedNetwork, train_networks
from dcnn.experiments.ngrams import choose_setting, fit_ngrams
from dcnn.experiments.recipes import NGRAM_RECIPE, Recipe, corpus_of
from dcnn.experiments.results import Result, fingerprint, write_result
from dcnn.experiments.tasks import Task, load_task
from dcnn.ops.choice import backend_name

GLOVE = "glove"  # in a recipe's text.vectors: the file that `dcnn data fetch glove` brings


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
        commit: of the code, as it is when the experiment begins.
    """

    experiment: str
    data: Path
    results: Path
    device: str
    cache: Path | None = None
    check: bool = True
    save: Path | None = None
    processes: int = 1
    commit: str = field(default_factory=provenance.commit)

    def load(self, recipe: Recipe) -> tuple[Task, Recipe]:
        """The corpus, and the recipe with the place of its vectors filled in."""
        sources = find_corpus(corpus_of(self.experiment), self.data, check=self.check)
        if recipe.config.text.vectors == GLOVE:
            vectors = find_corpus(GLOVE, self.data, check=self.check)["vectors"].path
            text = replace(recipe.config.text, vectors=str(vectors))
            recipe = replace(recipe, config=replace(recipe.config, text=text))
        return load_task(self.experiment, recipe, sources, self.cache, self.processes), recipe


@dataclass(frozen=True)
class FinishedNetwork:
    """A run's result, and what an ensemble of several needs of it."""

    result: Result
    test_probabilities: NDArray[np.float32]
    test_truth: NDArray[Any]


def run_networks(
    setting: Setting, recipe: Recipe, seeds: Sequence[int], report: Report
) -> list[FinishedNetwork]:
    """Train ``seeds`` side by side, and write a result each."""
    if setting.save is not None and recipe.data.authors_tokens:
        raise ConfigError(
            "data.authors_tokens: a model folder splits texts at spaces and not as the authors' "
            "code did; leave out --save, or the setting"
        )
    torch.set_num_threads(1)
    task, located = setting.load(recipe)
    finished = []
    networks = train_networks(task, located, seeds, setting.device, report)
    for network in networks:
        result = _network_result(setting, task, recipe, located, network)
        write_result(setting.results, result)
        finished.append(
            FinishedNetwork(result, network.test_probabilities, np.asarray(task.test.targets))
        )
    if setting.save is not None:
        for network in networks:
            _save_model(setting, task, recipe, network)
    return finished


def write_ensemble(setting: Setting, networks: Sequence[FinishedNetwork]) -> Result:
    """The mean of the networks' probabilities: a line of its own, never mixed with single runs."""
    first = networks[0]
    predicted = np.mean([one.test_probabilities for one in networks], axis=0).argmax(axis=1)
    correct = predicted == first.test_truth
    result = replace(
        first.result,
        model="dcnn-ensemble",
        dev_accuracy=None,
        test_accuracy=float(correct.mean()),
        test_predictions=tuple(predicted.tolist()),
        test_correct=tuple(correct.tolist()),
        epochs=None,
        sentences_per_second=None,
        parameters=sum(one.result.parameters or 0 for one in networks),
        notes={"seeds": [one.result.seed for one in networks]},
    )
    write_result(setting.results, result)
    return result


def _network_result(
    setting: Setting, task: Task, recipe: Recipe, located: Recipe, network: TrainedNetwork
) -> Result:
    notes: dict[str, Any] = {"side_by_side": list(network.side_by_side)}
    if located.config.text.vectors:
        vectors = Path(located.config.text.vectors)
        notes["vectors"] = {"file": vectors.name, "sha256": file_sha256(vectors)}
    kind = recipe.config.model.kind
    return _result(
        setting,
        task,
        network.test_probabilities.argmax(axis=1),
        model=kind,
        recipe=recipe.name,
        seed=network.seed,
        dev_accuracy=network.dev_accuracy,
        epochs=network.epochs,
        seconds=round(network.seconds, 1),
        sentences_per_second=round(network.sentences_per_second),
        parameters=sum(value.size for value in network.weights.values()),
        # The other networks have no layer to fuse.
        backend=backend_name(torch.device(setting.device)) if kind == "dcnn" else "torch",
        settings=recipe.to_dict(),
        notes=notes,
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
    started = time.monotonic()
    choices = [recipe]
    if corpus_of(setting.experiment) == "sst":
        choices.append(replace(recipe, data=replace(recipe.data, phrases=False)))
    candidates = []
    for choice in choices:
        task, _ = setting.load(choice)
        value, accuracy = choose_setting(model, task, choice.data.folds)
        candidates.append((accuracy, value, task, choice))
    accuracy, value, task, chosen = max(candidates, key=lambda candidate: candidate[0])
    fitted = fit_ngrams(model, task, value)
    result = _result(
        setting,
        task,
        fitted.test_predictions,
        model=model,
        recipe=NGRAM_RECIPE,
        seed=0,
        dev_accuracy=accuracy if fitted.dev_accuracy is None else fitted.dev_accuracy,
        epochs=None,
        seconds=round(time.monotonic() - started, 1),
        sentences_per_second=None,
        parameters=None,
        backend="scikit-learn",
        settings=chosen.to_dict(),
        notes={"setting": value, "features": fitted.features},
    )
    write_result(setting.results, result)
    return result


def _result(
    setting: Setting, task: Task, predicted: NDArray[Any], notes: dict[str, Any], **facts: Any
) -> Result:
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
        commit=setting.commit,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        notes=notes | ({} if setting.check else {"sample": True}),
        **facts,
    )
