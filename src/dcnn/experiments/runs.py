"""The runs of an experiment: train the seeds of a network, or fit an n-gram model, write results.

On a GPU all seeds train together; on a CPU one after another, and the command runs several
processes instead. With distillation the teachers of every seed are trained first. The test set is
predicted once, with the weights that selection chose.
"""

import datetime
import logging
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
from dcnn.config import MODEL_KINDS, Config
from dcnn.data.batching import Examples
from dcnn.data.corpora.registry import Source, find_corpus
from dcnn.errors import ConfigError, TrainingError
from dcnn.experiments import results as provenance
from dcnn.experiments.ngrams import choose_setting, fit_ngrams
from dcnn.experiments.recipes import NGRAM_RECIPE, Recipe, corpus_of
from dcnn.experiments.results import (
    ENSEMBLE,
    FEATURES,
    Result,
    read_result,
    result_path,
    write_result,
)
from dcnn.experiments.tasks import Task, TreeTask, load_task
from dcnn.files import file_sha256
from dcnn.metrics import target_distributions
from dcnn.ops import select
from dcnn.ops.reference import softmax
from dcnn.predictor import Predictor
from dcnn.text.vocabulary import UNKNOWN, Ints, Sentences
from dcnn.training.batches import RunSpec
from dcnn.training.callbacks import Callback, RunsReport
from dcnn.training.fit import find_vectors, initialize, make_model
from dcnn.training.trainer import Trainer, TrainingSummary

# More runs gain little speed, and their embeddings with Adagrad's sums fill a GPU.
RUNS_AT_ONCE = {"cuda": 30, "cpu": 1}

Report = Callable[[str, RunsReport], None]
logger = logging.getLogger("dcnn")


@dataclass(frozen=True)
class TrainedNetwork:
    """A finished run; its times are those of all runs that were trained together."""

    seed: int
    weights: dict[str, NDArray[np.float32]]
    dev_accuracy: float | None  # on dev, or of the cross-validation
    epochs: int  # that led to the weights
    test_probabilities: NDArray[np.float32]  # (test examples, classes), as stored
    float32_probabilities: NDArray[np.float32]  # the same before weights were rounded
    seconds: float
    sentences_per_second: float


@dataclass(frozen=True)
class Job:
    """A network to train: its settings with its seed, and what it learns."""

    config: Config
    subset: Ints | None = None  # of the training examples; none means all
    targets: NDArray[np.float32] | None = None  # of a student, for all its examples


class _Reports(Callback):
    """Passes the reports of the runs that train together on, under a title."""

    def __init__(self, report: Report, title: str) -> None:
        self._report, self._title = report, title

    def on_report(self, report: RunsReport) -> None:
        self._report(self._title, report)


