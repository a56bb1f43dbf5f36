"""Finding the paper's corpora in the data folder, and refusing a file that is not the right one.

A result is worth nothing if the data was cut short, so every file is compared with the known size
and SHA-256 whenever it is opened: the largest takes a fraction of a second.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from dcnn.data.checksums import file_sha256
from dcnn.data.messages import did_you_mean, shown
from dcnn.data.registry import CORPORA, Corpus, Form, KnownFile
from dcnn.errors import DataError, UserError

UNFINISHED = ".part"  # ends the name of a file that is not downloaded wholly


class Source(NamedTuple):
    """Where to read a part of a corpus: a file, or a member of an archive."""

    path: Path
    member: str = ""


def get_corpus(name: str, corpora: Mapping[str, Corpus] = CORPORA) -> Corpus:
    """The corpus of that name.

    Raises:
        UserError: there is none.
    """
    if name not in corpora:
        raise UserError(
            f"{shown(name)} is no corpus; known are {', '.join(corpora)}"
            f"{did_you_mean(name, corpora)}"
        )
    return corpora[name]


def find_corpus(
    name: str, data: Path, *, check: bool = True, corpora: Mapping[str, Corpus] = CORPORA
) -> dict[str, Source]:
    """Where the parts of a corpus are, by their roles.

    Args:
        name: ``sst``, ``trec``, ``twitter`` or ``glove``.
        data: the data folder; see ``dcnn.data.folders``.
        check: whether the files must be the known ones; a sample made on purpose is not.
        corpora: the corpora that are known.

    Raises:
        DataError: a file is missing or not the right one; the message says how to get it.
    """
    corpus = get_corpus(name, corpora)
    folder = data / corpus.folder
    form = require_form(corpus, data)
    if check:
        for file in files_of(form):
            check_file(corpus, folder / file.name, file)
    return {part.role: Source(folder / part.file.name, part.member) for part in form}


def require_form(corpus: Corpus, data: Path) -> Form:
    """The form in which a corpus is there.

    Raises:
        DataError: a file is missing; the message says how to get it.
    """
    form = find_form(corpus, data)
    if form is None:
        raise _missing(corpus, data)
    return form


def find_form(corpus: Corpus, data: Path) -> Form | None:
    """The first form of which every file exists, or none."""
    for form in corpus.forms:
        if not _absent(form, data / corpus.folder):
            return form
    return None


def files_of(form: Form) -> list[KnownFile]:
    """The files of a form, each once: two parts may be members of the same archive."""
    return list({part.file.name: part.file for part in form}.values())


def check_file(corpus: Corpus, path: Path, known: KnownFile) -> None:
    """Compare a file with what is known of it.

    Raises:
        DataError: it is another one, or damaged.
    """
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if size == known.size and not known.sha256:
        return
    sha256 = file_sha256(path)
    if (size, sha256) == (known.size, known.sha256):
        return
    if size == known.size:
        fault = f"has the SHA-256 {sha256} where {known.sha256} is expected: it was altered"
    else:
        state = "it was cut short" if size < known.size else "it was altered"
        fault = f"has {size:,} bytes where {known.size:,} are expected: {state}"
    for form in corpus.forms:
        for other in files_of(form):
            if (size, sha256) == (other.size, other.sha256):
                fault = f"is {other.name} under another name"
    raise DataError(f"{path} {fault}; delete it and run: dcnn data fetch {corpus.name}")


def _absent(form: Form, folder: Path) -> list[KnownFile]:
    return [file for file in files_of(form) if not (folder / file.name).is_file()]


def _missing(corpus: Corpus, data: Path) -> DataError:
    """What is missing of the form of which most is there, and how to get the corpus."""
    folder = data / corpus.folder
    form = max(corpus.forms, key=lambda form: len(files_of(form)) - len(_absent(form, folder)))
    absent = ", ".join(file.name for file in _absent(form, folder))
    urls = ", ".join(download.url for download in corpus.downloads)
    unfinished = sorted(path.name for path in folder.glob(f"*{UNFINISHED}"))
    half = f" ({', '.join(unfinished)} is half a download)" if unfinished else ""
    return DataError(
        f"{corpus.title}: {folder} lacks {absent}{half}; "
        f"run: dcnn data fetch {corpus.name} --data {data}, or put it there by hand from {urls}"
    )
