"""Split a program with data-dependent sizes into segments.

    %c = dl.reduce_sum %m                           segment 0:  (%m) -> %c
    dl.bind_size %c {size = #dl.dims<"n">}          n
    %p = dl.true_indices %m {size = #dl.dims<"n">}  segment 1:  (%m) -> %p

A segment is a program without data-dependent ops: all its sizes are computed before it runs. A program without such ops is one
segment. A loop or branch that contains such ops is a step between segments, with bodies that are split in the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dlc.compiler.program import Program
from dlc.dialects.dims_attribute import DimsAttr
from dlc.dialects.dl.base import shape_of
from dlc.dialects.dl.data_dependent.selection import BindSizeOp
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.programs.control import Control, FailOp, captured_values, read_values
from dlc.dialects.dl.programs.program import SEGMENT, YieldOp
from dlc.dialects.dl.programs.size_ranges import guards_of, set_guards, set_size_ranges, size_ranges
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.entry import entry_of
from dlc.ir import (
    ArrayAttr,
    Block,
    DictionaryAttr,
    FunctionType,
    ModuleOp,
    Operation,
    Region,
    SSAValue,
    StringAttr,
    TensorType,
    UnitAttr,
    contains,
    func,
)
from dlc.options import Options
from dlc.passes.dl.rewriting import users
from dlc.shapes import dims
from dlc.shapes.dims import Dim, Size


@dataclass(frozen=True, eq=False)
class Segment:
    """A program without data-dependent ops; `inputs` and `outputs` are values of the original program."""

    program: Program
    inputs: Sequence[SSAValue]
    outputs: Sequence[SSAValue]


@dataclass(frozen=True, eq=False)
class _HostStep:
    """An op between segments, which the host executes."""

    op: Operation

    @property
    def inputs(self) -> Sequence[SSAValue]:
        return self.op.operands

    @property
    def outputs(self) -> Sequence[SSAValue]:
        return self.op.results


@dataclass(frozen=True, eq=False)
class DataDependentStep(_HostStep):
    """A data-dependent op, or an op that defines a size from a count."""

    op: DataDependent | BindSizeOp


@dataclass(frozen=True, eq=False)
class HostControlFlow(_HostStep):
    """A loop or branch whose bodies are segmented programs; their inputs are the body's arguments and the captured values."""

    op: Control
    bodies: Mapping[Block, tuple[Segments, Sequence[SSAValue]]]


@dataclass(frozen=True)
class Segments:
    """A program as a sequence of steps: segments, and the host steps between them."""

    program: Program
    steps: tuple[Segment | DataDependentStep | HostControlFlow, ...]

    @property
    def is_split(self) -> bool:
        """Return whether any step depends on data."""
        return any(not isinstance(step, Segment) for step in self.steps)

    def segment_options(self, options: Options) -> Iterator[tuple[Segment | HostControlFlow, Options]]:
        """Yield each segment and control-flow step with its options: each dumps to a folder of its own."""
        folder, kinds = options.dump_ir, {Segment: "segment", HostControlFlow: "hosted"}
        for kind, name in kinds.items():
            for k, step in enumerate(step for step in self.steps if isinstance(step, kind)):
                yield step, replace(options, dump_ir=folder / f"{name}{k}" if folder and self.is_split else folder)


def split(program: Program) -> Segments:
    """Split a program into as few segments as its data-dependent ops allow."""
    main = entry_of(program.module)
    block = main.body.block
    results = _results(main)
    # The outputs of a segment are distinct results of its ops.
    is_segment = len({*main.args, *results}) == len(main.args) + len(results)
    if is_segment and not any(runs_on_host(op) for op in block.ops):
        return Segments(program, (Segment(program, list(main.args), results),))
    segment_of, constant = _assign_segments(block, _constrained_sizes(program.module))
    last_segment = max(segment_of.values(), default=0)
    host_operands = {v for op in block.ops if runs_on_host(op) or isinstance(op, func.ReturnOp) for v in op.operands}
    steps: list[Segment | DataDependentStep | HostControlFlow] = []
    size_sources = _size_sources(block)
    for segment in range(last_segment + 1):
        # Constants are rematerialized in each segment that reads them; the first segment creates those that the host needs.
        segment_ops = [
            op for op in block.ops if not runs_on_host(op) and not isinstance(op, func.ReturnOp) and segment_of[op] == segment
        ]
        segment_ops = [op for op in segment_ops if op not in constant or not host_operands.isdisjoint(op.results)]
        outputs = [r for op in segment_ops for r in op.results if _is_read_outside(r, segment, segment_of, constant)]
        if outputs:
            steps.append(_build_segment(program, segment_ops, outputs, constant, size_sources))
        for op in block.ops:
            if segment_of[op] != segment or not runs_on_host(op):
                continue
            steps.append(
                DataDependentStep(op)
                if isinstance(op, DataDependent | BindSizeOp)
                else _build_control_flow(program, op, constant, size_sources)
            )
    return Segments(program, tuple(steps))


