"""The runs of an experiment: train the seeds of a network, or fit an n-gram model, write results.

On a GPU all seeds train together; on a CPU one after another, and the command runs several
processes instead. With distillation the teachers of every seed are trained first. The test set is
predicted once, with the weights that selection chose.
"""

import datetime
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dcnn import artifact as model_folder
from dcnn.artifact import Artifact
from dcnn.config import Config, DCNNConfig
from dcnn.data.batching import Examples
from dcnn.data.corpora.registry import find_corpus
from dcnn.errors import ConfigError, TrainingError
from dcnn.experiments import results as provenance
from dcnn.experiments.ngrams import choose_setting, fit_ngrams
from dcnn.experiments.recipes import NGRAM_RECIPE, Recipe, corpus_of
from dcnn.experiments.results import (
    ENSEMBLE,
    Result,
    fingerprint,
    read_probabilities,
    read_result,
    result_path,
    write_probabilities,
    write_result,
)
from dcnn.experiments.tasks import Task, load_task
from dcnn.files import file_sha256
from dcnn.ops.select import for_training
from dcnn.text.vocabulary import Ints, Sentences
from dcnn.training.callbacks import Callback, EpochReport
from dcnn.training.fit import find_vectors, initialize, make_model
from dcnn.training.objective import target_distributions
from dcnn.training.trainer import RunSpec, Trainer, TrainingSummary

# More runs gain little speed, and their embeddings with Adagrad's sums fill a GPU.
RUNS_AT_ONCE = {"cuda": 30, "cpu": 1}

Report = Callable[[str, EpochReport], None]


@dataclass(frozen=True)
class TrainedNetwork:
    """A finished run.

    Attributes:
        seed: its seed.
        config: its settings.
        weights: by name.
        dev_accuracy: on dev, or of the cross-validation.
        epochs: epochs that led to the weights.
        test_probabilities: (test examples, classes).
        seconds: wall time of all runs that were trained together.
        sentences_per_second: training sentences of all of them per second.
        side_by_side: the seeds of these runs. On a GPU they share one source of dropout, so a seed
            gives the same run only together with the same others.
    """

    seed: int
    config: Config
    weights: dict[str, NDArray[np.float32]]
    dev_accuracy: float | None
    epochs: int
    test_probabilities: NDArray[np.float32]
    seconds: float
    sentences_per_second: float
    side_by_side: tuple[int, ...]


@dataclass(frozen=True)
class Job:
    """A network to train: its settings with its seed, the training examples (none: all)."""

    config: Config
    subset: Ints | None = None


class _Reports(Callback):
    """Passes the reports of the runs that train together on, under a title."""

    def __init__(self, report: Report, title: str) -> None:
        self._report, self._title = report, title

    def on_epoch(self, report: EpochReport) -> None:
        """Pass it on."""
        self._report(self._title, report)