class NetworkTrainer:
    """Trains networks of one architecture on one task, as many together as the device allows."""

    def __init__(self, task: Task, recipe: Recipe, device: str, report: Report) -> None:
        self.task, self.recipe, self.device, self.report = task, recipe, device, report
        self.vectors = find_vectors(task.encoder, recipe.config)
        parts = [part.sentences for part in (task.train, task.dev, task.test) if part is not None]
        parts += [] if task.unlabelled is None else [task.unlabelled]
        # They were encoded one after another, each with the new words of those before it.
        new_words = max((part.new_words for part in parts), key=len)
        classes = len(task.classes)
        self.model = make_model(recipe.config, task.encoder, classes, self.vectors, new_words)
        self.sentences_seen = 0

    def train(
        self, jobs: Sequence[Job], name: str
    ) -> Iterator[tuple[list[TrainingSummary], Trainer]]:
        """Train all jobs, some together; the teachers of a job learn its examples first."""
        if teachers := self.recipe.distillation.teachers:
            teacher_jobs = [
                replace(job, config=job.config.with_training(seed=_teacher_seed(job, number)))
                for job in jobs
                for number in range(teachers)
            ]
            predicted = [
                probabilities
                for _, trainer in self._train(teacher_jobs, f"{name}, teachers")
                for probabilities in trainer.probabilities(self.student_examples.sentences)
            ]
            jobs = [
                self._student(job, np.mean(predicted[first : first + teachers], axis=0))
                for job, first in zip(jobs, range(0, len(predicted), teachers), strict=True)
            ]
        yield from self._train(jobs, name)

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
            unlabelled.new_words,
        )
        return Examples(sentences, np.concatenate([own, unknown]), weights)

    def _student(self, job: Job, predicted: NDArray[np.float32]) -> Job:
        """The same job with the student's word dropout, labels mixed with its teachers' mean.

        Sentences without a label have the teachers' mean alone.
        """
        training, distillation = job.config.training, self.recipe.distillation
        classes, weight = len(self.task.classes), distillation.teacher_weight
        own = target_distributions(self.task.train.targets, classes, training.label_smoothing)
        mixed = predicted.astype(np.float32)
        mixed[: len(own)] = weight * predicted[: len(own)] + (1 - weight) * own
        rate = max(training.word_dropout, distillation.word_dropout)
        return replace(job, config=job.config.with_training(word_dropout=rate), targets=mixed)

    def _train(
        self, jobs: Sequence[Job], name: str
    ) -> Iterator[tuple[list[TrainingSummary], Trainer]]:
        at_once = RUNS_AT_ONCE[self.device]
        for start in range(0, len(jobs), at_once):
            specs = []
            for job in jobs[start : start + at_once]:
                initialize(self.model.to("cpu"), job.config, self.vectors)
                parameters = self.model.named_parameters()
                weights = {key: value.detach().clone() for key, value in parameters}
                specs.append(RunSpec(job.config.training, weights, job.subset, job.targets))
            examples = self.task.train if jobs[start].targets is None else self.student_examples
            runs = f"{start + 1}" if len(specs) == 1 else f"{start + 1}-{start + len(specs)}"
            title = name if len(jobs) == 1 else f"{name} {runs} of {len(jobs)}"
            callback = _Reports(self.report, title)
            trainer = Trainer(
                self.model, examples, specs, self.task.dev, device=self.device, callback=callback
            )
            summaries = trainer.train()
            self.sentences_seen += sum(
                spec.training.epochs * len(examples if spec.subset is None else spec.subset)
                for spec in specs
            )
            yield summaries, trainer
            del trainer  # frees its memory for the next one

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
        hits: list[int] = []
        for summaries, trainer in self.train(jobs, "cross-validation"):
            for run in range(len(summaries)):
                part = held_out[len(hits)]
                sentences = self.known_sentences(part, jobs[len(hits)].subset)
                predicted = trainer.probabilities(sentences)[run].argmax(axis=1)
                hits.append(int((predicted == self.task.train.targets[part]).sum()))
        return [sum(hits[place : place + folds]) / count for place in range(0, len(hits), folds)]

    def known_sentences(self, part: Ints, trained_on: Ints | None) -> Sentences:
        """Training sentences as seen by a network that learned only the words of ``trained_on``."""
        every = self.task.train.sentences
        learned = every if trained_on is None else every.select(trained_on)
        counts = np.bincount(learned.ids, minlength=int(every.ids.max()) + 1)
        known = counts >= self.recipe.config.text.min_count
        known[len(self.task.encoder.vocabulary) :] = True  # by their spelling, as any new word
        chosen = every.select(part)
        return replace(chosen, ids=np.where(known[chosen.ids], chosen.ids, UNKNOWN))


