"""The README.md of a model folder: what the model is, what it learned from, how good it is."""

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


def render_card(
    name: str,
    config: Config,
    classes: Sequence[object],
    facts: dict[str, Any],
    dtype: StoredDtype = "float32",
    thresholds: Sequence[float] | None = None,
) -> str:
    """Render the card as Markdown; ``facts`` are the plain values that training noted."""
    settings = config.to_dict()
    shown = ", ".join(f"`{label}`" for label in classes[:_SHOWN_CLASSES])
    more = f" and {len(classes) - _SHOWN_CLASSES} more" if len(classes) > _SHOWN_CLASSES else ""
    sections = [
        f"# {name}",
        f"A sentence classifier ({config.model.kind}) made with "
        "[dcnn](https://pypi.org/project/dcnn).",
        f"Labels: {shown}{more}.{_MANY if thresholds is not None else ''}",
        *([_ROUNDED[dtype]] if dtype in _ROUNDED else []),
        "## Use",
        f'```sh\ndcnn predict {name} "a text"\n```',
        *_threshold_section(classes, thresholds),
        "## How it was made",
        _table(("fact", "value"), _flatten(facts)) if facts else "Nothing was noted of the run.",
        "## Settings",
        _table(("setting", "value"), _flatten(settings)),
    ]
    return "\n\n".join(sections) + "\n"


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
            rows.append((prefix + key, str(value).replace("|", "\\|").replace("\n", " ")))
    return rows


def _table(header: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    lines = [f"| {header[0]} | {header[1]} |", "|---|---|"]
    return "\n".join(lines + [f"| {name} | {value} |" for name, value in rows])