def runs_on_host(op: Operation) -> bool:
    """Return whether an op is a step between segments: it defines data-dependent sizes, or contains ops that do."""
    return contains(op, DataDependent, BindSizeOp)


def _constrained_sizes(module: ModuleOp) -> set[str]:
    """Return the sizes that must equal others or have a fixed value."""
    return {s for guard in guards_of(entry_of(module)) if guard.relation == "==" for s in guard.size.symbols()}


def _assign_segments(block: Block, constrained: Collection[str]) -> tuple[dict[Operation, int], set[Operation]]:
    """Return the index of each op's segment, and the ops that depend on weights only.

    All ops after a `constrained` size belong to later segments, even if their types do not depend on it. They may rely on the
    constraint: an access may be in bounds only if it holds.
    """
    segment_of: dict[Operation, int] = {}
    weight_expressions = WeightExpressions()
    # For each data-dependent size, the index of the first segment that can use it.
    segment_of_size: dict[str, int] = {}
    min_segment = 0
    for op in block.ops:
        sources = [v.owner for v in read_values(op) if isinstance(v.owner, Operation)]
        sizes = [segment_of_size[s] for s in _collect_symbols(op) if s in segment_of_size]
        segment_of[op] = max((*(segment_of[s] + runs_on_host(s) for s in sources), *sizes, min_segment))
        if isinstance(op, BindSizeOp) and op.symbol in constrained:
            min_segment = segment_of[op] + 1
        if isinstance(op, DataDependent | BindSizeOp):
            for symbol in _collect_symbols(op):
                segment_of_size.setdefault(symbol, segment_of[op] + 1)
    return segment_of, {op for op in block.ops if weight_expressions.contains_results_of(op)}


def _is_read_outside(value: SSAValue, segment: int, segment_of: Mapping[Operation, int], constant: set[Operation]) -> bool:
    """Return whether a value is read outside of the segment of its op."""
    assert isinstance(value.owner, Operation)
    consumers = users(value)
    host_consumers = [op for op in consumers if runs_on_host(op) or isinstance(op, func.ReturnOp)]
    if value.owner in constant:
        # Bodies rematerialize the constants that they capture.
        return any(value in op.operands for op in host_consumers)
    return bool(host_consumers) or any(segment_of[op] != segment for op in consumers)


def _build_segment(
    program: Program,
    ops: Sequence[Operation],
    outputs: Sequence[SSAValue],
    constant: set[Operation],
    size_sources: Mapping[str, SSAValue],
) -> Segment:
    """Return a program of these ops and of the constants that they read."""
    body = _with_constants(ops, constant)
    defined_values = {r for op in body for r in op.results}
    inputs = list(dict.fromkeys(v for op in body for v in read_values(op) if v not in defined_values))
    inputs += _missing_size_sources(body, inputs, size_sources)
    block = Block(arg_types=[v.type for v in inputs])
    mapper: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args, strict=True))
    for value, argument in zip(inputs, block.args, strict=True):
        argument.name_hint = value.name_hint
    for op in body:
        block.add_op(op.clone(mapper))
    module = _build_module(block, [mapper[v] for v in outputs])
    entry_of(module).attributes[SEGMENT] = UnitAttr()
    set_size_ranges(entry_of(module), size_ranges(program.module))
    return Segment(replace(program, module=module, reimport=None), inputs, outputs)


