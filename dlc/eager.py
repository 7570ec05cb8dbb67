"""Functions without the compiler: what is traced is computed at once, op by op, so that a debugger and `print` show numbers.

    with dlc.disable_jit():
        predict(params, x)          # `print(x)`, `if x > 0` and breakpoints inside see arrays

Or `DLC_JIT=0` for a whole process. An `EagerTrace` is a trace whose values have elements beside their types, so that all that
a traced function may write, and every error that it gets, is what it is otherwise. Loops and branches of `dlc.lax` are Python's
then. What is differentiated is computed as well while it is traced; in lanes of `dlc.vmap`, and in rules of functions that
have some, there are no single numbers, and asking for them is the error that it is when functions are compiled.
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
from dlc.dialects.dl.data_dependent.selection import Selection
from dlc.dialects.dl.programs.control import captured
from dlc.dialects.dl.programs.program import DONOR
from dlc.dims import Size, bind_sizes
from dlc.frontend.trace import Trace, Tracer, user_location
from dlc.ir import Block, BlockArgument, IntegerAttr, ModuleOp, Operation, OpResult, Region, SSAValue, func

# Whether functions are computed as they are written; None: as DLC_JIT says.
_disabled: ContextVar[bool | None] = ContextVar("disabled", default=None)


@contextmanager
def disable_jit(disable: bool = True) -> Generator[None]:
    """Inside, functions of `dlc.jit`, derivatives and batches among them, are computed with NumPy as they are written.

    For looking at what they do: it takes long. `disable=False` compiles again inside, whatever is around and `DLC_JIT` says.
    """
    before = _disabled.set(disable)
    try:
        yield
    finally:
        _disabled.reset(before)


def is_jit_disabled(otherwise: bool) -> bool:
    """Whether functions are computed as they are written; `otherwise` is for what no `disable_jit` is around."""
    disabled = _disabled.get()
    return otherwise if disabled is None else disabled


class EagerTrace(Trace):
    """A function being traced for these arguments, of which every value has its elements at once, as far as it has any."""

    def __init__(self, arguments: Sequence[Array]) -> None:
        super().__init__()
        self._arguments = arguments
        self._bound: dict[Block, Sequence[Array | None]] = {self.block: arguments}
        # Elements live as long as somebody holds the value, so that loops of many steps need no more memory than they do
        # elsewhere; those of a value that comes back are computed again.
        self._arrays: WeakValueDictionary[SSAValue, Array] = WeakValueDictionary()
        self._unknown: set[SSAValue] = set()

    @property
    def steps(self) -> bool:
        return all(body in self._bound for body in self._open)

    def bind(self, body: Block, arguments: Sequence[Tracer]) -> None:
        self._bound[body] = [argument.array for argument in arguments]

    def insert(self, op: Operation) -> list[Tracer]:
        with self.build.at(user_location()):
            self.build.insert(op)
        # All are held until each is by its Tracer.
        results = self._results(op)
        tracers = [Tracer(self, result) for result in op.results]
        del results
        return tracers

    def size_of(self, op: type[Selection], x: Tracer, properties: Mapping[str, PropertyValue | None]) -> Size:
        size = super().size_of(op, x, properties)
        if x.array is None:
            return size
        made = op.make(x.value, size=(size,), **properties)
        results = self._computed(made, {x.value: x.array})
        known: dict[str, int] = {}
        for result, array in zip(made.results, results, strict=True):
            bind_sizes(shape_of(result), array.shape, known)
        made.erase()
        return known[str(size)]

    def array_of(self, value: SSAValue) -> Array | None:
        if isinstance(value, BlockArgument):
            arguments = self._bound.get(value.block)
            return None if arguments is None else arguments[value.index]
        if value in self._unknown:
            return None
        if (array := self._arrays.get(value)) is not None:
            return array
        assert isinstance(value, OpResult)
        results = self._results(value.op)
        return None if results is None else results[value.index]

    def results(self, returned: Sequence[Tracer]) -> list[Array]:
        """What the function returned: arrays of their own, or those that were given away for them."""
        main = self.block.parent_op()
        assert isinstance(main, func.FuncOp) and main.res_attrs is not None
        made = [np.array(r.array) for r in returned]
        for k, named in enumerate(main.res_attrs):
            donor = cast("IntegerAttr | None", named.data.get(DONOR))
            if donor is not None and (given := self._arguments[donor.value.data]).flags.writeable:
                given[...] = made[k]
                made[k] = given
        return made

    def _results(self, op: Operation) -> Sequence[Array] | None:
        """The results of an op, which are known from then on; None if what it reads is not."""
        if not op.results and not self.steps:
            return []
        read = list(dict.fromkeys([*op.operands, *(v for region in op.regions for v in captured(region.block))]))
        arrays = {v: array for v in read if (array := self.array_of(v)) is not None}
        if len(arrays) < len(read):
            self._unknown.update(op.results)
            return None
        results = self._computed(op, arrays)
        self._arrays.update(zip(op.results, results, strict=True))
        return results

    def _computed(self, op: Operation, arrays: Mapping[SSAValue, Array]) -> Sequence[Array]:
        if isinstance(op, dl.WeightOp):
            return [self.weights[op.symbol.string_value()]]
        if not isinstance(op, DlOp) or op.regions:
            return evaluate(_program(op, list(arrays)), list(arrays.values()))
        with np.errstate(all="ignore"):
            return op.evaluate(*(arrays[v] for v in op.operands))


def _program(op: Operation, read: Sequence[SSAValue]) -> ModuleOp:
    """A program that is one op, of what it reads."""
    block = Block(arg_types=[v.type for v in read])
    copy = op.clone(dict(zip(read, block.args, strict=True)))
    block.add_ops([copy, func.ReturnOp(*copy.results)])
    return ModuleOp([func.FuncOp("main", ([v.type for v in read], [r.type for r in copy.results]), Region(block))])
