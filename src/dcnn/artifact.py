"""The model folder: its files, their checks and the stored weights.

    config.json        format version, network, classes, settings, metadata of the run
    model.safetensors  the weights: float32, float16 or int8
    tokenizer.json     tokenizer preset, subwords if they were learned, vocabulary
    README.md          the model card of ``dcnn.model_card``
    examples.json      some texts of the data with their labels, only if asked for
    index.safetensors  texts with their features, only if asked for (``inspection.similar``)

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

The vectors of character n-grams are always stored that way, and only those of the buckets that
training reached. The vectors of the words in the vocabulary have them added already, before they
are rounded.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np
import safetensors
from numpy.typing import NDArray

from dcnn.config import Config, renamed
from dcnn.errors import ConfigError, ModelFolderError, UserError
from dcnn.files import write_atomically, write_folder_atomically
from dcnn.ops import native, select
from dcnn.text.encoder import Encoder
from dcnn.text.tokenizer import UNPRINTABLE
from dcnn.text.vocabulary import Bags, CharNgrams, marked

if TYPE_CHECKING:  # a prediction starts sooner without it
    from dcnn.data.labels import Label

FORMAT_VERSION = 4
_NAMES_BEFORE_4 = {"head.weight": "top.weight", "head.bias": "top.bias"}
CONFIG, WEIGHTS, TOKENIZER, CARD = "config.json", "model.safetensors", "tokenizer.json", "README.md"
FILES = (CONFIG, WEIGHTS, TOKENIZER, CARD)
EXAMPLES, INDEX = "examples.json", "index.safetensors"
WITH_TEXTS = (EXAMPLES, INDEX)  # optional, and never pushed: texts may be private
MOST_EXAMPLES = 1000

StoredDtype = Literal["float32", "float16", "int8"]
STORED_DTYPES: tuple[StoredDtype, ...] = get_args(StoredDtype)
EMBEDDINGS, SCALES = "embeddings", "embeddings.scale"
# Vectors of character n-grams (n_buckets, d); in a file int8, with scales, of the buckets used.
NGRAMS, NGRAM_SCALES, NGRAMS_USED = "ngrams", "ngrams.scale", "ngrams.used"
# Up to this size no sum in any layer can overflow, which would differ between backends.
LARGEST_WEIGHT = 1e15
_MAX_INT8 = 127  # symmetric: -128 is not used

Example = tuple[str, str | tuple[str, ...]]  # a text with its label; its labels if multi-label
Floats = NDArray[np.float32]
Ints = NDArray[np.integer[Any]]
Weights = dict[str, Floats]
Stored = dict[str, NDArray[Any]]
Form = dict[str, tuple[tuple[int, ...], str]]  # name to shape and safetensors' name of the dtype


@dataclass(frozen=True)
class Artifact:
    """A trained classifier: everything that a model folder holds."""

    config: Config
    classes: "tuple[Label, ...]"  # in the order of the network's outputs
    encoder: Encoder
    weights: Weights  # by the names of ``config.model.parameter_shapes``
    metadata: dict[str, Any] = field(default_factory=dict)  # data, metrics and time of the run
    dtype: StoredDtype = "float32"  # of the stored weights; in memory they are float32
    # Of a multi-label model, the probability from which each label is assigned.
    thresholds: tuple[float, ...] | None = None
    examples: tuple[Example, ...] = ()  # texts of the data that are kept

    @property
    def multi_label(self) -> bool:
        """Whether the model is multi-label: a text gets every label that reaches its threshold."""
        return self.thresholds is not None

    @property
    def layers(self) -> list[tuple[Floats, Floats]]:
        """Filters (o, n, d, m) and bias (o, d') of each convolutional layer."""
        names = (f"layers.{number}" for number in range(self.config.model.depth))
        return [(self.weights[f"{name}.filters"], self.weights[f"{name}.bias"]) for name in names]

    def embed(self, ids: Ints, new_words: Sequence[str] = ()) -> Floats:
        """Word vectors (..., d) of ids (...); ids beyond the vocabulary are those of ``new_words``.

        New words that are not among the ids cost nothing: a batch may have few of many.
        """
        table, ngrams = self.weights[EMBEDDINGS], self.encoder.char_ngrams
        beyond = ids >= len(table)
        if ngrams is None or not beyond.any():
            return table[ids]
        vectors = table[np.where(beyond, 0, ids)]
        found, places = np.unique(ids[beyond], return_inverse=True)
        bags = find_bags(ngrams, [new_words[i - len(table)] for i in found.tolist()])
        compose = select.compose_for_prediction()
        new = compose(np.arange(len(found)), bags, table[:1], self.weights[NGRAMS])
        vectors[beyond] = new[places]
        return vectors


def find_bags(ngrams: CharNgrams, words: Sequence[str]) -> Bags:
    """The character n-grams of words; of the empty one, which stands for the unknown word, none."""
    if select.for_prediction() != "native":
        return ngrams.bags(words)
    return Bags(*native.char_ngrams(list(map(marked, words)), *ngrams))


def is_model_folder(path: Path) -> bool:
    """Whether ``path`` holds the files of a model folder and nothing else."""
    if not path.is_dir() or not (path / CONFIG).is_file():
        return False
    ours = {*FILES, *WITH_TEXTS}
    # A killed writer leaves its lock and what it had written.
    ours |= {f".{name}{end}" for name in ours for end in (".lock", ".tmp")}
    foreign = {entry.name for entry in path.iterdir()} - ours
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
    refuse_existing(path, overwrite)


def refuse_existing(path: Path, overwrite: bool) -> None:
    """Raise UserError if something is there that must not be replaced."""
    if path.exists() and not overwrite:
        raise UserError(
            f"{path} exists; pass --overwrite (in Python overwrite=True) to replace it, "
            "or choose another place"
        )


def save(path: Path, artifact: Artifact, overwrite: bool = False) -> None:
    """Write the model folder; if that fails, what was there is untouched."""
    check_destination(path, overwrite)
    files = _files(path.name, artifact)
    with write_folder_atomically(path) as folder:
        for name, content in files.items():
            (folder / name).write_bytes(content)


def store_abstention(path: Path, record: dict[str, Any]) -> None:
    """Replace the entry on abstention in a model folder; the weights are not touched.

    The model card follows unless it was edited.
    """
    before = load(path)
    metadata = before.metadata | {"abstention": record}
    values = _parse(json.loads, path / CONFIG)
    values["metadata" if values["format_version"] > 3 else "facts"] = metadata
    files = {CONFIG: json.dumps(values, indent=2, ensure_ascii=False).encode("utf-8", "replace")}
    card = path / CARD
    if card.is_file() and card.read_bytes() == _card(path.name, before):
        after = replace(before, metadata=metadata)
        files[CARD] = _card(path.name, after)
    for name, content in files.items():
        with write_atomically(path / name) as stream:
            stream.write(content)


def folder_size(name: str, artifact: Artifact) -> int:
    """Bytes of the model folder that ``save`` would write as ``name``."""
    return sum(map(len, _files(name, artifact).values()))


def _files(name: str, artifact: Artifact) -> dict[str, bytes]:
    return files_without_card(artifact) | {CARD: _card(name, artifact)}


def _card(name: str, artifact: Artifact) -> bytes:
    from dcnn.model_card import render_card  # not needed to predict

    return render_card(name, _without_path(artifact)).encode("utf-8", "replace")


def _without_path(artifact: Artifact) -> Artifact:
    # The path of the vectors belongs to the machine that trained, not to the model.
    text = replace(artifact.config.text, vectors=Path(artifact.config.text.vectors).name)
    return replace(artifact, config=replace(artifact.config, text=text))


def files_without_card(artifact: Artifact) -> dict[str, bytes]:
    """The contents of the other files of a model folder, by name."""
    artifact = _without_path(artifact)
    description = {
        "format_version": FORMAT_VERSION,
        "dtype": artifact.dtype,
        "thresholds": artifact.thresholds,
        **artifact.config.to_dict(),
        "classes": list(artifact.classes),
        "vocabulary_size": len(artifact.encoder.vocabulary),
        "metadata": artifact.metadata,
    }
    import safetensors.numpy  # not needed to predict

    packed = pack(artifact.weights, artifact.dtype)
    weights = {key: np.ascontiguousarray(value) for key, value in packed.items()}
    kept = [{"text": text, "label": label} for text, label in artifact.examples]
    texts = {EXAMPLES: json.dumps(kept, indent=1).encode()} if kept else {}
    return {
        WEIGHTS: safetensors.numpy.save(weights),
        TOKENIZER: artifact.encoder.to_json().encode(),
        CONFIG: json.dumps(description, indent=2, ensure_ascii=False).encode("utf-8", "replace"),
        **texts,
    }


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ModelFolderError(message)


def load(path: Path) -> Artifact:
    """Read a model folder; a ModelFolderError says what is missing or damaged."""
    _require(path.is_dir(), f"{path}: no such model folder")
    for name in (CONFIG, WEIGHTS, TOKENIZER):
        missing = f"{path} is not a complete model folder: {name} is missing"
        _require((path / name).is_file(), missing)
    values = _read_config(path / CONFIG)
    version, vocabulary_size = values.pop("format_version"), values.pop("vocabulary_size")
    encoder = _parse(Encoder.from_json, path / TOKENIZER)
    _require(
        len(encoder.vocabulary) == vocabulary_size,
        f"{path / TOKENIZER} has {len(encoder.vocabulary)} ids where {CONFIG} says "
        f"{vocabulary_size}: the files do not belong together",
    )
    shapes = values["config"].model.parameter_shapes(vocabulary_size, len(values["classes"]))
    names = {name: name for name in shapes} | (_NAMES_BEFORE_4 if version < 4 else {})
    form = stored_form(shapes, values["dtype"])
    n_buckets = None if encoder.char_ngrams is None else encoder.char_ngrams.n_buckets
    weights = _read_weights(
        path / WEIGHTS, {names.get(name, name): value for name, value in form.items()}, n_buckets
    )
    named = {name: weights[names[name]] for name in shapes}
    if NGRAMS in weights:
        named[NGRAMS] = weights[NGRAMS]
    examples = _parse(_kept_examples, path / EXAMPLES) if (path / EXAMPLES).is_file() else ()
    return Artifact(encoder=encoder, weights=named, examples=examples, **values)


def _kept_examples(text: str) -> tuple[Example, ...]:
    values = json.loads(text)
    if not isinstance(values, list) or len(values) > MOST_EXAMPLES:
        raise ValueError(f"it must hold a list of at most {MOST_EXAMPLES:,} examples")
    found = []
    for one in values:
        words, label = (one.get("text"), one.get("label")) if isinstance(one, dict) else (0, 0)
        label = tuple(label) if isinstance(label, list) else label
        names = label if isinstance(label, tuple) else (label,)
        if not all(isinstance(part, str) for part in (words, *names)):
            raise ValueError("every example must be an object with the strings text and label")
        found.append((words, label))
    return cast("tuple[Example, ...]", tuple(found))


def _parse(parser: Callable[[str], Any], path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFolderError(f"{path} cannot be read: {error}") from error
    try:
        return parser(text)
    except (ValueError, RecursionError) as error:  # JSON errors are ValueErrors too
        raise ModelFolderError(f"{path} is damaged: {error}") from error


def _read_config(path: Path) -> dict[str, Any]:
    """The checked fields of config.json, with all settings in ``config``."""
    values = _parse(json.loads, path)
    _require(isinstance(values, dict), f"{path} is damaged: the top level is not an object")
    version = values.pop("format_version", None)
    _require(
        isinstance(version, int) and version >= 1,
        f"{path}: format_version={version!r} must be a whole number from 1",
    )
    _require(
        version <= FORMAT_VERSION,
        f"{path}: format_version={version} is newer than {FORMAT_VERSION}, the newest that "
        "this release reads; upgrade with: pip install --upgrade dcnn",
    )
    dtype = values.pop("dtype", None) if version > 1 else "float32"
    thresholds = values.pop("thresholds", None) if version > 2 else None
    classes = values.pop("classes", None)
    metadata = values.pop("metadata" if version > 3 else "facts", {})
    size = values.pop("vocabulary_size", None)
    words = f"dtype={dtype!r} must be one of {', '.join(STORED_DTYPES)}"
    _require(dtype in STORED_DTYPES, f"{path}: {words}")
    words = (
        "classes must be a list of two or more distinct labels: strings without control "
        "characters, finite numbers or booleans"
    )
    _require(_are_labels(classes), f"{path}: {words}")
    words = f"thresholds must be {len(classes)} numbers from 0 to 1, one per label"
    _require(
        thresholds is None
        or (
            (isinstance(thresholds, list) and len(thresholds) == len(classes))
            and all(type(one) in (int, float) and 0 <= one <= 1 for one in thresholds)
        ),
        f"{path}: {words}",
    )
    words = f"vocabulary_size={size!r} must be 1 or more"
    _require(isinstance(size, int) and size >= 1, f"{path}: {words}")
    _require(isinstance(metadata, dict), f"{path}: metadata must be an object")
    words = (
        "metadata.abstention is not as `dcnn train` or `dcnn evaluate` writes it; store it again"
    )
    _require(_is_abstention(metadata.get("abstention"), classes), f"{path}: {words}")
    try:
        config = Config.from_dict(values if version > 3 else renamed(values), str(path))
    except ConfigError as error:
        raise ModelFolderError(str(error)) from error
    return {
        "format_version": version,
        "vocabulary_size": size,
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
        and all(math.isfinite(label) for label in classes if isinstance(label, float))
        and not any(UNPRINTABLE.search(label) for label in classes if isinstance(label, str))
        and len({str(label) for label in classes}) == len(classes)
    )


def _is_abstention(record: Any, classes: "list[Label]") -> bool:
    """Whether this is an ``abstention_record`` of ``dcnn.metrics``, or none."""
    if record is None:
        return True
    try:
        curve, label = record["curve"], record["out_of_scope"]
        names = ("threshold", "answered", "correct", "out_of_scope_answered")
        columns = [curve[name] for name in names]
        numbers = [record["examples"], record["out_of_scope_examples"]]
        numbers += [one for column in columns for one in column]
        shares = list(columns[0])
        if "threshold" in record:
            shares += [record[name] for name in ("threshold", "target_precision", "coverage")]
            shares += [record[name] for name in ("precision", "precision_bound")]
        return (
            all(type(one) in (int, float) and one >= 0 for one in (*numbers, *shares))
            and all(0 <= one <= 1 for one in shares)
            and len({len(column) for column in columns}) == 1
            and isinstance(record["data"], str)
            and (label is None or str(label) in map(str, classes))
        )
    except (KeyError, TypeError):
        return False


def _read_weights(path: Path, expected: Form, n_buckets: int | None) -> Weights:
    """The weights of a file; ``n_buckets`` is that of character n-grams, if there are any."""
    try:
        with safetensors.safe_open(path, "np") as stream:
            slices = {name: stream.get_slice(name) for name in stream.keys()}  # noqa: SIM118
            found = {name: (tuple(s.get_shape()), s.get_dtype()) for name, s in slices.items()}
            if n_buckets is not None:
                used, dim = found.get(NGRAMS, ((0,), ""))[0][:1], expected[EMBEDDINGS][0][1]
                expected = expected | {
                    NGRAMS: ((*used, dim), "I8"),
                    NGRAM_SCALES: (used, "F16"),
                    NGRAMS_USED: ((n_buckets,), "BOOL"),
                }
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
    check_finite(weights, f"{path}: ")
    return weights


def check_finite(weights: Weights, where: str = "") -> None:
    """Refuse weights with which backends would give different results."""
    for name, values in weights.items():
        _require(
            not values.size or -LARGEST_WEIGHT <= values.min() <= values.max() <= LARGEST_WEIGHT,
            f"{where}'{name}' holds values that are not finite or beyond {LARGEST_WEIGHT:.0e}; "
            "copy or train the model again",
        )


def _check_form(path: Path, found: Form, expected: Form) -> None:
    for name, (shape, dtype) in expected.items():
        _require(name in found, f"{path}: the weights '{name}' are missing")
        _require(
            found[name] == (shape, dtype),
            f"{path}: '{name}' has shape {found[name][0]} and dtype {found[name][1]} where "
            f"{CONFIG} asks for {shape} and {dtype}: the files do not belong together",
        )
    unknown = ", ".join(sorted(found.keys() - expected.keys()))
    _require(not unknown, f"{path}: unknown weights {unknown}")


def pack(
    weights: Mapping[str, NDArray[np.float32]],
    dtype: StoredDtype,
    word_steps: int = _MAX_INT8,
    ngram_steps: int = _MAX_INT8,
) -> Stored:
    """``weights`` as a file of this dtype stores them; float16 must be able to represent them.

    In int8, the vectors of words get values from ``-word_steps`` to ``word_steps``; those of
    n-grams are always int8, from ``-ngram_steps`` to ``ngram_steps``.
    """
    packed: Stored = {}
    for name, values in weights.items():
        if name == NGRAMS:
            used = np.asarray(values.any(axis=1))
            packed[NGRAMS_USED] = used
            packed[name], packed[NGRAM_SCALES] = _quantize(name, values[used], ngram_steps)
        elif dtype == "float32":
            packed[name] = values
        elif dtype == "int8" and name == EMBEDDINGS:
            packed[name], packed[SCALES] = _quantize(name, values, word_steps)
        else:
            packed[name] = _to_float16(name, values)
    return packed


def unpack(stored: Mapping[str, NDArray[Any]]) -> Weights:
    """The float32 weights of ``pack``'s result; ValueError for what ``pack`` never writes."""
    weights = {name: values.astype(np.float32, copy=False) for name, values in stored.items()}
    for name, of_scales in ((EMBEDDINGS, SCALES), (NGRAMS, NGRAM_SCALES)):
        scales = weights.pop(of_scales, None)
        if scales is None:
            continue
        if not (np.isfinite(scales) & (scales >= 0)).all():
            raise ValueError(f"'{of_scales}' must hold finite numbers of 0 or more")
        if stored[name].min(initial=0) < -_MAX_INT8:
            raise ValueError(f"'{name}' must hold whole numbers from -{_MAX_INT8}")
        weights[name] *= scales[:, None]
    if NGRAMS in stored:
        del weights[NGRAMS_USED]
        used, rows = stored[NGRAMS_USED], weights[NGRAMS]
        if np.count_nonzero(used) != len(rows):
            raise ValueError(f"'{NGRAMS_USED}' does not have as many buckets as '{NGRAMS}' rows")
        weights[NGRAMS] = np.zeros((len(used), rows.shape[1]), np.float32)
        weights[NGRAMS][used] = rows
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


def _quantize(
    name: str, values: NDArray[np.float32], largest_step: int = _MAX_INT8
) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """(words, d) -> int8 values (words, d) and scales (words,), within half a scale each."""
    largest = np.abs(values).max(axis=1, initial=0).astype(np.float64)
    scales = _to_float16(f"{name} / {largest_step}", (largest / largest_step).astype(np.float32))
    # Near float16's smallest numbers the rounded scale can be so much too small that 127 of them
    # do not reach the largest value; the next float16 does.
    too_small = largest > (largest_step + 0.5) * scales.astype(np.float64)
    scales = np.where(too_small, np.nextafter(scales, np.float16(np.inf)), scales)
    steps = np.where(scales > 0, scales, 1).astype(np.float64)
    numbers = np.rint(values / steps[:, None]).clip(-largest_step, largest_step)
    return numbers.astype(np.int8), scales
