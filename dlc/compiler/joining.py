"""Programs that decide sizes of their own: lowered in parts, and put together again as one host program.

    part 0: %c = dl.dispatch @count(%m)          %c = dl.dispatch @count(%m)
    dl.decide %c {size = "k"}               →    dl.decide %c {size = "k"}
    part 1: %p = dl.dispatch @places(%m)         %p = dl.dispatch @places sizes <"k">(%m)

What is before a decision and what is behind it share no kernel, whatever passes would move: each part goes through them by
itself. From the host program on nothing is cut: one arena, one table, each kernel once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeAlias

from dlc.compiler.segments import Hosted, Part, Segments
from dlc.dialects.dl.programs.control import FailOp
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp, YieldOp
from dlc.dialects.entry import entry_of
from dlc.ir import Block, ModuleOp, Operation, SSAValue, StringAttr, SymbolRefAttr, func
from dlc.options import Options
from dlc.passes.fusion.dedupe_kernels import stem_of

# Takes a part to dispatches of kernels, in a module of its own, by its options.
Lower: TypeAlias = "Callable[[Part, Options], ModuleOp]"


def joined(segments: Segments, options: Options, lower: Lower) -> ModuleOp:
    """The module of a program that was cut, with kernels of its own and dispatches of them."""
    return _Joiner(lower).module(segments, options)


class _Joiner:
    def __init__(self, lower: Lower) -> None:
        self.lower = lower
        self.kernels: list[KernelOp] = []
        self.numbers = count()
        # By the values of the program that was cut, those of the one that is put together.
        self.values: dict[SSAValue, SSAValue] = {}

    def module(self, segments: Segments, options: Options) -> ModuleOp:
        main = entry_of(segments.program.module)
        block = Block(arg_types=[a.type for a in main.args])
        self.values |= zip(main.args, block.args, strict=True)
        for old, new in zip(main.args, block.args, strict=True):
            new.name_hint = old.name_hint
        self.steps(segments, options, block)
        block.add_op(func.ReturnOp(*self.returned(segments)))
        whole = main.clone_without_regions()
        whole.body.add_block(block)
        return ModuleOp([whole, *self.kernels])

    def steps(self, segments: Segments, options: Options, block: Block) -> None:
        """Appends the steps of a program to a block."""
        own = dict(segments.options_of_parts(options))
        for step in segments.steps:
            match step:
                case Part():
                    self.part(step, own[step], block)
                case Hosted():
                    block.add_op(self.control(step, own[step]))
                case _:
                    op = step.op.clone(self.values)
                    self.values |= zip(step.op.results, op.results, strict=True)
                    block.add_op(op)

    def returned(self, segments: Segments) -> Sequence[SSAValue]:
        last = entry_of(segments.program.module).body.block.last_op
        assert last is not None
        return [self.values[v] for v in last.operands]

    def part(self, part: Part, options: Options, block: Block) -> None:
        """Appends what a part became, and takes its kernels, under names that no other part's have."""
        module = self.lower(part, options)
        main, names = entry_of(module), dict[str, str]()
        for op in list(module.ops):
            if isinstance(op, KernelOp):
                op.detach()
                names[op.symbol] = f"{stem_of(op.symbol)}_{next(self.numbers)}"
                op.sym_name = StringAttr(names[op.symbol])
                self.kernels.append(op)
        for argument, value in zip(main.args, part.inputs, strict=True):
            argument.replace_all_uses_with(self.values[value])
        for op in list(main.body.block.ops):
            if isinstance(op, func.ReturnOp):
                self.values |= zip(part.outputs, op.operands, strict=True)
                continue
            for inner in op.walk():
                if isinstance(inner, DispatchOp):
                    inner.callee = SymbolRefAttr(names[inner.symbol])
            op.detach()
            block.add_op(op)

    def control(self, step: Hosted, options: Options) -> Operation:
        """A loop or branch whose bodies are put together."""
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
        given = (*block.args, *(self.values[v] for v in inputs))
        self.values |= zip(entry_of(segments.program.module).args, given, strict=True)
        self.steps(segments, options, block)
        block.add_op(YieldOp(self.returned(segments)))
        return block
