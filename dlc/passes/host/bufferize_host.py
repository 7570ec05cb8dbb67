"""`bufferize-host`: converts the host program from tensors to buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from dlc.dialects.dl.base import shape_of
from dlc.dialects.dl.creation import WeightOp
from dlc.dialects.dl.data_dependent.selection import BindSizeOp
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.movement.shaping import ConcatOp, SliceOp
from dlc.dialects.dl.programs.control import Control, FailOp
from dlc.dialects.dl.programs.program import DispatchOp, YieldOp
from dlc.dialects.entry import OUTPUT, entry_of
from dlc.dialects.sizes import argument_size_attributes
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
    func,
    memref,
    release_op,
)
from dlc.passes.dl.rewriting import is_unspecified
from dlc.passes.host.control_flow import Bufferizer, buffer_type, element_count, writes_to_destination
from dlc.passes.views import is_returned, is_view, source_of
from dlc.shapes.dims import Dim, Size, is_static


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

    A dispatch result that is returned is written to the output argument; an output that is an input, a weight or a duplicate of
    another output is copied. A reshape is a view, and so is a contiguous slice; a concatenation along contiguous memory is a
    buffer into which kernels write the operands. Loops and branches become those of the host (`control_flow.py`). With dynamic
    shapes, buffers are `host.buffer` ops with symbolic sizes. Requires functions that consist of `dl.dispatch`, views,
    concatenations, `dl.weight` and control flow; leaves buffers without arena offsets to `plan-arena`.
    """

    name = "bufferize-host"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        main = entry_of(op)
        _check(main)
        _Bufferizer(main).run()


# The ops of a host program, in addition to views.
_HOST_OPS = DispatchOp | ConcatOp | WeightOp | Control | YieldOp | FailOp | BindSizeOp | DataDependent | func.ReturnOp


def _check(main: func.FuncOp) -> None:
    """Raise UnsupportedError with all ops that this pass does not support."""
    problems: list[str] = []
    for op in main.walk():
        if op is main:
            pass
        elif not isinstance(op, _HOST_OPS) and not is_view(op, 1) and not all(map(is_unspecified, op.results)):
            problems.append(f"{op.name} at {op.location} is in the host program but in no kernel; fusion must dispatch it")
    if problems:
        raise UnsupportedError("bufferize-host: " + "; ".join(problems), problems)


def _has_dynamic_shapes(main: func.FuncOp) -> bool:
    """Return whether any size is symbolic or data-dependent."""
    if any(isinstance(op, BindSizeOp) for op in main.walk()):
        return True
    return not all(is_static(shape_of(v)) for v in (*main.args, *(r for op in main.walk() for r in op.results)))


class _Bufferizer(Bufferizer):
    """Bufferizes the entry function: results are written to the output arguments, or copied there."""

    def __init__(self, main: func.FuncOp) -> None:
        slices = (op for op in main.body.walk() if isinstance(op, SliceOp))
        super().__init__(_has_dynamic_shapes(main), {source_of(op.x)[0] for op in slices if not is_returned(op.result)})
        self.main = main
        self.defined_sizes = {symbol for a in main.args for size in shape_of(a) for symbol in Dim.lift(size).symbols()}
        returned = cast(func.ReturnOp, main.body.block.last_op)
        self.block = Block(arg_types=[buffer_type(v) for v in (*main.args, *returned.operands)])
        for value, buffer in zip(main.args, self.block.args, strict=False):
            self.buffers[value] = buffer
            buffer.name_hint = value.name_hint
        self.sizes |= {a: shape_of(v) for v, a in zip((*main.args, *returned.operands), self.block.args, strict=True)}
        self.copies: list[tuple[SSAValue, SSAValue]] = []
        for value, output in zip(returned.operands, self.block.args[len(main.args) :], strict=True):
            root, _ = source_of(value)
            if writes_to_destination(root) and root not in self.destinations and element_count(root) == element_count(value):
                self.destinations[root] = output
            else:
                self.copies.append((value, output))

    def run(self) -> None:
        self.convert(self.main.body.block)
        returned = cast(func.ReturnOp, self.main.body.block.last_op)
        for value, output in self.copies:
            self.add(memref.CopyOp(self.buffer_of(value, returned), output), returned)
        self.add(func.ReturnOp(), returned)
        _replace_body(self.main, self.block, [self.sizes[a] for a in self.block.args])


def _replace_body(main: func.FuncOp, block: Block, sizes: Sequence[Sequence[Size]]) -> None:
    """Make `block` the entry's body; result names become names of output arguments."""
    count = len(main.function_type.outputs.data)
    inputs = _attributes(main.arg_attrs, len(main.args))
    outputs = [DictionaryAttr({**d.data, OUTPUT: UnitAttr()}) for d in _attributes(main.res_attrs, count)]
    for op in main.detach_region(main.body).block.ops:
        release_op(op)
    main.add_region(Region(block))
    argument_attributes = zip((*inputs, *outputs), map(argument_size_attributes, sizes), strict=True)
    main.properties["arg_attrs"] = ArrayAttr(
        [
            DictionaryAttr(dict(attributes.data) | dict(size_attributes.data))
            for attributes, size_attributes in argument_attributes
        ]
    )
    main.properties.pop("res_attrs", None)
    main.update_function_type()


def _attributes(attributes: ArrayAttr[DictionaryAttr] | None, count: int) -> Sequence[DictionaryAttr]:
    return attributes.data if attributes is not None else [DictionaryAttr({})] * count
