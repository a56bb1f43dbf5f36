"""One function that writes a model in another form, and says what it wrote."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from dcnn import artifact as model_folder
from dcnn.artifact import Artifact
from dcnn.errors import MissingExtraError, UserError
from dcnn.files import check_place, write_atomically
from dcnn.predictor import Predictor
from dcnn.stored_weights import STORED_DTYPES, StoredDtype, pack, unpack

Format = Literal["onnx", "folder"]
FORMATS: tuple[Format, ...] = get_args(Format)


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        path: the file or folder.
        format: ``onnx`` or ``folder``.
        dtype: how it stores the weights.
        size: bytes, of all files together.
        difference: how far the ONNX file's probabilities are from the model's at most, as checked
            before it was written; none for a folder.
    """

    path: Path
    format: Format
    dtype: StoredDtype
    size: int
    difference: float | None = None


def format_of(path: Path) -> Format:
    """``onnx`` for a name that ends so, else ``folder``."""
    return "onnx" if path.suffix.lower() == ".onnx" else "folder"


def export(
    model: Predictor | Artifact | str | Path,
    out: str | Path,
    dtype: StoredDtype = "float32",
    format: Format | None = None,  # noqa: A002
    overwrite: bool = False,
) -> Exported:
    """Write ``model`` as an ONNX file or as a model folder.

    Examples:
        >>> export("my-model", "my-model.onnx")
        >>> export("my-model", "my-small-model", dtype="int8")

    Args:
        model: a model folder, or what was loaded from one.
        out: the place; for ``onnx`` a file, for ``folder`` a new folder.
        dtype: how the weights are stored: ``float32``, ``float16`` or ``int8``.
        format: ``onnx`` or ``folder``; by default the name of ``out`` says it.
        overwrite: whether a file or a model folder at ``out`` may be replaced.

    Raises:
        MissingExtraError: ONNX needs the extra of that name.
        UserError: the place is taken, or a weight is too large for ``dtype``.
        DcnnError: the ONNX graph does not say what the model says; nothing was written.
        StorageError: the disk refused; what was there is untouched.
    """
    out = Path(out)
    format = format or format_of(out)  # noqa: A001
    for name, value, known in (("format", format, FORMATS), ("dtype", dtype, STORED_DTYPES)):
        if value not in known:
            raise UserError(f"{name}={value!r} must be one of {', '.join(known)}")
    if format == "folder":
        model_folder.check_destination(out, overwrite)
    else:
        _check_file(out, overwrite)
        _require_onnx()
    stored = _rounded(_artifact(model), dtype)
    if format == "onnx":
        return _export_onnx(stored, out)
    model_folder.save(out, stored, overwrite)
    size = sum(file.stat().st_size for file in out.iterdir())
    return Exported(out, format, dtype, size)


def _artifact(model: Predictor | Artifact | str | Path) -> Artifact:
    match model:
        case Predictor():
            return model.artifact
        case Artifact():
            return model
        case _:
            return model_folder.load(Path(model))


def _rounded(artifact: Artifact, dtype: StoredDtype) -> Artifact:
    """The model that a reader of the export will have."""
    return replace(artifact, weights=unpack(pack(artifact.weights, dtype)), dtype=dtype)


def _export_onnx(artifact: Artifact, out: Path) -> Exported:
    from dcnn.export.onnx_file import check_against_model, onnx_bytes

    content = onnx_bytes(artifact)
    difference = check_against_model(content, artifact)
    with write_atomically(out) as stream:
        stream.write(content)
    return Exported(out, "onnx", artifact.dtype, len(content), difference)


def _check_file(path: Path, overwrite: bool) -> None:
    check_place("--out", path)
    if path.exists() and not overwrite:
        raise UserError(
            f"{path} exists; pass --overwrite (in Python overwrite=True) to replace it, "
            "or choose another place"
        )


def _require_onnx() -> None:
    """Say before any work is done that it cannot be done."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError:
        raise MissingExtraError("Writing an ONNX file", "onnx") from None
