"""A DCNN for prediction: ids to logits in one call of the native backend."""

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn.ops import native
from dcnn.ops.native import LayerSizes, address, check, dense, layer_sizes

Array = NDArray[Any]
Floats = NDArray[np.float32]


class Network:
    """The weights as the library reads them.

    Args:
        weights: the parameters by the names of the model folder.
        fold: whether every layer folds.
        k_top: values a row keeps at the top.
    """

    def __init__(self, weights: Mapping[str, Array], fold: bool, k_top: int) -> None:
        library = native.library()
        depth = sum(name.endswith(".filters") for name in weights)

        def floats(name: str) -> Floats:
            return dense(weights[name], np.float32)

        filters = [floats(f"layers.{i}.filters") for i in range(depth)]
        biases = [floats(f"layers.{i}.bias") for i in range(depth)]
        top_weight, top_bias = floats("top.weight"), floats("top.bias")
        self._embeddings = floats("embeddings")  # the library reads them where they are
        self.classes = len(top_bias)
        shapes = [(f.shape, bias.shape) for f, bias in zip(filters, biases, strict=True)]
        native.check_network(self._embeddings.shape[1], shapes, top_weight.shape, fold, k_top)
        sizes = (LayerSizes * depth)(*(layer_sizes(f.shape, fold) for f in filters))
        pointers = [
            (ctypes.c_void_p * depth)(*map(address, arrays)) for arrays in (filters, biases)
        ]
        self._handle = library.dcnn_network_new(
            depth,
            ctypes.addressof(sizes),
            *map(ctypes.addressof, pointers),
            k_top,
            len(self._embeddings),
            address(self._embeddings),
            self.classes,
            address(top_weight),
            address(top_bias),
        )
        if not self._handle:
            raise MemoryError("the native backend ran out of memory")
        self._logits, self._free = library.dcnn_network_logits, library.dcnn_network_free

    def logits(self, ids: Array, offsets: Array, threads: int = 1) -> Floats:
        """(sentences, classes); sentence i is ``ids[offsets[i]:offsets[i + 1]]``."""
        ids, offsets = dense(ids, np.int32), dense(offsets, np.int64)
        sentences = len(offsets) - 1
        result: Floats = np.empty((sentences, self.classes), np.float32)
        if offsets[-1] > len(ids):  # that they ascend is checked in the library
            raise ValueError(f"offsets {offsets} go past the {len(ids)} ids")
        check(self._logits(self._handle, sentences, *map(address, (ids, offsets, result)), threads))
        return result

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._free(self._handle)
