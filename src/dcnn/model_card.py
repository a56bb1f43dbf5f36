"""The model card, ``README.md`` of a model folder, for people and for the Hugging Face hub.

What the model is, its data, its scores, its settings; of a distilled model also its teacher.
"""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from dcnn.artifact import CONFIG, EXAMPLES, Artifact, files_without_card
from dcnn.config import Config
from dcnn.errors import ModelFolderError
from dcnn.files import show_size
from dcnn.text.tokenizer import UNPRINTABLE

_FENCE = "---"  # begins and ends the metadata that the Hugging Face hub reads
_SHOWN_CLASSES = 20
_ROUNDED = {
    "float16": "Weights: float16.",
    "int8": "Weights: int8 embeddings with a scale per word, the rest float16.",
}
_SCORES_OF_ROUNDED = "The scores below are those of the float32 weights they were rounded from."
_MULTI_LABEL = "Multi-label: a text gets every label that reaches its threshold, several or none."
_SPLITS = {"dev": "dev, which chose the epoch", "test": "test"}
# The hub's name, the shown name and the name in the metadata; the first that was measured is given.
# A multi-label model is chosen by F1; its accuracy is that of whole label sets.
_MEASURES = (("f1", "micro F1", "micro_f1"), ("accuracy", "accuracy", "accuracy"))


def render_card(name: str, artifact: Artifact, repository: str = "") -> str:
    """The model card in Markdown: what the model is, its data, its metrics, its settings.

    ``repository`` is its place on the hub, ``OWNER/NAME``, for a card that is read there.
    """
    classes, kind = artifact.classes, artifact.config.model.kind
    labels = f"Labels: {', '.join(f'`{label}`' for label in classes[:_SHOWN_CLASSES])}"
    if len(classes) > _SHOWN_CLASSES:
        labels += f" and {len(classes) - _SHOWN_CLASSES} more"
    labels += "."
    sections = [
        front_matter(name, artifact),
        f"# {name}",
        f"A sentence classifier ({kind}) made with dcnn.",
        f"{labels} {_MULTI_LABEL}" if artifact.multi_label else labels,
    ]
    if artifact.examples:
        sections.append(
            f"The folder holds {len(artifact.examples)} texts of the data it was trained and "
            f"evaluated with, in `{EXAMPLES}`, with their labels."
        )
    if artifact.dtype in _ROUNDED:
        sections.append(f"{_ROUNDED[artifact.dtype]} {_SCORES_OF_ROUNDED}")
    pull = f"dcnn pull {repository} --out {name}\n" if repository else ""
    sections += ["## Use", f'```sh\n{pull}dcnn predict {name} "a text"\n```']
    if artifact.thresholds is not None:
        rows = zip(map(str, classes), artifact.thresholds, strict=True)
        sections += ["## Thresholds", _table(("label", "threshold"), dict(rows))]
    left_out = ("distillation", "label_counts")
    others = {key: value for key, value in artifact.metadata.items() if key not in left_out}
    with suppress(LookupError, TypeError, ValueError):  # a damaged entry is shown as it is
        others |= _growth(**others["start_from"])
    if abstention := others.pop("abstention", None):
        others["abstention"] = {key: v for key, v in abstention.items() if key != "curve"}
    if "distillation" in artifact.metadata:
        (header, *values), remarks = compare_with_teacher(artifact)
        lines = [header, ["---"] * len(header), *values]
        table = "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)
        sections += ["## Teacher and student", table, *remarks]
    run = _table(("property", "value"), others) if others else ""
    sections += ["## Training", run or "Nothing was recorded."]
    sections += ["## Settings", settings_table(artifact.config)]
    card = "\n\n".join(sections) + "\n"
    # The metadata has names of files, which may be anything.
    return UNPRINTABLE.sub(lambda sign: "\n" if sign[0] == "\n" else "\ufffd", card)


def _growth(
    model: str, scores: Sequence[Mapping[str, Any]], replay: str = "none"
) -> dict[str, str]:
    """The model that training continued from, and the scores of both, as rows of the card."""
    rows = {"start_from": str(model), "replay": str(replay)}
    for one in scores:
        before, after = (f"{100 * one[when]:.2f} %" for when in ("before", "after"))
        rows[f"{one['number']:,} {one['examples']} examples"] = f"{before} before, {after} after"
    return rows


def compare_with_teacher(artifact: Artifact) -> tuple[list[list[str]], list[str]]:
    """A distilled model and its teacher: a table with its header, and what else to know."""
    n_bytes = sum(map(len, files_without_card(artifact).values()))
    try:
        return _teacher_and_student(artifact, n_bytes)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ModelFolderError(
            f"the entry 'distillation' of the metadata is damaged ({error!r}); remove it from "
            f"{CONFIG}, or distill the model again"
        ) from error


