"""Weights as a file holds them: float32, float16, or int8 with a scale a word.

In memory weights are always float32; a smaller type is only how they travel.

- ``float16`` rounds every value to the nearest half-precision number.
- ``int8`` does so to all but the embeddings, nearly all of a network's size. A word's vector is
  whole numbers from -127 to 127 times the word's own scale, so that a word with small values loses
  no more of itself than one with large ones. The scale is a half-precision number: its product with
  any of the whole numbers is exact in float32, and storing what was loaded changes nothing.


The README.md of a model folder: what the model is, what it learned from, how good it is.

It begins with the metadata that the Hugging Face hub reads, in YAML between two lines ``---``, so
that a folder can be uploaded as it is. YAML reads JSON's strings and numbers, so they are written
as JSON.


The model folder: the only place that reads or writes one.

    config.json        format version, network, classes, settings, metadata of the run
    model.safetensors  the weights: float32, float16, or int8 (see ``dcnn.artifact``)
    tokenizer.json     tokenizer preset, the pieces of words where they were learned, vocabulary
    README.md          a model card, for people and for the Hugging Face hub

A folder is written beside its place and renamed into it. Nothing is pickled. Loading checks the
version, the names, shapes, dtypes and sizes of all weights before it allocates any of them.

Format version 4 is what is written. Versions 1 to 3, of release 0.1, are read too: they have older
names for a few settings and weights, and leave out what the first folders did not have (the dtype
before version 2, the thresholds of multi-label models before version 3).

"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from dcnn.config import Config, renamed
from dcnn.errors import ConfigError, ModelFolderError, UserError
from dcnn.files import write_folder_atomically
from dcnn.text.encoder import Encoder

StoredDtype = Literal["float32", "float16", "int8"]
STORED_DTYPES: tuple[StoredDtype, ...] = get_args(StoredDtype)
EMBEDDINGS, SCALES = "embeddings", "embeddings.scale"

Weights = dict[str, NDArray[np.float32]]
Stored = dict[str, NDArray[Any]]

_LARGEST = 127  # symmetric: -128 is left unused


def pack(weights: Mapping[str, NDArray[np.float32]], dtype: StoredDtype) -> Stored:
    """``weights`` as a file of this type holds them.

    Raises:
        UserError: a value is larger than half precision can say.
    """
    if dtype == "float32":
        return dict(weights)
    packed: Stored = {}
    for name, values in weights.items():
        if dtype == "int8" and name == EMBEDDINGS:
            packed[name], packed[SCALES] = _quantize(values)
        else:
            packed[name] = _halved(name, values)
    return packed


def unpack(stored: Mapping[str, NDArray[Any]]) -> Weights:
    """The float32 weights of what ``pack`` made.

    Raises:
        ValueError: a scale or a whole number is none that ``pack`` writes.
    """
    weights = {
        name: values.astype(np.float32, copy=False)
        for name, values in stored.items()
        if name != SCALES
    }
    if SCALES in stored:
        scales = stored[SCALES].astype(np.float32)
        if not (np.isfinite(scales) & (scales >= 0)).all():
            raise ValueError(f"'{SCALES}' must hold finite numbers of 0 or more")
        if stored[EMBEDDINGS].min(initial=0) < -_LARGEST:
            raise ValueError(f"'{EMBEDDINGS}' must hold whole numbers from -{_LARGEST}")
        weights[EMBEDDINGS] *= scales[:, None]
    return weights


def stored_form(
    shapes: Mapping[str, tuple[int, ...]], dtype: StoredDtype
) -> dict[str, tuple[tuple[int, ...], str]]:
    """Name to shape and safetensors' name of the type, for parameters of these shapes."""
    general = "F32" if dtype == "float32" else "F16"
    form = {name: (shape, general) for name, shape in shapes.items()}
    if dtype == "int8":
        words = shapes[EMBEDDINGS][0]
        form[EMBEDDINGS], form[SCALES] = (shapes[EMBEDDINGS], "I8"), ((words,), "F16")
    return form


def _halved(name: str, values: NDArray[np.float32]) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):
        halved = values.astype(np.float16)
    if not np.isfinite(halved).all():
        largest = np.abs(values).max()
        raise UserError(
            f"'{name}' holds values up to {largest:.3g} where float16 ends at 65504; "
            "choose the dtype float32"
        )
    return halved


