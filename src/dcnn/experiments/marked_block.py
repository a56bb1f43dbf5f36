"""The parts of a Markdown file that are rendered from results, between two comments.

<!-- NAME:begin -->
rendered
<!-- NAME:end -->
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from dcnn.errors import DataError
from dcnn.files import open_bytes, write_atomically


def markers(name: str) -> tuple[str, str]:
    """The comments before and after the block ``name``."""
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


def has_block(text: str, name: str) -> bool:
    """Whether ``text`` holds a comment of the block."""
    return any(marker in text for marker in markers(name))


def replace_block(text: str, name: str, content: str, path: Path) -> str:
    """Return ``text`` with ``content`` between the comments of ``name``.

    Args:
        text: the whole Markdown text.
        name: which block.
        content: what goes between its comments.
        path: where the text comes from, for the error.

    Raises:
        DataError: the two comments are not there once each, in their order.
    """
    begin, end = markers(name)
    before, opened, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (opened and closed) or text.count(begin) > 1 or text.count(end) > 1:
        raise DataError(
            f"{path}: the block must stand once between {begin} and {end}; found "
            f"{text.count(begin)} and {text.count(end)} of them, or the second first; mend the file"
        )
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def write_blocks(paths: Sequence[Path], blocks: Mapping[str, str]) -> None:
    """Put ``blocks``, by name, into the Markdown files that have a place for them.

    Raises:
        DataError: a file is not UTF-8 text, or has no place for any of the blocks.
    """
    # Every file is checked before the first is written.
    rendered = {path: _render(path, blocks) for path in paths}
    for path, text in rendered.items():
        with write_atomically(path) as stream:
            stream.write(text.encode())


def _render(path: Path, blocks: Mapping[str, str]) -> str:
    with open_bytes(path) as stream:
        raw = stream.read()
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} must be UTF-8 text ({error}); name a Markdown file") from None
    present = [name for name in blocks if has_block(text, name)]
    if not present:
        wanted = " or ".join(" and ".join(markers(name)) for name in blocks)
        raise DataError(f"{path} has no place for the tables; put {wanted} on lines of their own")
    for name in present:
        text = replace_block(text, name, blocks[name], path)
    return text
