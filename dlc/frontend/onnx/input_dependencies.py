"""Track the graph inputs that a value is computed from: specifying their values would make it constant.

%s = dl.add %a, %b      %y = dl.reshape %x by the elements of %s, unknown at import: they depend on the inputs a and b
"""

from __future__ import annotations

from collections.abc import Iterable

from dlc.arrays import TensorInfo
from dlc.frontend.emitter import MAX_FOLDED_ELEMENTS, MAX_LITERAL_ELEMENTS
from dlc.ir import Operation, SSAValue
from dlc.shapes.dims import is_static, product


def max_specialized_elements(info: TensorInfo) -> int:
    """Return the largest number of elements of an input whose value a model may be specialized to.

    Small float inputs are scales and bounds; larger ones are data that changes from call to call.
    """
    return MAX_FOLDED_ELEMENTS if info.dtype.kind in "iub" else MAX_LITERAL_ELEMENTS


def can_specialize_on(info: TensorInfo) -> bool:
    """Return whether a model may be specialized to the value of an input."""
    return is_static(info.shape) and product(info.shape) <= max_specialized_elements(info)


class InputDependencies:
    """The graph inputs that block arguments, and all values computed from them, depend on."""

    def __init__(self) -> None:
        self._inputs: dict[SSAValue, frozenset[str]] = {}

    def add(self, argument: SSAValue, inputs: Iterable[str]) -> None:
        """Record that a block argument is, or depends on, these inputs."""
        self._inputs[argument] = frozenset(inputs)

    def of(self, values: Iterable[SSAValue]) -> frozenset[str]:
        """Return the inputs that any of the values depends on; loop-carried values depend on none."""
        names: set[str] = set()
        pending, visited = list(values), set[SSAValue]()
        while pending:
            value = pending.pop()
            if value in visited:
                continue
            visited.add(value)
            if value in self._inputs:
                names |= self._inputs[value]
            elif isinstance(value.owner, Operation):
                pending.extend(operand for op in value.owner.walk() for operand in op.operands)
        return frozenset(names)
