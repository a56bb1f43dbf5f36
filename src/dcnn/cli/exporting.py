"""Taking a model elsewhere: ``dcnn export``."""

from pathlib import Path
from typing import Annotated

import typer

from dcnn.cli.options import ModelFolder


def export(
    model: ModelFolder,
    out: Annotated[
        Path, typer.Option("--out", help="FILE.onnx, or the name of a new model folder.")
    ],
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="onnx|folder", help="Else the name of --out says it."),
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(
            "--dtype",
            metavar="float32|float16|int8",
            help="How the weights are stored; int8 takes a quarter of the room.",
        ),
    ] = "float32",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file or model folder.")
    ] = False,
) -> None:
    """Write a model as an ONNX file, or as a smaller model folder.

    The ONNX graph takes ids and lengths, of any batch and any length, and gives probabilities; it
    is compared with the model before the file is written (needs the extra onnx). A folder with
    float16 or int8 weights does all that any model folder does.

    \b
    Examples:
      dcnn export my-model --out my-model.onnx
      dcnn export my-model --out my-small-model --dtype int8
      dcnn export my-model --out my-small-model.onnx --dtype int8 --overwrite
    """
    from dcnn.commands.export import run_export

    run_export(model, out, form, dtype, overwrite)
