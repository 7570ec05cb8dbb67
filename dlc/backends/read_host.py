"""From the host program in the IR to the plain data that runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from dlc.arrays import TensorInfo
from dlc.dialects import host
from dlc.dialects.dl.base import flag
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.programs.program import DONOR
from dlc.dialects.dl.programs.ranges import equal_of, ranges_of
from dlc.dialects.entry import buffer_bytes, entry_of, inputs_of, outputs_of, sizes_of
from dlc.dims import Range, Size, is_static
from dlc.errors import CompileError
from dlc.ir import Attribute, Block, DictionaryAttr, IntegerAttr, MemRefType, ModuleOp, SSAValue, StringAttr, func, memref
from dlc.runtime.program.host_program import (
    ARENA,
    FIRST_INPUT,
    Branch,
    Carried,
    Compute,
    Decide,
    Element,
    Fail,
    HostArray,
    HostProgram,
    Instruction,
    Launch,
    Loop,
    OpenLaunch,
    Place,
    Print,
    While,
)
from dlc.runtime.program.open_program import OpenProgram


def read_host(module: ModuleOp) -> HostProgram:
    """The instructions of the entry, after `plan-arena`.

    Raises CompileError when something other than the planned ops is left there.
    """
    return _Reader(entry_of(module), is_open=False).read()


def read_open(module: ModuleOp) -> OpenProgram:
    """As `read_host`, for an entry whose sizes come with a call."""
    return _Reader(entry_of(module), is_open=True).read_open(ranges_of(module), equal_of(module))


def is_open(module: ModuleOp) -> bool:
    """Whether sizes of the entry come with a call."""
    main = entry_of(module)
    if any(host.decided_by(op) for op in main.walk()):
        return True
    return not all(is_static(sizes_of(v)) for v in (*main.args, *(r for op in main.body.block.ops for r in op.results)))


class _Reader:
    def __init__(self, main: func.FuncOp, is_open: bool) -> None:
        self.main, self.is_open = main, is_open
        self.inputs = inputs_of(main)
        self.outputs = outputs_of(main)
        ops = list(main.walk())
        weights = {op.symbol.string_value(): op.result for op in ops if isinstance(op, host.WeightOp)}
        self.weights = tuple(_info(name, value) for name, value in weights.items())
        self.regions: dict[int, list[Size]] = {}
        for op in ops:
            if isinstance(op, host.BufferOp):
                self.regions.setdefault(op.region.value.data, []).append(buffer_bytes(op.result))
        self.arena_bytes = max((_end(op) for op in ops if isinstance(op, host.ArenaOp)), default=0)
        # Where each buffer is; views are added as they come.
        self.places: dict[SSAValue, Place] = {a: (FIRST_INPUT + i, 0) for i, a in enumerate(main.args)}
        self.numbers = {name: FIRST_INPUT + len(main.args) + i for i, name in enumerate(weights)}
        self.first_region = FIRST_INPUT + len(main.args) + len(weights)
        self.slots = self.first_region + len(self.regions)

    def read(self) -> HostProgram:
        instructions = self.block(self.main.body.block)
        return HostProgram(*self.infos(), self.arena_bytes, self.slots, instructions, self.donors())

    def donors(self) -> dict[int, int]:
        """Which outputs are written over which inputs."""
        named = [d.data.get(DONOR) for d in self.main.arg_attrs.data[len(self.inputs) :]] if self.main.arg_attrs else []
        return {k: donor.value.data for k, donor in enumerate(named) if isinstance(donor, IntegerAttr)}

    def read_open(self, ranges: Mapping[str, Range], equal: Mapping[str, str]) -> OpenProgram:
        regions = tuple(tuple(self.regions[k]) for k in range(len(self.regions)))
        before, instructions = self.slots, self.block(self.main.body.block)
        return OpenProgram(*self.infos(), ranges, regions, instructions, self.slots - before, equal)

    def infos(self) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
        """Inputs, outputs and weights."""
        names = self.names()
        inputs = tuple(_info(name, v) for name, v in zip(names, self.inputs, strict=False))
        return inputs, tuple(_info(name, v) for name, v in zip(names[len(inputs) :], self.outputs, strict=True)), self.weights

    def block(self, block: Block) -> tuple[Instruction, ...]:
        instructions: list[Instruction] = []
        for op in block.ops:
            match op:
                case host.WeightOp():
                    self.places[op.result] = self.numbers[op.symbol.string_value()], 0
                case host.ArenaOp():
                    self.places[op.result] = ARENA, op.offset.value.data
                case host.BufferOp():
                    self.places[op.result] = self.first_region + op.region.value.data, 0
                case host.ViewOp():
                    self.places[op.result] = self.part(op.source, op.offset.value.data)
                case memref.ReinterpretCastOp():
                    self.places[op.result] = self.view(op)
                case host.LaunchOp():
                    instructions.append(self.launch(op.symbol, op.arguments, op.numbers))
                case memref.CopyOp():
                    bytes_ = buffer_bytes(op.destination)
                    instructions.append(self.launch(None, (op.destination, op.source), (bytes_,)))
                case host.LoopOp():
                    instructions.append(self.loop(op))
                case host.WhileOp():
                    instructions.append(self.conditional(op))
                case host.IfOp():
                    then, otherwise = map(self.block, op.blocks)
                    instructions.append(Branch(self.places[op.condition], then, otherwise))
                case host.FailOp():
                    instructions.append(Fail(op.message.data, tuple(self.places[v] for v in op.numbers)))
                case host.DecideOp():
                    instructions.append(Decide(op.symbol, self.places[op.count]))
                case host.PrintOp():
                    instructions.append(Print(tuple(op.texts), self.arrays(op.buffers)))
                case host.ComputeOp():
                    arrays, decided = (self.arrays(op.arguments), self.arrays(op.made)), host.decided_by(op)
                    settings, where = json.loads(op.settings.data), str(op.location)
                    instructions.append(Compute(op.function.data, settings, where, *arrays, decided))
                case func.ReturnOp() | host.YieldOp():
                    pass
                case _:
                    raise CompileError(f"{op.name} is in the host program after planning; run bufferize-host and plan-arena")
        return tuple(instructions)

    def arrays(self, buffers: Sequence[SSAValue]) -> tuple[HostArray, ...]:
        infos = [_info("", v) for v in buffers]
        return tuple(HostArray(self.places[v], info.shape, info.dtype) for v, info in zip(buffers, infos, strict=True))

    def loop(self, op: host.LoopOp) -> Loop:
        count, carried = op.turns, op.carried.value.data
        body = op.blocks[0]
        firsts = self.carry(body, op.arguments[:carried], op.results)
        elements: list[Element] = []
        for argument, sequence in zip(body.args[carried:], op.arguments[carried:], strict=True):
            self.places[argument] = self.new_slot(), 0
            (slot, offset), step = self.places[sequence], buffer_bytes(argument)
            last = offset + step * (count - 1) if count != 0 else offset
            first, step = ((slot, last), -step) if flag(op.reverse) else ((slot, offset), step)
            elements.append(Element(self.places[argument][0], first, step))
        instructions = self.block(body)
        return Loop(count, self.carried(firsts, op.yielded), tuple(elements), instructions)

    def conditional(self, op: host.WhileOp) -> While:
        firsts = self.carry(op.blocks[0], op.arguments, op.results)
        instructions = self.block(op.blocks[0])
        again, *following = op.yielded
        return While(self.places[op.condition], self.places[again], self.carried(firsts, following), instructions)

    def carry(self, body: Block, firsts: Sequence[SSAValue], results: Sequence[SSAValue]) -> list[tuple[int, Place]]:
        """A slot for each carried buffer, by which the body and who reads the loop's results know it; and its first place."""
        carried: list[tuple[int, Place]] = []
        for argument, first, result in zip(body.args, firsts, results, strict=False):
            carried.append((self.new_slot(), self.places[first]))
            self.places[argument] = self.places[result] = carried[-1][0], 0
        return carried

    def carried(self, firsts: Sequence[tuple[int, Place]], following: Sequence[SSAValue]) -> tuple[Carried, ...]:
        return tuple(Carried(slot, first, self.places[f]) for (slot, first), f in zip(firsts, following, strict=True))

    def new_slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def view(self, op: memref.ReinterpretCastOp) -> Place:
        elements = int(cast(Any, op.static_offsets).get_values()[0])
        if op.offsets or elements < 0:
            raise CompileError("memref.reinterpret_cast in the host program: its offset must be static")
        return self.part(op.source, elements)

    def part(self, source: SSAValue, elements: int) -> Place:
        """Where what begins at an element of a buffer is."""
        slot, offset = self.places[source]
        return slot, offset + elements * numpy_dtype(_type(source).element_type).itemsize

    def launch(self, kernel: str | None, arguments: Iterable[SSAValue], numbers: tuple[Size, ...]) -> Launch | OpenLaunch:
        values = tuple(arguments)
        places = tuple(self.places[v] for v in values)
        if self.is_open:
            return OpenLaunch(kernel, places, numbers)
        return Launch(kernel, places, tuple(int(buffer_bytes(v)) for v in values), tuple(map(int, numbers)))

    def names(self) -> list[str]:
        """The names of the arguments; one without a name has its number."""
        attributes = self.main.arg_attrs.data if self.main.arg_attrs is not None else [DictionaryAttr({})] * len(self.main.args)
        names = [d.data.get("dl.name") for d in attributes]
        return [name.data if isinstance(name, StringAttr) else str(i) for i, name in enumerate(names)]


def _type(value: SSAValue) -> MemRefType[Attribute]:
    return cast("MemRefType[Attribute]", value.type)


def _info(name: str, value: SSAValue) -> TensorInfo:
    t = _type(value)
    return TensorInfo(name, sizes_of(value), numpy_dtype(t.element_type))


def _end(op: host.ArenaOp) -> int:
    return op.offset.value.data + int(buffer_bytes(op.result))
