"""Which inputs of a model a value is computed from: their values would make it known.

%s = dl.add %a, %b      %y = dl.reshape %x by the elements of %s, which are not known: they hang on the inputs a and b
"""

from __future__ import annotations

from collections.abc import Iterable

from dlc.arrays import TensorInfo
from dlc.dims import is_static, product
from dlc.frontend.emit import FOLD_LIMIT, LITERAL_LIMIT
from dlc.ir import Operation, SSAValue


def most_elements(info: TensorInfo) -> int:
    """How many elements an input may have for a model to be compiled for its value.

    Fractions are scales and bounds, of which there are a few, or else data, which is another in each call.
    """
    return FOLD_LIMIT if info.dtype.kind in "iub" else LITERAL_LIMIT


def may_be_known(info: TensorInfo) -> bool:
    """Whether a model may be compiled for the value of an input."""
    return is_static(info.shape) and product(info.shape) <= most_elements(info)


class Origins:
    """The inputs behind block arguments, and so behind all that is computed from these."""

    def __init__(self) -> None:
        self._inputs: dict[SSAValue, frozenset[str]] = {}

    def add(self, argument: SSAValue, inputs: Iterable[str]) -> None:
        """Notes that an argument of a block is an input, or stands for something that hangs on these inputs."""
        self._inputs[argument] = frozenset(inputs)

    def of(self, values: Iterable[SSAValue]) -> frozenset[str]:
        """The inputs that any of the values hangs on; what changes from step to step of a loop hangs on none."""
        found: set[str] = set()
        pending, seen = list(values), set[SSAValue]()
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            if value in self._inputs:
                found |= self._inputs[value]
            elif isinstance(value.owner, Operation):
                pending.extend(operand for op in value.owner.walk() for operand in op.operands)
        return frozenset(found)
