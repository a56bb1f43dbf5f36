"""Whatever a message tells people to install exists, and installs what was missing."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dcnn.errors import MissingExtraError

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "src").rglob("*.py")
    if path.name != "errors.py"
}
_NEEDS = re.compile(r"raise MissingExtraError\(|with needs_extra\(")
# The extra is the last thing that the error is made from.
_CALL = re.compile(rf"(?:{_NEEDS.pattern})(.*?)\)(?: from|:?\n)", re.DOTALL)
RAISED = {
    (path, extra)
    for path, source in SOURCES.items()
    for call in _CALL.findall(source)
    for extra in re.findall(r'"([a-z]+)"\s*$', call)
}
NOT_OF_ALL = {
    "ray",
    "features",
    "bench",
    "dev",
    "docs",
    "all",
}  # too large, or of no use to those who only use it


def test_every_place_that_misses_an_extra_is_seen():
    needed = {path: len(_NEEDS.findall(source)) for path, source in SOURCES.items()}
    assert sum(needed.values()) >= len(RAISED) > 10
    assert {path for path, _ in RAISED} == {path for path, count in needed.items() if count}


@pytest.mark.parametrize(("path", "extra"), sorted(RAISED))
def test_the_extra_that_is_named_exists(path, extra):
    assert extra in EXTRAS


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_the_message_names_the_extra_and_both_ways_to_install_it(extra):
    error = MissingExtraError("Something", extra)
    assert str(error) == (
        f"Something needs the extra '{extra}': pip install 'dcnn[{extra}]', "
        f"or from a clone pip install '.[{extra}]'"
    )
    assert error.exit_code == 2


def test_all_is_every_extra_that_is_of_use_on_one_machine():
    (everything,) = EXTRAS["all"]
    named = set(re.findall(r"[a-z]+", everything.removeprefix("dcnn")))
    assert named == EXTRAS.keys() - NOT_OF_ALL


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - {"dev", "bench", "docs"}))
def test_the_readme_says_how_to_install_it(extra):
    assert f"pip install '.[{extra}]'" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_what_ci_installs_by_hash_is_within_the_ranges_of_the_extras():
    lines = (ROOT / "requirements-ci.txt").read_text().splitlines()[1:]
    locked = {}
    for line in lines:
        name, version = re.fullmatch(r"(\S+)==(\S+) --hash=sha256:[0-9a-f]{64}", line).groups()
        locked[canonicalize_name(name)] = version
    extras = [
        one for name, needed in EXTRAS.items() if name not in NOT_OF_ALL - {"dev"} for one in needed
    ]
    pins = [*PROJECT["dependencies"], *extras, *(ROOT / "constraints.txt").read_text().splitlines()]
    needed = [Requirement(one) for one in pins if not one.startswith(("#", "dcnn"))]
    stale = {
        str(one)
        for one in needed
        if one.name != "torch"
        and not one.specifier.contains(locked.get(canonicalize_name(one.name), "0"))
    }
    assert not stale, "run `make lock`"
    assert "torch" not in locked
