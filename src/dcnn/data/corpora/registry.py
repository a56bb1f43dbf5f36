"""The corpora of the paper's experiments (Sect. 5): what they consist of, and where they are.

A corpus may be stored in one of several forms, each complete in itself; ``find_corpus`` accepts any
of them, and ``dcnn.data.corpora.download`` downloads the first. A result is worth nothing if the
data was cut short, so every file is compared with the known size and SHA-256 whenever it is opened:
the largest takes a fraction of a second. ``registry.toml`` has the files and their addresses.
"""

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from dcnn.data.columns import did_you_mean, shown
from dcnn.data.corpora.sentiment140 import iterate_sentiment140
from dcnn.data.corpora.sst import read_trees
from dcnn.data.corpora.trec import read_trec
from dcnn.data.corpora.unlabelled import count_unlabelled
from dcnn.errors import DataError, UserError
from dcnn.files import file_sha256, open_bytes

GLOVE_DIMENSIONS = 100
UNFINISHED = ".part"  # suffix of an incomplete download


class KnownFile(NamedTuple):
    """A file and what its bytes must be; without a SHA-256, only the size is known."""

    name: str
    size: int
    sha256: str = ""

    def is_at(self, path: Path) -> bool:
        """Whether ``path`` is this file."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        return not self.sha256 or file_sha256(path) == self.sha256


@dataclass(frozen=True)
class Part:
    """One set of a corpus: a file in its folder, or a member of an archive there."""

    role: str  # train, dev, test, vectors or unlabelled
    file: KnownFile
    count: int  # of the examples that it must hold
    member: str = ""


Form = tuple[Part, ...]


@dataclass(frozen=True)
class Download:
    """A file to download; ``unpack`` maps members of an archive, which is not kept, to files."""

    url: str
    file: KnownFile
    unpack: Mapping[str, KnownFile] = field(default_factory=dict)

    @property
    def result(self) -> list[KnownFile]:
        """The files that it leaves behind."""
        return list(self.unpack.values()) or [self.file]


@dataclass(frozen=True)
class Corpus:
    """What is known about a corpus."""

    name: str
    title: str
    folder: str  # inside the data folder
    forms: tuple[Form, ...]  # how it may be stored there; the first is the one that is downloaded
    downloads: tuple[Download, ...]  # what makes the first form
    unit: str  # what ``count`` counts
    count: Callable[[Path, str], int]  # reads a whole part, from a path and a member
    citation: str  # whom to cite, and the terms of the corpus


def count_vectors(path: Path, member: str = "") -> int:
    """The vectors of a GloVe file of 100 dimensions; their words hold no spaces."""
    number = 0
    with open_bytes(path, member) as stream:
        for number, line in enumerate(stream, start=1):
            if line.count(b" ") != GLOVE_DIMENSIONS:
                raise DataError(
                    f"{path}, line {number}: expected a word and {GLOVE_DIMENSIONS} numbers; "
                    f"got {line[:60]!r}; download the file again"
                )
    return number


_COUNTS: dict[str, Callable[[Path, str], int]] = {
    "sst": lambda path, _: len(read_trees(path)),
    "trec": lambda path, _: len(read_trec(path)),
    "twitter": lambda path, member: sum(1 for _ in iterate_sentiment140(path, member)),
    "glove": count_vectors,
    "imdb": count_unlabelled,
    "questions": count_unlabelled,
}


def _parse_corpus(name: str, entry: dict[str, Any]) -> Corpus:
    files = {file: KnownFile(file, **known) for file, known in entry.pop("files").items()}
    forms = tuple(
        tuple(Part(**part | {"file": files[part["file"]]}) for part in form)
        for form in entry.pop("forms")
    )
    downloads = tuple(
        Download(url, files[url.rsplit("/", 1)[1]], {key: files[unpack[key]] for key in unpack})
        for url, unpack in entry.pop("downloads").items()
    )
    return Corpus(name, forms=forms, downloads=downloads, count=_COUNTS[name], **entry)


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
CORPORA: Mapping[str, Corpus] = {name: _parse_corpus(name, _TABLE[name]) for name in _TABLE}


class Source(NamedTuple):
    """Where to read a part of a corpus: a file, or a member of an archive."""

    path: Path
    member: str = ""


def get_corpus(name: str, corpora: Mapping[str, Corpus] = CORPORA) -> Corpus:
    """The corpus of that name; raises ``UserError`` if there is none."""
    if name not in corpora:
        raise UserError(
            f"{shown(name)} is not a corpus; known are {', '.join(corpora)}"
            f"{did_you_mean(name, corpora)}"
        )
    return corpora[name]


def find_corpus(
    name: str, data: Path, *, check: bool = True, corpora: Mapping[str, Corpus] = CORPORA
) -> dict[str, Source]:
    """Where the parts of a corpus (``sst``, ``trec``, ``twitter``, ``glove``) are, by their roles.

    Args:
        name: of the corpus.
        data: the data folder; see ``data_folder``.
        check: whether the files must be the known ones; a sample made on purpose is not.
        corpora: the corpora that are known.

    Raises:
        DataError: a file is missing or not the right one; the message says how to get it.
    """
    corpus = get_corpus(name, corpora)
    folder = data / corpus.folder
    form = require_form(corpus, data)
    for file in dict.fromkeys(part.file for part in form) if check else ():
        check_file(corpus, folder / file.name, file)
    return {part.role: Source(folder / part.file.name, part.member) for part in form}


def find_form(corpus: Corpus, data: Path) -> Form | None:
    """The first form of which every file exists, or none."""
    folder = data / corpus.folder
    return next((form for form in corpus.forms if not _absent(form, folder)), None)


def require_form(corpus: Corpus, data: Path) -> Form:
    """The form in which a corpus is there; if there is none, the error says how to get it."""
    if found := find_form(corpus, data):
        return found
    folder = data / corpus.folder
    # The error names what is missing from the form that has most of its files.
    form = max(corpus.forms, key=lambda form: sum((folder / p.file.name).is_file() for p in form))
    urls = ", ".join(download.url for download in corpus.downloads)
    unfinished = sorted(path.name for path in folder.glob(f"*{UNFINISHED}"))
    partial = f" ({', '.join(unfinished)} is an incomplete download)" if unfinished else ""
    remedy = (
        f"run: dcnn data fetch {corpus.name} --data {data}, or put it there by hand from {urls}"
    )
    if not urls:
        remedy = f"put it there by hand: {corpus.citation}"
    raise DataError(
        f"{corpus.title}: {folder} lacks {', '.join(_absent(form, folder))}{partial}; {remedy}"
    )


def _absent(form: Form, folder: Path) -> list[str]:
    names = dict.fromkeys(part.file.name for part in form)
    return [name for name in names if not (folder / name).is_file()]


def check_file(corpus: Corpus, path: Path, known: KnownFile) -> None:
    """Check that ``path`` is the known file; the error says what is wrong with another one."""
    try:
        if known.is_at(path):
            return
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if size == known.size:
        expected = f"{known.sha256} is expected: it was altered"
        fault = f"has the SHA-256 {file_sha256(path)} where {expected}"
    else:
        state = "it was cut short" if size < known.size else "it was altered"
        fault = f"has {size:,} bytes where {known.size:,} are expected: {state}"
    for other in (part.file for form in corpus.forms for part in form):
        if other.sha256 and other.is_at(path):
            fault = f"is {other.name} under another name"
    remedy = f"delete it and run: dcnn data fetch {corpus.name}"
    if not corpus.downloads:
        remedy = "put the right one there; dcnn experiment --sample takes any"
    raise DataError(f"{path} {fault}; {remedy}")


def data_folder(given: Path | None = None) -> Path:
    """The folder of the corpora: ``given``, else ``DCNN_DATA``, else the platform's for data."""
    return given or _user_folder("DCNN_DATA", "user_data_path")


def cache_folder(given: Path | None = None) -> Path:
    """The folder of what can be made again: ``given``, else ``DCNN_CACHE``, else the platform's."""
    return given or _user_folder("DCNN_CACHE", "user_cache_path")


def _user_folder(variable: str, platform_folder: str) -> Path:
    value = os.environ.get(variable)
    if value:
        return Path(value).expanduser()
    import platformdirs  # not needed to predict

    path: Path = getattr(platformdirs, platform_folder)("dcnn", appauthor=False)
    return path