def _quantize(values: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """(words, d) -> whole numbers (words, d) and scales (words,): within half a scale each."""
    largest = np.abs(values).max(axis=1).astype(np.float64)
    scales = _halved(f"{EMBEDDINGS} / {_LARGEST}", (largest / _LARGEST).astype(np.float32))
    # Among the smallest half-precision numbers the nearest scale can be so much too small that
    # 127 of them do not reach the largest value; the next one does.
    too_small = largest > (_LARGEST + 0.5) * scales.astype(np.float64)
    scales = np.where(too_small, np.nextafter(scales, np.float16(np.inf)), scales)
    steps = np.where(scales > 0, scales, 1).astype(np.float64)
    numbers = np.rint(values / steps[:, None]).clip(-_LARGEST, _LARGEST)
    return numbers.astype(np.int8), scales


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
    metadata: dict[str, Any],
    dtype: StoredDtype = "float32",
    thresholds: Sequence[float] | None = None,
    repository: str = "",
) -> str:
    """Render the card as Markdown.

    Args:
        name: of the model.
        config: its settings.
        classes: its labels.
        metadata: the plain values that training noted.
        dtype: how its weights are stored.
        thresholds: of its labels, where a text may have several.
        repository: where the hub has it, ``OWNER/NAME``, for a card that is read there.
    """
    shown = ", ".join(f"`{label}`" for label in classes[:_SHOWN_CLASSES])
    more = f" and {len(classes) - _SHOWN_CLASSES} more" if len(classes) > _SHOWN_CLASSES else ""
    pull = f"dcnn pull {repository} --out {name}\n" if repository else ""
    sections = [
        front_matter(name, config, metadata, dtype),
        f"# {name}",
        f"A sentence classifier ({config.model.kind}) made with "
        "[dcnn](https://pypi.org/project/dcnn).",
        f"Labels: {shown}{more}.{_MANY if thresholds is not None else ''}",
        *([_ROUNDED[dtype]] if dtype in _ROUNDED else []),
        "## Use",
        f'```sh\n{pull}dcnn predict {name} "a text"\n```',
        *_threshold_section(classes, thresholds),
        "## How it was made",
        _table(("fact", "value"), _flatten(metadata))
        if metadata
        else "Nothing was noted of the run.",
        "## Settings",
        settings_table(config),
    ]
    return "\n\n".join(sections) + "\n"


