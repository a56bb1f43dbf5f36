"""Other people's classifiers, where they are installed."""

import importlib.util
import random
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dcnn.bench.rivals import FASTTEXT
from dcnn.contest.contenders import Contender, Course, Fitted, Probabilities, size_on_disk
from dcnn.text.tokenizer import Tokenizer

# The settings of fastText's own tutorial; the threads are explained in dcnn.bench.rivals.
FASTTEXT_SETTINGS = {"lr": 1.0, "epoch": 25, "wordNgrams": 2, "dim": 50, "bucket": 200_000}
FASTTEXT_THREADS = 10
SETFIT_BASE = "sentence-transformers/paraphrase-MiniLM-L6-v2"
SETFIT_EXAMPLES = 16  # a class: more than that is not what it is for
_LABEL = "__label__"


def rival_contenders() -> dict[str, Contender]:
    """All that we know how to train, installed or not."""
    return {
        "fasttext": Contender("fasttext", "bigrams, 25 epochs, as its tutorial", True, _fasttext),
        "setfit": Contender("setfit", f"{SETFIT_EXAMPLES} examples a class", True, _setfit),
    }


INSTALL = {"fasttext": f"pip install {FASTTEXT}", "setfit": "pip install setfit"}


def is_installed(name: str) -> bool:
    """Whether a rival can be imported."""
    return importlib.util.find_spec(name) is not None


def _fasttext(course: Course, seed: int, folder: Path) -> Fitted:
    import fasttext

    tokenizer = Tokenizer()

    def line(text: str) -> str:
        return " ".join(tokenizer(text))

    numbers = course.train.class_numbers(course.classes)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "train.txt"
        pairs = zip(numbers, course.train.texts, strict=True)
        lines = (f"{_LABEL}{number} {line(text)}\n" for number, text in pairs)
        data.write_text("".join(lines), encoding="utf-8")
        model = fasttext.train_supervised(
            str(data), minCount=1, thread=FASTTEXT_THREADS, verbose=0, seed=seed,
            **FASTTEXT_SETTINGS,
        )  # fmt: skip
    kept = folder / "model.bin"
    model.save_model(str(kept))

    def probabilities(texts: Sequence[str]) -> Probabilities:
        found = np.zeros((len(texts), len(course.classes)))
        # The inner object: the wrapper's `predict` fails with numpy 2 in some of its builds.
        for row, text in zip(found, texts, strict=True):
            for share, label in model.f.predict(line(text) + "\n", len(row), 0.0, "strict"):
                row[int(label.removeprefix(_LABEL))] = share
        return found

    return Fitted(probabilities, size_on_disk(kept))


def _setfit(course: Course, seed: int, folder: Path) -> Fitted:
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    places: dict[int, list[int]] = defaultdict(list)
    for place, number in enumerate(course.train.class_numbers(course.classes).tolist()):
        places[number].append(place)
    draw = random.Random(seed)  # noqa: S311
    chosen = [
        (place, number)
        for number, those in sorted(places.items())
        for place in draw.sample(those, min(SETFIT_EXAMPLES, len(those)))
    ]
    examples = Dataset.from_dict(
        {
            "text": [course.train.texts[place] for place, _ in chosen],
            "label": [number for _, number in chosen],
        }
    )
    model = SetFitModel.from_pretrained(SETFIT_BASE)
    arguments = TrainingArguments(batch_size=16, num_epochs=1, seed=seed, report_to="none")
    Trainer(model=model, args=arguments, train_dataset=examples).train()
    model.save_pretrained(str(folder))

    def probabilities(texts: Sequence[str]) -> Probabilities:
        return np.asarray(model.predict_proba(list(texts), as_numpy=True))

    return Fitted(probabilities, size_on_disk(folder))
