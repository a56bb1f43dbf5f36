"""The pooling parameter of each layer (Sect. 3.3, Eq. 4).

    k_l = max(k_top, ceil((L - l) / L * s))

The length s is the sentence's own, never the padded width of its batch. The ceiling is taken in
integers: a floating-point quotient can land just above a whole number and keep one value too many.
"""

from typing import Any, TypeVar, overload

Lengths = TypeVar("Lengths")  # a numpy array or a torch tensor of integers


@overload
def dynamic_k(lengths: int, layer: int, depth: int, k_top: int) -> int: ...
@overload
def dynamic_k(lengths: Lengths, layer: int, depth: int, k_top: int) -> Lengths: ...


def dynamic_k(lengths: Any, layer: int, depth: int, k_top: int) -> Any:
    """Return k at ``layer`` (1 to ``depth``) for one sentence length or an array of them.

    >>> [dynamic_k(18, layer, depth=3, k_top=3) for layer in (1, 2, 3)]
    [12, 6, 3]
    """
    ceiling = -(lengths * (layer - depth) // depth)
    return max(k_top, ceiling) if isinstance(ceiling, int) else ceiling.clip(min=k_top)
