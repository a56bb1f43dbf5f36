"""A model as one HTML file that classifies and explains in a browser, without a server.

The file holds the encoder, the weights and three scripts of ``page/``: ``tokenizer.js`` splits a
text as ``dcnn.text.tokenizer`` does, with its patterns; ``network.js`` computes what
``dcnn.ops.reference`` and ``dcnn.inspection.attribution`` compute, under their names, in float64;
``page.js`` shows it. The page requests nothing.

Weights are those of a model folder of the same dtype. With ``int8``, though, vectors are coarser,
since they are nearly all of the file: those of words hold values from -31 to 31 times a scale,
those of n-grams, which only new words use, from -3 to 3. All weights are compressed, by Huffman
codes alone since they never repeat, and written in base 85.
"""

import base64
import json
import zlib
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from dcnn import __version__
from dcnn import artifact as model_folder
from dcnn.artifact import Artifact
from dcnn.config import DCNNConfig
from dcnn.export.tokenizer import portable
from dcnn.text import tokenizer as splitting

_PAGE = Path(__file__).parent / "page"
_SCRIPTS = ("tokenizer.js", "network.js", "page.js")
_WORD_STEPS, _NGRAM_STEPS = 31, 3


def html_text(artifact: Artifact, name: str) -> str:
    """The page of a model called ``name``, with weights of the artifact's ``dtype``."""
    # In a script no text may look like the end of it, nor like a comment.
    data = json.dumps(_described(artifact, name), ensure_ascii=False).replace("<", r"\u003c")
    scripts = "\n".join((_PAGE / script).read_text("utf-8") for script in _SCRIPTS)
    template = Template((_PAGE / "page.html").read_text("utf-8"))
    return template.substitute(
        title=name.translate({ord("<"): "&lt;", ord("&"): "&amp;"}),
        style=(_PAGE / "page.css").read_text("utf-8"),
        scripts=scripts,
        data=data,
    )


def _described(artifact: Artifact, name: str) -> dict[str, Any]:
    """What the scripts need to know."""
    config = artifact.config.model
    stored = artifact.metadata.get("abstention", {})
    network: dict[str, Any] = {"kind": config.kind, "dim": config.dim}
    if isinstance(config, DCNNConfig):
        network |= {"depth": config.depth, "fold": config.fold, "k_top": config.k_top}
    return {
        "name": name,
        "version": __version__,
        "dtype": artifact.dtype,
        "classes": list(artifact.classes),
        "thresholds": artifact.thresholds,
        "abstention": {key: stored.get(key) for key in ("threshold", "out_of_scope")},
        "network": network,
        "encoder": json.loads(artifact.encoder.to_json()),
        "patterns": _patterns(artifact.encoder.tokenizer.preset),
        **_weights(stored_weights(artifact)),
    }


def stored_weights(artifact: Artifact) -> model_folder.Stored:
    """The weights as the page has them."""
    if artifact.dtype == "int8":
        return model_folder.pack(artifact.weights, artifact.dtype, _WORD_STEPS, _NGRAM_STEPS)
    return model_folder.pack(artifact.weights, artifact.dtype)


def _weights(stored: model_folder.Stored) -> dict[str, Any]:
    """Tensors as one text: their bytes one after the other, compressed and in base 85."""
    deflate = zlib.compressobj(9, memLevel=9, strategy=zlib.Z_HUFFMAN_ONLY)
    compressed = b"".join(deflate.compress(_bytes(values)) for values in stored.values())
    compressed += deflate.flush()
    return {
        "tensors": [
            {"name": name, "dtype": str(values.dtype), "shape": values.shape}
            for name, values in stored.items()
        ],
        "n_bytes": len(compressed),
        # In a script "<" would have to be escaped; a comma is no digit.
        "base85": base64.b85encode(compressed, pad=True).decode().replace("<", ","),
    }


def _bytes(values: Any) -> bytes:
    if values.dtype == bool:
        return np.packbits(values, bitorder="little").tobytes()
    return bytes(values.astype(values.dtype.newbyteorder("<")).tobytes())


def _patterns(preset: str) -> dict[str, str]:
    chosen: dict[str, dict[str, Any]] = {
        "whitespace": {"token": r"[^\s]+"},
        "characters": {"joiner": f"[{splitting.JOINERS}]", "gaps": splitting.GAPS},
        "tweet": {
            "token": splitting.unicode_token(),
            "link": splitting.LINK,
            "mention": splitting.MENTION,
            "repeated": splitting.REPEATED_LETTER,
        },
    }
    words = {"token": splitting.unicode_token(preset in splitting.LEARNED)}
    mark = f"(?:(?!{splitting.GRAPHEME_JOINER})[{splitting.marks_class()}])"
    patterns: dict[str, Any] = {"mark": mark, **chosen.get(preset, words)}
    return {key: portable(pattern, javascript=True) for key, pattern in patterns.items()}
