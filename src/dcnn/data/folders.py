"""Where corpora and caches live: as the user says, else where the platform keeps such things."""

import os
import sys
from pathlib import Path

DATA_VARIABLE = "DCNN_DATA"
CACHE_VARIABLE = "DCNN_CACHE"


def data_folder(given: Path | None = None) -> Path:
    """The folder of the corpora: ``given``, else ``DCNN_DATA``, else the platform's for data."""
    return given or _chosen(DATA_VARIABLE) or _platform_folder("data")


def cache_folder(given: Path | None = None) -> Path:
    """The folder of what can be made again: ``given``, else ``DCNN_CACHE``, else the platform's."""
    return given or _chosen(CACHE_VARIABLE) or _platform_folder("cache")


def _chosen(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value).expanduser() if value else None


def _platform_folder(kind: str) -> Path:
    home = Path.home()
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else home / "AppData" / "Local") / "dcnn" / kind
    if sys.platform == "darwin":
        library = {"data": "Application Support", "cache": "Caches"}
        return home / "Library" / library[kind] / "dcnn"
    defaults = {"data": home / ".local" / "share", "cache": home / ".cache"}
    base = os.environ.get(f"XDG_{kind.upper()}_HOME")
    return (Path(base) if base else defaults[kind]) / "dcnn"