class NetworkTrainer:
    """Trains networks of one architecture on one task, as many together as the device allows."""

    def __init__(self, task: Task, recipe: Recipe, device: str, report: Report) -> None:
        self.task, self.recipe, self.device, self.report = task, recipe, device, report
        vocabulary, classes = len(task.encoder.vocabulary), len(task.classes)
        self.vectors = find_vectors(task.encoder, recipe.config)
        self.model = make_model(recipe.config, vocabulary, classes, self.vectors)
        self.sentences_seen = 0

    def train(
        self, jobs: Sequence[Job], name: str
    ) -> Iterator[tuple[list[TrainingSummary], Trainer]]:
        """Train all jobs, some together; the teachers of a job learn its examples first."""
        teachers = self.recipe.distillation.teachers
        targets: list[NDArray[np.float32] | None] = [None] * len(jobs)
        if teachers:
            teacher_jobs = [
                Job(job.config.with_training(seed=_teacher_seed(job.config, number)), job.subset)
                for job in jobs
                for number in range(teachers)
            ]
            trained = self._train(teacher_jobs, [None] * len(teacher_jobs), f"{name}, teachers")
            predicted = [
                probabilities
                for _, trainer in trained
                for probabilities in trainer.probabilities(self.student_examples.sentences)
            ]
            targets = [
                self._soft_targets(job.config, np.mean(predicted[first : first + teachers], axis=0))
                for job, first in zip(jobs, range(0, len(predicted), teachers), strict=True)
            ]
            jobs = [self._student(job) for job in jobs]
        yield from self._train(jobs, targets, name)

    @cached_property
    def student_examples(self) -> Examples:
        """The training examples, then those that only the teachers label."""
        train, unlabelled = self.task.train, self.task.unlabelled
        if unlabelled is None:
            return train
        unknown = np.zeros((len(unlabelled), len(self.task.classes)), np.float32)
        own = target_distributions(train.targets, len(self.task.classes))
        weights = None
        if train.weights is not None:
            weights = np.append(train.weights, np.ones(len(unlabelled), train.weights.dtype))
        sentences = Sentences.from_flat(
            np.append(train.sentences.ids, unlabelled.ids),
            np.append(train.sentences.lengths, unlabelled.lengths),
        )
        return Examples(sentences, np.concatenate([own, unknown]), weights)

    def _student(self, job: Job) -> Job:
        """The same job with the student's word dropout."""
        rate = max(job.config.training.word_dropout, self.recipe.distillation.word_dropout)
        return replace(job, config=job.config.with_training(word_dropout=rate))

    def _soft_targets(self, config: Config, predicted: NDArray[np.float32]) -> NDArray[np.float32]:
        """The targets of a student: a mixture of labels and teachers' predictions, or these."""
        share, smoothing = self.recipe.distillation.share, config.training.label_smoothing
        own = target_distributions(self.task.train.targets, len(self.task.classes), smoothing)
        mixed = predicted.astype(np.float32)
        mixed[: len(own)] = share * predicted[: len(own)] + (1 - share) * own
        return mixed

    def _train(
        self,
        jobs: Sequence[Job],
        targets: Sequence[NDArray[np.float32] | None],
        name: str,
    ) -> Iterator[tuple[list[TrainingSummary], Trainer]]:
        at_once = RUNS_AT_ONCE[self.device]
        for start in range(0, len(jobs), at_once):
            part = slice(start, start + at_once)
            specs = [
                self._spec(job, target)
                for job, target in zip(jobs[part], targets[part], strict=True)
            ]
            examples = self.task.train if targets[start] is None else self.student_examples
            runs = f"{start + 1}" if len(specs) == 1 else f"{start + 1}-{start + len(specs)}"
            title = name if len(jobs) == 1 else f"{name} {runs} of {len(jobs)}"
            trainer = Trainer(
                self.model,
                examples,
                specs,
                self.task.dev,
                device=self.device,
                callback=_Reports(self.report, title),
            )
            summaries = trainer.train()
            self.sentences_seen += sum(
                spec.training.epochs * len(examples if spec.subset is None else spec.subset)
                for spec in specs
            )
            yield summaries, trainer
            del trainer  # frees its memory for the next one

    def _spec(self, job: Job, targets: NDArray[np.float32] | None) -> RunSpec:
        self.model.to("cpu")
        initialize(self.model, job.config, self.vectors)
        weights = {name: value.detach().clone() for name, value in self.model.named_parameters()}
        return RunSpec(job.config.training, weights, job.subset, targets)

    def cross_validated(self, configs: Sequence[Config]) -> list[float]:
        """The cross-validated accuracy of each config over the training examples."""
        count, folds = len(self.task.train), self.recipe.data.folds
        if folds > count:
            raise ConfigError(f"folds={folds} must be at most the {count} training examples")
        jobs, held_out = [], []
        for config in configs:
            order = np.random.default_rng((config.training.seed, folds)).permutation(count)
            for fold in range(folds):
                held_out.append(np.sort(order[fold::folds]))
                jobs.append(Job(config, np.setdiff1d(order, held_out[-1])))
        predicted = [
            probabilities.argmax(axis=1)
            for _, trainer in self.train(jobs, "cross-validation")
            for probabilities in trainer.probabilities(self.task.train.sentences)
        ]
        truth = self.task.train.targets
        hits = [
            int((labels[part] == truth[part]).sum())
            for labels, part in zip(predicted, held_out, strict=True)
        ]
        return [sum(hits[place : place + folds]) / count for place in range(0, len(hits), folds)]


