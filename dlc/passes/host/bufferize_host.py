"""`bufferize-host`: the host program's tensors become buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from dlc.dialects import host
from dlc.dialects.dl.base import shape_of, tensor_of
from dlc.dialects.dl.creation import WeightOp
from dlc.dialects.dl.movement import ReshapeOp, SliceOp
from dlc.dialects.dl.program import DispatchOp
from dlc.dialects.sizes import say_sizes
from dlc.dims import Size, is_static, row_major
from dlc.errors import UnsupportedError
from dlc.ir import (
    ArrayAttr,
    Attribute,
    Block,
    Context,
    DictionaryAttr,
    MemRefType,
    ModuleOp,
    ModulePass,
    Operation,
    Region,
    SSAValue,
    StridedLayoutAttr,
    UnitAttr,
    func,
    memref,
)
from dlc.passes.views import is_view, source_of


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
    same value as another output, or that others read parts of, is copied there. A reshape is a view, and so is a slice that
    is one piece of its operand. Where sizes are symbolic, buffers are `host.buffer` and say theirs. Requires an entry
    that consists of `dl.dispatch`, such views and
    `dl.weight`; leaves buffers without a place (`memref.alloc`) to `plan-arena`.
    """

    name = "bufferize-host"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        main = host.entry_of(op)
        _check(main)
        _Bufferizer(main).run()


def _check(main: func.FuncOp) -> None:
    """Raises UnsupportedError with all that this pass has no buffers for."""
    problems: list[str] = []
    for op in main.body.block.ops:
        if not isinstance(op, DispatchOp | WeightOp | func.ReturnOp) and not is_view(op, 1):
            problems.append(f"{op.name} at {op.location} is in the host program but in no kernel; fusion must dispatch it")
    if problems:
        raise UnsupportedError("bufferize-host: " + "; ".join(problems), problems)


def _buffer_type(value: SSAValue) -> MemRefType[Attribute]:
    t = tensor_of(value)
    return MemRefType(t.element_type, t.get_shape())


def _is_open(main: func.FuncOp) -> bool:
    """Whether a size is known only when the program is called."""
    return not all(is_static(shape_of(v)) for v in (*main.args, *(r for op in main.body.block.ops for r in op.results)))


class _Bufferizer:
    def __init__(self, main: func.FuncOp) -> None:
        self.main = main
        self.is_open = _is_open(main)
        self.returned = cast(func.ReturnOp, main.body.block.last_op)
        inputs = main.args
        outputs = self.returned.operands
        self.block = Block(arg_types=[_buffer_type(v) for v in (*inputs, *outputs)])
        self.buffers: dict[SSAValue, SSAValue] = dict(zip(inputs, self.block.args, strict=False))
        for value, buffer in zip(inputs, self.block.args, strict=False):
            buffer.name_hint = value.name_hint
        self.sizes: dict[SSAValue, tuple[Size, ...]] = {}
        self.sizes |= {a: shape_of(v) for v, a in zip((*inputs, *outputs), self.block.args, strict=True)}
        # Which output each dispatched value is written to; the other outputs are copies.
        self.destinations: dict[SSAValue, SSAValue] = {}
        self.copies: list[tuple[SSAValue, SSAValue]] = []
        # Parts of the arena begin where it was planned; of what the caller brings, not every device reads parts.
        parted = {source_of(op.x)[0] for op in main.body.block.ops if isinstance(op, SliceOp)}
        for value, output in zip(outputs, self.block.args[len(inputs) :], strict=True):
            root, _ = source_of(value)
            if isinstance(root.owner, DispatchOp) and root not in self.destinations and root not in parted:
                self.destinations[root] = output
            else:
                self.copies.append((value, output))

    def run(self) -> None:
        for op in self.main.body.block.ops:
            match op:
                case WeightOp():
                    weight = host.WeightOp(op.symbol.string_value(), _buffer_type(op.result))
                    self.buffers[op.result] = self.value(weight, op, op.result)
                case ReshapeOp() | SliceOp():
                    self.buffers[op.result] = self.part(op.result, op)
                case DispatchOp():
                    self.dispatch(op)
                case _:
                    for value, output in self.copies:
                        self.add(memref.CopyOp(self.part(value, op), output), op)
                    self.add(func.ReturnOp(), op)
        _replace_body(self.main, self.block, [self.sizes[a] for a in self.block.args])

    def dispatch(self, op: DispatchOp) -> None:
        for result in op.outputs:
            if result in self.destinations:
                self.buffers[result] = self.view(self.destinations[result], result, op)
            else:
                self.buffers[result] = self.value(self.buffer(result), op, result)
        self.add(host.LaunchOp(op.symbol, [self.buffers[v] for v in (*op.arguments, *op.outputs)], op.sizes), op)

    def buffer(self, value: SSAValue) -> Operation:
        """A buffer of the arena for a value."""
        t = _buffer_type(value)
        if self.is_open:
            return host.BufferOp(shape_of(value), t)
        return memref.AllocOp.get(t.element_type, shape=t.get_shape())

    def part(self, value: SSAValue, origin: Operation) -> SSAValue:
        """The part of a buffer that a value is."""
        root, offset = source_of(value)
        return self.view(self.buffers[root], value, origin, offset)

    def view(self, buffer: SSAValue, like: SSAValue, origin: Operation, offset: int = 0) -> SSAValue:
        """What of `buffer` begins at an element, in the shape of `like`."""
        t = _buffer_type(like)
        if buffer.type == t and self.sizes.get(buffer, shape_of(like)) == shape_of(like):
            return buffer
        if self.is_open:
            return self.value(host.ViewOp(buffer, offset, shape_of(like), t), origin, like)
        strides = cast("tuple[int, ...]", row_major(t.get_shape()))
        if offset:
            t = MemRefType(t.element_type, t.get_shape(), StridedLayoutAttr(strides, offset))
        op = memref.ReinterpretCastOp(buffer, [], [], [], [offset], t.get_shape(), strides, t)
        return self.value(op, origin, like)

    def add(self, op: Operation, origin: Operation) -> None:
        """Appends `op` with the location of what it comes from."""
        op.location = origin.location
        self.block.add_op(op)

    def value(self, op: Operation, origin: Operation, like: SSAValue) -> SSAValue:
        """Appends `op` and returns its result, which is called like another value."""
        self.add(op, origin)
        self.sizes[op.results[0]] = shape_of(like)
        op.results[0].name_hint = like.name_hint
        return op.results[0]


def _replace_body(main: func.FuncOp, block: Block, sizes: Sequence[Sequence[Size]]) -> None:
    """Makes `block` the entry's body; names of results become names of output arguments."""
    count = len(main.function_type.outputs.data)
    inputs = _attributes(main.arg_attrs, len(main.args))
    outputs = [DictionaryAttr({**d.data, host.OUTPUT: UnitAttr()}) for d in _attributes(main.res_attrs, count)]
    main.detach_region(main.body).erase()
    main.add_region(Region(block))
    said = zip((*inputs, *outputs), map(say_sizes, sizes), strict=True)
    main.properties["arg_attrs"] = ArrayAttr([DictionaryAttr(dict(named.data) | dict(own.data)) for named, own in said])
    main.properties.pop("res_attrs", None)
    main.update_function_type()


def _attributes(attributes: ArrayAttr[DictionaryAttr] | None, count: int) -> Sequence[DictionaryAttr]:
    return attributes.data if attributes is not None else [DictionaryAttr({})] * count
