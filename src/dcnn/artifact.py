"""The model folder: its files, their checks, the stored weights and the model card.

    config.json        format version, network, classes, settings, metadata of the run
    model.safetensors  the weights: float32, float16 or int8
    tokenizer.json     tokenizer preset, subwords if they were learned, vocabulary
    README.md          a model card, for people and for the Hugging Face hub

Only this module reads and writes model folders. A folder is written under a temporary name and
renamed. Nothing is pickled. Loading checks the version and the names, shapes, dtypes and sizes of
all weights before it allocates any.

Format version 4 is written. Versions 1 to 3, of release 0.1, are read too: they have older names
for some settings and weights, no dtype (before version 2) and no thresholds (before version 3).

In memory weights are always float32. ``float16`` stores every value in half precision; ``int8``
does so for all but the embeddings, which are nearly all of the size. A word's vector is then int8
values times a scale per word, so that words with small values lose no more precision than others.
The scale is float16: its product with any int8 value is exact in float32, so storing loaded
weights again changes nothing.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from dcnn.config import Config, renamed
from dcnn.errors import ConfigError, ModelFolderError, UserError
from dcnn.files import write_folder_atomically
from dcnn.text.encoder import Encoder

FORMAT_VERSION = 4
_NAMES_BEFORE_4 = {"head.weight": "top.weight", "head.bias": "top.bias"}
CONFIG, WEIGHTS, TOKENIZER, CARD = "config.json", "model.safetensors", "tokenizer.json", "README.md"
FILES = (CONFIG, WEIGHTS, TOKENIZER, CARD)

StoredDtype = Literal["float32", "float16", "int8"]
STORED_DTYPES: tuple[StoredDtype, ...] = get_args(StoredDtype)
EMBEDDINGS, SCALES = "embeddings", "embeddings.scale"
_MAX_INT8 = 127  # symmetric: -128 is not used

Label = str | int | float | bool
Weights = dict[str, NDArray[np.float32]]
Stored = dict[str, NDArray[Any]]
Form = dict[str, tuple[tuple[int, ...], str]]  # name to shape and safetensors' name of the dtype


@dataclass(frozen=True)
class Artifact:
    """A trained classifier: everything that a model folder holds.

    Attributes:
        config: settings of text, network and training.
        classes: the labels, in the order of the network's outputs.
        encoder: from strings to ids.
        weights: name to array, as in ``config.model.parameter_shapes``.
        metadata: data, metrics and time of the run, as plain values.
        dtype: how a folder stores the weights; in memory they are float32.
        thresholds: of a multi-label model, the probability from which each label is assigned; None
            for a single-label model.
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
    """Raise UserError, before any work is done, if ``path`` must not be written.

    ``overwrite`` allows replacing a model folder or an empty folder, never anything else.
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
        UserError: ``path`` must not be replaced, or a weight is too large for the dtype.
        StorageError: the disk refused; what was there is untouched.
    """
    check_destination(path, overwrite)
    files = _files(path.name, artifact)
    with write_folder_atomically(path) as folder:
        for name, content in files.items():
            (folder / name).write_bytes(content)


def folder_size(name: str, artifact: Artifact) -> int:
    """Bytes of the model folder that ``save`` would write as ``name``."""
    return sum(map(len, _files(name, artifact).values()))


def _files(name: str, artifact: Artifact) -> dict[str, bytes]:
    # The path of the vectors belongs to the machine that trained, not to the model.
    text = replace(artifact.config.text, vectors=Path(artifact.config.text.vectors).name)
    artifact = replace(artifact, config=replace(artifact.config, text=text))
    description = {
        "format_version": FORMAT_VERSION,
        "dtype": artifact.dtype,
        "thresholds": artifact.thresholds,
        **artifact.config.to_dict(),
        "classes": list(artifact.classes),
        "vocabulary_size": len(artifact.encoder.vocabulary),
        "metadata": artifact.metadata,
    }
    packed = pack(artifact.weights, artifact.dtype)
    weights = {key: np.ascontiguousarray(value) for key, value in packed.items()}
    return {
        WEIGHTS: safetensors.numpy.save(weights),
        TOKENIZER: artifact.encoder.to_json().encode(),
        CONFIG: json.dumps(description, indent=2, ensure_ascii=False).encode("utf-8", "replace"),
        CARD: render_card(name, artifact).encode("utf-8", "replace"),
    }