def train_networks(
    task: Task, recipe: Recipe, seeds: Sequence[int], device: str, report: Report
) -> list[TrainedNetwork]:
    """Train ``seeds``, and predict the test set once with the final weights of each."""
    started = time.monotonic()
    networks = NetworkTrainer(task, recipe, device, report)
    configs = [recipe.config.with_training(seed=seed) for seed in seeds]
    folded = networks.cross_validated(configs) if task.dev is None else None
    finished = [
        (summary, trainer.weights_of(run), probabilities)
        for summaries, trainer in networks.train([Job(config) for config in configs], "training")
        for run, (summary, probabilities) in enumerate(
            zip(summaries, trainer.probabilities(task.test.sentences), strict=True)
        )
    ]
    failed = [
        str(seed) for seed, (summary, _, _) in zip(seeds, finished, strict=True) if summary.failed
    ]
    if failed:
        raise TrainingError(
            f"seed {', '.join(failed)}: training diverged; lower training.learning_rate"
        )
    seconds = time.monotonic() - started
    return [
        TrainedNetwork(
            seed=seeds[number],
            config=configs[number],
            weights={name: value.cpu().numpy() for name, value in weights.items()},
            dev_accuracy=summary.dev_accuracy if folded is None else folded[number],
            epochs=summary.best_epoch,
            test_probabilities=probabilities,
            seconds=seconds,
            sentences_per_second=networks.sentences_seen / seconds,
            side_by_side=tuple(seeds),
        )
        for number, (summary, weights, probabilities) in enumerate(finished)
    ]


def _teacher_seed(config: Config, number: int) -> int:
    """A different seed for every teacher, far from those that people use."""
    entropy = (config.training.seed, number, 2)
    return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1)


GLOVE = "glove"  # in a recipe's text.vectors: the file that `dcnn data fetch glove` downloads


@dataclass(frozen=True)
class ExperimentEnv:
    """Where an experiment reads its data and writes its results.

    Attributes:
        experiment: sst2, sst5, trec or twitter.
        data: the data folder.
        results: the results folder.
        device: cpu or cuda.
        cache: of encoded corpora; none means the user's.
        check: whether corpus files must be the known ones.
        save: where model folders are written, or none.
        processes: for tokenizing.
        commit: of the code when the experiment starts.
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
        """The corpus, and the recipe with the path of its vectors filled in."""
        sources = find_corpus(corpus_of(self.experiment), self.data, check=self.check)
        if recipe.config.text.vectors == GLOVE:
            vectors = find_corpus(GLOVE, self.data, check=self.check)["vectors"].path
            text = replace(recipe.config.text, vectors=str(vectors))
            recipe = replace(recipe, config=replace(recipe.config, text=text))
        return load_task(self.experiment, recipe, sources, self.cache, self.processes), recipe

    def result_path(self, model: str, recipe: str, seed: int) -> Path:
        """The file of a run's result."""
        return result_path(self.results, self.experiment, model, recipe, seed)


def run_networks(
    env: ExperimentEnv, recipe: Recipe, seeds: Sequence[int], report: Report
) -> list[Result]:
    """Train ``seeds``, and write a result for each."""
    if env.save is not None and recipe.data.authors_tokens:
        raise ConfigError(
            "data.authors_tokens: a model folder splits texts at spaces and not as the authors' "
            "code did; leave out --save, or the setting"
        )
    torch.set_num_threads(1)
    task, located = env.load(recipe)
    results = []
    networks = train_networks(task, located, seeds, env.device, report)
    for network in networks:
        result = _network_result(env, task, recipe, located, network)
        write_probabilities(env.results, result, network.test_probabilities, task.test.targets)
        write_result(env.results, result)
        results.append(result)
    if env.save is not None:
        for network in networks:
            _save_model(env, task, recipe, network)
    return results


