"""Links of pages that the site shows at another place than the repository does."""

import posixpath
import re

# Pages of the repository's root, and what they are called in the site.
FROM_ROOT = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}

# [text](target), also as a picture; not a web address and not a place on the same page.
_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>(?!https?:|#)[^)\s]+)\)")


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