def _teacher_and_student(artifact: Artifact, n_bytes: int) -> tuple[list[list[str]], list[str]]:
    record = artifact.metadata["distillation"]
    measure, labels = ("micro F1", "the labels of ") if artifact.multi_label else ("accuracy", "")
    sets = {name: record[name] for name in _SPLITS if record[name] is not None}
    # Where the teacher labelled dev, it is always right there: only the agreement says anything.
    by_teacher = sets.pop("dev") if record.get("dev_from_teacher") else None
    alike = {f"{labels or 'the texts of '}{name}": score for name, score in sets.items()}
    if by_teacher is not None:
        alike[f"{labels}{by_teacher['examples']:,} unlabelled texts, by which it was selected"] = (
            by_teacher
        )
    table = [["", *(f"{name} {measure}" for name in sets), "time per text", "size"]]
    for who, device, size in (
        ("teacher", record.get("teacher_device"), record["teacher_bytes"]),
        ("student", "cpu", n_bytes),
    ):
        scores = [f"{100 * score[who]:.2f} %" for score in sets.values()]
        seconds, where = record[f"{who}_seconds_per_text"], f" ({device})" if device else ""
        took = "unknown" if seconds is None else f"{1e6 * seconds:,.0f} us{where}"
        table.append([who, *scores, took, "unknown" if size is None else show_size(size)])
    shares = (f"{100 * score['agreement']:.2f} % of {whose}" for whose, score in alike.items())
    counts = {"dev or test": record.get("excluded"), "the labelled texts": record.get("repeated")}
    absent = [f"{count:,} that occur in {where}" for where, count in counts.items() if count]
    left_out = f"; {' and '.join(absent)} were left out" if absent else ""
    lines = [
        f"The teacher is `{' '.join(record['teacher'].split())}`. The student agrees with it on "
        f"{' and '.join(shares)}.",
        f"The student learned from {record['labelled']:,} labelled, {record['unlabelled']:,} "
        f"unlabelled and {record['augmented']:,} augmented texts{left_out}.",
    ]
    if "teacher_timed_while_labelling" in record:  # before it, times were of batches
        mean = "; that of the teacher is the mean of all that it labelled"
        own = mean if record["teacher_timed_while_labelling"] else ""
        lines.append(f"The time is that of one text at a time on one CPU core{own}.")
    return table, lines


def settings_table(config: Config) -> str:
    """All settings as Markdown."""
    return _table(("setting", "value"), config.to_dict())


def has_front_matter(card: str) -> bool:
    """Whether a card, perhaps written by hand, begins with metadata."""
    first, *others = card.splitlines() or [""]
    return first.rstrip() == _FENCE and any(line.rstrip() == _FENCE for line in others)


def front_matter(name: str, artifact: Artifact) -> str:
    """The card's metadata, in YAML: task, library, tags and the scores that were measured.

    Strings and numbers are written as JSON, which YAML reads.
    """
    metadata, kind = artifact.metadata, artifact.config.model.kind
    lines = [_FENCE, "library_name: dcnn", "pipeline_tag: text-classification"]
    lines += ["tags:", "- sentence-classification", f"- {kind}"]
    index = ["model-index:", f"- name: {_quoted(name)}", "  results:"]
    # The scores of the run are those of the float32 weights, not of rounded ones.
    meanings = dict(_SPLITS)
    if "cross_validation" in metadata:
        meanings["dev"] = "the folds of a cross-validation"
    elif artifact.config.training.keep == "last":
        meanings["dev"] = "dev"
    for split, meaning in meanings.items() if artifact.dtype == "float32" else ():
        for metric, measure, key in _MEASURES:
            value = metadata.get(f"{split}_{key}")
            if isinstance(value, float) and math.isfinite(value):
                # A dev set that was held out is part of the training file.
                data = _quoted(metadata.get(f"{split}_data", metadata.get("data", "unknown")))
                index += ["  - task:", "      type: text-classification"]
                index += ["    dataset:", f"      name: {data}", f"      type: {data}"]
                index += [f"      split: {split}", "    metrics:", f"    - type: {metric}"]
                index.append(f"      value: {value:.6f}")  # YAML takes 1e-07 for a string
                index.append(f"      name: {measure} on {meaning}")
                break
    return "\n".join([*lines, *(index if len(index) > 3 else []), _FENCE])


def _quoted(value: object) -> str:
    """A YAML string; what it cannot hold, such as a control character, is replaced."""
    held = "".join(sign if sign.isprintable() else "\ufffd" for sign in str(value))
    return json.dumps(held, ensure_ascii=False)


def _table(header: tuple[str, str], values: Mapping[str, Any]) -> str:
    lines = [f"| {header[0]} | {header[1]} |", "|---|---|"]
    lines += (f"| {_cell(name)} | {_cell(value)} |" for name, value in _flatten(values))
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _flatten(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested values as dotted names and short texts."""
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            rows += _flatten(value, f"{prefix}{key}.")
        else:
            rows.append((prefix + key, f"{value:.4g}" if isinstance(value, float) else str(value)))
    return rows
