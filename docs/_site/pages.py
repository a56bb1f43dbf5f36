"""What the site has besides the files of docs/; MkDocs calls it (``hooks`` in mkdocs.yml).

- Four pages are made: the first one from README.md, two from CONTRIBUTING.md and CHANGELOG.md, and
  the reference of the commands from their help texts, so that none of them is written twice.
- A link that leads out of docs/, to a result or a benchmark, works where the repository is read.
  The site does not hold these files, so there the path is told instead; with ``repo_url`` in
  mkdocs.yml it is a link again.
"""

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.append(str(Path(__file__).parent))

from command_reference import command_reference

ROOT = Path(__file__).parents[2]
FROM_ROOT = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}

# [text](target), also as a picture; not a web address and not a place on the same page.
_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>(?!https?:|#)[^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    for source, name in FROM_ROOT.items():
        content = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=from_root(content)))
    files.append(File.generated(config, "commands.md", content=command_reference()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Tell the path where a link leads out of docs/."""
    return without_outside_links(markdown, page.file.src_uri, config.repo_url)


def from_root(markdown: str) -> str:
    """A page of the repository's root with its links as seen from docs/."""

    def moved(match: re.Match[str]) -> str:
        path, anchor = _split(match["target"])
        if path in FROM_ROOT:
            path = FROM_ROOT[path]
        else:
            path = path.removeprefix("docs/") if path.startswith("docs/") else f"../{path}"
        return f"{match['picture']}[{match['text']}]({path}{anchor})"

    return _LINK.sub(moved, markdown)


def without_outside_links(markdown: str, page: str, repo_url: str | None) -> str:
    """A page whose links into the rest of the repository became paths, or addresses there."""

    def told(match: re.Match[str]) -> str:
        path, anchor = _split(match["target"])
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        if not path.startswith("../"):
            return match[0]
        path, text = path.removeprefix("../"), match["text"]
        if repo_url:
            return f"[{text}]({repo_url.rstrip('/')}/blob/main/{path}{anchor})"
        return f"`{path}`" if text.strip("`") == path else f"{text} (`{path}`)"

    return _LINK.sub(told, markdown)


def _split(target: str) -> tuple[str, str]:
    path, sharp, anchor = target.partition("#")
    return path, sharp + anchor
