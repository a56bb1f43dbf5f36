"""The corpora of the paper's experiments (Sect. 5): what each consists of and where it comes from.

Plain facts. A corpus may lie in its folder in one of several forms, each complete in itself;
``dcnn.data.corpora`` finds and checks them, ``dcnn.data.fetching`` downloads the first.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dcnn.data.counting import count_questions, count_trees, count_tweets, count_vectors


@dataclass(frozen=True)
class KnownFile:
    """A file and what its bytes must be; without a SHA-256, only the size is known."""

    name: str
    size: int
    sha256: str = ""


@dataclass(frozen=True)
class Part:
    """One set of a corpus, such as its test set: a file, or a member of an archive.

    Attributes:
        role: which set it is: ``train``, ``dev``, ``test`` or ``vectors``.
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
    """A file to download, and what to take out of it if it is an archive that is not kept.

    Attributes:
        url: where it is.
        file: what must arrive.
        unpack: for each member that is wanted, the file that it becomes; empty keeps the download.
    """

    url: str
    file: KnownFile
    unpack: Mapping[str, KnownFile] = field(default_factory=dict)


@dataclass(frozen=True)
class Corpus:
    """What is known of a corpus.

    Attributes:
        name: as commands take it.
        title: what it is, in a few words.
        folder: where it lies in the data folder.
        forms: ways in which it may lie there, the one that is downloaded first.
        downloads: what makes the first form.
        unit: what ``count`` counts.
        count: reads a part wholly, from a path and a member, and counts its examples.
        citation: whom to cite, and under which terms the corpus comes.
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
        count=count_trees,
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
        count=count_questions,
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
        count=count_tweets,
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
