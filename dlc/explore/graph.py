"""Build the graph of a program after kernel fusion: one box per kernel launch, with its ops grouped by origin."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from dlc.dialects.dl.base import DlOp, shape_of
from dlc.dialects.dl.creation import ConstantOp, WeightOp
from dlc.dialects.dl.data_dependent.selection import BindSizeOp
from dlc.dialects.dl.interfaces import Contraction, DataDependent
from dlc.dialects.dl.programs.control import Control, FailOp, ScanOp
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp, YieldOp
from dlc.dialects.entry import entry_of
from dlc.explore.data import Box, Edge, ModelGraph, OpGroup
from dlc.explore.layout import layout_graph
from dlc.explore.types import format_type
from dlc.instrument.provenance import origins
from dlc.ir import Block, ModuleOp, Operation, SSAValue, func
from dlc.shapes.dims import Dim, product

# Ops of a kernel that the graph does not show.
_HIDDEN_OPS = ("dl.constant", "dl.unpack", "dl.yield", "dl.weight")
# For each unnumbered kernel name and origins of its dispatch: the op at which fusion stopped and the reason, in program order.
FusionStops = Mapping[tuple[str, tuple[str, ...]], Sequence[tuple[str, str]]]


def build_graph(module: ModuleOp, inputs: Sequence[str], outputs: Sequence[str], fusion_stops: FusionStops) -> ModelGraph:
    """Return the graph of a module at the end of the stage `fusion`."""
    return _GraphBuilder(module, fusion_stops).build(inputs, outputs)


class _GraphBuilder:
    """Builds the graph of a module; `box_of` maps values to the boxes that compute them."""

    def __init__(self, module: ModuleOp, fusion_stops: FusionStops) -> None:
        self.main = entry_of(module)
        self.kernels = {op.symbol: list(_compute_ops(op)) for op in module.ops if isinstance(op, KernelOp)}
        self.fusion_stops = {key: deque(stops) for key, stops in fusion_stops.items()}
        self.boxes: list[Box] = []
        self.edges: dict[tuple[int, int], Edge] = {}
        self.box_of: dict[SSAValue, int] = {}
        # Names of the weights that each compile-time constant is computed from.
        self.weight_names: dict[SSAValue, tuple[str, ...]] = {}
        # The boxes that compute data-dependent sizes, by symbol.
        self.size_boxes: dict[str, int] = {}
        self.launches = 0

    def build(self, inputs: Sequence[str], outputs: Sequence[str]) -> ModelGraph:
        for name, argument in zip(inputs, self.main.args, strict=True):
            self.box_of[argument] = self.add(Box("input", name, results=(format_type(argument.type),)))
        self.add_block(self.main.body.block, None)
        return_op = self.main.body.block.last_op
        assert isinstance(return_op, func.ReturnOp)
        for name, value in zip(outputs, return_op.operands, strict=True):
            self.connect([value], self.add(Box("output", name, results=(format_type(value.type),))))
        return layout_graph(self.boxes, list(self.edges.values()))

    def add(self, box: Box) -> int:
        self.boxes.append(box)
        return len(self.boxes) - 1

    def add_block(self, block: Block, parent: int | None) -> None:
        for op in block.ops:
            if isinstance(op, WeightOp):
                self.weight_names[op.result] = (op.symbol.string_value(),)
            elif isinstance(op, ConstantOp):
                self.weight_names[op.result] = ()
            elif isinstance(op, DispatchOp):
                self.connect_op(op, self.add_launch(op, parent))
            elif isinstance(op, Control):
                box = self.connect_op(op, self.add(Box("loop", _loop_name(op), parent)))
                for region in op.regions:
                    for argument in region.block.args:
                        self.box_of[argument] = box
                    self.add_block(region.block, box)
            elif isinstance(op, BindSizeOp):
                group = OpGroup(("size",), origins(op.location), 0)
                self.size_boxes[op.symbol] = self.connect_op(op, self.add(Box("size", op.symbol, parent, groups=(group,))))
            elif isinstance(op, DataDependent):
                group = OpGroup((op.function_name,), origins(op.location), 0)
                box = self.connect_op(
                    op, self.add(Box("host", op.function_name, parent, groups=(group,), results=_results(op)))
                )
                self.size_boxes |= {str(size): box for size in op.data_dependent_sizes}
            elif isinstance(op, DlOp) and op.operands and all(v in self.weight_names for v in op.operands):
                names = tuple(dict.fromkeys(name for v in op.operands for name in self.weight_names[v]))
                self.weight_names.update(dict.fromkeys(op.results, names))
            elif self.is_hidden_view(op):
                self.box_of[op.results[0]] = self.box_of[op.operands[0]]
            elif not isinstance(op, YieldOp | FailOp | func.ReturnOp):
                group = OpGroup((op.name.partition(".")[2],), origins(op.location), 0)
                box = Box("view", op.name.partition(".")[2], parent, groups=(group,), results=_results(op))
                self.connect_op(op, self.add(box))

    def is_hidden_view(self, op: Operation) -> bool:
        """Return whether an op is a view that the compiler inserted: its neighbors in the graph have all of its origins."""
        if len(op.operands) != 1 or len(op.results) != 1 or op.operands[0] not in self.box_of:
            return False
        op_origins = set(origins(op.location))
        consumer_origins = {name for use in op.results[0].uses for name in origins(use.operation.location)}
        producer_box = self.boxes[self.box_of[op.operands[0]]]
        return op_origins <= consumer_origins | {name for group in producer_box.groups for name in group.origins}

    def connect_op(self, op: Operation, box: int) -> int:
        """Add edges to the box of an op, and return the box.

        The edges start at the op's operands. A data-dependent size of a result that no operand has adds an edge from the box
        that computes the size.
        """
        self.box_of.update(dict.fromkeys(op.results, box))
        self.connect(op.operands, box)
        for symbol in sorted(_symbols(op.results) - _symbols(op.operands)):
            if symbol in self.size_boxes:
                self.add_edge(self.size_boxes[symbol], box, symbol)
        return box

    def add_launch(self, op: DispatchOp, parent: int | None) -> int:
        launch_origins = origins(op.location)
        weights = tuple(dict.fromkeys(name for v in op.operands for name in self.weight_names.get(v, ())))
        stops_of_kernel = self.fusion_stops.get((unnumbered_name(op.symbol), launch_origins), deque([("", "")]))
        stopping_op, reason = stops_of_kernel.popleft() if len(stops_of_kernel) > 1 else stops_of_kernel[0]
        groups = tuple(_op_groups(self.kernels.get(op.symbol, ()), launch_origins))
        box = Box("kernel", op.symbol, parent, self.launches, groups, _results(op), weights, stopping_op, reason)
        self.launches += 1
        return self.add(box)

    def connect(self, values: Sequence[SSAValue], target: int) -> None:
        """Add edges from values to a box; an edge that crosses loops connects the boxes of the loops."""
        for value in values:
            if value in self.box_of:
                self.add_edge(self.box_of[value], target, format_type(value.type))

    def add_edge(self, source: int, target: int, type: str) -> None:
        ancestors = [*self.ancestors(source)], [*self.ancestors(target)]
        siblings = next(
            ((a, b) for a in ancestors[0] for b in ancestors[1] if self.boxes[a].parent == self.boxes[b].parent), None
        )
        if siblings is not None and siblings[0] != siblings[1]:
            self.edges.setdefault(siblings, Edge(*siblings, type))

    def ancestors(self, box: int) -> Iterator[int]:
        """Yield a box and its enclosing boxes."""
        ancestor: int | None = box
        while ancestor is not None:
            yield ancestor
            ancestor = self.boxes[ancestor].parent


def _symbols(values: Sequence[SSAValue]) -> set[str]:
    return {symbol for v in values for size in shape_of(v) for symbol in Dim.lift(size).symbols()}


def unnumbered_name(kernel: str) -> str:
    """Return the name of a kernel without its number; equal kernels share a number, which may change."""
    return re.sub(r"_\d+$", "", kernel)


def _loop_name(op: Control) -> str:
    name = op.name.partition(".")[2]
    return f"{name}, {op.steps} steps" if isinstance(op, ScanOp) else name


def _results(op: Operation) -> tuple[str, ...]:
    return tuple(format_type(r.type) for r in op.results)


def _compute_ops(kernel: KernelOp) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """Yield the ops of a kernel with their origins (indices into the origins of a launch) and floating-point operations."""
    for op in kernel.body.block.ops:
        if op.name not in _HIDDEN_OPS:
            size = product(op.structure().extents) if isinstance(op, Contraction) else 0
            yield op.name.partition(".")[2], origins(op.location), 2 * size if isinstance(size, int) else 0


def _op_groups(ops: Sequence[tuple[str, tuple[str, ...], int]], launch_origins: Sequence[str]) -> Iterator[OpGroup]:
    """Yield the ops of a kernel in a launch, grouping consecutive ops of one origin."""

    def origins_of(op: tuple[str, tuple[str, ...], int]) -> tuple[str, ...]:
        return tuple(launch_origins[int(n[1:])] if n.startswith("#") and int(n[1:]) < len(launch_origins) else n for n in op[1])

    for names, members in groupby(ops, origins_of):
        op_names, _, flops = zip(*members, strict=True)
        yield OpGroup(op_names, names, sum(flops))