def train_networks(
    task: Task, recipe: Recipe, seeds: Sequence[int], device: str, report: Report
) -> list[TrainedNetwork]:
    """Train ``seeds``, and predict the test set once with the final weights of each."""
    started = time.monotonic()
    networks = NetworkTrainer(task, recipe, device, report)
    configs = [recipe.config.with_training(seed=seed) for seed in seeds]
    dev_accuracies = None
    if task.held_out is not None:
        selection = NetworkTrainer(task.held_out, recipe, device, report)
        jobs = [Job(config) for config in configs]
        trained = [one for part, _ in selection.train(jobs, "for dev") for one in part]
        # Of the last epoch: the training on all examples has no dev set to choose another by.
        dev_accuracies = [summary.history[-1].dev_accuracy for summary in trained]
    elif task.dev is None:
        dev_accuracies = networks.cross_validated(configs)
    finished = [
        (summary, trainer.weights_of(run), probabilities)
        for summaries, trainer in networks.train([Job(config) for config in configs], "training")
        for run, (summary, probabilities) in enumerate(
            zip(summaries, trainer.probabilities(task.test.sentences), strict=True)
        )
    ]
    failed = [str(seed) for seed, (one, *_) in zip(seeds, finished, strict=True) if one.failed]
    if failed:
        raise TrainingError(
            f"seed {', '.join(failed)}: training diverged; lower training.learning_rate"
        )
    seconds = time.monotonic() - started
    trained_networks = []
    for number, (summary, weights, probabilities) in enumerate(finished):
        stored = probabilities
        if recipe.storage.dtype != "float32":
            weights = model_folder.unpack(model_folder.pack(weights, recipe.storage.dtype))
            artifact = Artifact(configs[number], task.classes, task.encoder, weights, {})
            stored = softmax(Predictor(artifact).logits(task.test.sentences))
        trained_networks.append(
            TrainedNetwork(
                seed=seeds[number],
                weights=weights,
                dev_accuracy=summary.dev_accuracy
                if dev_accuracies is None
                else dev_accuracies[number],
                epochs=summary.best_epoch,
                test_probabilities=stored,
                float32_probabilities=probabilities,
                seconds=seconds,
                sentences_per_second=networks.sentences_seen / seconds,
            )
        )
    return trained_networks


def _teacher_seed(job: Job, number: int) -> int:
    """A different seed for every teacher, far from those that people use."""
    entropy = (job.config.training.seed, number, 2)
    return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1)


GLOVE = "glove"  # in a recipe's text.vectors: the file that `dcnn data fetch glove` downloads


@dataclass(frozen=True)
class ExperimentEnv:
    """Where an experiment reads its data and writes its results."""

    experiment: str  # sst2, sst5, trec or twitter
    data: Path
    results: Path
    device: str  # cpu or cuda
    check: bool = True  # whether corpus files must be the known ones
    save: Path | None = None  # where model folders are written
    processes: int = 1  # for tokenizing
    encoder: str = ""  # a folder with the pretrained teacher that a recipe names
    commit: str = field(default_factory=provenance.commit)  # when the experiment starts
    code: dict[str, str] = field(default_factory=provenance.code_hashes)  # by model, likewise

    def find(self, corpus: str) -> dict[str, Source]:
        """The files of a corpus by split."""
        return find_corpus(corpus, self.data, check=self.check)

    def load(self, recipe: Recipe, teacher_seed: int = 0) -> tuple[Task, Recipe]:
        """The corpus, and the recipe with the path of its vectors filled in."""
        sources = self.find(corpus_of(self.experiment))
        if recipe.config.text.vectors == GLOVE:
            vectors = self.find(GLOVE)["vectors"].path
            text = replace(recipe.config.text, vectors=str(vectors))
            recipe = replace(recipe, config=replace(recipe.config, text=text))
        if recipe.distillation.encoder:
            from dcnn.experiments.distilled import label_task, read_texts

            settings = recipe.distillation
            if self.encoder:  # a copy of the encoder that the recipe names
                settings = replace(settings, encoder=self.encoder)
            tasks = []
            for with_dev in (True, False) if self.experiment == "trec" else (True,):
                parts = read_texts(self.experiment, recipe, sources, self.find, with_dev=with_dev)
                given = parts, settings, recipe.config.text, self.device, teacher_seed
                tasks.append(label_task(*given, self.processes, _log_progress))
            if len(tasks) == 1:
                return tasks[0], recipe
            return replace(tasks[1], held_out=tasks[0]), recipe
        return load_task(self.experiment, recipe, sources, self.processes), recipe

    def result_path(self, model: str, recipe: str, seed: int) -> Path:
        """The file of a run's result."""
        return result_path(self.results, self.experiment, model, recipe, seed)


