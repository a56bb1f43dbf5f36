"""The folder in which the examples of the documentation are run: the files that they name.

A page speaks of ``reviews.csv`` and ``my-model`` as if the reader had them. Here they are made of a
few sentences of the built-in corpus, so that a training takes a moment. A page that names another
file gets it by a line below.
"""

import csv
import gzip
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dcnn.data.corpora.opinions import Opinion, read_opinions
from documented import PAGES, ROOT, name_of

# Whether the slow examples are run too.
ALL = bool(os.environ.get("DCNN_ALL_EXAMPLES"))
SIZES = {"train": 240, "dev": 40, "test": 40}
MODELS = ("my-model", "demo-model", "sst2-model")


@dataclass(frozen=True)
class Sentences:
    """A few opinions of each split."""

    train: list[Opinion]
    dev: list[Opinion]
    test: list[Opinion]


def few_sentences() -> Sentences:
    corpus = read_opinions()
    return Sentences(**{split: corpus[split][:size] for split, size in SIZES.items()})


def write_files(folder: Path, sentences: Sentences) -> None:
    """All files that the pages read; models are not among them."""
    everything = [*sentences.train, *sentences.dev]
    _write_table(folder / "reviews.csv", everything, ",")
    _write_table(folder / "train.csv", sentences.train, ",")
    _write_table(folder / "train.tsv", sentences.train, "\t")
    for split in ("dev", "test"):
        _write_table(folder / f"{split}.csv", getattr(sentences, split), ",")
        _write_table(folder / f"{split}.tsv", getattr(sentences, split), "\t")
    _write_table(folder / "texts.csv", sentences.test, ",", columns=("text",))
    lines = "".join(f"{opinion.text}\n" for opinion in everything)
    for name in ("lines.txt", "sst.txt"):
        (folder / name).write_text(lines, encoding="utf-8")
    with gzip.open(folder / "tweets.jsonl.gz", "wt", encoding="utf-8") as stream:
        for opinion in everything:
            print(json.dumps({"text": opinion.text, "label": opinion.label}), file=stream)
    _write_columns(folder, sentences)
    _write_posts(folder, sentences)
    _write_scored(folder, sentences)
    for page in PAGES:  # some commands render their tables into pages
        copy = folder / name_of(page)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, copy)
    (folder / "results").symlink_to(ROOT / "results")


def _write_table(
    path: Path,
    opinions: Sequence[Opinion],
    delimiter: str,
    columns: Sequence[str] = ("text", "label"),
) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([getattr(opinion, name) for name in columns] for opinion in opinions)


def _write_columns(folder: Path, sentences: Sentences) -> None:
    import pyarrow
    from pyarrow import feather, parquet

    def table(opinions: Sequence[Opinion]) -> Any:
        return pyarrow.table(
            {
                "text": [opinion.text for opinion in opinions],
                "label": [opinion.label for opinion in opinions],
            }
        )

    (folder / "shards").mkdir()
    for number in range(2):
        shard = table(sentences.train[number::2])
        parquet.write_table(shard, folder / "shards" / f"part-{number}.parquet")
    feather.write_feather(table(sentences.dev), folder / "dev.arrow", compression="uncompressed")
    parquet.write_table(table(sentences.dev), folder / "dev.parquet")


def _label_sets(opinions: Sequence[Opinion]) -> list[list[str]]:
    """Several labels for each, or none: one by its label, one by its place."""
    return [
        ["sport"] * (opinion.label == "positive") + ["money"] * (place % 3 == 0)
        for place, opinion in enumerate(opinions)
    ]


def _write_posts(folder: Path, sentences: Sentences) -> None:
    import pyarrow
    from pyarrow import parquet

    texts = [opinion.text for opinion in sentences.train]
    sets = _label_sets(sentences.train)
    table = pyarrow.table({"text": texts, "labels": sets})
    parquet.write_table(table, folder / "posts.parquet")
    with (folder / "posts.jsonl").open("w", encoding="utf-8") as stream:
        for text, labels in zip(texts, sets, strict=True):
            print(json.dumps({"text": text, "labels": labels}), file=stream)
    with (folder / "posts.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["text", "labels", "sport", "money"])
        for text, labels in zip(texts, sets, strict=True):
            flags = [int(name in labels) for name in ("sport", "money")]
            writer.writerow([text, "|".join(labels), *flags])


def _write_scored(folder: Path, sentences: Sentences) -> None:
    """Probabilities of labels: an object in lines and columns, and a column per label."""
    import pyarrow
    from pyarrow import parquet

    texts = [opinion.text for opinion in sentences.train]
    labels = ("negative", "positive")
    shares = [{name: 0.9 if name == o.label else 0.1 for name in labels} for o in sentences.train]
    parquet.write_table(pyarrow.table({"text": texts, "label": shares}), folder / "scored.parquet")
    with (folder / "scored.jsonl").open("w", encoding="utf-8") as stream:
        for text, share in zip(texts, shares, strict=True):
            print(json.dumps({"text": text, "label": share}), file=stream)
    with (folder / "scored.csv").open("w", encoding="utf-8", newline="") as stream:
        rows = [[text, *share.values()] for text, share in zip(texts, shares, strict=True)]
        csv.writer(stream).writerows([["text", *labels], *rows])


def names_in_python(sentences: Sentences) -> dict[str, Callable[[], Any]]:
    """What Python examples take as given, each made when a page needs it."""

    def frame(opinions: Sequence[Opinion]) -> Any:
        import pandas

        stars = [5 if opinion.label == "positive" else 1 for opinion in opinions]
        return pandas.DataFrame({"review": [o.text for o in opinions], "stars": stars})

    return {
        "texts": lambda: [opinion.text for opinion in sentences.train],
        "labels": lambda: [opinion.label for opinion in sentences.train],
        "label_sets": lambda: _label_sets(sentences.train),
        "frame": lambda: frame(sentences.train),
        "train": lambda: frame(sentences.train),
        "dev": lambda: frame(sentences.dev),
    }
