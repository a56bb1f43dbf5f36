"""Other sentence classifiers, where they are installed: the speed of the usual alternatives.

Each is trained briefly on texts of the same words, so its vocabulary is as large as the network's.
"""

import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from workload import CLASSES, Workload

KIM = "Kim-style CNN in eager torch"
KIM_WIDTHS, KIM_MAPS = (3, 4, 5), 100
FASTTEXT = "fasttext-numpy2-wheel"  # `fasttext` and `fasttext-wheel` fail with numpy 2


@dataclass(frozen=True)
class Rival:
    """A trained classifier: its name, and from a text or a list of them to probabilities."""

    name: str
    classify: Callable[[str | list[str]], object]


class KimCNN(nn.Module):
    """Kim (2014), small: filters over whole words, the maximum over time, one linear layer."""

    def __init__(self, vocabulary: int, dim: int, classes: int) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(vocabulary, dim)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(dim, KIM_MAPS, width, padding=width - 1) for width in KIM_WIDTHS
        )
        self.top = nn.Linear(len(KIM_WIDTHS) * KIM_MAPS, classes)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (B, classes) of sentences (B, s) of one length."""
        words = self.embeddings(ids).transpose(1, 2)  # (B, d, s)
        maxima = [torch.relu(layer(words)).amax(dim=-1) for layer in self.convolutions]
        logits: Tensor = self.top(torch.cat(maxima, dim=1))
        return logits


def text_rivals(workload: Workload, words: int) -> tuple[list[Rival], list[str]]:
    """The classifiers from texts that are installed, and a note for each that is not."""
    texts = workload.texts(2 * workload.vocabulary // words + 2, words)
    labels = [CLASSES[number % len(CLASSES)] for number in range(len(texts))]
    rivals, notes = [], []
    for module, package, name, train in (
        ("fasttext", FASTTEXT, "fastText", _fasttext),
        ("sklearn", "scikit-learn", "TF-IDF + logistic regression (scikit-learn)", _scikit_learn),
    ):
        if importlib.util.find_spec(module) is None:
            notes.append(f"{name} is left out, it is not installed: pip install {package}")
        else:
            rivals.append(Rival(name, train(texts, labels)))
    return rivals, notes


def _fasttext(texts: Sequence[str], labels: Sequence[str]) -> Callable[[str | list[str]], object]:
    import fasttext

    lines = (f"__label__{label} {text}\n" for text, label in zip(texts, labels, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "train.txt"
        data.write_text("".join(lines), encoding="utf-8")
        # Each thread of fastText 0.9.2 initialises a tenth of its vectors: fewer leave the rest as
        # the memory was, and training may then end with "Encountered NaN".
        model = fasttext.train_supervised(str(data), epoch=1, thread=10, minCount=1, verbose=0)
    return lambda text: model.predict(text, k=len(CLASSES))


def _scikit_learn(
    texts: Sequence[str], labels: Sequence[str]
) -> Callable[[str | list[str]], object]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=20, tol=1e-2))
    model.fit(texts, labels)
    return lambda some: model.predict_proba([some] if isinstance(some, str) else some)
