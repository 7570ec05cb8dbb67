"""`form-sections`: runs independent launches concurrently where they are too small to use all threads."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from dlc.dialects import host
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.programs.program import DONOR
from dlc.dialects.entry import buffer_bytes, entry_of, outputs_of
from dlc.ir import Block, BlockArgument, Context, IntegerAttr, MemRefType, ModuleOp, Operation, SSAValue, func, i64, memref
from dlc.options import Environment
from dlc.passes.base import TargetPass
from dlc.passes.host.choose_sections import Access, Group, LaunchCost, choose_groups
from dlc.shapes.dims import Size, is_static

# Launches on less memory run on one thread (task_count_word).
_MIN_PARALLEL_BYTES = 32 << 10
# The dependence analysis compares all pairs of launches of a sequence.
_MAX_SEQUENCE_LENGTH = 512


@dataclass(frozen=True)
class FormSectionsPass(TargetPass):
    """Groups independent launches into sections that run concurrently.

        host.launch @a(%x, %p)                    host.parallel {max_threads = 8, …} {
        host.launch @b(%x, %q)              →       host.launch @a(%x, %p) {section = 0}
        host.launch @c(%p, %q, %y)                  host.launch @b(%x, %q) {section = 1}
                                                  }
                                                  host.launch @c(%p, %q, %y)

    Requires `bufferize-host`, before `plan-arena`, which gives buffers of different sections different memory. The launches of
    a section run in order, on one thread. Only launches of the entry's block with static sizes are grouped, and none in a
    program with donated inputs, whose buffers overlap. `choose_sections.py` decides by cost; `mode` is `auto`, `on` (whenever
    launches are independent) or `off`. DLC_LOG=inter_op logs the decisions.
    """

    name = "form-sections"
    mode: str = "auto"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        main = entry_of(op)
        if self.mode != "off" and not _has_donors(main):
            block = main.body.block
            for sequence in _sequences(block):
                self._form(block, sequence, {*outputs_of(main)})
        for launch in main.walk():
            for name in (host.FLOPS, host.NUM_OUTPUTS):
                launch.attributes.pop(name, None)

    def _form(self, block: Block, sequence: Sequence[Operation], outputs: set[SSAValue]) -> None:
        launches = [op for op in sequence if isinstance(op, host.LaunchOp | memref.CopyOp)]
        if not 2 <= len(launches) <= _MAX_SEQUENCE_LENGTH:
            return
        groups = choose_groups([_cost(op) for op in launches], self.target.costs.sections, always=self.mode == "on")
        for group in groups:
            if group.reason and "inter_op" in Environment.read().log:
                print(f"dlc: inter_op: {'sections' if group.max_threads else 'sequence'}: {group.reason}", file=sys.stderr)
        if not any(group.max_threads for group in groups):
            return
        # Buffers first: groups change the order of launches.
        following = sequence[-1].next_op
        assert following is not None
        for op in sequence:
            op.detach()
        for op in sequence:
            if op not in launches:
                block.insert_op_before(op, following)
        for group in groups:
            ops = [launches[k] for k in group.launches]
            for op in [_parallel(group, launches)] if group.max_threads else ops:
                block.insert_op_before(op, following)


def _parallel(group: Group, launches: Sequence[Operation]) -> host.ParallelOp:
    body = Block()
    for number, section in enumerate(group.sections):
        for k in section:
            launches[k].attributes[host.SECTION] = IntegerAttr(number, i64)
            body.add_op(launches[k])
    body.add_op(host.YieldOp([]))
    op = host.ParallelOp(body, group.max_threads, group.reason)
    op.location = launches[group.sections[0][0]].location
    return op


def _has_donors(main: func.FuncOp) -> bool:
    return main.arg_attrs is not None and any(DONOR in attributes.data for attributes in main.arg_attrs.data)


def _sequences(block: Block) -> list[list[Operation]]:
    """Return the maximal sequences of launches with static sizes, and of the buffers and views between them."""
    sequences: list[list[Operation]] = [[]]
    for op in block.ops:
        if isinstance(op, _BUFFER_OPS) or (isinstance(op, host.LaunchOp | memref.CopyOp) and _is_static(op)):
            sequences[-1].append(op)
        else:
            sequences.append([])
    return sequences


_BUFFER_OPS = memref.AllocOp | host.BufferOp | host.WeightOp | host.ViewOp | memref.ReinterpretCastOp


def _is_static(op: Operation) -> bool:
    sizes = op.kernel_sizes if isinstance(op, host.LaunchOp) else ()
    return is_static((*sizes, *map(buffer_bytes, op.operands)))


def _cost(op: Operation) -> LaunchCost:
    flops, outputs = op.attributes.get(host.FLOPS), op.attributes.get(host.NUM_OUTPUTS)
    if isinstance(op, memref.CopyOp):
        first_output, operands = 1, [op.source, op.destination]
    else:
        operands = [*op.operands]
        # Without the number of outputs, every argument may be written.
        first_output = len(operands) - outputs.value.data if isinstance(outputs, IntegerAttr) else 0
    accesses = tuple(access_of(value, k >= first_output) for k, value in enumerate(operands))
    size = sum(int(buffer_bytes(value)) for value in operands)
    work = flops.value.data if isinstance(flops, IntegerAttr) else 0
    return LaunchCost(accesses, size, work, size >= _MIN_PARALLEL_BYTES)


def access_of(value: SSAValue, writes: bool) -> Access:
    """Return the access to all bytes of a buffer or view."""
    start: Size = 0
    size = buffer_bytes(value)
    while True:
        owner = value.owner
        match owner:
            case memref.ReinterpretCastOp():
                offsets = cast(Any, owner.static_offsets).get_values()
                start = start + int(offsets[0]) * _element_bytes(owner.source)
                value = owner.source
            case host.ViewOp():
                start = start + owner.offset.value.data * _element_bytes(owner.source)
                value = owner.source
            case host.WeightOp():
                return Access(value, start, start + size, False)
            case memref.AllocOp() | host.BufferOp():
                return Access(value, start, start + size, writes)
            case _:
                # Arguments of the entry are distinct buffers; results of loops may be any buffer.
                is_argument = isinstance(value, BlockArgument)
                return Access(value if is_argument else None, start, start + size, writes)


def _element_bytes(value: SSAValue) -> int:
    return numpy_dtype(cast("MemRefType[Any]", value.type).element_type).itemsize