def _build_control_flow(
    program: Program, op: Operation, constant: set[Operation], size_sources: Mapping[str, SSAValue]
) -> HostControlFlow:
    """Return a loop or branch with its bodies as programs, which include the constants that they read."""
    assert isinstance(op, Control)
    bodies: dict[Block, tuple[Segments, Sequence[SSAValue]]] = {}
    for body in op.blocks:
        if isinstance(body.last_op, FailOp):
            continue
        captures = captured_values(body)
        inputs = [v for v in captures if v.owner not in constant]
        inputs += _missing_size_sources(list(body.ops), [*body.args, *inputs], size_sources)
        block = Block(arg_types=[v.type for v in (*body.args, *inputs)])
        mapper: dict[SSAValue, SSAValue] = dict(zip((*body.args, *inputs), block.args, strict=True))
        owners = [v.owner for v in captures if isinstance(v.owner, Operation) and v.owner in constant]
        for constant_op in _with_constants(owners, constant):
            block.add_op(constant_op.clone(mapper))
        for inner in body.ops:
            if inner is not body.last_op:
                block.add_op(inner.clone(mapper))
        assert isinstance(body.last_op, YieldOp)
        main = _build_module(block, [mapper[v] for v in body.last_op.values])
        set_size_ranges(entry_of(main), size_ranges(program.module))
        set_guards(entry_of(main), guards_of(entry_of(program.module)))
        bodies[body] = split(replace(program, module=main, reimport=None)), inputs
    return HostControlFlow(op, bodies)


def _build_module(block: Block, results: Sequence[SSAValue]) -> ModuleOp:
    """Return a module whose entry is a block that returns these values."""
    block.add_op(func.ReturnOp(*results))
    main = func.FuncOp("main", FunctionType.from_lists([a.type for a in block.args], [v.type for v in results]), Region(block))
    main.arg_attrs, main.res_attrs = _names(block.args), _names(results)
    return ModuleOp([main])


def _with_constants(ops: Sequence[Operation], constant: set[Operation]) -> list[Operation]:
    """Return `ops`, each preceded by the constants that it depends on."""
    body: dict[Operation, None] = {}
    stack = [(op, False) for op in reversed(ops)]
    while stack:
        op, operands_done = stack.pop()
        if operands_done:
            body[op] = None
        elif op not in body:
            needed = [v.owner for v in read_values(op) if isinstance(v.owner, Operation) and v.owner in constant]
            stack += [(op, True), *((source, False) for source in needed)]
    return list(body)


def _names(values: Sequence[SSAValue]) -> ArrayAttr[DictionaryAttr]:
    # The suffix makes names unique.
    return ArrayAttr([DictionaryAttr({"dl.name": StringAttr(f"{v.name_hint or 'value'}_{k}")}) for k, v in enumerate(values)])


def _results(main: func.FuncOp) -> list[SSAValue]:
    last = main.body.block.last_op
    assert last is not None
    return list(last.operands)


def _size_sources(block: Block) -> dict[str, SSAValue]:
    """Map each symbol to a value with an axis of that size: an input, or the result of a data-dependent op."""
    sources: dict[str, SSAValue] = {}
    for value in (*block.args, *(r for op in block.ops if isinstance(op, DataDependent) for r in op.results)):
        for name in _axis_symbols([value]):
            sources.setdefault(name, value)
    return sources


def _missing_size_sources(
    ops: Sequence[Operation], inputs: Sequence[SSAValue], size_sources: Mapping[str, SSAValue]
) -> list[SSAValue]:
    """Return the values to add to a segment's inputs so that the input shapes determine all its sizes."""
    defined_sizes = {name for op in ops if isinstance(op, DataDependent) for name in _collect_symbols(op)}
    needed = {name for op in ops for name in _collect_symbols(op)} - defined_sizes - _axis_symbols(inputs)
    needed |= {name for v in inputs for size in shape_of(v) for name in Dim.lift(size).symbols()} - _axis_symbols(inputs)
    return list(dict.fromkeys(size_sources[name] for name in sorted(needed) if name in size_sources))


def _axis_symbols(values: Sequence[SSAValue]) -> set[str]:
    """Return the symbols that are the size of an axis of one of these values."""
    return {str(size) for v in values for size in shape_of(v) if isinstance(size, Dim) and size == Dim.symbol(str(size))}


def _collect_symbols(op: Operation) -> set[str]:
    """Return the symbols in the result types and properties of an op, and of the ops in its body."""
    sizes: list[Size] = []
    for inner in op.walk():
        sizes += [size for r in inner.results if isinstance(r.type, TensorType) for size in shape_of(r)]
        sizes += [size for p in inner.properties.values() if isinstance(p, DimsAttr) for size in p.sizes]
    return {name for size in sizes if isinstance(size, dims.Dim) for name in size.symbols()}
