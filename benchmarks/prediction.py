"""Prediction: one sentence, a batch, many texts, and a whole file from disk to labels."""

import tempfile
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from dcnn.artifact import Artifact
from dcnn.data.readers import read_rows
from dcnn.ops.reference import softmax
from dcnn.predictor import Predictor
from dcnn.text.vocabulary import Sentences
from eager_torch import EagerTorchPredictor, torch_model
from report import MICROSECONDS, Outcome, Row, plural
from rivals import KIM, KIM_MAPS, KIM_WIDTHS, KimCNN, text_rivals
from timing import TimedCall, time_interleaved
from workload import CLASSES, TORCH, Workload, computing_with, describe_backend, too_few_cores

ONE_WORDS, BATCH, BATCH_WORDS = 18, 256, 20
THREADS = (2, 1)  # the bar is for two
ONE_THREAD = "ours, 1 thread"
CHUNK = 4096  # texts of a file that are predicted together


def predict_one(workload: Workload) -> Outcome:
    """One sentence of 18 words on one thread, from ids and, compared with others, from text."""
    artifact = workload.artifact()
    predictor = Predictor(artifact)
    timed = [
        *ids_to_probabilities(artifact, workload.sentences(1, ONE_WORDS), threads=1),
        _kim(workload),
    ]
    ours, *baselines = time_interleaved(timed, workload.rounds, workload.calls).items()
    name = f"one sentence of {ONE_WORDS} words, ids to probabilities"
    rows = [
        Row.compare(name, "us", ours[1].times(MICROSECONDS), b.times(MICROSECONDS), baseline_name)
        for baseline_name, b in baselines
    ]
    rivals, notes = text_rivals(workload, ONE_WORDS)
    (text,) = workload.texts(1, ONE_WORDS)
    from_text = [
        TimedCall("ours", lambda: predictor.probabilities([text])),
        *(TimedCall(rival.name, partial(rival.classify, text)) for rival in rivals),
    ]
    our_text, *others = time_interleaved(from_text, workload.rounds, workload.calls).items()
    name = f"one text of {ONE_WORDS} words to probabilities"
    rows += [
        Row.compare(name, "us", our_text[1].times(MICROSECONDS), m.times(MICROSECONDS), other)
        for other, m in others
    ]
    widths = ", ".join(map(str, KIM_WIDTHS))
    kim = f"the {KIM} has d={workload.model.dim}, widths {widths} and {KIM_MAPS} maps of each"
    return Outcome(describe_backend(predictor.backend), rows, [kim, *notes])


def predict_batch(workload: Workload) -> Outcome:
    """A batch of 256 sentences of 20 words and many texts on two threads and on one; a file."""
    artifact = workload.artifact()
    sentences = workload.sentences(BATCH, BATCH_WORDS)
    rows, notes = [], []
    for threads in THREADS:
        timed = ids_to_probabilities(artifact, sentences, threads)
        measures = time_interleaved(timed, workload.rounds, calls=3)
        ours, theirs = (measures[timed_call.name].rate(BATCH) for timed_call in timed)
        setup = f"batch of {BATCH}, {BATCH_WORDS} words, ids to probabilities"
        name = f"{setup}, {plural(threads, 'thread')}"
        rows.append(Row.compare(name, "sentences/s", ours, theirs, TORCH))
        notes += too_few_cores(threads)
    rows.append(_two_threads(workload, artifact, sentences))
    text_rows, text_notes = _text_rows(workload, artifact)
    rows += [*text_rows, _file_row(workload, artifact)]
    return Outcome(describe_backend(Predictor(artifact).backend), rows, notes + text_notes)


def _two_threads(workload: Workload, artifact: Artifact, sentences: Sentences) -> Row:
    timed = [
        replace(our_prediction(artifact, sentences, threads), name=plural(threads, "thread"))
        for threads in THREADS
    ]
    two, one = time_interleaved(timed, workload.rounds, calls=3).values()
    name = f"batch of {BATCH}, {BATCH_WORDS} words, ids to probabilities, 2 threads"
    return Row.compare(name, "sentences/s", two.rate(BATCH), one.rate(BATCH), ONE_THREAD)


