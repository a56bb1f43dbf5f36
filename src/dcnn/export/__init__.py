"""Write a model for other programs: an ONNX file with its tokenizer, one HTML page, or a folder.

- ``onnx``: the network (``dcnn.export.onnx``) and, beside it, its tokenizer twice
  (``dcnn.export.tokenizer``): for Hugging Face ``tokenizers``, and as a script;
- ``html``: one file that classifies and explains in a browser (``dcnn.export.html``);
- ``folder``: a model folder with smaller weights.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from dcnn import artifact as model_folder
from dcnn.artifact import Artifact
from dcnn.errors import UserError, needs_extra
from dcnn.export.html import html_text
from dcnn.export.onnx import check_against_model, onnx_bytes, run_onnx
from dcnn.export.tokenizer import (
    HUGGINGFACE,
    SCRIPT,
    check_huggingface,
    huggingface_json,
    script_text,
)
from dcnn.files import check_place, show_size, write_atomically
from dcnn.predictor import Predictor

__all__ = ["Exported", "Format", "export", "format_of", "run_onnx"]

Format = Literal["onnx", "html", "folder"]
MAX_PAGE = 20_000_000  # bytes of an HTML file that can still be mailed


@dataclass(frozen=True)
class Exported:
    """What was written."""

    path: Path  # the file or folder
    format: Format
    dtype: model_folder.StoredDtype
    size: int  # bytes of the file, or of all files of the folder
    difference: float | None = None  # largest, of a probability of the ONNX file from the model's
    beside: tuple[Path, ...] = ()  # the tokenizer of the ONNX file


def export(
    model: Predictor | Artifact | str | Path,
    out: str | Path,
    dtype: model_folder.StoredDtype | None = None,
    format: Format | None = None,  # noqa: A002
    overwrite: bool = False,
    max_size: int | None = None,
) -> Exported:
    """Write ``model`` as an ONNX file, as an HTML page or as a model folder.

    Examples:
        >>> export("my-model", "my-model.onnx")
        >>> export("my-model", "my-model.html")
        >>> export("my-model", "my-small-model", dtype="int8")

    Args:
        model: a model folder, or what was loaded from one.
        out: a file for ``onnx`` and ``html``, a new folder for ``folder``.
        dtype: how the weights are stored: ``float32`` (the default), ``float16`` or ``int8`` (the
            default of ``html``).
        format: ``onnx``, ``html`` or ``folder``; by default the suffix of ``out`` decides.
        overwrite: whether files or a model folder at ``out`` may be replaced.
        max_size: the most bytes of an HTML page; 20 MB by default.

    Raises:
        MissingExtraError: an ONNX file needs the extra ``onnx``.
        UserError: ``out`` exists, or a weight or the page is too large.
        DcnnError: the ONNX graph or its tokenizer differs from the model's; nothing was written.
        StorageError: the disk refused; what was there is untouched.
    """
    out = Path(out)
    chosen = format or format_of(out)
    dtype = dtype or ("int8" if chosen == "html" else "float32")
    for name, value, kind in (
        ("format", chosen, Format),
        ("dtype", dtype, model_folder.StoredDtype),
    ):
        if value not in get_args(kind):
            raise UserError(f"{name}={value!r} must be one of {', '.join(get_args(kind))}")
    named = format_of(out)
    if {named, chosen} == {"html", "onnx"}:  # a folder may have any name
        raise UserError(
            f"--out {out} is named as an {named.upper()} file, and the format is {chosen}; name it "
            "otherwise, or leave out --format"
        )
    if max_size is not None and chosen != "html":
        raise UserError(f"max_size={max_size} limits the size of an HTML page; got format={chosen}")
    if chosen == "folder":
        model_folder.check_destination(out, overwrite)
    else:
        check_place("--out", out)
        model_folder.refuse_existing(out, overwrite)
    if chosen == "onnx":
        # A model folder has a tokenizer.json of its own, of another format.
        if (out.parent / model_folder.CONFIG).is_file() and (out.parent / HUGGINGFACE).is_file():
            raise UserError(
                f"--out {out}: {out.parent} is a model folder, and {HUGGINGFACE} would be "
                "replaced; choose another folder"
            )
        with needs_extra("Writing an ONNX file", "onnx"):
            import onnx  # noqa: F401
            import onnxruntime  # noqa: F401
    name = Path(model).resolve().name if isinstance(model, str | Path) else out.stem
    if isinstance(model, Predictor):
        model = model.artifact
    artifact = model if isinstance(model, Artifact) else model_folder.load(Path(model))
    # The weights that a reader of the export will have.
    weights = model_folder.unpack(model_folder.pack(artifact.weights, dtype))
    artifact = replace(artifact, weights=weights, dtype=dtype)
    if chosen == "folder":
        model_folder.save(out, artifact, overwrite)
        return Exported(out, chosen, dtype, sum(file.stat().st_size for file in out.iterdir()))
    if chosen == "html":
        content, limit = html_text(artifact, name).encode(), max_size or MAX_PAGE
        if len(content) > limit:
            smaller = "" if dtype == "int8" else "choose --dtype int8, or "
            raise UserError(
                f"the page would have {show_size(len(content))}, and max_size={limit} allows "
                f"{show_size(limit)}; {smaller}raise --max-size"
            )
        _write(out, content)
        return Exported(out, chosen, dtype, len(content))
    content = onnx_bytes(artifact)
    difference = check_against_model(content, artifact)
    described = huggingface_json(artifact.encoder)
    check_huggingface(described, artifact.encoder)
    beside = {
        out.with_name(HUGGINGFACE): described.encode(),
        out.with_name(SCRIPT): script_text(artifact.encoder).encode(),
    }
    for path, text in beside.items():
        if not (path.is_file() and path.read_bytes() == text):  # another file of the same model
            model_folder.refuse_existing(path, overwrite)
    for path, text in (beside | {out: content}).items():
        _write(path, text)
    return Exported(out, chosen, dtype, len(content), difference, tuple(beside))


def format_of(path: Path) -> Format:
    """``onnx`` or ``html`` for a name with that suffix, else ``folder``."""
    suffixes: dict[str, Format] = {".onnx": "onnx", ".html": "html", ".htm": "html"}
    return suffixes.get(path.suffix.lower(), "folder")


def _write(path: Path, content: bytes) -> None:
    with write_atomically(path) as stream:
        stream.write(content)