def has_ensemble(env: ExperimentEnv, recipe: Recipe, seeds: Sequence[int]) -> bool:
    """Whether the result of the ensemble of these seeds is there."""
    path = env.result_path(ENSEMBLE, recipe.name, seeds[0])
    return path.is_file() and read_result(path).notes.get("seeds") == list(seeds)


def write_ensemble(env: ExperimentEnv, recipe: Recipe, seeds: Sequence[int]) -> Result:
    """The mean of the networks' probabilities: a row of its own, never mixed with single runs.

    Raises:
        DataError: the probabilities of a run are not there.
    """
    runs = [read_result(env.result_path(DCNNConfig.kind, recipe.name, seed)) for seed in seeds]
    stored = [read_probabilities(env.results, run) for run in runs]
    probabilities, truth = [one for one, _ in stored], stored[0][1]
    predicted = np.mean(probabilities, axis=0).argmax(axis=1)
    correct = predicted == truth
    result = replace(
        runs[0],
        model=ENSEMBLE,
        dev_accuracy=None,
        test_accuracy=float(correct.mean()),
        test_predictions=tuple(predicted.tolist()),
        test_correct=tuple(correct.tolist()),
        epochs=None,
        sentences_per_second=None,
        parameters=sum(run.parameters or 0 for run in runs),
        notes={"seeds": list(seeds)} | ({} if env.check else {"sample": True}),
    )
    write_result(env.results, result)
    return result


def _network_result(
    env: ExperimentEnv, task: Task, recipe: Recipe, located: Recipe, network: TrainedNetwork
) -> Result:
    notes: dict[str, Any] = {"side_by_side": list(network.side_by_side)}
    if located.config.text.vectors:
        vectors = Path(located.config.text.vectors)
        notes["vectors"] = {"file": vectors.name, "sha256": file_sha256(vectors)}
    kind = recipe.config.model.kind
    return _result(
        env,
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
        backend=for_training(env.device) if kind == "dcnn" else "torch",
        settings=recipe.to_dict(),
        notes=notes,
    )


def _save_model(env: ExperimentEnv, task: Task, recipe: Recipe, network: TrainedNetwork) -> None:
    assert env.save is not None  # noqa: S101
    name = f"{env.experiment}-{recipe.config.model.kind}-{recipe.name}-seed{network.seed}"
    config = recipe.config.with_training(seed=network.seed)
    metadata: dict[str, Any] = {
        "data": env.experiment,
        "examples": task.sizes,
        "dev_accuracy": network.dev_accuracy,
        "epochs": network.epochs,
    }
    artifact = Artifact(config, task.classes, task.encoder, network.weights, metadata)
    model_folder.save(env.save / name, artifact, overwrite=True)


def run_ngrams(env: ExperimentEnv, recipe: Recipe, model: str) -> Result:
    """Fit an n-gram model, on whole sentences or on phrases too, whichever is better on dev."""
    started = time.monotonic()
    choices = [recipe]
    if corpus_of(env.experiment) == "sst":
        choices.append(replace(recipe, data=replace(recipe.data, phrases=False)))
    candidates = []
    for choice in choices:
        task, _ = env.load(choice)
        value, accuracy = choose_setting(model, task, choice.data.folds)
        candidates.append((accuracy, value, task, choice))
    accuracy, value, task, chosen = max(candidates, key=lambda candidate: candidate[0])
    fitted = fit_ngrams(model, task, value)
    result = _result(
        env,
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
    write_result(env.results, result)
    return result


def _result(
    env: ExperimentEnv,
    task: Task,
    predicted: NDArray[Any],
    notes: dict[str, Any],
    **metadata: Any,
) -> Result:
    """A result, with the fields that all models share filled in."""
    truth = task.test.targets
    correct = predicted == truth
    return Result(
        experiment=env.experiment,
        selection=task.selection,
        test_accuracy=float(correct.mean()),
        test_predictions=tuple(predicted.tolist()),
        test_correct=tuple(correct.tolist()),
        test_truth_sha256=fingerprint(truth.tolist()),
        classes=task.classes,
        examples=task.sizes,
        hardware=provenance.hardware(env.device),
        versions=provenance.versions(),
        commit=env.commit,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        notes=notes | ({} if env.check else {"sample": True}),
        **metadata,
    )
