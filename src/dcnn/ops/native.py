"""The compiled CPU backend: loading the library, and its functions on numpy arrays.

The library is C++ behind a plain C interface (``native/`` in the repository) and is built with the
package where there is a compiler. Where it is missing, damaged or of another version, ``available``
is false, ``reason`` says why, and the other backends do the work. Nothing here imports torch.

Axes in the library's memory are sentence, column, map, row, with rows contiguous; the arrays here
have the axes of ``dcnn.ops`` and are views of that memory where they can be. ``Network`` is a DCNN
for prediction: ids to logits in one call.
"""

import ctypes
import os
import platform
import sys
from array import array
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float32]

ABI = 10
ISA_VARIABLE = "DCNN_ISA"
INSTRUCTION_SETS = ("avx512", "avx2", "plain")
LOGITS, SOFTMAX, SIGMOID = range(3)  # dcnn_output of the C interface
_STATUSES: dict[int, tuple[type[Exception], str]] = {
    1: (MemoryError, "the native backend ran out of memory"),
    2: (ValueError, "a word id lies outside the embeddings"),
    3: (ValueError, "lengths must lie between 1 and the columns, k between 1 and length + m - 1"),
}

# The result and then the arguments of every function, by the letters of the module struct.
_TYPES = {
    "P": ctypes.c_void_p,
    "q": ctypes.c_int64,
    "Q": ctypes.c_uint64,
    "I": ctypes.c_uint32,
    "i": ctypes.c_int32,
    "f": ctypes.c_float,
    "d": ctypes.c_double,
    "s": ctypes.c_char_p,
    "x": None,
}
_SIGNATURES = {
    "dcnn_isa": "s",
    "dcnn_use_isa": "i s",
    "dcnn_layer_forward": "i Pqq PPPPP q PP i",
    "dcnn_layer_backward": "i Pqq PPPP q PPPPPP i",
    "dcnn_network_new": "P qPPP qqP qPP qqqP",
    "dcnn_network_free": "x P",
    "dcnn_network_logits": "i PqPPqPPP i",
    "dcnn_network_texts": "i PP qPP PiP i",
    "dcnn_text_code": "I",
    "dcnn_unicode": "x PPq",
    "dcnn_tokenizer_new": "P iii PPPP d",
    "dcnn_tokenizer_free": "x P",
    "dcnn_tokenize": "q PPPPPPP",
    "dcnn_training_logits": "i PPPP i",
    "dcnn_update": "i Pq PP i",
    "dcnn_learner_new": "P PPP",
    "dcnn_learner_free": "x P",
    "dcnn_learner_step": "i PPPPPP i",
    "dcnn_learner_gradients": "i PPPPP i",
    "dcnn_seed": "x PQ",
    "dcnn_draw_uniform": "x P Pq",
    "dcnn_draw_mask": "x Pff Pq",
    "dcnn_draw_normal": "x Pd Pq",
    "dcnn_char_ngrams": "q qPP qqq PPq",
    "dcnn_compose": "i PqPqqPPP i",
    "dcnn_tanh": "x PP q",
}

_Place = ctypes.c_char * 1  # to pass where a buffer is


class LayerSizes(ctypes.Structure):
    """``dcnn_layer`` of the C interface."""

    _fields_ = [
        (name, ctypes.c_int64) for name in ("maps_below", "rows_below", "maps", "width", "fold")
    ]


class Strings(ctypes.Structure):
    """``dcnn_strings`` of the C interface, from strings."""

    _fields_ = [("count", ctypes.c_int64), ("text", ctypes.c_char_p), ("ends", ctypes.c_void_p)]

    def __init__(self, strings: Sequence[str]) -> None:
        text, self._ends = _joined(strings)  # must outlive the call
        self.size = len(text)
        super().__init__(len(strings), text, self._ends.buffer_info()[0])


