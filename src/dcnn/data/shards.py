"""A corpus in several files: a folder, or a pattern in quotes such as ``'shards/*.parquet'``.

Hidden files and those whose names begin with an underscore are passed over, as other engines do:
they hold marks and metadata.
"""

import glob
import logging
from pathlib import Path

from dcnn.data.formats import is_table
from dcnn.data.messages import shown_names
from dcnn.errors import DataError

# What Hugging Face's ``save_to_disk`` leaves beside the shards: JSON, but no data.
_ABOUT_DATASETS = ("dataset_info.json", "dataset_dict.json", "state.json")
_OF_A_MODEL = "model.safetensors"

_log = logging.getLogger("dcnn")


def find_shards(given: Path, *, aloud: bool = True) -> list[Path]:
    """The files that ``given`` stands for, sorted by their paths; a file stands for itself.

    How many they are, and which are left out, is said ``aloud``.

    Raises:
        DataError: the folder holds no data, or nothing matches the pattern.
    """
    if given.is_dir():
        return _in_folder(given, aloud)
    if given.exists() or not is_pattern(given):
        return [given]
    # Path.glob starts at a folder, where a pattern may be absolute.
    found = [Path(name) for name in glob.glob(str(given), recursive=True)]  # noqa: PTH207
    found = sorted(path for path in found if path.is_file() and not _is_passed_over(path))
    if not found:
        raise DataError(f"{given}: no file matches this pattern; name a file, a folder or another")
    tables = [path for path in found if is_table(path)]
    # Where no match has a known suffix, the first is opened, which names those that are known.
    return _tables(given, tables, found, aloud) if tables else found


def is_pattern(given: Path) -> bool:
    """Whether the name has what stands for other characters: ``*``, ``?`` or ``[``."""
    return glob.has_magic(str(given))


def stands_for(given: Path, path: Path) -> bool:
    """Whether ``path`` is, or once written would be, one of the files of ``given``."""
    path = path.resolve()
    if given.is_dir():
        return path.parent == given.resolve() and is_table(path) and not _is_passed_over(path)
    if is_pattern(given) and not given.exists():
        return path.match(str(given.absolute()))
    return path == given.resolve()


def _in_folder(folder: Path, aloud: bool) -> list[Path]:
    if (folder / _OF_A_MODEL).exists():
        raise DataError(f"{folder} is a folder that holds a model; name a file or folder of data")
    found = sorted(
        path for path in folder.iterdir() if path.is_file() and not _is_passed_over(path)
    )
    tables = [path for path in found if is_table(path)]
    if not tables:
        deeper = any(path.is_dir() for path in folder.iterdir())
        remedy = f"give a pattern such as '{folder}/*/*.parquet'" if deeper else "name another"
        raise DataError(f"{folder} is a folder without data files of its own; {remedy}")
    return _tables(folder, tables, found, aloud)


def _is_passed_over(path: Path) -> bool:
    return path.name.startswith((".", "_")) or path.name in _ABOUT_DATASETS


def _tables(given: Path, tables: list[Path], found: list[Path], aloud: bool) -> list[Path]:
    if not aloud:
        return tables
    others = [path.name for path in found if not is_table(path)]
    left_out = f"; left out, as no data files: {shown_names(others)}" if others else ""
    files = "1 file" if len(tables) == 1 else f"{len(tables):,} files"
    _log.info("%s: reading %s%s", given, files, left_out)
    return tables
