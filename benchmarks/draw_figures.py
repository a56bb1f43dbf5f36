"""The paper's figures, drawn from real networks into docs/figures.

    make figures                              # trains both networks: about two minutes on a CPU
    make figures FIGURES_MODEL=my-sst2-model  # Fig. 4 of this model folder

Fig. 1 and 3 show a network with Fig. 3's sizes, trained on the built-in corpus. Fig. 4 shows a
network of SST binary (Sect. 5.2) with the n-grams of the dev and test sentences, as in Sect. 5.5;
without the corpora (DCNN_DATA) it shows the default network on the built-in corpus. The feature
graph beside a parse tree is of a small network of SST binary.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dcnn.artifact import Artifact
from dcnn.config import Config, DCNNConfig, TextConfig
from dcnn.data.corpora.opinions import read_opinions
from dcnn.data.corpora.sst import NEUTRAL, read_trees
from dcnn.data.labels import LabelledTexts, number_labels
from dcnn.inspection.detector_ranking import Detector
from dcnn.inspection.detectors import DetectorIndex, rank_detectors
from dcnn.inspection.trace import trace_sentence
from dcnn.predictor import Predictor
from dcnn.training.fit import RunOptions, fit
from figures.convolution import draw_convolutions
from figures.induced_graph import draw_induced_graph
from figures.network import draw_network
from figures.parse_tree import draw_graph_and_tree
from figures.top_ngrams import (
    Block,
    detector_for_class,
    detector_for_word,
    draw_top_ngrams,
    ngrams_with,
)

OUT = Path(__file__).parent.parent / "docs" / "figures"
CLASSES = ("negative", "positive")
SENTENCE = "We did not resent the lighting."  # seven words with its stop
SMALL = DCNNConfig(dim=4, widths=(3, 2), maps=(2, 2), k_top=3, dropout=0.0)
# So few weights train faster without L2; some seeds end in a poor minimum, this one does not.
SMALL_TRAINING = {
    "epochs": 20,
    "learning_rate": 0.2,
    "l2_embeddings": 0.0,
    "l2_filters": [0.0],
    "l2_head": 0.0,
    "word_dropout": 0.0,
    "patience": 0,
    "seed": 3,
}
TREE_NETWORK = DCNNConfig(dim=16, widths=(3, 2), maps=(4, 6), k_top=3, dropout=0.0)
TREE_SENTENCE = "Do not see this film ."
NEGATION = ("not", "n't", "never", "no")
INTENSIFIERS = ("too", "very", "so", "as")
EPOCHS = 4


def opinions(part: str) -> LabelledTexts:
    """The built-in corpus."""
    found = read_opinions()[part]
    return number_labels([o.text for o in found], [o.label for o in found], classes=CLASSES)


def sst(folder: Path, part: str) -> LabelledTexts:
    """SST binary: the phrases of the training trees, the sentences of the others."""
    phrases = [
        phrase
        for tree in read_trees(folder / f"{part}.txt")
        for phrase in (tree if part == "train" else tree[:1])
        if phrase.label != NEUTRAL
    ]
    targets = np.array([int(phrase.label > NEUTRAL) for phrase in phrases])
    return LabelledTexts([" ".join(phrase.words) for phrase in phrases], targets, CLASSES)


def train(data: LabelledTexts, dev: LabelledTexts, config: Config) -> tuple[Artifact, float]:
    """A network and its accuracy on dev."""
    artifact, summary = fit(data, dev, config, RunOptions(device="cpu"))
    return artifact, summary.dev_accuracy or 0.0


def ranked(model: str) -> tuple[DetectorIndex, str]:
    """The first-layer detectors of the network of Fig. 4, and what it and its corpus are."""
    named = os.environ.get("DCNN_DATA", "")
    folder = Path(named) / "sst"
    has_corpus = bool(named) and folder.is_dir()
    if not has_corpus:
        print("DCNN_DATA names no folder with sst/ in it: Fig. 4 is of the built-in corpus.")
    read = (lambda part: sst(folder, part)) if has_corpus else opinions
    texts = [text for part in ("dev", "test") for text in read(part).texts]
    if model:
        predictor = Predictor.load(model)
        about = f"The model {Path(model).name}"
    else:
        text = TextConfig(tokenizer="whitespace") if has_corpus else TextConfig()
        config = Config(text=text).with_training(epochs=EPOCHS)
        artifact, accuracy = train(read("train"), read("dev"), config)
        predictor = Predictor(artifact)
        corpus = "SST binary" if has_corpus else "The built-in corpus"
        about = f"{corpus}, {EPOCHS} epochs, dev accuracy {accuracy:.1%}"
    index = rank_detectors(predictor, texts, layers=[1])
    where = "dev and test sentences" if has_corpus else "dev and test sentences of that corpus"
    return index, f"{about}; n-grams of the {len(texts):,} {where}"


def beside_tree(folder: Path) -> str:
    """A sentence of the dev trees: its feature graph in a network of SST binary, and its tree."""
    config = Config(text=TextConfig(tokenizer="whitespace"), model=TREE_NETWORK)
    artifact, accuracy = train(
        sst(folder, "train"), sst(folder, "dev"), config.with_training(epochs=EPOCHS)
    )
    trees = read_trees(folder / "dev.txt")
    tree = next(tree for tree in trees if " ".join(tree[0].words) == TREE_SENTENCE)
    about = f"two layers, widths 3 and 2, trained on SST binary (dev accuracy {accuracy:.1%})"
    return draw_graph_and_tree(trace_sentence(artifact, list(tree[0].words)), tree, about)


def figure_4(index: DetectorIndex, about: str) -> str:
    """Classes, negation and intensifiers; the caption names the words without a detector."""
    classes = [str(label) for label in index.predictor.classes]
    blocks = [Block(label.capitalize(), detector_for_class(index, label)) for label in classes[:2]]
    lacking = []
    for words, kind in ((NEGATION, "Negation"), (INTENSIFIERS, "Degree")):
        found = [(word, one) for word in words if (one := known_detector(index, word))]
        for word, one in found[:2]:
            marked, held = ngrams_with(index, one, word)
            counts = f"in {held} of {index.shown}, contributes most in {marked}"
            blocks.append(Block(f"{kind}: \u201c{word}\u201d {counts}", one))
        lacking += [word for word in words if word not in dict(found)]
    caption = (
        f"{about}. Words in blue contribute most to the value at the left. A class's detector is "
        "the one whose n-grams all contribute most to it; a word's has it in most of its n-grams. "
    )
    caption += (
        f"No detector has more than half of its n-grams with: {', '.join(lacking)}."
        if lacking
        else "All searched words have a detector."
    )
    return draw_top_ngrams(index, blocks, caption)


def known_detector(index: DetectorIndex, word: str) -> Detector | None:
    """A word's detector; none either for a word that the network does not know."""
    known = index.predictor.artifact.encoder.vocabulary.ids([word])[0]
    return detector_for_word(index, word) if known else None


def write(name: str, svg: str) -> None:
    """One file of docs/figures."""
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"{name}.svg"
    path.write_text(svg, encoding="utf-8")
    print(path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw all of them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--model", default=os.environ.get("FIGURES_MODEL", ""), help="model folder of Fig. 4"
    )
    options = parser.parse_args(arguments)
    config = Config(model=SMALL).with_training(**SMALL_TRAINING)
    small, _ = train(opinions("train"), opinions("dev"), config)
    trace = trace_sentence(small, small.encoder.tokenizer(SENTENCE))
    write("figure-1", draw_induced_graph(trace))
    write("figure-2", draw_convolutions())
    write("figure-3", draw_network(trace))
    write("figure-4", figure_4(*ranked(options.model)))
    trees = Path(os.environ.get("DCNN_DATA", "")) / "sst"
    if trees.is_dir():  # without the corpus the last one stays as it is
        write("graph-and-tree", beside_tree(trees))


if __name__ == "__main__":
    main()