def _text_rows(workload: Workload, artifact: Artifact) -> tuple[list[Row], list[str]]:
    """A list of texts to their probabilities, on one thread beside others and on two."""
    texts = workload.texts(workload.file_texts, BATCH_WORDS)
    rivals, notes = text_rivals(workload, BATCH_WORDS)
    one, two = Predictor(artifact), Predictor(artifact, threads=2)
    timed = [
        TimedCall("ours", lambda: one.probabilities(texts)),
        TimedCall("two", lambda: two.probabilities(texts)),
        *(TimedCall(rival.name, partial(rival.classify, texts)) for rival in rivals),
    ]
    measures = time_interleaved(timed, workload.slow_rounds)
    rates = {name: measure.rate(len(texts)) for name, measure in measures.items()}
    name = f"{len(texts):,} texts of {BATCH_WORDS} words to probabilities"
    rows = [
        Row.compare(
            f"{name}, 1 thread", "sentences/s", rates["ours"], rates[rival.name], rival.name
        )
        for rival in rivals
    ]
    threads = Row.compare(
        f"{name}, 2 threads", "sentences/s", rates["two"], rates["ours"], ONE_THREAD
    )
    return [*rows, threads], notes


def ids_to_probabilities(artifact: Artifact, sentences: Sentences, threads: int) -> list[TimedCall]:
    """Ours and eager torch on the same weights and sentences."""
    return [make(artifact, sentences, threads) for make in (our_prediction, eager_prediction)]


def our_prediction(artifact: Artifact, sentences: Sentences, threads: int) -> TimedCall:
    """Ids to probabilities as ``Predictor`` computes them."""
    predictor = Predictor(artifact, threads)
    return TimedCall("ours", lambda: softmax(predictor.logits(sentences)))


def eager_prediction(artifact: Artifact, sentences: Sentences, threads: int) -> TimedCall:
    """Ids to probabilities in eager torch; the ids are tensors and padded beforehand."""
    model = torch_model(artifact)
    padded = sentences.padded(np.arange(len(sentences)))
    ids, lengths = (torch.from_numpy(part) for part in padded)

    @torch.inference_mode()
    def predict() -> None:
        torch.softmax(model(ids, lengths), dim=1)

    return TimedCall(TORCH, predict, partial(computing_with, "torch", threads))


def _kim(workload: Workload) -> TimedCall:
    model = KimCNN(workload.vocabulary, workload.model.dim, len(CLASSES)).eval()
    sentence = workload.sentences(1, ONE_WORDS).ids.astype(np.int64)
    ids = torch.from_numpy(sentence)[None]

    @torch.inference_mode()
    def classify() -> None:
        torch.softmax(model(ids), dim=1)

    return TimedCall(KIM, classify, partial(computing_with, "torch"))


def _file_row(workload: Workload, artifact: Artifact) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "texts.txt"
        source.write_text("\n".join(workload.texts(workload.file_texts, BATCH_WORDS)) + "\n")
        predictors = {"ours": Predictor(artifact), TORCH: EagerTorchPredictor(artifact)}
        timed = [
            TimedCall(name, partial(label_file, predictor, source, Path(folder) / "labels.tsv"))
            for name, predictor in predictors.items()
        ]
        measures = time_interleaved(timed, workload.slow_rounds, warm_up=False)
    ours, theirs = (measures[name].rate(workload.file_texts) for name in predictors)
    name = f"file of {workload.file_texts:,} texts of {BATCH_WORDS} words to labels, 1 thread"
    return Row.compare(name, "sentences/s", ours, theirs, TORCH)


def label_file(predictor: Predictor, source: Path, output: Path) -> None:
    """From a file of texts to one of labels, as ``dcnn predict --input`` does it."""
    texts = (row.text for row in read_rows(source, labels=False))
    with output.open("w", encoding="utf-8") as stream:
        while chunk := list(islice(texts, CHUNK)):
            stream.writelines(
                f"{prediction.label}\t{prediction.probability:.6f}\t{prediction.text}\n"
                for prediction in predictor.predict(chunk)
            )
