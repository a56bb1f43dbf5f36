"""The parts of a Markdown file that are rendered from results, between two comments.

<!-- NAME:begin -->
rendered
<!-- NAME:end -->
"""

from pathlib import Path

from dcnn.errors import DataError


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
