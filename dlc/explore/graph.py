"""The graph of a program after fusion: each run of a kernel as a box of the ops in it, by what they come from."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from dlc.dialects.dl.base import DlOp, shape_of
from dlc.dialects.dl.creation import ConstantOp, WeightOp
from dlc.dialects.dl.data_dependent.selection import DecideOp
from dlc.dialects.dl.interfaces import Contraction, DataDependent
from dlc.dialects.dl.programs.control import Control, FailOp, ScanOp
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp, YieldOp
from dlc.dialects.entry import entry_of
from dlc.dims import Dim, product
from dlc.explore.data import Box, Edge, Graph, Part
from dlc.explore.layout import arranged
from dlc.explore.types import type_text
from dlc.instrument.provenance import origins
from dlc.ir import Block, ModuleOp, Operation, SSAValue, func

# What a kernel's body has besides what it computes.
_SILENT = ("dl.constant", "dl.unpack", "dl.yield", "dl.weight")
# Why kernels ended before an op: by their name without a number, and the origins of their dispatch, in the program's order.
Ends = Mapping[tuple[str, tuple[str, ...]], Sequence[tuple[str, str]]]


def graph_of(module: ModuleOp, inputs: Sequence[str], outputs: Sequence[str], ends: Ends) -> Graph:
    """The graph of a module at the end of the stage `fusion`."""
    return _Drawing(module, ends).of(inputs, outputs)


class _Drawing:
    def __init__(self, module: ModuleOp, ends: Ends) -> None:
        self.main = entry_of(module)
        self.kernels = {op.symbol: list(_computed(op)) for op in module.ops if isinstance(op, KernelOp)}
        self.ends = {key: deque(told) for key, told in ends.items()}
        self.boxes: list[Box] = []
        self.edges: dict[tuple[int, int], Edge] = {}
        self.made_by: dict[SSAValue, int] = {}
        self.constant: dict[SSAValue, tuple[str, ...]] = {}
        # Where data decides a size, by its name.
        self.decided: dict[str, int] = {}
        self.launches = 0

    def of(self, inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
        for name, argument in zip(inputs, self.main.args, strict=True):
            self.made_by[argument] = self.add(Box("input", name, results=(type_text(argument.type),)))
        self.block(self.main.body.block, None)
        last = self.main.body.block.last_op
        assert isinstance(last, func.ReturnOp)
        for name, value in zip(outputs, last.operands, strict=True):
            self.connect([value], self.add(Box("output", name, results=(type_text(value.type),))))
        return arranged(self.boxes, list(self.edges.values()))

    def add(self, box: Box) -> int:
        self.boxes.append(box)
        return len(self.boxes) - 1

    def block(self, block: Block, parent: int | None) -> None:
        for op in block.ops:
            if isinstance(op, WeightOp):
                self.constant[op.result] = (op.symbol.string_value(),)
            elif isinstance(op, ConstantOp):
                self.constant[op.result] = ()
            elif isinstance(op, DispatchOp):
                self.placed(op, self.run(op, parent))
            elif isinstance(op, Control):
                box = self.placed(op, self.add(Box("loop", _loop_name(op), parent)))
                for region in op.regions:
                    for argument in region.block.args:
                        self.made_by[argument] = box
                    self.block(region.block, box)
            elif isinstance(op, DecideOp):
                part = Part(("decide",), origins(op.location), 0)
                self.decided[op.symbol] = self.placed(op, self.add(Box("decide", op.symbol, parent, parts=(part,))))
            elif isinstance(op, DataDependent):
                part = Part((op.selection,), origins(op.location), 0)
                box = self.placed(op, self.add(Box("host", op.selection, parent, parts=(part,), results=_results(op))))
                self.decided |= {str(size): box for size in op.decided}
            elif isinstance(op, DlOp) and op.operands and all(v in self.constant for v in op.operands):
                names = tuple(dict.fromkeys(name for v in op.operands for name in self.constant[v]))
                self.constant.update(dict.fromkeys(op.results, names))
            elif self.passes_unseen(op):
                self.made_by[op.results[0]] = self.made_by[op.operands[0]]
            elif not isinstance(op, YieldOp | FailOp | func.ReturnOp):
                part = Part((op.name.partition(".")[2],), origins(op.location), 0)
                box = Box("view", op.name.partition(".")[2], parent, parts=(part,), results=_results(op))
                self.placed(op, self.add(box))

    def passes_unseen(self, op: Operation) -> bool:
        """Whether an op is a view that the compiler made: of a node that its neighbour has ops of, too."""
        if len(op.operands) != 1 or len(op.results) != 1 or op.operands[0] not in self.made_by:
            return False
        names = set(origins(op.location))
        readers = {name for use in op.results[0].uses for name in origins(use.operation.location)}
        source = self.boxes[self.made_by[op.operands[0]]]
        return names <= readers | {name for part in source.parts for name in part.origins}

    def placed(self, op: Operation, box: int) -> int:
        """The box of an op, with edges from what it reads, and from where a size is decided that it is the first to have."""
        self.made_by.update(dict.fromkeys(op.results, box))
        self.connect(op.operands, box)
        for symbol in sorted(_symbols(op.results) - _symbols(op.operands)):
            if symbol in self.decided:
                self.edge(self.decided[symbol], box, symbol)
        return box

    def run(self, op: DispatchOp, parent: int | None) -> int:
        places = origins(op.location)
        weights = tuple(dict.fromkeys(name for v in op.operands for name in self.constant.get(v, ())))
        told = self.ends.get((stem(op.symbol), places), deque([("", "")]))
        before, reason = told.popleft() if len(told) > 1 else told[0]
        parts = tuple(_parts(self.kernels.get(op.symbol, ()), places))
        box = Box("kernel", op.symbol, parent, self.launches, parts, _results(op), weights, before, reason)
        self.launches += 1
        return self.add(box)

    def connect(self, values: Sequence[SSAValue], target: int) -> None:
        """Edges to a box; between what is inside of different loops they go from the one to the other."""
        for value in values:
            if value in self.made_by:
                self.edge(self.made_by[value], target, type_text(value.type))

    def edge(self, source: int, target: int, type: str) -> None:
        outer = [*self.ancestors(source)], [*self.ancestors(target)]
        ends = next(((a, b) for a in outer[0] for b in outer[1] if self.boxes[a].parent == self.boxes[b].parent), None)
        if ends is not None and ends[0] != ends[1]:
            self.edges.setdefault(ends, Edge(*ends, type))

    def ancestors(self, box: int) -> Iterator[int]:
        """A box, and those that it is inside of."""
        inside: int | None = box
        while inside is not None:
            yield inside
            inside = self.boxes[inside].parent


def _symbols(values: Sequence[SSAValue]) -> set[str]:
    return {symbol for v in values for size in shape_of(v) for symbol in Dim.lift(size).symbols()}


def stem(kernel: str) -> str:
    """The name of a kernel without its number: equal kernels have one number, whichever it was at first."""
    return re.sub(r"_\d+$", "", kernel)


def _loop_name(op: Control) -> str:
    name = op.name.partition(".")[2]
    return f"{name}, {op.steps} steps" if isinstance(op, ScanOp) else name


def _results(op: Operation) -> tuple[str, ...]:
    return tuple(type_text(r.type) for r in op.results)


def _computed(kernel: KernelOp) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """The ops of a kernel, their places in the list of origins of a run, and their floating-point operations."""
    for op in kernel.body.block.ops:
        if op.name not in _SILENT:
            size = product(op.structure().extents) if isinstance(op, Contraction) else 0
            yield op.name.partition(".")[2], origins(op.location), 2 * size if isinstance(size, int) else 0


def _parts(ops: Sequence[tuple[str, tuple[str, ...], int]], places: Sequence[str]) -> Iterator[Part]:
    """The ops of a kernel in a run, those of one origin that follow one another together."""

    def source(op: tuple[str, tuple[str, ...], int]) -> tuple[str, ...]:
        return tuple(places[int(n[1:])] if n.startswith("#") and int(n[1:]) < len(places) else n for n in op[1])

    for names, members in groupby(ops, source):
        kinds, _, flops = zip(*members, strict=True)
        yield Part(kinds, names, sum(flops))
