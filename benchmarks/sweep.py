"""Dev accuracy of many settings and seeds, trained together; test is never read.

    python benchmarks/sweep.py benchmarks/sweeps/trec-l2.toml --device cuda

A sweep is a TOML file: an experiment, a recipe to start from, a number of seeds, and a list of
settings, each a list of ``section.key=value`` strings. The result, a JSON file of the same name in
``results/sweeps/``, has dev accuracies by seed (for TREC by cross-validation) and the settings. It
is written again whenever a setting is done, and ``--resume`` trains only what it lacks.

Tweets of dev had an emoticon, those of test were found by topic and labelled by hand. A sweep of
the tweets may therefore name a second corpus to choose by, ``select_on = "umsab-english"``: the
positive and negative tweets of train and dev of UMSAB English, 1,442, which were found and labelled
as those of test were; ``DCNN_DATA`` has it in ``extra/umsab``. The result then has each run's
accuracy there too, and ``chosen``: the setting with the highest one. Equal ones are decided by dev,
then by their order in the file.
"""

import html
import logging
import multiprocessing
import os
import re
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import small_corpora
from dcnn.config import check_names, parse_setting
from dcnn.data.batching import Examples
from dcnn.data.corpora.registry import data_folder
from dcnn.data.corpora.sentiment140 import CLASSES, iterate_sentiment140
from dcnn.data.labels import LabelledTexts
from dcnn.experiments.recipes import Recipe, load_recipe
from dcnn.experiments.runs import ExperimentEnv, Job, NetworkTrainer
from dcnn.experiments.tasks import Task
from dcnn.text.tokenizer import PLACEHOLDERS, Tokenizer
from dcnn.training.callbacks import RunsReport
from dcnn.training.fit import choose_device
from results import ROOT, make_parser, provenance, read_json, write_json

RESULTS = ROOT / "results" / "sweeps"
SELECTION_CORPORA = ("umsab-english",)
_LABELS = {"0": 0, "2": 1}  # of UMSAB, to class numbers; 1 is neutral
_ESCAPED = re.compile(r"\\u([0-9a-f]{4})")
_QUOTES = re.compile(r'(?:\\?")+')  # a quote of a tweet is up to four in the corpus


def print_report(what: str, report: RunsReport) -> None:
    """One line per epoch: mean loss, and the accuracy of every run."""
    accuracies = [f"{100 * value:.1f}" for value in report.dev_accuracies or []]
    print(
        f"{what}: epoch {report.epoch}, loss {np.mean(report.losses):.4f}", *accuracies, flush=True
    )


def together(recipes: Sequence[Recipe]) -> list[list[int]]:
    """Indices of the recipes that differ in training settings only: they train together."""
    groups: dict[str, list[int]] = {}
    for number, recipe in enumerate(recipes):
        values = recipe.to_dict()
        training = values.pop("training")
        names = ("batch_size", "evaluations_per_epoch", "class_weights", "n_ensemble")
        shared = tuple(training[name] for name in names)
        groups.setdefault(repr((values, shared)), []).append(number)
    return list(groups.values())


def with_settings(recipe: Recipe, settings: Sequence[str]) -> Recipe:
    """A copy with ``section.key=value`` strings applied; values are written as in TOML."""
    values = recipe.to_dict()
    for section, key, value in map(parse_setting, settings):
        check_names("settings", {section: None}, list(values))
        values[section][key] = value
    return Recipe.from_sections(recipe.name, recipe.config.model.kind, values, "settings")