def front_matter(
    name: str, config: Config, metadata: dict[str, Any], dtype: StoredDtype = "float32"
) -> str:
    """What the hub reads: kind of task, library, tags, and the scores of the run."""
    lines = [
        FENCE,
        "library_name: dcnn",
        "pipeline_tag: text-classification",
        "tags:",
        "- sentence-classification",
        f"- {config.model.kind}",
        *_model_index(name, metadata, dtype),
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


def _model_index(name: str, metadata: dict[str, Any], dtype: StoredDtype) -> list[str]:
    """The scores as the hub's leaderboards read them; none that was not measured."""
    if dtype != "float32":
        return []  # those of the run are of the weights before they were rounded
    results: list[str] = []
    for split, meaning in _SPLITS.items():
        figures = [(*names, metadata.get(f"{split}_{fact}")) for *names, fact in _MEASURES]
        for kind, measure, value in figures:
            if not (isinstance(value, float) and math.isfinite(value)):
                continue
            data = _quoted(metadata.get("data", "unknown"))
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


FORMAT_VERSION = 4
_HEADS_BEFORE_4 = {"head.weight": "top.weight", "head.bias": "top.bias"}
CONFIG, WEIGHTS, TOKENIZER, CARD = "config.json", "model.safetensors", "tokenizer.json", "README.md"
FILES = (CONFIG, WEIGHTS, TOKENIZER, CARD)

Label = str | int | float | bool


@dataclass(frozen=True)
class Artifact:
    """A trained classifier as values: all that a model folder holds.

    Attributes:
        config: settings of text, network and training.
        classes: the labels, in the order of the network's outputs.
        encoder: from strings to ids.
        weights: name to array, as ``config.model.parameter_shapes`` says.
        metadata: what is known of the run: data, metrics, time. Plain values, for the card.
        dtype: how a folder stores the weights; here they are float32 in any case.
        thresholds: the probability from which on each label is given, where a text may have
            several labels or none; none where a text has exactly one.
    """

    config: Config
    classes: tuple[Label, ...]
    encoder: Encoder
    weights: Weights
    metadata: dict[str, Any] = field(default_factory=dict)
    dtype: StoredDtype = "float32"
    thresholds: tuple[float, ...] | None = None

    @property
    def multi_label(self) -> bool:
        """Whether a text may have several labels."""
        return self.thresholds is not None


def is_model_folder(path: Path) -> bool:
    """Whether ``path`` holds the files of a model folder and nothing else."""
    if not path.is_dir() or not (path / CONFIG).is_file():
        return False
    foreign = {entry.name for entry in path.iterdir()} - set(FILES)
    return not foreign and b'"format_version"' in (path / CONFIG).read_bytes()


def check_destination(path: Path, overwrite: bool) -> None:
    """Refuse a place that already holds something, before any work is done for it.

    ``overwrite`` allows to replace a model folder or an empty folder, never anything else.
    """
    if not path.resolve().name:
        raise UserError(f"{path} is no place for a model folder; name a new folder")
    if not path.exists():
        return
    if not is_model_folder(path) and not (path.is_dir() and not any(path.iterdir())):
        raise UserError(
            f"{path} exists and is not just a model folder, so it is left alone; "
            "choose another place"
        )
    if not overwrite:
        raise UserError(
            f"{path} exists; pass --overwrite (in Python overwrite=True) to replace it, "
            "or choose another place"
        )


def save(path: Path, artifact: Artifact, overwrite: bool = False) -> None:
    """Write the model folder.

    Raises:
        UserError: something is at ``path`` that must not be replaced, or a weight is too large for
            the artifact's ``dtype``.
        StorageError: the disk refused; what was there is untouched.
    """
    check_destination(path, overwrite)
    files = _files(path.name, artifact)
    with write_folder_atomically(path) as folder:
        for name, content in files.items():
            (folder / name).write_bytes(content)


def folder_size(name: str, artifact: Artifact) -> int:
    """The bytes of all files of the model folder that ``save`` would write as ``name``."""
    return sum(map(len, _files(name, artifact).values()))


def _files(name: str, artifact: Artifact) -> dict[str, bytes]:
    # The path of the vectors belongs to the machine that trained, not to the model.
    text = replace(artifact.config.text, vectors=Path(artifact.config.text.vectors).name)
    config = replace(artifact.config, text=text)
    description = {
        "format_version": FORMAT_VERSION,
        "dtype": artifact.dtype,
        "thresholds": artifact.thresholds,
        **config.to_dict(),
        "classes": list(artifact.classes),
        "vocabulary_size": len(artifact.encoder.vocabulary),
        "metadata": artifact.metadata,
    }
    packed = pack(artifact.weights, artifact.dtype)
    weights = {name: np.ascontiguousarray(value) for name, value in packed.items()}
    card = render_card(
        name, config, artifact.classes, artifact.metadata, artifact.dtype, artifact.thresholds
    )
    return {
        WEIGHTS: safetensors.numpy.save(weights),
        TOKENIZER: artifact.encoder.to_json().encode(),
        CONFIG: json.dumps(description, indent=2, ensure_ascii=False).encode("utf-8", "replace"),
        CARD: card.encode("utf-8", "replace"),
    }


def load(path: Path) -> Artifact:
    """Read a model folder.

    Raises:
        ModelFolderError: the folder, or what is wrong inside it.
    """
    if not path.is_dir():
        raise ModelFolderError(f"{path}: no such model folder")
    for name in (CONFIG, WEIGHTS, TOKENIZER):
        if not (path / name).is_file():
            raise ModelFolderError(f"{path} is not a complete model folder: {name} is missing")
    description = _read_config(path / CONFIG)
    _, config, classes, vocabulary_size, metadata, dtype, thresholds = description
    try:
        encoder = Encoder.from_json(_read_text(path / TOKENIZER))
    except (ValueError, RecursionError) as error:  # JSON errors are ValueErrors too
        raise ModelFolderError(f"{path / TOKENIZER} is damaged: {error}") from error
    if len(encoder.vocabulary) != vocabulary_size:
        raise ModelFolderError(
            f"{path / TOKENIZER} has {len(encoder.vocabulary)} ids where {CONFIG} says "
            f"{vocabulary_size}: the files do not belong together"
        )
    shapes = config.model.parameter_shapes(vocabulary_size, len(classes))
    form = stored_form(shapes, dtype)
    if description.version < 4:
        form = {_HEADS_BEFORE_4.get(name, name): value for name, value in form.items()}
    weights = _read_weights(path / WEIGHTS, form)
    weights = {name: weights[old] for name, old in zip(shapes, form, strict=False)}
    return Artifact(config, classes, encoder, weights, metadata, dtype, thresholds)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFolderError(f"{path} cannot be read: {error}") from error


class _Description(NamedTuple):
    """What config.json says."""

    version: int
    config: Config
    classes: tuple[Label, ...]
    vocabulary_size: int
    metadata: dict[str, Any]
    dtype: StoredDtype
    thresholds: tuple[float, ...] | None


def _read_config(path: Path) -> _Description:
    try:
        values = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise ModelFolderError(f"{path} is damaged: {error}") from error
    if not isinstance(values, dict):
        raise ModelFolderError(f"{path} is damaged: the top level is not an object")
    version = values.pop("format_version", None)
    if not isinstance(version, int) or version < 1:
        raise ModelFolderError(f"{path}: format_version={version!r} must be a whole number from 1")
    if version > FORMAT_VERSION:
        raise ModelFolderError(
            f"{path}: format_version={version} is newer than {FORMAT_VERSION}, the newest that "
            "this release reads; upgrade with: pip install --upgrade dcnn"
        )
    dtype = values.pop("dtype", None) if version > 1 else "float32"
    if dtype not in STORED_DTYPES:
        raise ModelFolderError(f"{path}: dtype={dtype!r} must be one of {', '.join(STORED_DTYPES)}")
    thresholds = values.pop("thresholds", None) if version > 2 else None
    classes = values.pop("classes", None)
    metadata = values.pop("metadata" if version > 3 else "facts", {})
    vocabulary_size = values.pop("vocabulary_size", None)
    if not _are_labels(classes):
        raise ModelFolderError(f"{path}: classes must be a list of two or more distinct labels")
    if thresholds is not None and not _are_thresholds(thresholds, len(classes)):
        raise ModelFolderError(
            f"{path}: thresholds must be {len(classes)} numbers from 0 to 1, one per label"
        )
    if not isinstance(vocabulary_size, int) or vocabulary_size < 1:
        raise ModelFolderError(f"{path}: vocabulary_size={vocabulary_size!r} must be 1 or more")
    if not isinstance(metadata, dict):
        raise ModelFolderError(f"{path}: metadata must be an object")
    try:
        config = Config.from_dict(values if version > 3 else renamed(values), str(path))
    except ConfigError as error:
        raise ModelFolderError(str(error)) from error
    given = None if thresholds is None else tuple(map(float, thresholds))
    return _Description(version, config, tuple(classes), vocabulary_size, metadata, dtype, given)


def _are_labels(classes: object) -> bool:
    return (
        isinstance(classes, list)
        and len(classes) >= 2
        and all(isinstance(label, str | int | float | bool) for label in classes)
        and len({str(label) for label in classes}) == len(classes)
    )


def _are_thresholds(thresholds: object, labels: int) -> bool:
    return (
        isinstance(thresholds, list)
        and len(thresholds) == labels
        and all(type(one) in (int, float) and 0 <= one <= 1 for one in thresholds)
    )


def _read_weights(path: Path, form: dict[str, tuple[tuple[int, ...], str]]) -> Weights:
    try:
        with safetensors.safe_open(path, "np") as stream:
            slices = {name: stream.get_slice(name) for name in stream.keys()}  # noqa: SIM118
            found = {name: (tuple(s.get_shape()), s.get_dtype()) for name, s in slices.items()}
            _check_form(path, found, form)
            stored: dict[str, Any] = {name: stream.get_tensor(name) for name in form}
    except (safetensors.SafetensorError, OSError) as error:
        raise ModelFolderError(
            f"{path} is damaged or cut short ({error}); copy or train the model again"
        ) from error
    try:
        weights = unpack(stored)
    except ValueError as error:
        raise ModelFolderError(f"{path}: {error}; copy or export the model again") from error
    for name, values in weights.items():
        if not np.isfinite(values).all():
            raise ModelFolderError(
                f"{path}: '{name}' holds values that are not finite; copy or train the model again"
            )
    return weights


def _check_form(
    path: Path,
    found: dict[str, tuple[tuple[int, ...], str]],
    expected: dict[str, tuple[tuple[int, ...], str]],
) -> None:
    for name, (shape, dtype) in expected.items():
        if name not in found:
            raise ModelFolderError(f"{path}: the weights '{name}' are missing")
        if found[name] != (shape, dtype):
            raise ModelFolderError(
                f"{path}: '{name}' has shape {found[name][0]} and dtype {found[name][1]} where "
                f"{CONFIG} asks for {shape} and {dtype}: the files do not belong together"
            )
    if unknown := sorted(found.keys() - expected.keys()):
        raise ModelFolderError(f"{path}: unknown weights {', '.join(unknown)}")
