"""Small corpora as files, encoded in blocks of a few rows, for the tests of large ones."""

import csv
import json
from dataclasses import replace

from dcnn.config import TextConfig, TrainingConfig
from dcnn.data.encode import FileEncoder, count_labels, encode_files, prepare_corpus
from dcnn.data.readers import TableOptions
from dcnn.data.store import Store
from dcnn.text.tokenizer import Tokenizer


def write_shards(folder, rows, sizes, weights=False):
    """Cut ``rows`` of text and label (and weight) into CSV files of these sizes."""
    folder.mkdir(parents=True, exist_ok=True)
    header, start, paths = ["text", "label", "weight"][: 3 if weights else 2], 0, []
    for number, size in enumerate(sizes):
        path = folder / f"{number:02}.csv"
        with path.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([header, *rows[start : start + size]])
        paths.append(path)
        start += size
    assert start == len(rows)
    return paths


def write_json_lines(path, rows):
    lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def encode(paths, cache, block_rows=4, options=None, processes=1, text=None):
    text = text or TextConfig()
    encoder = FileEncoder.for_files(paths, options or TableOptions(), text, Store(cache))
    return encode_files(paths, replace(encoder, block_rows=block_rows), processes)


def hold_out(fraction, seed):
    """The settings of a dev set."""
    return TrainingConfig(dev_fraction=fraction, seed=seed)


def make_corpus(paths, cache, text=None, split=None, block_rows=4, options=None):
    files = encode(paths, cache, block_rows, options)
    classes = sorted(count_labels(files, "shards", splits=split is not None))
    return prepare_corpus(files, Tokenizer(), text or TextConfig(), split, classes, Store(cache))
