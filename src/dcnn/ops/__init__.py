"""The paper's mathematics (Sect. 2.2 and 3): one definition, several backends.

Axes have one order everywhere: sentence, map, row, position, written ``(B, n, d, s)``. That is the
paper's ``d x s`` matrix, once for each map and sentence. The order is the logical one; a backend
may keep rows contiguous in memory behind it.

- ``reference``: every operator in plain numpy. This is the truth that all others are compared with.
- ``torch_backend``: the layer on tensors, with gradients, on any device.
- ``native``: the layer and whole networks in compiled C++ on a CPU, for numpy arrays;
  ``native_training`` has whole networks with gradients, and ``native_torch`` both for tensors.
- ``triton_backend``: the layer and whole networks with gradients, fused for CUDA.
- ``select``: which of them computes.

The native and Triton backends compute whole networks with a ``dynamic_k`` of their own; a table
in ``CONTRIBUTING.md`` has every operator in every backend, and in the ONNX export.

A backend is a module with one function::

    layer(x, lengths, filters, bias, k, fold_rows, width=None) -> values, positions

    x         (B, n, d, s)     maps of the layer below; columns past a sentence's length are void
    lengths   (B,)             valid columns of each sentence
    filters   (o, n, d, m)     the order-4 tensor: output map, input map, row, place in the m-gram
    bias      (o, d')          one value per row per map, added after pooling
    k         (B,)             values that each row of a sentence keeps, 1 <= k <= length + m - 1
    fold_rows bool             whether rows i and i + d/2 are summed, so d' = d/2 instead of d
    values    (B, o, d', K)    tanh of the pooled values; zero past a sentence's own k
    positions (B, o, d', K)    column of the convolution each value was taken from; -1 past k

K is ``width`` if it is given and the largest k otherwise.
"""
