"""The model folder: the only place that reads or writes one.

    config.json        format version, network, classes, settings, facts of the run
    model.safetensors  the weights: float32, float16, or int8 (see ``dcnn.stored_weights``)
    tokenizer.json     tokenizer preset, the pieces of words where they were learned, vocabulary
    README.md          a model card, for people and for the Hugging Face hub

A folder is written beside its place and renamed into it. Nothing is pickled. Loading checks the
version, the names, shapes, dtypes and sizes of all weights before it allocates any of them.

A folder is written in the oldest format version that can say what it holds: float32 weights of
words in version 1; the smaller types, pieces of words and characters in version 2; and networks
that give a text several labels, each from its threshold on, in version 3.
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from dcnn.config import Config
from dcnn.errors import ConfigError, ModelFolderError, UserError
from dcnn.files import write_folder_atomically
from dcnn.model_card import render_card
from dcnn.stored_weights import STORED_DTYPES, StoredDtype, Weights, pack, stored_form, unpack
from dcnn.text.encoder import Encoder

FORMAT_VERSION = 3
_VERSION_1_TOKENIZERS = ("words", "tweet", "whitespace")
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
        facts: what is known of the run: data, metrics, time. Plain values, for the card.
        dtype: how a folder stores the weights; here they are float32 in any case.
        thresholds: the probability from which on each label is given, where a text may have
            several labels or none; none where a text has exactly one.
    """

    config: Config
    classes: tuple[Label, ...]
    encoder: Encoder
    weights: Weights
    facts: dict[str, Any] = field(default_factory=dict)
    dtype: StoredDtype = "float32"
    thresholds: tuple[float, ...] | None = None

    @property
    def many(self) -> bool:
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
    newer = artifact.dtype != "float32" or config.text.tokenizer not in _VERSION_1_TOKENIZERS
    version = 3 if artifact.thresholds is not None else 2 if newer else 1
    description = {
        "format_version": version,
        **({"dtype": artifact.dtype} if version > 1 else {}),
        **({"thresholds": artifact.thresholds} if version > 2 else {}),
        **config.to_dict(),
        "classes": list(artifact.classes),
        "vocabulary_size": len(artifact.encoder.vocabulary),
        "facts": artifact.facts,
    }
    packed = pack(artifact.weights, artifact.dtype)
    weights = {name: np.ascontiguousarray(value) for name, value in packed.items()}
    card = render_card(
        name, config, artifact.classes, artifact.facts, artifact.dtype, artifact.thresholds
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
    config, classes, vocabulary_size, facts, dtype, thresholds = _read_config(path / CONFIG)
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
    weights = _read_weights(path / WEIGHTS, stored_form(shapes, dtype))
    return Artifact(config, classes, encoder, weights, facts, dtype, thresholds)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFolderError(f"{path} cannot be read: {error}") from error


class _Description(NamedTuple):
    """What config.json says."""

    config: Config
    classes: tuple[Label, ...]
    vocabulary_size: int
    facts: dict[str, Any]
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
    classes, facts = values.pop("classes", None), values.pop("facts", {})
    vocabulary_size = values.pop("vocabulary_size", None)
    if not _are_labels(classes):
        raise ModelFolderError(f"{path}: classes must be a list of two or more distinct labels")
    if version > 2 and not _are_thresholds(thresholds, len(classes)):
        raise ModelFolderError(
            f"{path}: thresholds must be {len(classes)} numbers from 0 to 1, one a label"
        )
    if not isinstance(vocabulary_size, int) or vocabulary_size < 1:
        raise ModelFolderError(f"{path}: vocabulary_size={vocabulary_size!r} must be 1 or more")
    if not isinstance(facts, dict):
        raise ModelFolderError(f"{path}: facts must be an object")
    try:
        config = Config.from_dict(values, str(path))
    except ConfigError as error:
        raise ModelFolderError(str(error)) from error
    given = None if thresholds is None else tuple(map(float, thresholds))
    return _Description(config, tuple(classes), vocabulary_size, facts, dtype, given)


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