class BagsOfNgrams(ctypes.Structure):
    """``dcnn_bags`` of the C interface; the arrays must outlive it."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("words", "n_buckets")),
        *((name, ctypes.c_void_p) for name in ("offsets", "buckets")),
    ]


def library_path() -> Path:
    """Where the library for this machine lies if it was built."""
    return Path(__file__).with_name(f"_native-{sys.platform}-{platform.machine()}.so")


def open_library(path: Path) -> ctypes.CDLL:
    """Load the library at ``path``; an OSError says why this version cannot use it."""
    if not path.is_file():
        raise OSError("it was not compiled when dcnn was installed (no C++ compiler?)")
    # Loading a file that was cut short can end the process: compare before, not after.
    # A cryptographic checksum would find no more, and takes longer to import than to compute.
    wanted = path.with_suffix(".crc32").read_text("utf-8", "replace").strip()
    if f"{crc32(path.read_bytes()):08x}" != wanted:
        raise OSError(f"{path.name} is damaged: its checksum is not that of the build")
    opened = ctypes.CDLL(str(path))
    try:
        found = opened.dcnn_abi()
        if found != ABI:
            raise OSError(f"{path.name} has interface {found}; this version of dcnn needs {ABI}")
        for name, letters in _SIGNATURES.items():
            function = getattr(opened, name)
            function.restype, *arguments = (_TYPES[letter] for letter in letters.replace(" ", ""))
            function.argtypes = arguments
    except AttributeError as error:
        raise OSError(f"{path.name} is not dcnn's library: {error}") from error
    return opened


@cache
def _load() -> tuple[ctypes.CDLL | None, str]:
    """The library, or none and why; the reason is logged once."""
    path = library_path()
    try:
        loaded = open_library(path)
    except OSError as error:
        import logging  # not needed to predict

        # That none was compiled is reported at the install and when training starts.
        level = logging.WARNING if path.exists() else logging.DEBUG
        words = "the native backend is not available: %s; run `make native`"
        logging.getLogger("dcnn").log(level, words, error)
        return None, str(error)
    if wanted := os.environ.get(ISA_VARIABLE):
        use_instruction_set(wanted, loaded)
    return loaded, ""


def available() -> bool:
    """Whether the library is there and fit for use."""
    return _load()[0] is not None


def reason() -> str:
    """Why ``available`` is false; empty if it is true."""
    return _load()[1]


def describe() -> str:
    """One line on the library: the instruction set it uses, or why it is not available."""
    if available():
        return f"native backend: {instruction_set()}"
    return f"native backend: not available ({reason()}); numpy and torch do its work"


def library() -> ctypes.CDLL:
    """The functions of ``native/dcnn_native.h``; a RuntimeError says why there are none."""
    loaded, why = _load()
    if loaded is None:
        raise RuntimeError(f"the native backend is not available: {why}; run `make native`")
    return loaded


def instruction_set() -> str:
    """The instruction set in use: ``avx512``, ``avx2`` or ``plain``."""
    name: bytes = library().dcnn_isa()
    return name.decode()


def use_instruction_set(name: str, loaded: ctypes.CDLL | None = None) -> None:
    """Switch to another instruction set of this machine; ``DCNN_ISA`` sets it from the start."""
    if name not in INSTRUCTION_SETS or not (loaded or library()).dcnn_use_isa(name.encode()):
        raise ValueError(
            f"{ISA_VARIABLE}={name!r} is not an instruction set of this machine; "
            f"choose among {', '.join(INSTRUCTION_SETS)} or leave it unset"
        )


def check(status: int) -> None:
    """Raise what a status of the library stands for."""
    if status:
        kind, message = _STATUSES[status]
        raise kind(message)


def dense(array: Array, dtype: type[np.generic]) -> Array:
    """``array`` in the library's memory order; a copy only where it is not so already."""
    return np.ascontiguousarray(array, dtype)


def address(array: Array) -> int:
    """Where the values of ``array`` lie."""
    at: int = array.ctypes.data
    return at


@cache
def array_of(kind: Any, count: int) -> Any:
    """A ctypes array type, cached: ctypes makes a new class whenever no array of it is in use."""
    return kind * count


def layer_sizes(filters: Sequence[int], fold_rows: bool) -> LayerSizes:
    """From the shape (o, n, d, m) of the filters."""
    maps, maps_below, rows_below, width = filters
    if fold_rows and rows_below % 2:
        raise ValueError(f"{rows_below} rows cannot be folded in pairs")
    return LayerSizes(maps_below, rows_below, maps, width, fold_rows)


def check_network(
    dim: int,
    layers: Sequence[tuple[Sequence[int], Sequence[int]]],
    head: Sequence[int],
    fold_rows: bool,
    k_top: int,
) -> int:
    """How many features a network has, from the shapes of each layer's filters and bias.

    The library trusts the sizes that it is given, so those that do not fit together are refused.
    """
    maps, rows = 1, dim
    for filters, bias in layers:
        agree = tuple(filters[1:3]) == (maps, rows)
        maps, rows = filters[0], rows // 2 if fold_rows else rows
        if not agree or tuple(bias) != (maps, rows):
            raise ValueError(f"filters {tuple(filters)} and bias {tuple(bias)} do not fit in")
    features = maps * rows * k_top
    if head[1] != features:
        raise ValueError(f"head.weight {tuple(head)} does not fit {features} values")
    return features


