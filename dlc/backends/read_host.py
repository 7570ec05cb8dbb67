"""From the host program in the IR to the plain data that runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from dlc.arrays import TensorInfo
from dlc.dialects import host
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.errors import CompileError
from dlc.ir import Attribute, DictionaryAttr, MemRefType, ModuleOp, SSAValue, StringAttr, func, memref
from dlc.runtime.host_program import ARENA, FIRST_INPUT, NOTHING, HostProgram, Launch


def read_host(module: ModuleOp) -> HostProgram:
    """The launches of the entry, after `plan-arena`.

    Raises CompileError when something other than the planned ops is left there.
    """
    return _Reader(host.entry_of(module)).read()


class _Reader:
    def __init__(self, main: func.FuncOp) -> None:
        self.main = main
        self.inputs = host.inputs_of(main)
        self.outputs = host.outputs_of(main)
        ops = list(main.body.block.ops)
        weights = {op.symbol.string_value(): op.result for op in ops if isinstance(op, host.WeightOp)}
        self.weights = tuple(_info(name, value) for name, value in weights.items())
        self.arena_bytes = max((_end(op) for op in ops if isinstance(op, host.ArenaOp)), default=0)
        # Each value's buffer and offset; views are added as they come.
        self.places: dict[SSAValue, tuple[int, int]] = {a: (FIRST_INPUT + i, 0) for i, a in enumerate(main.args)}
        self.numbers = {name: FIRST_INPUT + len(main.args) + i for i, name in enumerate(weights)}

    def read(self) -> HostProgram:
        launches: list[Launch] = []
        for op in self.main.body.block.ops:
            match op:
                case host.WeightOp():
                    self.places[op.result] = self.numbers[op.symbol.string_value()], 0
                case host.ArenaOp():
                    self.places[op.result] = ARENA, op.offset.value.data
                case memref.ReinterpretCastOp():
                    self.places[op.result] = self.view(op)
                case host.LaunchOp():
                    launches.append(self.launch(op.symbol, op.arguments))
                case memref.CopyOp():
                    copy = self.launch(None, (op.destination, op.source))
                    launches.append(Launch(None, (*copy.arguments, (NOTHING, copy.sizes[0])), (*copy.sizes, 0)))
                case func.ReturnOp():
                    pass
                case _:
                    raise CompileError(f"{op.name} is in the host program after planning; run bufferize-host and plan-arena")
        return HostProgram(
            tuple(_info(name, v) for name, v in zip(self.names(), self.inputs, strict=False)),
            tuple(_info(name, v) for name, v in zip(self.names()[len(self.inputs) :], self.outputs, strict=True)),
            self.weights,
            self.arena_bytes,
            tuple(launches),
        )

    def view(self, op: memref.ReinterpretCastOp) -> tuple[int, int]:
        buffer, offset = self.places[op.source]
        elements = int(cast(Any, op.static_offsets).get_values()[0])
        if op.offsets or elements < 0:
            raise CompileError("memref.reinterpret_cast in the host program: its offset must be static")
        return buffer, offset + elements * numpy_dtype(_type(op.result).element_type).itemsize

    def launch(self, kernel: str | None, arguments: Iterable[SSAValue]) -> Launch:
        values = tuple(arguments)
        return Launch(kernel, tuple(self.places[v] for v in values), tuple(host.buffer_bytes(_type(v)) for v in values))

    def names(self) -> list[str]:
        """The names of the arguments; one without a name has its number."""
        attributes = self.main.arg_attrs.data if self.main.arg_attrs is not None else [DictionaryAttr({})] * len(self.main.args)
        names = [d.data.get("dl.name") for d in attributes]
        return [name.data if isinstance(name, StringAttr) else str(i) for i, name in enumerate(names)]


def _type(value: SSAValue) -> MemRefType[Attribute]:
    return cast("MemRefType[Attribute]", value.type)


def _info(name: str, value: SSAValue) -> TensorInfo:
    t = _type(value)
    return TensorInfo(name, t.get_shape(), numpy_dtype(t.element_type))


def _end(op: host.ArenaOp) -> int:
    return op.offset.value.data + host.buffer_bytes(_type(op.result))
