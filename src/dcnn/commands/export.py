"""``dcnn export``: a model in another form, and what became of it."""

from pathlib import Path
from typing import Any

from dcnn.export import Exported, export


def run_export(model: Path, out: Path, form: str | None, dtype: str, overwrite: bool) -> None:
    """Write the file or folder and say what it is."""
    chosen: Any = {"dtype": dtype, "format": form}  # checked where they are used
    exported = export(model, out, overwrite=overwrite, **chosen)
    print(_told(exported))


def _told(exported: Exported) -> str:
    told = f"{exported.path}: {_size(exported.size)}, {exported.dtype}"
    if exported.difference is None:
        return told
    return f"{told}; probabilities within {exported.difference:.0e} of the model's"


def _size(size: int) -> str:
    return f"{size / 1e6:.2f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
