"""Eager mode: evaluate traced functions op by op with NumPy, so that debuggers and `print` see values.

    with dlc.disable_jit():
        predict(params, x)          # `print(x)`, `if x > 0` and breakpoints inside see arrays

Set `DLC_JIT=0` to enable it for a whole process. An `EagerTrace` is a trace whose values also have elements, so that traced
functions may use the same operations, and raise the same errors, as when they are compiled. Loops and branches of `dlc.lax`
run as Python loops and branches. Differentiated functions are evaluated while they are traced. The batched values of
`dlc.vmap` and the values inside custom derivative rules have no elements: reading them is the same error as under `jit`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import cast
from weakref import WeakValueDictionary

import numpy as np

from dlc.backends.reference.program import evaluate
from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp, PropertyValue, shape_of
from dlc.dialects.dl.data_dependent.selection import SelectionOp
from dlc.dialects.dl.programs.control import captured_values
from dlc.dialects.dl.programs.program import DONOR
from dlc.frontend.trace import Trace, Tracer, user_location
from dlc.ir import Block, BlockArgument, IntegerAttr, ModuleOp, Operation, OpResult, Region, SSAValue, func
from dlc.shapes.dims import Size
from dlc.shapes.input_sizes import bind_sizes

# True if eager mode is on; None: DLC_JIT decides.
_disabled: ContextVar[bool | None] = ContextVar("disabled", default=None)


@contextmanager
def disable_jit(disable: bool = True) -> Generator[None]:
    """Evaluate functions of `dlc.jit`, including their derivatives and batched versions, eagerly with NumPy.

    It is slow, and meant for debugging. `disable=False` enables compilation inside the block, regardless of enclosing blocks
    and of DLC_JIT.
    """
    token = _disabled.set(disable)
    try:
        yield
    finally:
        _disabled.reset(token)


def is_jit_disabled(default: bool) -> bool:
    """Return whether functions run eagerly; `default` applies outside of any `disable_jit`."""
    disabled = _disabled.get()
    return default if disabled is None else disabled


class EagerTrace(Trace):
    """The trace of a function for these arguments; values have elements from their creation on, where possible."""

    def __init__(self, arguments: Sequence[Array]) -> None:
        super().__init__()
        self._arguments = arguments
        self._arguments_of_block: dict[Block, Sequence[Array | None]] = {self.block: arguments}
        # Elements live as long as the value is referenced, so that long loops do not accumulate memory; if a value is needed
        # again, it is recomputed.
        self._arrays: WeakValueDictionary[SSAValue, Array] = WeakValueDictionary()
        self._values_without_elements: set[SSAValue] = set()

    @property
    def is_eager(self) -> bool:
        return all(body in self._arguments_of_block for body in self._active_blocks)

    def bind(self, body: Block, arguments: Sequence[Tracer]) -> None:
        self._arguments_of_block[body] = [argument.array for argument in arguments]

    def insert(self, op: Operation) -> list[Tracer]:
        with self.build.at_location(user_location()):
            self.build.insert(op)
        # Keep the results alive until their Tracers refer to them.
        results = self._results(op)
        tracers = [Tracer(self, result) for result in op.results]
        del results
        return tracers

    def size_of(self, op: type[SelectionOp], x: Tracer, properties: Mapping[str, PropertyValue | None]) -> Size:
        size = super().size_of(op, x, properties)
        if x.array is None:
            return size
        selection = op.make(x.value, size=(size,), **properties)
        results = self._evaluate(selection, {x.value: x.array})
        sizes: dict[str, int] = {}
        for result, array in zip(selection.results, results, strict=True):
            bind_sizes(shape_of(result), array.shape, sizes)
        selection.erase()
        return sizes[str(size)]

    def array_of(self, value: SSAValue) -> Array | None:
        if isinstance(value, BlockArgument):
            arguments = self._arguments_of_block.get(value.block)
            return None if arguments is None else arguments[value.index]
        if value in self._values_without_elements:
            return None
        if (array := self._arrays.get(value)) is not None:
            return array
        assert isinstance(value, OpResult)
        results = self._results(value.op)
        return None if results is None else results[value.index]

    def results(self, returned: Sequence[Tracer]) -> list[Array]:
        """Return the function's results as new arrays, or written to the arrays that were donated for them."""
        main = self.block.parent_op()
        assert isinstance(main, func.FuncOp) and main.res_attrs is not None
        results = [np.array(r.array) for r in returned]
        for k, attributes in enumerate(main.res_attrs):
            donor = cast("IntegerAttr | None", attributes.data.get(DONOR))
            if donor is not None and (donated := self._arguments[donor.value.data]).flags.writeable:
                donated[...] = results[k]
                results[k] = donated
        return results

    def _results(self, op: Operation) -> Sequence[Array] | None:
        """Evaluate an op and cache its results; return None if the value of an operand is unknown."""
        if not op.results and not self.is_eager:
            return []
        operands = list(dict.fromkeys([*op.operands, *(v for region in op.regions for v in captured_values(region.block))]))
        arrays = {v: array for v in operands if (array := self.array_of(v)) is not None}
        if len(arrays) < len(operands):
            self._values_without_elements.update(op.results)
            return None
        results = self._evaluate(op, arrays)
        self._arrays.update(zip(op.results, results, strict=True))
        return results

    def _evaluate(self, op: Operation, arrays: Mapping[SSAValue, Array]) -> Sequence[Array]:
        if isinstance(op, dl.WeightOp):
            return [self.weights[op.symbol.string_value()]]
        if not isinstance(op, DlOp) or op.regions:
            return evaluate(_single_op_program(op, list(arrays)), list(arrays.values()))
        with np.errstate(all="ignore"):
            return op.evaluate(*(arrays[v] for v in op.operands))


def _single_op_program(op: Operation, operands: Sequence[SSAValue]) -> ModuleOp:
    """Return a program that consists of one op; the values that it reads are inputs."""
    block = Block(arg_types=[v.type for v in operands])
    copy = op.clone(dict(zip(operands, block.args, strict=True)))
    block.add_ops([copy, func.ReturnOp(*copy.results)])
    return ModuleOp([func.FuncOp("main", ([v.type for v in operands], [r.type for r in copy.results]), Region(block))])
