"""The README.md of a model folder: what the model is, what it learned from, how good it is.

It begins with the metadata that the Hugging Face hub reads, in YAML between two lines ``---``, so
that a folder can be uploaded as it is. YAML reads JSON's strings and numbers, so they are written
as JSON.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

from dcnn.config import Config
from dcnn.stored_weights import StoredDtype

_SHOWN_CLASSES = 20
_MANY = " A text may have several of them, or none: every label from its threshold on."
_OTHERS = "The scores below are those of the float32 weights they were rounded from."
_ROUNDED = {
    "float16": f"Weights: float16. {_OTHERS}",
    "int8": f"Weights: int8 embeddings with a scale a word, the rest float16. {_OTHERS}",
}
FENCE = "---"
_SPLITS = {"dev": "dev, which chose the epoch", "test": "test"}
# As the hub, people and the facts call them. The first that was measured is told: where a text may
# have several labels that is F1, which decides there, and the accuracy is of whole sets of labels.
_MEASURES = (("f1", "micro F1", "micro_f1"), ("accuracy", "accuracy", "accuracy"))


def render_card(
    name: str,
    config: Config,
    classes: Sequence[object],
    facts: dict[str, Any],
    dtype: StoredDtype = "float32",
    thresholds: Sequence[float] | None = None,
    repository: str = "",
) -> str:
    """Render the card as Markdown.

    Args:
        name: of the model.
        config: its settings.
        classes: its labels.
        facts: the plain values that training noted.
        dtype: how its weights are stored.
        thresholds: of its labels, where a text may have several.
        repository: where the hub has it, ``OWNER/NAME``, for a card that is read there.
    """
    shown = ", ".join(f"`{label}`" for label in classes[:_SHOWN_CLASSES])
    more = f" and {len(classes) - _SHOWN_CLASSES} more" if len(classes) > _SHOWN_CLASSES else ""
    pull = f"dcnn pull {repository} --out {name}\n" if repository else ""
    sections = [
        front_matter(name, config, facts, dtype),
        f"# {name}",
        f"A sentence classifier ({config.model.kind}) made with "
        "[dcnn](https://pypi.org/project/dcnn).",
        f"Labels: {shown}{more}.{_MANY if thresholds is not None else ''}",
        *([_ROUNDED[dtype]] if dtype in _ROUNDED else []),
        "## Use",
        f'```sh\n{pull}dcnn predict {name} "a text"\n```',
        *_threshold_section(classes, thresholds),
        "## How it was made",
        _table(("fact", "value"), _flatten(facts)) if facts else "Nothing was noted of the run.",
        "## Settings",
        settings_table(config),
    ]
    return "\n\n".join(sections) + "\n"


def front_matter(
    name: str, config: Config, facts: dict[str, Any], dtype: StoredDtype = "float32"
) -> str:
    """What the hub reads: kind of task, library, tags, and the scores of the run."""
    lines = [
        FENCE,
        "library_name: dcnn",
        "pipeline_tag: text-classification",
        "tags:",
        "- sentence-classification",
        f"- {config.model.kind}",
        *_model_index(name, facts, dtype),
        FENCE,
    ]
    return "\n".join(lines)


def settings_table(config: Config) -> str:
    """All settings as Markdown."""
    return _table(("setting", "value"), _flatten(config.to_dict()))


def has_front_matter(card: str) -> bool:
    """Whether a card, perhaps written by hand, begins with metadata."""
    first, *others = card.splitlines() or [""]
    return first.rstrip() == FENCE and any(line.rstrip() == FENCE for line in others)


def _model_index(name: str, facts: dict[str, Any], dtype: StoredDtype) -> list[str]:
    """The scores as the hub's leaderboards read them; none that was not measured."""
    if dtype != "float32":
        return []  # those of the run are of the weights before they were rounded
    results: list[str] = []
    for split, meaning in _SPLITS.items():
        figures = [(*names, facts.get(f"{split}_{fact}")) for *names, fact in _MEASURES]
        for kind, measure, value in figures:
            if not (isinstance(value, float) and math.isfinite(value)):
                continue
            data = _quoted(facts.get("data", "unknown"))
            results += [
                "  - task:",
                "      type: text-classification",
                "    dataset:",
                f"      name: {data}",
                f"      type: {data}",
                f"      split: {split}",
                "    metrics:",
                f"    - type: {kind}",
                f"      value: {value:.6f}",  # YAML takes 1e-07 for a string
                f"      name: {measure} on {meaning}",
            ]
            break
    if not results:
        return []
    return ["model-index:", f"- name: {_quoted(name)}", "  results:", *results]


def _quoted(value: object) -> str:
    """A string for YAML; what it could not hold, such as a control character, is replaced."""
    held = "".join(sign if sign.isprintable() else "\ufffd" for sign in str(value))
    return json.dumps(held, ensure_ascii=False)


def _threshold_section(classes: Sequence[object], thresholds: Sequence[float] | None) -> list[str]:
    if thresholds is None:
        return []
    rows = {str(label): float(one) for label, one in zip(classes, thresholds, strict=True)}
    return ["## Thresholds", _table(("label", "threshold"), _flatten(rows))]


def _flatten(values: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested values as dotted names and short texts."""
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            rows += _flatten(value, f"{prefix}{key}.")
        elif isinstance(value, float):
            rows.append((prefix + key, f"{value:.4g}"))
        else:
            rows.append((prefix + key, str(value)))
    return rows


def _table(header: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    lines = [f"| {header[0]} | {header[1]} |", "|---|---|"]
    return "\n".join(lines + [f"| {_cell(name)} | {_cell(value)} |" for name, value in rows])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
