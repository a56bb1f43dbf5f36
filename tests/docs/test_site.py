"""The site is whole: every page is in its navigation, every link and every public name has a place.

`make docs` finds the same with MkDocs, which the suite does without.
"""

import importlib.util
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import dcnn
import dcnn.export
import dcnn.inspection
from documented import PAGES, ROOT, name_of

DOCS = ROOT / "docs"
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
# Made by docs/_site/pages.py.
GENERATED = {"index.md", "contributing.md", "changelog.md", "commands.md"}
TEXTS = {name_of(page): page.read_text("utf-8") for page in PAGES}


@pytest.fixture
def site_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """What MkDocs calls can be imported."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(DOCS / "_site")])


def in_navigation(entries: list[Any]) -> list[str]:
    found: list[str] = []
    for entry in entries:
        inner = next(iter(entry.values())) if isinstance(entry, dict) else entry
        found += [inner] if isinstance(inner, str) else in_navigation(inner)
    return found


def test_every_page_is_in_the_navigation_once():
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} | GENERATED
    listed = in_navigation(SITE["nav"])
    assert sorted(pages - set(listed)) == [], "add these to nav in mkdocs.yml"
    assert sorted(set(listed) - pages) == [], "mkdocs.yml names pages that are not there"
    assert len(listed) == len(set(listed))


def prose(text: str) -> str:
    """A page without its code, in which brackets mean something else."""
    return re.sub(r"`[^`\n]+`", "`code`", re.sub(r"(?ms)^ *```.*?^ *```$", "", text))


def slug(title: str) -> str:
    """The anchor of a heading, as MkDocs makes it."""
    plain = re.sub(r"[^\w\s-]", "", re.sub(r"[`*]", "", title)).strip().lower()
    return re.sub(r"[-\s]+", "-", plain)


def anchors(text: str) -> set[str]:
    headings = re.findall(r"(?m)^#+ +(.*?)\s*$", re.sub(r"(?ms)^ *```.*?^ *```$", "", text))
    return {slug(heading) for heading in headings}


def links() -> list[Any]:
    return [
        pytest.param(page, link, id=f"{page} {link}")
        for page, text in TEXTS.items()
        for link in sorted(set(re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", prose(text))))
    ]


@pytest.mark.parametrize(("page", "link"), links())
def test_a_link_leads_somewhere(page: str, link: str):
    path, _, anchor = link.partition("#")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
    # A page of the site alone can be linked to from pages of the site.
    made = target.startswith("docs/") and target.removeprefix("docs/") in GENERATED
    assert made or (ROOT / target).exists(), f"there is no {target}"
    if anchor and not made:
        assert anchor in anchors(TEXTS[target]), f"{target} has no heading #{anchor}"


@pytest.mark.parametrize("module", [dcnn, dcnn.inspection, dcnn.export], ids=lambda m: m.__name__)
def test_every_public_name_is_in_the_reference(module: Any):
    described = {
        name.rpartition(".")[2]
        for page in (DOCS / "api").glob("*.md")
        for name in re.findall(r"(?m)^::: (\S+)", page.read_text("utf-8"))
    }
    of_no_interest = {"__version__", "FORMATS", "Format"}  # a string, and names of strings
    modules = (DOCS / "api" / "errors.md").read_text("utf-8")
    assert "::: dcnn.errors" in modules  # all errors, DcnnError among them
    assert set(module.__all__) - of_no_interest - {"DcnnError"} <= described


@pytest.mark.parametrize(
    "name",
    [
        name
        for page in sorted((DOCS / "api").glob("*.md"))
        for name in re.findall(r"(?m)^::: (\S+)", page.read_text("utf-8"))
    ],
)
def test_what_the_reference_describes_is_there(name: str):
    home, _, last = name.rpartition(".")
    assert (
        importlib.util.find_spec(name)
        if last == "errors"
        else hasattr(importlib.import_module(home), last)
    )


def test_the_reference_of_the_commands_has_all_of_them_and_their_options(site_code):
    from command_reference import command_reference

    text = command_reference()
    for command in ("train", "serve", "data fetch", "experiment tables"):
        assert f"\n## dcnn {command}\n" in text
    train = text.partition("\n## dcnn train\n")[2].partition("\n## ")[0]
    assert "`--checkpoint-seconds" in train
    assert "\ndcnn train reviews.csv --out my-model --resume\n" in train


@pytest.mark.parametrize("repo_url", [None, "https://example.org/us/dcnn/"])
@pytest.mark.parametrize("page", sorted(TEXTS))
def test_in_the_site_no_link_leads_out_of_it(site_code, page: str, repo_url: str | None):
    from links import FROM_ROOT, from_root, without_outside_links

    text, place = prose(TEXTS[page]), page.removeprefix("docs/")
    if page in FROM_ROOT:
        text, place = from_root(text), FROM_ROOT[page]
    shown = without_outside_links(text, place, repo_url)
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", shown):
        inside = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
        assert inside in GENERATED or (DOCS / inside).is_file(), f"{page}: {target}"


def test_a_link_out_of_the_site_tells_its_path_or_leads_to_the_repository(site_code):
    from links import without_outside_links

    text = "[results](../results), [the sweep](../benchmarks/sweep.py), [guide](guide.md#ship)"
    assert without_outside_links(text, "experiments.md", None) == (
        "`results`, the sweep (`benchmarks/sweep.py`), [guide](guide.md#ship)"
    )
    linked = without_outside_links(text, "experiments.md", "https://example.org/us/dcnn/")
    assert "[results](https://example.org/us/dcnn/blob/main/results)" in linked
    below = "[guide](../guide.md), [results](../../results)"
    assert without_outside_links(below, "how-to/a.md", None) == "[guide](../guide.md), `results`"


@pytest.mark.parametrize("page", sorted(Path(DOCS).rglob("*.md")), ids=name_of)
def test_a_page_has_one_title(page: Path):
    text = re.sub(r"(?ms)^ *```.*?^ *```$", "", page.read_text("utf-8"))
    assert len(re.findall(r"(?m)^# ", text)) == 1