def read_hand_labelled(env: ExperimentEnv, name: str) -> LabelledTexts:
    """The tweets of the corpus ``name``, with the classes of the task and without neutral ones.

    The corpus kept escapes of JSON, CSV and HTML, which are undone: the tweets of the task have
    none. Its mentions are ``@user``, a mention to the tokenizer too, and its links are gone.

    Raises:
        ValueError: the corpus cannot be chosen by here, or holds a tweet of test.
    """
    if env.experiment != "twitter" or name not in SELECTION_CORPORA:
        raise ValueError(
            f"select_on={name!r} of {env.experiment} must be one of {', '.join(SELECTION_CORPORA)} "
            "and of twitter; leave it out to choose on dev"
        )
    read, _ = small_corpora.load_all(name, env.data / "extra")
    kept = [
        (_unescaped(text), _LABELS[label])
        for text, label in zip(read.texts, read.labels, strict=True)
        if label in _LABELS
    ]
    texts, targets = [text for text, _ in kept], np.array([y for _, y in kept], np.int64)
    of_test = {_words(text) for text, _ in iterate_sentiment140(*env.find("twitter")["test"])}
    if shared := [text for text in texts if _words(text) in of_test]:
        raise ValueError(f"select_on={name!r} has {len(shared)} tweets of test, as {shared[0]!r}")
    return LabelledTexts(texts, targets, CLASSES, source=name)


def _unescaped(text: str) -> str:
    text = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)
    return html.unescape(_QUOTES.sub('"', text))


def _words(text: str) -> tuple[str, ...]:
    """What identifies a tweet, whoever masked its names and links."""
    return tuple(word for word in Tokenizer("tweet")(text) if word not in PLACEHOLDERS)


def with_hand_labelled(task: Task, data: LabelledTexts) -> Task:
    """The task with these texts in place of test."""
    new_words = (task.train if task.dev is None else task.dev).sentences.new_words
    sentences = task.encoder.encode_all(data.texts, new_words)
    return replace(task, test=Examples(sentences, data.targets))


@dataclass(frozen=True)
class Sweep:
    """What all settings of a sweep share."""

    env: ExperimentEnv
    seeds: int
    select_on: str = ""  # a corpus that was labelled by hand; none: dev alone

    def run(self, recipes: Sequence[Recipe]) -> Iterator[tuple[int, dict[str, list[Any]]]]:
        """The number and the outcome of each recipe, lists by seed, as soon as it is trained."""
        torch.set_num_threads(1)
        hand_labelled = read_hand_labelled(self.env, self.select_on) if self.select_on else None
        loaded = None  # what decides the task that was read last: a teacher's takes a minute
        for group in together(recipes):
            recipe = recipes[group[0]]
            wanted = recipe.config.text, recipe.data, recipe.distillation
            if loaded != wanted:
                (task, located), loaded = self.env.load(recipe), wanted
                if hand_labelled is not None:
                    task = with_hand_labelled(task, hand_labelled)
            text = located.config.text  # with the path of its vectors
            located = replace(recipe, config=replace(recipe.config, text=text))
            trainer = NetworkTrainer(task, located, self.env.device, print_report)
            training = [
                recipes[number].to_dict()["training"] | {"seed": seed}
                for number in group
                for seed in range(self.seeds)
            ]
            configs = [located.config.with_training(**values) for values in training]
            outcomes = list(self._outcomes(trainer, configs))
            for place, number in enumerate(group):
                of_seeds = outcomes[place * self.seeds : (place + 1) * self.seeds]
                yield number, {name: [one[name] for one in of_seeds] for name in of_seeds[0]}

    def _outcomes(self, trainer: NetworkTrainer, configs: list) -> Iterator[dict[str, Any]]:
        task = trainer.task
        if task.dev is None:
            yield from ({"dev": value} for value in trainer.cross_validated(configs))
            return
        for summaries, trained in trainer.train([Job(config) for config in configs], "sweep"):
            outcomes: list[dict[str, Any]] = [
                {
                    "dev": summary.dev_accuracy,
                    "epochs": summary.epochs,
                    "history": [asdict(record) for record in summary.history],
                }
                for summary in summaries
            ]
            if self.select_on:
                predicted = trained.probabilities(task.test.sentences).argmax(axis=2)  # (R, N)
                for outcome, of_run in zip(outcomes, predicted, strict=True):
                    outcome[self.select_on] = float((of_run == task.test.targets).mean())
            yield from outcomes

    def run_in_processes(
        self, recipes: Sequence[Recipe], jobs: int
    ) -> Iterator[tuple[int, dict[str, list[Any]]]]:
        """The same with one process per recipe, ``jobs`` at a time."""
        # Spawned, not forked: torch's threads do not survive a fork.
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, spawn, start_logging) as pool:
            futures = {pool.submit(self._run_one, one): place for place, one in enumerate(recipes)}
            for done in as_completed(futures):
                if done.exception() is None:
                    yield futures[done], done.result()
            for future in futures:  # the others are written by now
                future.result()

    def _run_one(self, recipe: Recipe) -> dict[str, list[Any]]:
        ((_, outcome),) = self.run([recipe])
        return outcome