def layer(
    x: Array,
    lengths: Array,
    filters: Array,
    bias: Array,
    k: Array,
    fold_rows: bool,
    width: int | None = None,
    threads: int = 1,
) -> tuple[Array, Array]:
    """One layer in float32, forward; see ``dcnn.ops``. Sentences are spread over ``threads``."""
    sizes = layer_sizes(filters.shape, fold_rows)
    kept = int(k.max()) if width is None else width
    x = dense(x.transpose(0, 3, 1, 2), np.float32)  # (B, s, n, d)
    lengths, k = dense(lengths, np.int64), dense(k, np.int64)
    filters, bias = dense(filters, np.float32), dense(bias, np.float32)
    if x.shape[2:] != filters.shape[1:3] or bias.size * (1 + fold_rows) != filters[:, 0, :, 0].size:
        raise ValueError(f"x {x.shape}, filters {filters.shape}, bias {bias.shape} do not agree")
    values = np.empty((len(x), kept, *bias.shape), np.float32)
    positions = np.empty(values.shape, np.int32)
    given, results = (x, lengths, filters, bias, k), map(address, (values, positions))
    status = library().dcnn_layer_forward(
        ctypes.addressof(sizes), *x.shape[:2], *map(address, given), kept, *results, threads
    )
    check(status)
    return values.transpose(0, 2, 3, 1), positions.transpose(0, 2, 3, 1)


class Network:
    """A DCNN for prediction, made of weights by their names in the model folder.

    ``char_ngrams`` are the length of the shortest and of the longest character n-grams and the
    number of buckets; None if words have none.
    """

    def __init__(
        self,
        weights: Mapping[str, Array],
        fold: bool,
        k_top: int,
        char_ngrams: tuple[int, int, int] | None = None,
    ) -> None:
        lib = library()
        depth = sum(name.endswith(".filters") for name in weights)
        arrays = {name: dense(values, np.float32) for name, values in weights.items()}
        filters = [arrays[f"layers.{i}.filters"] for i in range(depth)]
        biases = [arrays[f"layers.{i}.bias"] for i in range(depth)]
        head_weight, head_bias = arrays["head.weight"], arrays["head.bias"]
        self._embeddings = arrays["embeddings"]  # the library reads them where they are
        words, dim = self._embeddings.shape
        self.classes = len(head_bias)
        shapes = [(f.shape, bias.shape) for f, bias in zip(filters, biases, strict=True)]
        check_network(dim, shapes, head_weight.shape, fold, k_top)
        sizes = (LayerSizes * depth)(*(layer_sizes(f.shape, fold) for f in filters))
        places = [(ctypes.c_void_p * depth)(*map(address, some)) for some in (filters, biases)]
        layers = depth, sizes, *places
        head = self.classes, address(head_weight), address(head_bias)
        table = words, address(self._embeddings)
        self._ngrams = arrays.get("ngrams")
        if (self._ngrams is None) != (char_ngrams is None):
            raise ValueError("vectors of character n-grams and their lengths go together")
        ngrams: tuple[Any, ...] = (0, 0, 0, None)
        if char_ngrams is not None and self._ngrams is not None:
            if self._ngrams.shape != (char_ngrams[2], dim):
                raise ValueError(f"ngrams {self._ngrams.shape} do not fit {char_ngrams}, {dim}")
            ngrams = *char_ngrams, address(self._ngrams)
        self._handle = lib.dcnn_network_new(*layers, k_top, *table, *head, *ngrams)
        if not self._handle:
            raise MemoryError("the native backend ran out of memory")
        self._logits, self._free = lib.dcnn_network_logits, lib.dcnn_network_free
        self._texts = lib.dcnn_network_texts

    def logits(
        self, ids: Array, offsets: Array, threads: int = 1, new_words: Sequence[str] = ()
    ) -> Floats:
        """(sentences, classes); sentence i is ``ids[offsets[i]:offsets[i + 1]]``.

        ``new_words``, which are marked already, have the ids from the number of words on.
        """
        ids, offsets = dense(ids, np.int32), dense(offsets, np.int64)
        text, ends = _joined(new_words) if new_words else (b"", None)
        sentences = len(offsets) - 1
        result: Floats = np.empty((sentences, self.classes), np.float32)
        if offsets[-1] > len(ids):  # that they ascend is checked in the library
            raise ValueError(f"offsets {offsets} go past the {len(ids)} ids")
        status = self._logits(
            *(self._handle, sentences, address(ids), address(offsets)),
            *(len(new_words), text, None if ends is None else ends.buffer_info()[0]),
            *(address(result), threads),
        )
        check(status)
        return result

    def texts(
        self,
        tokenizer: "TextTokenizer",
        texts: Sequence[str],
        ready: bytes | None,
        output: int,
        threads: int = 1,
    ) -> Floats:
        """(texts, classes) logits or probabilities of texts as ``TextTokenizer`` wants them."""
        text, ends = _joined(texts)
        result: Floats = np.empty((len(texts), self.classes), np.float32)
        place = _Place.from_buffer(result.data) if len(texts) else None  # faster than its address
        given = len(texts), text, ends.buffer_info()[0], ready, output, place, threads
        check(self._texts(self._handle, tokenizer.handle, *given))
        return result

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._free(self._handle)


