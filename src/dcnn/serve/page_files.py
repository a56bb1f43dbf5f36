"""The files of the page: a fixed list, read once. A request chooses among them and opens none."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "page"

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

# The address of every file; only two are not the file's own name.
ADDRESSES = {"index.html": "/", "docs.html": "/docs"}


@dataclass(frozen=True)
class PageFile:
    """A file of the page, as it is sent."""

    content: bytes
    media_type: str
    tag: str


def load_page() -> dict[str, PageFile]:
    """Every file of the page by its address."""
    files = {}
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in TYPES:
            content = path.read_bytes()
            tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
            address = ADDRESSES.get(path.name, f"/page/{path.name}")
            files[address] = PageFile(content, TYPES[path.suffix], tag)
    return files
