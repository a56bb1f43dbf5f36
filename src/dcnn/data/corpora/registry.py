"""The corpora of the paper's experiments (Sect. 5): what they consist of, and where they are.

A corpus may be stored in one of several forms, each complete in itself; ``find_corpus`` accepts any
of them, and ``dcnn.data.corpora.download`` downloads the first. A result is worth nothing if the
data was cut short, so every file is compared with the known size and SHA-256 whenever it is opened:
the largest takes a fraction of a second.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from dcnn.data.columns import did_you_mean, shown
from dcnn.data.corpora.sentiment140 import iterate_sentiment140
from dcnn.data.corpora.sst import read_trees
from dcnn.data.corpora.trec import read_trec
from dcnn.errors import DataError, MissingExtraError, UserError
from dcnn.files import file_sha256, open_bytes

GLOVE_DIMENSIONS = 100


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


@dataclass(frozen=True)
class KnownFile:
    """A file and what its bytes must be; without a SHA-256, only the size is known."""

    name: str
    size: int
    sha256: str = ""


@dataclass(frozen=True)
class Part:
    """One set of a corpus: a file, or a member of an archive.

    Attributes:
        role: ``train``, ``dev``, ``test`` or ``vectors``.
        file: the file in the folder of the corpus.
        count: the examples that it must hold.
        member: the file to read inside an archive.
    """

    role: str
    file: KnownFile
    count: int
    member: str = ""


Form = tuple[Part, ...]


@dataclass(frozen=True)
class Download:
    """A file to download, and what to unpack from it if it is an archive that is not kept.

    Attributes:
        url: where it is.
        file: what must arrive.
        unpack: the file that each wanted member becomes; empty keeps the download.
    """

    url: str
    file: KnownFile
    unpack: Mapping[str, KnownFile] = field(default_factory=dict)


@dataclass(frozen=True)
class Corpus:
    """What is known about a corpus.

    Attributes:
        name: as commands take it.
        title: what it is, in a few words.
        folder: inside the data folder.
        forms: how it may be stored there; the first is the one that is downloaded.
        downloads: what makes the first form.
        unit: what ``count`` counts.
        count: reads a whole part, from a path and a member, and counts its examples.
        citation: whom to cite, and the terms of the corpus.
    """

    name: str
    title: str
    folder: str
    forms: tuple[Form, ...]
    downloads: tuple[Download, ...]
    unit: str
    count: Callable[[Path, str], int]
    citation: str


_SST = {
    "train": KnownFile(
        "train.txt", 2_160_058, "e2f3f41b0b1e6d4dddc0effe3bfc2d27ed8928079aa9a03d652311614fc5feb7"
    ),
    "dev": KnownFile(
        "dev.txt", 280_825, "0e9336aed6e4730e19f58d00a77b3f0297efdb755f7b5e598c98a05e3f97ea40"
    ),
    "test": KnownFile(
        "test.txt", 559_614, "6e54806dee95cf80cd918e7dfb3f6770f6df24bf826f289a4d1f709e1c8f6761"
    ),
}

_TREC_TRAIN = KnownFile(
    "train_5500.label", 335_858, "9e4c8bdcaffb96ed61041bd64b564183d52793a8e91d84fc3a8646885f466ec3"
)
_TREC_TEST = KnownFile(
    "TREC_10.label", 23_354, "033f22c028c2bbba9ca682f68ffe204dc1aa6e1cf35dd6207f2d4ca67f0d0e8e"
)

_TWEETS_ZIP = KnownFile(
    "trainingandtestdata.zip",
    81_363_704,
    "004a3772c8a7ff9bbfeb875880f47f0679d93fc63e5cf9cff72d54a8a6162e57",
)
_TWEETS_TRAIN = KnownFile("training.1600000.processed.noemoticon.csv", 238_803_811)
_TWEETS_TRAIN_TWO_COLUMNS = KnownFile(
    "sentiment140.train.csv.xz",
    34_276_868,
    "8b38dc2812e765d7ca81087b41ef9d5324bf25708193fff478fdf5bb1bcc6b3b",
)
_TWEETS_TEST = KnownFile(
    "testdata.manual.2009.06.14.csv",
    74_326,
    "c77669cc86ae85d3807d65fc13fed0c395266db518d4eaa0ff1f19bf6efbbdd3",
)

_GLOVE = KnownFile(
    "glove.6B.100d.txt",
    347_116_733,
    "95dde4dfd627ab26608d33e76d1195ec059734bd29089ea52cadb08d07c64544",
)
_GLOVE_SUBSET = KnownFile(
    "glove.100d.subset.txt.xz",
    6_667_312,
    "ac83a1443ca5ec0431fb51329ceb908a8143df974560175bd91003688328139e",
)

_ALL = (
    Corpus(
        name="sst",
        title="Stanford Sentiment Treebank, labelled trees",
        folder="sst",
        forms=(
            (
                Part("train", _SST["train"], 8_544),
                Part("dev", _SST["dev"], 1_101),
                Part("test", _SST["test"], 2_210),
            ),
        ),
        downloads=(
            Download(
                "https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip",
                KnownFile(
                    "trainDevTestTrees_PTB.zip",
                    789_539,
                    "5c613a4f673fc74097d523a2c83f38e0cc462984d847b82c7aaf36b01cbbbfcc",
                ),
                {f"trees/{file.name}": file for file in _SST.values()},
            ),
        ),
        unit="trees",
        count=lambda path, _: len(read_trees(path)),
        citation="Socher et al., Recursive Deep Models for Semantic Compositionality Over a "
        "Sentiment Treebank, EMNLP 2013 (its authors ask to be cited)",
    ),
    Corpus(
        name="trec",
        title="TREC questions by type",
        folder="trec",
        forms=((Part("train", _TREC_TRAIN, 5_452), Part("test", _TREC_TEST, 500)),),
        downloads=tuple(
            Download(f"https://cogcomp.org/Data/QA/QC/{file.name}", file)
            for file in (_TREC_TRAIN, _TREC_TEST)
        ),
        unit="questions",
        count=lambda path, _: len(read_trec(path).texts),
        citation="Li and Roth, Learning Question Classifiers, COLING 2002 (no licence is stated)",
    ),
    Corpus(
        name="twitter",
        title="Sentiment140, tweets labelled by emoticons",
        folder="twitter",
        forms=(
            (
                Part("train", _TWEETS_ZIP, 1_600_000, member=_TWEETS_TRAIN.name),
                Part("test", _TWEETS_ZIP, 359, member=_TWEETS_TEST.name),
            ),
            (Part("train", _TWEETS_TRAIN, 1_600_000), Part("test", _TWEETS_TEST, 359)),
            (Part("train", _TWEETS_TRAIN_TWO_COLUMNS, 1_600_000), Part("test", _TWEETS_TEST, 359)),
        ),
        downloads=(
            Download("https://cs.stanford.edu/people/alecmgo/trainingandtestdata.zip", _TWEETS_ZIP),
        ),
        unit="tweets",
        count=lambda path, member: sum(1 for _ in iterate_sentiment140(path, member)),
        citation="Go, Bhayani and Huang, Twitter Sentiment Classification using Distant "
        "Supervision, Stanford 2009 (its authors ask to be cited)",
    ),
    Corpus(
        name="glove",
        title="GloVe word vectors, 100 dimensions",
        folder="vectors",
        forms=((Part("vectors", _GLOVE, 400_000),), (Part("vectors", _GLOVE_SUBSET, 37_690),)),
        downloads=(
            Download(
                "https://nlp.stanford.edu/data/glove.6B.zip",
                KnownFile(
                    "glove.6B.zip",
                    862_182_613,
                    "617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
                ),
                {_GLOVE.name: _GLOVE},
            ),
        ),
        unit="vectors of 100 dimensions",
        count=count_vectors,
        citation="Pennington, Socher and Manning, GloVe: Global Vectors for Word Representation, "
        "EMNLP 2014 (Public Domain Dedication and License)",
    ),
)

CORPORA: Mapping[str, Corpus] = {corpus.name: corpus for corpus in _ALL}


UNFINISHED = ".part"  # suffix of an incomplete download


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
            f"{shown(name)} is not a corpus; known are {', '.join(corpora)}"
            f"{did_you_mean(name, corpora)}"
        )
    return corpora[name]


def find_corpus(
    name: str, data: Path, *, check: bool = True, corpora: Mapping[str, Corpus] = CORPORA
) -> dict[str, Source]:
    """Where the parts of a corpus are, by their roles.

    Args:
        name: ``sst``, ``trec``, ``twitter`` or ``glove``.
        data: the data folder; see ``dcnn.data.corpora.registry``.
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