def start_logging() -> None:
    """Show what is logged, such as the progress of a teacher."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")


def ranked(settings: Sequence[Mapping[str, Any]], select_on: str = "") -> list[Mapping[str, Any]]:
    """The best first, by the corpus to select on if there is one, then by dev."""

    def score(one: Mapping[str, Any]) -> tuple[float, ...]:
        return *((np.mean(one[select_on]),) if select_on else ()), one["mean"]

    return sorted(settings, key=score, reverse=True)  # equal ones keep their order


def finished(path: Path, report: Mapping[str, Any]) -> tuple[list[dict[str, Any]], float]:
    """The settings that an interrupted run of the same sweep has done, and its seconds."""
    found = read_json(path) if path.exists() else {}
    same = ("experiment", "recipe", "model", "seeds", "select_on", "start", "commit", "hardware")
    if any(found.get(name) != report.get(name) for name in same):
        return [], 0.0
    return found["settings"], found["seconds"]


def main() -> None:
    """Run a sweep and write its file."""
    parser = make_parser(__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--jobs", type=int, help="processes; as many as there are cores, on a GPU one"
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--teacher", help="the folder of the encoder of a distilled recipe")
    parser.add_argument("--resume", action="store_true", help="train only what its file lacks")
    parser.add_argument("--sample", action="store_true", help="the corpora are samples of these")
    parser.add_argument("--out", type=Path, help="the results file")
    options = parser.parse_args()
    start_logging()
    spec = tomllib.loads(options.file.read_text())
    named = start = load_recipe(spec["experiment"], spec["recipe"], spec.get("model", "dcnn"))
    if options.teacher is not None:  # a copy of the encoder that the recipe names
        start = with_settings(start, [f"distillation.encoder={options.teacher}"])
    device = choose_device(options.device)
    path = options.out or RESULTS / f"{options.file.stem}.json"
    env = ExperimentEnv(
        spec["experiment"],
        data_folder(options.data),
        path.parent,
        device,
        check=not options.sample,
        processes=os.cpu_count() or 1,
    )
    select_on = spec.get("select_on", "")
    sweep = Sweep(env, spec["seeds"], select_on)
    report: dict[str, Any] = {
        **{name: spec[name] for name in ("experiment", "recipe", "seeds")},
        "model": start.config.model.kind,
        "start": named.to_dict(),
        **({"select_on": select_on} if select_on else {}),
        "seconds": 0.0,
        **provenance(device),
    }
    done, seconds_before = finished(path, report) if options.resume else ([], 0.0)
    found = {tuple(one["changed"]): one for one in done}
    keys = [tuple(settings) for settings in spec["settings"]]
    missing = [list(key) for key in keys if key not in found]
    recipes = [with_settings(start, settings) for settings in missing]
    jobs = options.jobs or (1 if device == "cuda" else os.cpu_count() or 1)
    in_processes = device == "cpu" or jobs > 1
    outcomes = sweep.run_in_processes(recipes, jobs) if in_processes else sweep.run(recipes)
    started = time.monotonic()
    for number, outcome in outcomes:
        mean = round(float(np.mean(outcome["dev"])), 5)
        found[tuple(missing[number])] = {"changed": missing[number], "mean": mean, **outcome}
        report["settings"] = [found[key] for key in keys if key in found]
        report["seconds"] = round(seconds_before + time.monotonic() - started, 1)
        if select_on and len(report["settings"]) == len(keys):
            report["chosen"] = ranked(report["settings"], select_on)[0]["changed"]
        write_json(path, report)
    for one in ranked([found[key] for key in keys], select_on):
        chosen_by = [f"{100 * np.mean(one[select_on]):.2f}"] if select_on else []
        print(*chosen_by, f"{100 * one['mean']:.2f}", " ".join(one["changed"]))


if __name__ == "__main__":
    main()
