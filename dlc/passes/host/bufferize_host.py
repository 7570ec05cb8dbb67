"""`bufferize-host`: the host program's tensors become buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from dlc.dialects.dl.base import shape_of
from dlc.dialects.dl.creation import WeightOp
from dlc.dialects.dl.data_dependent.selection import DecideOp
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.movement.shaping import ConcatOp, SliceOp
from dlc.dialects.dl.programs.control import Control, FailOp
from dlc.dialects.dl.programs.program import DispatchOp, YieldOp
from dlc.dialects.entry import OUTPUT, entry_of
from dlc.dialects.sizes import say_sizes
from dlc.dims import Dim, Size, is_static
from dlc.errors import UnsupportedError
from dlc.ir import (
    ArrayAttr,
    Block,
    Context,
    DictionaryAttr,
    ModuleOp,
    ModulePass,
    Region,
    SSAValue,
    UnitAttr,
    forget,
    func,
    memref,
)
from dlc.passes.host.control_flow import Bufferizer, buffer_type, elements, is_written
from dlc.passes.views import is_returned, is_view, source_of


@dataclass(frozen=True)
class BufferizeHostPass(ModulePass):
    """Turns dispatches on tensors into launches on buffers.

        func.func @main(%x: tensor<8xf32>) -> tensor<2x4xf32> {
          %t = dl.dispatch @a(%x) : (tensor<8xf32>) -> tensor<8xf32>
          %u = dl.dispatch @b(%t) : (tensor<8xf32>) -> tensor<8xf32>
          %y = dl.reshape %u {shape = array<i64: 2, 4>} : …
          func.return %y }
      →
        func.func @main(%x: memref<8xf32>, %y: memref<2x4xf32> {host.output}) {
          %t = memref.alloc() : memref<8xf32>
          host.launch @a(%x, %t)
          %u = memref.reinterpret_cast %y to … : memref<8xf32>
          host.launch @b(%t, %u)
          func.return }

    A dispatch's result that is returned is written where the caller wants it; an output that is an input, a weight or the
    same value as another output is copied there. A reshape is a view, and so is a slice that is one piece of its operand; what
    is joined of such pieces is a buffer that kernels write them to. Loops and branches become those of the host
    (`control_flow.py`). Where sizes are symbolic, buffers are `host.buffer` and say theirs. Requires functions that consist of
    `dl.dispatch`, such views and joins, `dl.weight` and control flow; leaves buffers without a place to `plan-arena`.
    """

    name = "bufferize-host"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        main = entry_of(op)
        _check(main)
        _Bufferizer(main).run()


# What may be in a host program beside views.
_HOSTED = DispatchOp | ConcatOp | WeightOp | Control | YieldOp | FailOp | DecideOp | DataDependent | func.ReturnOp


def _check(main: func.FuncOp) -> None:
    """Raises UnsupportedError with all that this pass has no buffers for."""
    problems: list[str] = []
    for op in main.walk():
        if op is main:
            pass
        elif not isinstance(op, _HOSTED) and not is_view(op, 1):
            problems.append(f"{op.name} at {op.location} is in the host program but in no kernel; fusion must dispatch it")
    if problems:
        raise UnsupportedError("bufferize-host: " + "; ".join(problems), problems)


def _is_open(main: func.FuncOp) -> bool:
    """Whether a size is known only when the program is called."""
    if any(isinstance(op, DecideOp) for op in main.walk()):
        return True
    return not all(is_static(shape_of(v)) for v in (*main.args, *(r for op in main.walk() for r in op.results)))


class _Bufferizer(Bufferizer):
    """The entry: what it returns is written where the caller wants it, or copied there."""

    def __init__(self, main: func.FuncOp) -> None:
        slices = (op for op in main.body.walk() if isinstance(op, SliceOp))
        super().__init__(_is_open(main), {source_of(op.x)[0] for op in slices if not is_returned(op.result)})
        self.main = main
        self.known = {symbol for a in main.args for size in shape_of(a) for symbol in Dim.lift(size).symbols()}
        returned = cast(func.ReturnOp, main.body.block.last_op)
        self.block = Block(arg_types=[buffer_type(v) for v in (*main.args, *returned.operands)])
        for value, buffer in zip(main.args, self.block.args, strict=False):
            self.buffers[value] = buffer
            buffer.name_hint = value.name_hint
        self.sizes |= {a: shape_of(v) for v, a in zip((*main.args, *returned.operands), self.block.args, strict=True)}
        self.copies: list[tuple[SSAValue, SSAValue]] = []
        for value, output in zip(returned.operands, self.block.args[len(main.args) :], strict=True):
            root, _ = source_of(value)
            if is_written(root) and root not in self.destinations and elements(root) == elements(value):
                self.destinations[root] = output
            else:
                self.copies.append((value, output))

    def run(self) -> None:
        self.convert(self.main.body.block)
        returned = cast(func.ReturnOp, self.main.body.block.last_op)
        for value, output in self.copies:
            self.add(memref.CopyOp(self.part(value, returned), output), returned)
        self.add(func.ReturnOp(), returned)
        _replace_body(self.main, self.block, [self.sizes[a] for a in self.block.args])


def _replace_body(main: func.FuncOp, block: Block, sizes: Sequence[Sequence[Size]]) -> None:
    """Makes `block` the entry's body; names of results become names of output arguments."""
    count = len(main.function_type.outputs.data)
    inputs = _attributes(main.arg_attrs, len(main.args))
    outputs = [DictionaryAttr({**d.data, OUTPUT: UnitAttr()}) for d in _attributes(main.res_attrs, count)]
    for op in main.detach_region(main.body).block.ops:
        forget(op)
    main.add_region(Region(block))
    said = zip((*inputs, *outputs), map(say_sizes, sizes), strict=True)
    main.properties["arg_attrs"] = ArrayAttr([DictionaryAttr(dict(named.data) | dict(own.data)) for named, own in said])
    main.properties.pop("res_attrs", None)
    main.update_function_type()


def _attributes(attributes: ArrayAttr[DictionaryAttr] | None, count: int) -> Sequence[DictionaryAttr]:
    return attributes.data if attributes is not None else [DictionaryAttr({})] * count
