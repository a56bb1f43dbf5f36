"""``dcnn export``: a model as an ONNX file, as one HTML page, or as a smaller model folder."""

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from dcnn.cli.console import ModelFolder, Overwrite
from dcnn.export import export as export_model
from dcnn.files import parse_size


def export(
    model: ModelFolder,
    out: Annotated[Path, Option()],
    form: Annotated[str | None, Option("--format", metavar="onnx|html|folder")] = None,
    dtype: Annotated[str | None, Option(metavar="float32|float16|int8")] = None,
    max_size: Annotated[str | None, Option(metavar="SIZE")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a model as an ONNX file, as one HTML page, or as a smaller model folder.

    The ONNX graph takes ids and lengths, for any batch size and length, and returns probabilities;
    it is compared with the model before the file is written (needs the extra `onnx`). Beside it go
    tokenizer.json, for Hugging Face tokenizers, and tokenize_text.py, which needs numpy alone. An
    HTML page classifies and explains in any browser, without a server or a network. A folder with
    float16 or int8 weights is a model folder like any other.
    """
    limit = None if max_size is None else parse_size(max_size)
    choices: Any = {"dtype": dtype, "format": form}  # export checks the strings
    exported = export_model(model, out, overwrite=overwrite, max_size=limit, **choices)
    size = exported.size
    shown = f"{size / 1e6:.2f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
    difference = exported.difference
    close = "" if difference is None else f"; probabilities within {difference:.0e} of the model's"
    what = "model folder, " if exported.path.is_dir() else ""
    print(f"{exported.path}: {what}{shown}, {exported.dtype}{close}")
    for path in exported.beside:
        print(path)
