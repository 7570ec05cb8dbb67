"""Link the segments of a program with data-dependent sizes into one module after they were lowered to kernels.

    segment 0: %c = dl.dispatch @count(%m)       %c = dl.dispatch @count(%m)
    dl.bind_size %c {size = "k"}            →    dl.bind_size %c {size = "k"}
    segment 1: %p = dl.dispatch @indices(%m)     %p = dl.dispatch @indices sizes <"k">(%m)

Segments are lowered separately, so that no pass moves ops across a data-dependent size and no kernel spans two segments.
The host program is planned for the linked module: one arena, one table, each kernel once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeAlias

from dlc.compiler.segments import HostControlFlow, Segment, Segments
from dlc.dialects.dl.programs.control import FailOp
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp, YieldOp
from dlc.dialects.entry import entry_of
from dlc.ir import Block, ModuleOp, Operation, SSAValue, StringAttr, SymbolRefAttr, erase_op, func
from dlc.options import Options
from dlc.passes.fusion.dedupe_kernels import strip_numeric_suffix

# Lowers a segment, with its options, to a module of kernels and dispatches.
Lower: TypeAlias = "Callable[[Segment, Options], ModuleOp]"


def link_segments(segments: Segments, options: Options, lower: Lower) -> ModuleOp:
    """Return the module of a segmented program, with all its kernels and their dispatches."""
    return _SegmentLinker(lower).module(segments, options)


class _SegmentLinker:
    def __init__(self, lower: Lower) -> None:
        self.lower = lower
        self.kernels: list[KernelOp] = []
        self.suffixes = count()
        # Maps the values of the segmented program to those of the linked one.
        self.values: dict[SSAValue, SSAValue] = {}

    def module(self, segments: Segments, options: Options) -> ModuleOp:
        main = entry_of(segments.program.module)
        block = Block(arg_types=[a.type for a in main.args])
        self.values |= zip(main.args, block.args, strict=True)
        for old, new in zip(main.args, block.args, strict=True):
            new.name_hint = old.name_hint
        self.steps(segments, options, block)
        block.add_op(func.ReturnOp(*self.returned(segments)))
        linked_entry = main.clone_without_regions()
        linked_entry.body.add_block(block)
        return ModuleOp([linked_entry, *self.kernels])

    def steps(self, segments: Segments, options: Options, block: Block) -> None:
        """Append the steps of a program to a block."""
        options_by_step = dict(segments.segment_options(options))
        for step in segments.steps:
            match step:
                case Segment():
                    self.segment(step, options_by_step[step], block)
                case HostControlFlow():
                    block.add_op(self.control(step, options_by_step[step]))
                case _:
                    op = step.op.clone(self.values)
                    self.values |= zip(step.op.results, op.results, strict=True)
                    block.add_op(op)

    def returned(self, segments: Segments) -> Sequence[SSAValue]:
        last = entry_of(segments.program.module).body.block.last_op
        assert last is not None
        return [self.values[v] for v in last.operands]

    def segment(self, segment: Segment, options: Options, block: Block) -> None:
        """Append a lowered segment to a block and add its kernels under unique names."""
        module = self.lower(segment, options)
        main, names = entry_of(module), dict[str, str]()
        for op in list(module.ops):
            if isinstance(op, KernelOp):
                op.detach()
                names[op.symbol] = f"{strip_numeric_suffix(op.symbol)}_{next(self.suffixes)}"
                op.sym_name = StringAttr(names[op.symbol])
                self.kernels.append(op)
        for argument, value in zip(main.args, segment.inputs, strict=True):
            argument.replace_all_uses_with(self.values[value])
        for op in list(main.body.block.ops):
            if isinstance(op, func.ReturnOp):
                self.values |= zip(segment.outputs, op.operands, strict=True)
                erase_op(op)
                continue
            for inner in op.walk():
                if isinstance(inner, DispatchOp):
                    inner.callee = SymbolRefAttr(names[inner.symbol])
            op.detach()
            block.add_op(op)

    def control(self, step: HostControlFlow, options: Options) -> Operation:
        """Return a loop or branch with linked bodies."""
        op = step.op.clone_without_regions(self.values)
        for body, region in zip(step.op.blocks, op.regions, strict=True):
            if isinstance(body.last_op, FailOp):
                block = Block()
                for inner in body.ops:
                    block.add_op(inner.clone(self.values))
            else:
                block = self.body(body, *step.bodies[body], options)
            region.add_block(block)
        self.values |= zip(step.op.results, op.results, strict=True)
        return op

    def body(self, body: Block, segments: Segments, inputs: Sequence[SSAValue], options: Options) -> Block:
        block = Block(arg_types=[a.type for a in body.args])
        operands = (*block.args, *(self.values[v] for v in inputs))
        self.values |= zip(entry_of(segments.program.module).args, operands, strict=True)
        self.steps(segments, options, block)
        block.add_op(YieldOp(self.returned(segments)))
        return block