class TextTokenizer:
    """A tokenizer that knows some words; see ``dcnn.text.native``, which prepares its texts."""

    def __init__(
        self,
        preset: int,
        lowercase: bool,
        runs: bool,
        words: Sequence[str] = (),
        left: Sequence[str] = (),
        right: Sequence[str] = (),
        scores: Sequence[float] = (),
        unknown: float = 0.0,
    ) -> None:
        lib = library()
        self._tokenize, self._free = lib.dcnn_tokenize, lib.dcnn_tokenizer_free
        strings = (ctypes.byref(Strings(some)) for some in (words, left, right))
        numbers = np.array(scores, np.float64)
        self.handle = lib.dcnn_tokenizer_new(
            preset, lowercase, runs, *strings, address(numbers), unknown
        )
        if not self.handle:
            raise MemoryError("the native backend ran out of memory")

    def tokenize(
        self, texts: Sequence[str], ready: bytes | None = None
    ) -> tuple[list[str], Array, Array]:
        """Distinct tokens in the order of first occurrence, their places, and tokens per text.

        ``ready`` has a byte per text, which is not 0 for tokens that are separated by spaces.
        """
        strings = Strings(texts)
        ids, lengths = np.empty(strings.size, np.int32), np.empty(len(texts), np.int32)
        letters, size = np.empty(6 * strings.size + 64, np.uint8), ctypes.c_int64()
        count = self._tokenize(
            *(self.handle, ctypes.byref(strings), ready, address(ids), address(lengths)),
            *(address(letters), ctypes.byref(size)),
        )
        if count < 0:
            raise MemoryError("the native backend ran out of memory")
        words = letters[: size.value].tobytes().decode().split("\n")[:-1]
        return words, ids[:count].copy(), lengths

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._free(self.handle)


def char_ngrams(
    words: Sequence[str], shortest: int, longest: int, n_buckets: int
) -> tuple[Array, Array]:
    """Offsets and buckets of the character n-grams of ``words``, which are marked already."""
    text, ends = _joined(words)
    # A word of c characters has fewer than c n-grams of each length.
    most = len(text) * (longest - shortest + 1)
    offsets, buckets = np.empty(len(words) + 1, np.int64), np.empty(most, np.int32)
    limits = shortest, longest, n_buckets
    found = library().dcnn_char_ngrams(
        *(
            len(words),
            text,
            ends.buffer_info()[0],
            *limits,
            address(offsets),
            address(buckets),
            most,
        )
    )
    if found < 0:
        raise MemoryError("the native backend ran out of memory")
    return offsets, buckets[:found].copy()


def _joined(strings: Sequence[str]) -> tuple[bytes, "array[int]"]:
    """The UTF-8 bytes of all strings, and where each of them ends."""
    joined = "".join(strings)
    if joined.isascii():
        return joined.encode(), array("q", accumulate(map(len, strings)))
    encoded = [string.encode("utf-8", "surrogatepass") for string in strings]
    return b"".join(encoded), array("q", accumulate(map(len, encoded)))


def compose(
    ids: Array, bags: tuple[Array, Array], embeddings: Array, ngrams: Array, threads: int = 1
) -> Floats:
    """Vectors (ids, d) of words with character n-grams; see ``reference.compose``."""
    ids, offsets, buckets = dense(ids, np.int64), dense(bags[0], np.int64), dense(bags[1], np.int32)
    embeddings, ngrams = dense(embeddings, np.float32), dense(ngrams, np.float32)
    result: Floats = np.empty((len(ids), embeddings.shape[1]), np.float32)
    given = BagsOfNgrams(len(offsets) - 1, len(ngrams), address(offsets), address(buckets))
    sizes = address(ids), *embeddings.shape
    tables = map(address, (embeddings, ngrams, result))
    check(library().dcnn_compose(ctypes.addressof(given), len(ids), *sizes, *tables, threads))
    return result
