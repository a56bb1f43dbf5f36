"""An ONNX graph as it grows: nodes, and the constants that they take."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

Array = NDArray[Any]


class Graph:
    """Nodes in the order in which they are added, which is one in which they can be run."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def add(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; the name of its output, or the names where it has several."""
        number = len(self.nodes)
        names = [f"{operator}_{number}.{place}" for place in range(outputs)]
        node = helper.make_node(operator, inputs, names, f"{operator}_{number}", **attributes)
        self.nodes.append(node)
        return names[0] if outputs == 1 else names

    def constant(self, value: Array, name: str = "") -> str:
        """Add an array."""
        name = name or f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def number(self, value: float) -> str:
        """Add a single float32."""
        return self.constant(np.array(value, np.float32))

    def integers(self, *values: int) -> str:
        """Add a list of whole numbers, as shapes, axes and counts are given."""
        return self.constant(np.array(values, np.int64))

    def weights(self, value: Array, name: str) -> str:
        """Add an array of weights, which are float32 in the graph however they are stored."""
        return self.as_float32(self.constant(value, name), value.dtype)

    def as_float32(self, name: str, dtype: np.dtype[Any]) -> str:
        """``name`` itself, or turned to float32 where it holds another ``dtype``."""
        if dtype == np.float32:
            return name
        return str(self.add("Cast", name, to=TensorProto.FLOAT))

    def width(self, name: str) -> str:
        """The size of a tensor's last axis, as a list of one."""
        return str(self.add("Shape", name, start=-1))

    def columns_below(self, width: str, counts: str) -> str:
        """(B,) -> (B, 1, width): whether a column's number is below its sentence's count."""
        zero, one = (self.constant(np.array(value, np.int64)) for value in (0, 1))
        end = self.add("Squeeze", width, self.integers(0))
        columns = self.add("Range", zero, end, one)
        return str(self.add("Less", columns, self.add("Unsqueeze", counts, self.integers(1, 2))))
