"""``dcnn export``: a model as an ONNX file, or as a smaller model folder."""

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from dcnn.cli.console import ModelFolder, Overwrite
from dcnn.export import export as export_model


def export(
    model: ModelFolder,
    out: Annotated[Path, Option()],
    form: Annotated[str | None, Option("--format", metavar="onnx|folder")] = None,
    dtype: Annotated[str, Option(metavar="float32|float16|int8")] = "float32",
    overwrite: Overwrite = False,
) -> None:
    """Write a model as an ONNX file, or as a smaller model folder.

    The ONNX graph takes ids and lengths, for any batch size and length, and returns probabilities;
    it is compared with the model before the file is written (needs the extra `onnx`). A folder
    with float16 or int8 weights is a model folder like any other.
    """
    choices: Any = {"dtype": dtype, "format": form}  # export checks the strings
    exported = export_model(model, out, overwrite=overwrite, **choices)
    size = exported.size
    shown = f"{size / 1e6:.2f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
    difference = exported.difference
    close = "" if difference is None else f"; probabilities within {difference:.0e} of the model's"
    print(f"{exported.path}: {shown}, {exported.dtype}{close}")