def load(path: Path) -> Artifact:
    """Read a model folder.

    Raises:
        ModelFolderError: the folder is missing, incomplete or damaged.
    """
    if not path.is_dir():
        raise ModelFolderError(f"{path}: no such model folder")
    for name in (CONFIG, WEIGHTS, TOKENIZER):
        if not (path / name).is_file():
            raise ModelFolderError(f"{path} is not a complete model folder: {name} is missing")
    values = _read_config(path / CONFIG)
    version, vocabulary_size = values.pop("format_version"), values.pop("vocabulary_size")
    try:
        encoder = Encoder.from_json(_read_text(path / TOKENIZER))
    except (ValueError, RecursionError) as error:  # JSON errors are ValueErrors too
        raise ModelFolderError(f"{path / TOKENIZER} is damaged: {error}") from error
    if len(encoder.vocabulary) != vocabulary_size:
        raise ModelFolderError(
            f"{path / TOKENIZER} has {len(encoder.vocabulary)} ids where {CONFIG} says "
            f"{vocabulary_size}: the files do not belong together"
        )
    shapes = values["config"].model.parameter_shapes(vocabulary_size, len(values["classes"]))
    names = {name: name for name in shapes} | (_NAMES_BEFORE_4 if version < 4 else {})
    form = stored_form(shapes, values["dtype"])
    weights = _read_weights(
        path / WEIGHTS, {names.get(name, name): value for name, value in form.items()}
    )
    return Artifact(
        encoder=encoder, weights={name: weights[names[name]] for name in shapes}, **values
    )


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFolderError(f"{path} cannot be read: {error}") from error


def _read_config(path: Path) -> dict[str, Any]:
    """The checked fields of config.json, with all settings in ``config``."""
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
    return {
        "format_version": version,
        "vocabulary_size": vocabulary_size,
        "config": config,
        "classes": tuple(classes),
        "metadata": metadata,
        "dtype": dtype,
        "thresholds": None if thresholds is None else tuple(map(float, thresholds)),
    }


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


def _read_weights(path: Path, expected: Form) -> Weights:
    try:
        with safetensors.safe_open(path, "np") as stream:
            slices = {name: stream.get_slice(name) for name in stream.keys()}  # noqa: SIM118
            found = {name: (tuple(s.get_shape()), s.get_dtype()) for name, s in slices.items()}
            _check_form(path, found, expected)
            stored: dict[str, Any] = {name: stream.get_tensor(name) for name in expected}
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


def _check_form(path: Path, found: Form, expected: Form) -> None:
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


def pack(weights: Mapping[str, NDArray[np.float32]], dtype: StoredDtype) -> Stored:
    """``weights`` as a file of this dtype stores them.

    Raises:
        UserError: a value is larger than float16 can represent.
    """
    if dtype == "float32":
        return dict(weights)
    packed: Stored = {}
    for name, values in weights.items():
        if dtype == "int8" and name == EMBEDDINGS:
            packed[name], packed[SCALES] = _quantize(values)
        else:
            packed[name] = _to_float16(name, values)
    return packed


