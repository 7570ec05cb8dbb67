"""`form-sections`: runs independent launches concurrently where they are too small to use all threads."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from dlc.dialects import host
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.programs.program import DONOR
from dlc.dialects.entry import buffer_bytes, entry_of
from dlc.ir import Block, BlockArgument, Context, IntegerAttr, MemRefType, ModuleOp, Operation, SSAValue, func, i64, memref
from dlc.options import Environment
from dlc.passes.base import TargetPass
from dlc.passes.host.choose_sections import Access, Group, LaunchCost, choose_groups
from dlc.passes.host.lifetimes import aliases
from dlc.shapes.dims import Size, is_static

# Launches on less memory run on one thread (task_count_word).
_MIN_PARALLEL_BYTES = 32 << 10
# The end of a buffer of unknown size.
_ALL_BYTES = 1 << 62
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
    a section run in order, on one thread. Only launches of one block (of the entry, a loop or a branch) with static sizes are
    grouped, and none in a program with donated inputs, whose buffers overlap. `choose_sections.py` decides by cost; `mode` is
    `auto`, `on` (whenever launches are independent) or `off`. DLC_LOG=inter_op logs the decisions.
    """

    name = "form-sections"
    mode: str = "auto"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        main = entry_of(op)
        if self.mode != "off" and not _has_donors(main):
            buffers = BufferClasses(main)
            inner = [region.block for o in main.walk() if isinstance(o, host.HostLoop | host.IfOp) for region in o.regions]
            for block in (main.body.block, *inner):
                for sequence in _sequences(block):
                    self._form(block, sequence, buffers)
        for launch in main.walk():
            launch.attributes.pop(host.FLOPS, None)

    def _form(self, block: Block, sequence: Sequence[Operation], buffers: BufferClasses) -> None:
        launches = [op for op in sequence if isinstance(op, host.LaunchOp | memref.CopyOp)]
        if not 2 <= len(launches) <= _MAX_SEQUENCE_LENGTH:
            return
        groups = choose_groups([_cost(op, buffers) for op in launches], self.target.costs.sections, always=self.mode == "on")
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


def _cost(op: Operation, buffers: BufferClasses) -> LaunchCost:
    flops, outputs = op.attributes.get(host.FLOPS), op.attributes.get(host.NUM_OUTPUTS)
    if isinstance(op, memref.CopyOp):
        first_output, operands = 1, [op.source, op.destination]
    else:
        operands = [*op.operands]
        # Without the number of outputs, every argument may be written.
        first_output = len(operands) - outputs.value.data if isinstance(outputs, IntegerAttr) else 0
    accesses = tuple(buffers.access(value, k >= first_output) for k, value in enumerate(operands))
    size = sum(int(buffer_bytes(value)) for value in operands)
    work = flops.value.data if isinstance(flops, IntegerAttr) else 0
    return LaunchCost(accesses, size, work, size >= _MIN_PARALLEL_BYTES)


class BufferClasses:
    """The buffers of a host program; those that a loop exchanges between iterations form a class, accessed as a whole."""

    def __init__(self, main: func.FuncOp) -> None:
        self._parents: dict[SSAValue, SSAValue] = {}
        for op in main.walk():
            if isinstance(op, host.HostLoop | host.YieldOp):
                for k, operand in enumerate(op.operands):
                    for alias in aliases(op, k):
                        self._join(_base(operand)[0], alias)

    def access(self, value: SSAValue, writes: bool) -> Access:
        """Return the access to all bytes of a buffer or view."""
        base, start = _base(value)
        is_written = writes and not isinstance(base.owner, host.WeightOp)
        if base in self._parents:
            return Access(self._representative(base), 0, _ALL_BYTES, is_written)
        # Arguments of the entry are distinct buffers.
        is_buffer = isinstance(base, BlockArgument) or isinstance(base.owner, memref.AllocOp | host.BufferOp | host.WeightOp)
        return Access(base if is_buffer else None, start, start + buffer_bytes(value), is_written)

    def _join(self, a: SSAValue, b: SSAValue) -> None:
        for value in (a, b):
            self._parents.setdefault(value, value)
        self._parents[self._representative(a)] = self._representative(b)

    def _representative(self, value: SSAValue) -> SSAValue:
        while self._parents[value] is not value:
            value = self._parents[value]
        return value


def _base(value: SSAValue) -> tuple[SSAValue, Size]:
    """Return the buffer of a view, and the view's offset in bytes."""
    start: Size = 0
    while True:
        match value.owner:
            case memref.ReinterpretCastOp() as op:
                offsets = cast(Any, op.static_offsets).get_values()
                start = start + int(offsets[0]) * _element_bytes(op.source)
                value = op.source
            case host.ViewOp() as op:
                start = start + op.offset.value.data * _element_bytes(op.source)
                value = op.source
            case _:
                return value, start


def _element_bytes(value: SSAValue) -> int:
    return numpy_dtype(cast("MemRefType[Any]", value.type).element_type).itemsize
