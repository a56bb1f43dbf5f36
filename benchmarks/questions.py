r"""Build the unlabelled questions of the TREC recipes from the three collections they come from.

    git clone https://github.com/askplatypus/wikidata-simplequestions
    git clone https://github.com/brmson/dataset-factoid-webquestions
    git clone https://github.com/uberspot/OpenTriviaQA
    python benchmarks/questions.py wikidata-simplequestions dataset-factoid-webquestions \
        OpenTriviaQA --trec DATA/trec --out DATA/unlabelled/questions.txt.xz

Each question is kept once, those of TREC are left out, and ``--most`` of them are drawn at random.
The collections change, so the file is not the one that our results name by its checksum: run the
recipe on it with ``dcnn experiment trec --recipe distilled --sample``.
"""

import argparse
import json
import lzma
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dcnn.data.corpora.trec import read_trec
from dcnn.data.corpora.unlabelled import treebank_tokens
from dcnn.errors import DataError


def questions_of(folder: Path) -> Iterator[str]:
    """The questions of a clone of one of the three collections."""
    found = False
    for path in sorted(folder.glob("annotated_wd_data_*.txt")):  # SimpleQuestions
        for line in path.read_text("utf-8").splitlines():
            found = True
            yield line.split("\t")[3].rstrip("?") + "?"
    for path in sorted(folder.glob("main/*.json")):  # WebQuestions
        for entry in json.loads(path.read_text("utf-8")):
            found = True
            yield entry["qText"]
    for path in sorted(folder.glob("categories/*")):  # OpenTriviaQA
        for line in path.read_text("utf-8", errors="replace").splitlines():
            if line.startswith("#Q ") and line.rstrip().endswith("?"):
                found = True
                yield line[3:].strip()
    if not found:
        raise DataError(f"{folder} holds none of the three collections of questions")


def main() -> None:
    """Collect, draw and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--trec", type=Path, required=True, help="folder of the TREC questions")
    parser.add_argument("--most", type=int, default=100_000, help="how many are kept")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    known = {
        _key(text)
        for name in ("train_5500.label", "TREC_10.label")
        for text in read_trec(options.trec / name).texts
    }
    found = {_key(text): text for folder in options.folders for text in questions_of(folder)}
    texts = [text for key, text in found.items() if key not in known]
    order = np.random.default_rng(0).permutation(len(texts))
    texts = [texts[index] for index in order[: options.most]]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(options.out, "wt", encoding="utf-8", newline="\n") as stream:
        stream.writelines(f"{text}\n" for text in texts)
    print(f"{len(texts):,} questions in {options.out}")


def _key(text: str) -> str:
    """What two ways of writing a question have in common."""
    return " ".join(treebank_tokens(text)).casefold()


if __name__ == "__main__":
    main()