def unpack(stored: Mapping[str, NDArray[Any]]) -> Weights:
    """The float32 weights of ``pack``'s result.

    Raises:
        ValueError: a scale or an int8 value that ``pack`` never writes.
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
        if stored[EMBEDDINGS].min(initial=0) < -_MAX_INT8:
            raise ValueError(f"'{EMBEDDINGS}' must hold whole numbers from -{_MAX_INT8}")
        weights[EMBEDDINGS] *= scales[:, None]
    return weights


def stored_form(shapes: Mapping[str, tuple[int, ...]], dtype: StoredDtype) -> Form:
    """Shape and safetensors dtype of every stored array, for parameters of these shapes."""
    form = {name: (shape, "F32" if dtype == "float32" else "F16") for name, shape in shapes.items()}
    if dtype == "int8":
        words = shapes[EMBEDDINGS][0]
        form[EMBEDDINGS], form[SCALES] = (shapes[EMBEDDINGS], "I8"), ((words,), "F16")
    return form


def _to_float16(name: str, values: NDArray[np.float32]) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float16)
    if not np.isfinite(rounded).all():
        raise UserError(
            f"'{name}' holds values up to {np.abs(values).max():.3g} where float16 ends at 65504; "
            "choose the dtype float32"
        )
    return rounded


def _quantize(values: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """(words, d) -> int8 values (words, d) and scales (words,), within half a scale each."""
    largest = np.abs(values).max(axis=1).astype(np.float64)
    scales = _to_float16(f"{EMBEDDINGS} / {_MAX_INT8}", (largest / _MAX_INT8).astype(np.float32))
    # Near float16's smallest numbers the rounded scale can be so much too small that 127 of them
    # do not reach the largest value; the next float16 does.
    too_small = largest > (_MAX_INT8 + 0.5) * scales.astype(np.float64)
    scales = np.where(too_small, np.nextafter(scales, np.float16(np.inf)), scales)
    steps = np.where(scales > 0, scales, 1).astype(np.float64)
    numbers = np.rint(values / steps[:, None]).clip(-_MAX_INT8, _MAX_INT8)
    return numbers.astype(np.int8), scales


_FENCE = "---"  # begins and ends the metadata that the Hugging Face hub reads
_SHOWN_CLASSES = 20
_ROUNDED = {
    "float16": "Weights: float16.",
    "int8": "Weights: int8 embeddings with a scale per word, the rest float16.",
}
_SPLITS = {"dev": "dev, which chose the epoch", "test": "test"}
# The hub's name, the shown name and the name in the metadata; the first that was measured is given.
# A multi-label model is chosen by F1; its accuracy is that of whole label sets.
_MEASURES = (("f1", "micro F1", "micro_f1"), ("accuracy", "accuracy", "accuracy"))


def render_card(name: str, artifact: Artifact, repository: str = "") -> str:
    """The model card in Markdown: what the model is, its data, its metrics, its settings.

    Args:
        name: of the model.
        artifact: the model.
        repository: its place on the hub, ``OWNER/NAME``, for a card that is read there.
    """
    classes, dtype = artifact.classes, artifact.dtype
    labels = f"Labels: {', '.join(f'`{label}`' for label in classes[:_SHOWN_CLASSES])}"
    if len(classes) > _SHOWN_CLASSES:
        labels += f" and {len(classes) - _SHOWN_CLASSES} more"
    labels += "."
    thresholds = []
    if artifact.thresholds is not None:
        labels += (
            " Multi-label: a text gets every label that reaches its threshold, several or none."
        )
        rows = zip(map(str, classes), artifact.thresholds, strict=True)
        thresholds = ["## Thresholds", _table(("label", "threshold"), dict(rows))]
    rounded = []
    if dtype in _ROUNDED:
        origin = "The scores below are those of the float32 weights they were rounded from."
        rounded = [f"{_ROUNDED[dtype]} {origin}"]
    pull = f"dcnn pull {repository} --out {name}\n" if repository else ""
    run = "Nothing was recorded."
    if artifact.metadata:
        run = _table(("property", "value"), artifact.metadata)
    sections = [
        front_matter(name, artifact),
        f"# {name}",
        f"A sentence classifier ({artifact.config.model.kind}) made with "
        "[dcnn](https://pypi.org/project/dcnn).",
        labels,
        *rounded,
        "## Use",
        f'```sh\n{pull}dcnn predict {name} "a text"\n```',
        *thresholds,
        "## Training",
        run,
        "## Settings",
        settings_table(artifact.config),
    ]
    return "\n\n".join(sections) + "\n"


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
    results: list[str] = []
    metadata = artifact.metadata
    data = _quoted(metadata.get("data", "unknown"))
    # The scores of the run are those of the float32 weights, not of rounded ones.
    for split, meaning in _SPLITS.items() if artifact.dtype == "float32" else ():
        for kind, measure, key in _MEASURES:
            value = metadata.get(f"{split}_{key}")
            if isinstance(value, float) and math.isfinite(value):
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
    index = ["model-index:", f"- name: {_quoted(name)}", "  results:", *results] if results else []
    lines = [
        _FENCE,
        "library_name: dcnn",
        "pipeline_tag: text-classification",
        "tags:",
        "- sentence-classification",
        f"- {artifact.config.model.kind}",
        *index,
        _FENCE,
    ]
    return "\n".join(lines)


def _quoted(value: object) -> str:
    """A YAML string; what it cannot hold, such as a control character, is replaced."""
    held = "".join(sign if sign.isprintable() else "\ufffd" for sign in str(value))
    return json.dumps(held, ensure_ascii=False)


def _table(header: tuple[str, str], values: Mapping[str, Any]) -> str:
    lines = [f"| {header[0]} | {header[1]} |", "|---|---|"]
    for cells in _flatten(values):
        name, value = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
        lines.append(f"| {name} | {value} |")
    return "\n".join(lines)


def _flatten(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested values as dotted names and short texts."""
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            rows += _flatten(value, f"{prefix}{key}.")
        else:
            rows.append((prefix + key, f"{value:.4g}" if isinstance(value, float) else str(value)))
    return rows