def find_form(corpus: Corpus, data: Path) -> Form | None:
    """The first form of which every file exists, or none."""
    folder = data / corpus.folder
    return next((form for form in corpus.forms if not _absent(form, folder)), None)


def require_form(corpus: Corpus, data: Path) -> Form:
    """The form in which a corpus is there.

    Raises:
        DataError: a file is missing; the message says which and how to get it.
    """
    found = find_form(corpus, data)
    if found is not None:
        return found
    folder = data / corpus.folder
    # Of the form of which most is there.
    form = max(corpus.forms, key=lambda form: len(files_of(form)) - len(_absent(form, folder)))
    absent = ", ".join(file.name for file in _absent(form, folder))
    urls = ", ".join(download.url for download in corpus.downloads)
    unfinished = sorted(path.name for path in folder.glob(f"*{UNFINISHED}"))
    partial = f" ({', '.join(unfinished)} is an incomplete download)" if unfinished else ""
    raise DataError(
        f"{corpus.title}: {folder} lacks {absent}{partial}; "
        f"run: dcnn data fetch {corpus.name} --data {data}, or put it there by hand from {urls}"
    )


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


DATA_VARIABLE = "DCNN_DATA"
CACHE_VARIABLE = "DCNN_CACHE"


def data_folder(given: Path | None = None) -> Path:
    """The folder of the corpora: ``given``, else ``DCNN_DATA``, else the platform's for data."""
    return given or _user_folder(DATA_VARIABLE, "user_data_path")


def cache_folder(given: Path | None = None) -> Path:
    """The folder of what can be made again: ``given``, else ``DCNN_CACHE``, else the platform's."""
    return given or _user_folder(CACHE_VARIABLE, "user_cache_path")


def _user_folder(variable: str, platform_folder: str) -> Path:
    value = os.environ.get(variable)
    if value:
        return Path(value).expanduser()
    try:
        import platformdirs
    except ImportError:
        raise MissingExtraError(
            f"A default folder (where {variable} is not set)", "train"
        ) from None
    path: Path = getattr(platformdirs, platform_folder)("dcnn", appauthor=False)
    return path
