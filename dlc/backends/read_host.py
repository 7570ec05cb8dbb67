"""Convert the host program from IR to instructions (runtime/program/host_program.py)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from dlc.arrays import TensorInfo
from dlc.dialects import host
from dlc.dialects.dl.base import flag, number
from dlc.dialects.dl.distributed.sharding import MESH, RANK, SHARDING, format_spec, spec_of
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.programs.program import DONOR
from dlc.dialects.dl.programs.size_ranges import guards_of, size_ranges
from dlc.dialects.entry import buffer_bytes, entry_of, inputs_of, outputs_of, sizes_of
from dlc.dialects.location_text import location_text
from dlc.errors import CompileError
from dlc.ir import (
    ArrayAttr,
    Attribute,
    Block,
    DictionaryAttr,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    Operation,
    SSAValue,
    StringAttr,
    func,
    memref,
)
from dlc.runtime.collectives.mesh import Mesh, RankPlacement
from dlc.runtime.program.host_program import (
    ARENA_SLOT,
    FIRST_INPUT_SLOT,
    Branch,
    BufferRef,
    CarriedSlot,
    Fail,
    HostArray,
    HostProgram,
    Instruction,
    Launch,
    Loop,
    LoopSlot,
    Parallel,
    PrintArrays,
    PythonCall,
    SetSize,
    While,
)
from dlc.shapes.dims import Size
from dlc.shapes.ranges import SizeRange


def read_host(module: ModuleOp) -> HostProgram:
    """Return the program of the entry after `plan-arena`.

    Raises CompileError for ops that `plan-arena` should have replaced.
    """
    return _HostReader(entry_of(module)).read(size_ranges(module))


class _HostReader:
    """Convert the ops of one entry function to instructions."""

    def __init__(self, main: func.FuncOp) -> None:
        self.main = main
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
        # The reference of each buffer; views are added when they are converted.
        self.refs: dict[SSAValue, BufferRef] = {a: (FIRST_INPUT_SLOT + i, 0) for i, a in enumerate(main.args)}
        self.weight_slots = {name: FIRST_INPUT_SLOT + len(main.args) + i for i, name in enumerate(weights)}
        self.first_region = FIRST_INPUT_SLOT + len(main.args) + len(weights)
        self.slots = self.first_region + len(self.regions)

    def read(self, ranges: Mapping[str, SizeRange]) -> HostProgram:
        names, first_loop_slot = self.names(), self.slots
        return HostProgram(
            tuple(_info(name, v) for name, v in zip(names, self.inputs, strict=False)),
            tuple(_info(name, v) for name, v in zip(names[len(self.inputs) :], self.outputs, strict=True)),
            self.weights,
            self.block(self.main.body.block),
            self.arena_bytes,
            tuple(tuple(self.regions[k]) for k in range(len(self.regions))),
            self.slots - first_loop_slot,
            ranges,
            guards_of(self.main),
            self.donors(),
            self.placement(),
        )

    def donors(self) -> dict[int, int]:
        """Return the index of the input that each donated output overwrites."""
        donor_names = [d.data.get(DONOR) for d in self.main.arg_attrs.data[len(self.inputs) :]] if self.main.arg_attrs else []
        return {k: donor.value.data for k, donor in enumerate(donor_names) if isinstance(donor, IntegerAttr)}

    def placement(self) -> RankPlacement | None:
        """Return the mesh of a program that ranks run."""
        mesh, rank = (self.main.attributes.get(name) for name in (MESH, RANK))
        if not isinstance(mesh, StringAttr):
            return None
        named = self.main.arg_attrs.data if self.main.arg_attrs else ()
        specs = [cast("ArrayAttr[StringAttr]", d.data.get(SHARDING, ArrayAttr(()))) for d in named]
        shardings = tuple(format_spec(spec_of(spec)) if spec.data else "" for spec in specs)
        return RankPlacement(Mesh.of_text(mesh.data), None if rank is None else int(number(rank)), shardings)

    def block(self, block: Block) -> tuple[Instruction, ...]:
        instructions: list[Instruction] = []
        for op in block.ops:
            match op:
                case host.WeightOp():
                    self.refs[op.result] = self.weight_slots[op.symbol.string_value()], 0
                case host.ArenaOp():
                    self.refs[op.result] = ARENA_SLOT, op.offset.value.data
                case host.BufferOp():
                    self.refs[op.result] = self.first_region + op.region.value.data, 0
                case host.ViewOp():
                    self.refs[op.result] = self.subbuffer(op.source, op.offset.value.data)
                case memref.ReinterpretCastOp():
                    self.refs[op.result] = self.view(op)
                case host.LaunchOp() | memref.CopyOp():
                    instructions.append(self.single_launch(op))
                case host.LoopOp():
                    instructions.append(self.loop(op))
                case host.WhileOp():
                    instructions.append(self.conditional(op))
                case host.IfOp():
                    then, otherwise = map(self.block, op.blocks)
                    instructions.append(Branch(self.refs[op.condition], then, otherwise))
                case host.ParallelOp():
                    sections = tuple(tuple(self.single_launch(o) for o in section) for section in op.sections)
                    instructions.append(Parallel(sections, op.max_threads.value.data))
                case host.FailOp():
                    instructions.append(Fail(op.message.data, tuple(self.refs[v] for v in op.message_values)))
                case host.BindSizeOp():
                    instructions.append(SetSize(op.symbol, self.refs[op.count]))
                case host.PrintOp():
                    instructions.append(PrintArrays(tuple(op.texts), self.arrays(op.buffers)))
                case host.ComputeOp():
                    arrays, data_dependent_sizes = (
                        (self.arrays(op.arguments), self.arrays(op.result_buffers)),
                        host.sizes_bound_by(op),
                    )
                    settings, where = json.loads(op.settings.data), location_text(op.location)
                    instructions.append(PythonCall(op.function.data, settings, where, *arrays, data_dependent_sizes))
                case func.ReturnOp() | host.YieldOp():
                    pass
                case _:
                    raise CompileError(f"{op.name} remains in the host program; run bufferize-host and plan-arena first")
        return tuple(instructions)

    def arrays(self, buffers: Sequence[SSAValue]) -> tuple[HostArray, ...]:
        infos = [_info("", v) for v in buffers]
        return tuple(HostArray(self.refs[v], info.shape, info.dtype) for v, info in zip(buffers, infos, strict=True))

    def loop(self, op: host.LoopOp) -> Loop:
        count, carried = op.trip_count, op.carried.value.data
        body = op.blocks[0]
        firsts = self.carry(body, op.arguments[:carried], op.results)
        elements: list[LoopSlot] = []
        for argument, sequence in zip(body.args[carried:], op.arguments[carried:], strict=True):
            self.refs[argument] = self.new_slot(), 0
            (slot, offset), step = self.refs[sequence], buffer_bytes(argument)
            last = offset + step * (count - 1) if count != 0 else offset
            first, step = ((slot, last), -step) if flag(op.reverse) else ((slot, offset), step)
            elements.append(LoopSlot(self.refs[argument][0], first, step))
        instructions = self.block(body)
        return Loop(count, self.carried(firsts, op.yielded), tuple(elements), instructions)

    def conditional(self, op: host.WhileOp) -> While:
        firsts = self.carry(op.blocks[0], op.arguments, op.results)
        instructions = self.block(op.blocks[0])
        next_condition, *next_values = op.yielded
        return While(self.refs[op.condition], self.refs[next_condition], self.carried(firsts, next_values), instructions)

    def carry(self, body: Block, firsts: Sequence[SSAValue], results: Sequence[SSAValue]) -> list[tuple[int, BufferRef]]:
        """Allocate a slot for each carried buffer and return (slot, initial buffer).

        The body argument and the result of the loop share the slot.
        """
        carried: list[tuple[int, BufferRef]] = []
        for argument, first, result in zip(body.args, firsts, results, strict=False):
            carried.append((self.new_slot(), self.refs[first]))
            self.refs[argument] = self.refs[result] = carried[-1][0], 0
        return carried

    def carried(self, firsts: Sequence[tuple[int, BufferRef]], following: Sequence[SSAValue]) -> tuple[CarriedSlot, ...]:
        return tuple(CarriedSlot(slot, first, self.refs[f]) for (slot, first), f in zip(firsts, following, strict=True))

    def new_slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def view(self, op: memref.ReinterpretCastOp) -> BufferRef:
        offset = int(cast(Any, op.static_offsets).get_values()[0])
        if op.offsets or offset < 0:
            raise CompileError("memref.reinterpret_cast in the host program: its offset must be static")
        return self.subbuffer(op.source, offset)

    def subbuffer(self, source: SSAValue, first: int) -> BufferRef:
        """Return a reference to the elements of a buffer from index `first` on."""
        slot, offset = self.refs[source]
        return slot, offset + first * numpy_dtype(_type(source).element_type).itemsize

    def single_launch(self, op: Operation) -> Launch:
        if isinstance(op, host.LaunchOp):
            return self.launch(op.symbol, op.arguments, op.kernel_sizes)
        assert isinstance(op, memref.CopyOp)
        return self.launch(None, (op.destination, op.source), (buffer_bytes(op.destination),))

    def launch(self, kernel: str | None, arguments: Sequence[SSAValue], size_values: tuple[Size, ...]) -> Launch:
        refs, sizes = tuple(self.refs[v] for v in arguments), tuple(map(buffer_bytes, arguments))
        return Launch(kernel, refs, sizes, size_values)

    def names(self) -> list[str]:
        """Return the names of the arguments; an unnamed argument is called by its index."""
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