def _log_progress(stage: str, done: int, total: int, remark: str) -> None:
    """Log every tenth of a stage, and what was found on dev."""
    tenth = max(1, total // 10)
    if done == total or remark.startswith("dev") or done % tenth < tenth / 8:
        logger.info("teacher, %s: %s of %s %s", stage, f"{done:,}", f"{total:,}", remark)


def run_networks(
    env: ExperimentEnv, recipe: Recipe, seeds: Sequence[int], report: Report
) -> list[Result]:
    """Train ``seeds``, and write a result for each."""
    if env.save is not None and recipe.data.authors_tokens:
        raise ConfigError(
            "data.authors_tokens: a model folder splits texts at spaces and not as the authors' "
            "code did; leave out --save, or the setting"
        )
    if env.save is not None and recipe.config.model.kind not in MODEL_KINDS:
        raise ConfigError(
            f"--save: a model folder holds {', '.join(MODEL_KINDS)}, not "
            f"{recipe.config.model.kind}; leave it out"
        )
    if recipe.distillation.teacher_per_seed and len(seeds) > 1:
        return [one for seed in seeds for one in run_networks(env, recipe, [seed], report)]
    torch.set_num_threads(1)
    task, located = env.load(recipe, seeds[0] if recipe.distillation.teacher_per_seed else 0)
    kind = recipe.config.model.kind
    # On a GPU, runs that train together share one source of dropout: a seed gives the same run
    # only together with the same others.
    notes: dict[str, Any] = {"side_by_side": list(seeds), "code": env.code[kind]} | task.notes
    if located.config.text.vectors:
        vectors = Path(located.config.text.vectors)
        notes["vectors"] = {"file": vectors.name, "sha256": file_sha256(vectors)}
    results, artifacts = [], []
    if isinstance(task, TreeTask):
        from dcnn.experiments.trees import train_trees

        networks = train_trees(task, located, seeds, env.device, report)
    else:
        networks = train_networks(task, located, seeds, env.device, report)
    for network in networks:
        metadata = {
            "data": env.experiment,
            "examples": task.sizes,
            "dev_accuracy": network.dev_accuracy,
            "epochs": network.epochs,
        }
        config, dtype = recipe.config.with_training(seed=network.seed), recipe.storage.dtype
        artifact = Artifact(
            config, task.classes, task.encoder, network.weights, metadata, dtype=dtype
        )
        if dtype != "float32":
            exact = network.float32_probabilities.argmax(axis=1) == task.test.targets
            notes["stored"] = {
                "bytes": model_folder.folder_size("model", artifact),
                "float32_test_accuracy": float(exact.mean()),
            }
        result = _result(
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
            backend=select.for_network(kind, env.device),
            settings=recipe.to_dict(),
            notes=dict(notes),
        )
        stored = {"probabilities": network.test_probabilities, "truth": task.test.targets}
        write_result(env.results, result, stored)
        results.append(result)
        artifacts.append(artifact)
    if env.save is not None:
        for artifact in artifacts:
            name = f"{env.experiment}-{kind}-{recipe.name}-seed{artifact.config.training.seed}"
            model_folder.save(env.save / name, artifact, overwrite=True)
    return results


def has_ensemble(env: ExperimentEnv, recipe: Recipe, seeds: Sequence[int]) -> bool:
    """Whether the result of the ensemble of these seeds is there."""
    path = env.result_path(ENSEMBLE, recipe.name, seeds[0])
    return path.is_file() and read_result(path).notes.get("seeds") == list(seeds)


def write_ensemble(env: ExperimentEnv, recipe: Recipe, seeds: Sequence[int]) -> Result:
    """The mean of the networks' probabilities: a row of its own, never mixed with single runs."""
    runs = [read_result(env.result_path("dcnn", recipe.name, seed)) for seed in seeds]
    stored = [provenance.read_probabilities(env.results, run) for run in runs]
    predicted = np.mean([probabilities for probabilities, _ in stored], axis=0).argmax(axis=1)
    result = replace(
        runs[0],
        **_answers(predicted, stored[0][1]),
        model=ENSEMBLE,
        dev_accuracy=None,
        epochs=None,
        sentences_per_second=None,
        parameters=sum(run.parameters or 0 for run in runs),
        commit=_common([run.commit for run in runs]),
        notes={"seeds": list(seeds), "code": _common([run.notes.get("code", "") for run in runs])}
        | ({} if env.check else {"sample": True}),
    )
    write_result(env.results, result)
    return result


def _common(values: Sequence[str]) -> str:
    """What the runs of an ensemble have in common, or all that they have."""
    return ", ".join(dict.fromkeys(values))


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
    predicted, dev_accuracy, features = fit_ngrams(model, task, value)
    accuracy = accuracy if dev_accuracy is None else dev_accuracy
    notes = {"setting": value, "features": features}
    return _linear_result(env, task, chosen, model, predicted, accuracy, started, notes)


def _linear_result(
    env: ExperimentEnv,
    task: Task,
    recipe: Recipe,
    model: str,
    predicted: Ints,
    dev_accuracy: float,
    started: float,
    notes: dict[str, Any],
) -> Result:
    """Write the result of a model of scikit-learn, which has neither seeds nor epochs."""
    result = _result(
        env,
        task,
        predicted,
        model=model,
        recipe=NGRAM_RECIPE,
        seed=0,
        dev_accuracy=dev_accuracy,
        epochs=None,
        seconds=round(time.monotonic() - started, 1),
        sentences_per_second=None,
        parameters=None,
        backend="scikit-learn",
        settings=recipe.to_dict(),
        notes=notes | {"code": env.code[model]},
    )
    write_result(env.results, result)
    return result


def run_features(env: ExperimentEnv, recipe: Recipe, parser: str, wordnet: Path) -> Result:
    """Fit the model with engineered features, which parses the texts of TREC itself."""
    started = time.monotonic()
    from dcnn.experiments.features import fit_features

    task, _ = env.load(recipe)
    found = fit_features(env.find("trec"), recipe.data.folds, parser, wordnet)
    notes = found.notes | {"outside": ["parser", "WordNet"]}
    return _linear_result(
        env, task, recipe, FEATURES, found.predicted, found.accuracy, started, notes
    )


def _result(
    env: ExperimentEnv, task: Task, predicted: Ints, notes: dict[str, Any], **fields: Any
) -> Result:
    """A result, with the fields that all models share filled in."""
    return Result(
        **_answers(predicted, task.test.targets),
        experiment=env.experiment,
        selection="cross-validation" if task.dev is None and task.held_out is None else "dev",
        test_truth_sha256=provenance.fingerprint(task.test.targets.tolist()),
        classes=task.classes,
        examples=task.sizes,
        hardware=provenance.hardware(env.device),
        versions=provenance.versions(),
        commit=env.commit,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        notes=notes | ({} if env.check else {"sample": True}),
        **fields,
    )


def _answers(predicted: Ints, truth: Ints) -> dict[str, Any]:
    correct = predicted == truth
    return {
        "test_accuracy": float(correct.mean()),
        "test_predictions": tuple(predicted.tolist()),
        "test_correct": tuple(correct.tolist()),
    }
