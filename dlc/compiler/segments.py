"""Programs in which data decides a size, or how often a loop runs: cut there, into what runtime/steps.py executes.

    %m = dl.not_equal %x, %zero                     part 0:    (%x) -> %m
    %p = dl.nonzero %m {size = #dl.dims<"n">}       the host:  %p, and so n
    %y = dl.gather %x, %p                           part 1:    (%x, %p) -> %y

A part is a program without data-dependent ops. Its symbolic sizes come from the shapes of its inputs; it is compiled once for
all of them where that can be, else for each set of them. A program without data-dependent ops is one part. A loop or branch
with such ops inside is run by the host as well: its bodies are programs, in parts of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias

from dlc import dims
from dlc.arrays import TensorInfo
from dlc.compiler.program import Program
from dlc.dialects.dl.base import DimsAttr, element_type_of, shape_of
from dlc.dialects.dl.data_dependent.selection import DecideOp
from dlc.dialects.dl.data_dependent.selection import Selection as SelectionOp
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.programs.control import Control, FailOp, IfOp, ScanOp, captured
from dlc.dialects.dl.programs.program import PART, YieldOp
from dlc.dialects.dl.programs.ranges import ranges_of, state_ranges
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.host import DecideOp as HostDecideOp
from dlc.dialects.host import entry_of
from dlc.dims import Dim, Size
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
    func,
)
from dlc.options import Options
from dlc.passes.dl.rewriting import users
from dlc.runtime import steps as host
from dlc.runtime.kept import Kept
from dlc.runtime.model import Model
from dlc.runtime.recompilations import Recompilations

# The model that a program is for its sizes; None where it is to be compiled for each set of them.
Compile: TypeAlias = "Callable[[Program, Options], host.Served | None]"


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a program without data-dependent ops, and what it takes and gives."""

    program: Program
    inputs: Sequence[SSAValue]
    outputs: Sequence[SSAValue]


@dataclass(frozen=True, eq=False)
class _HostOp:
    """An op that the host runs between parts."""

    op: Operation

    @property
    def inputs(self) -> Sequence[SSAValue]:
        return self.op.operands

    @property
    def outputs(self) -> Sequence[SSAValue]:
        return self.op.results


@dataclass(frozen=True, eq=False)
class Selection(_HostOp):
    """A data-dependent op, or what decides a size by what was counted."""

    op: DataDependent | DecideOp


@dataclass(frozen=True, eq=False)
class Hosted(_HostOp):
    """A loop or branch: its bodies as programs, which take their arguments and then what they capture."""

    op: Control
    bodies: Mapping[Block, tuple[Segments, Sequence[SSAValue]]]


@dataclass(frozen=True)
class Segments:
    """A program as steps: parts, and what the host runs between them."""

    program: Program
    steps: tuple[Part | Selection | Hosted, ...]

    @property
    def are_cut(self) -> bool:
        """Whether anything hangs on data."""
        return any(not isinstance(step, Part) for step in self.steps)

    def linked(self, compile: Compile, options: Options) -> host.Steps:
        """The steps as they are executed; what needs no sizes to be known is compiled now."""
        main, own = entry_of(self.program.module), dict(self.options_of_parts(options))
        made = [*main.args, *(v for step in self.steps for v in step.outputs)]
        # A program that is one part may return its inputs, or a value twice: what a step makes has numbers of its own.
        numbers = {value: k for k, value in reversed(list(enumerate(made)))}
        inputs, fresh = self.program.inputs, iter(range(len(main.args), len(made)))
        rest = (TensorInfo(v.name_hint or "", shape_of(v), numpy_dtype(element_type_of(v))) for v in made[len(inputs) :])

        def number(values: Sequence[SSAValue]) -> host.Numbers:
            return tuple(numbers[v] for v in values)

        def body(step: Hosted, block: Block) -> host.Body | str:
            if isinstance(block.last_op, FailOp):
                return block.last_op.message.data
            segments, values = step.bodies[block]
            return host.Body(segments.linked(compile, own[step]), number(values))

        def link(step: Part | Selection | Hosted) -> host.Step:
            places = number(step.inputs), tuple(islice(fresh, len(step.outputs)))
            if isinstance(step, Part):
                return host.Segment(*places, *_models(step.program, compile, own[step]))
            if isinstance(step, Selection):
                assert isinstance(step.op, DataDependent), "a program that decides sizes is one, not steps"
                return host.Select(*places, step.op.selection, step.op.settings, str(step.op.location))
            bodies = [body(step, block) for block in step.op.blocks]
            if isinstance(step.op, IfOp):
                return host.If(*places, *bodies)
            (inside,) = bodies
            assert isinstance(inside, host.Body), "a loop's body yields"
            if isinstance(step.op, ScanOp):
                return host.Scan(*places, step.op.state_count, step.op.steps, inside, step.op.goes_back)
            return host.While(*places, inside)

        steps, returned = tuple(map(link, self.steps)), number(_returned(main))
        ranges = ranges_of(self.program.module)
        return host.Steps(self.program.name, inputs, self.program.outputs, (*inputs, *rest), steps, returned, ranges)

    def options_of_parts(self, options: Options) -> Iterator[tuple[Part | Hosted, Options]]:
        """Each part and hosted op with its options: of several, each dumps to a folder of its own."""
        folder, kinds = options.dump_ir, {Part: "segment", Hosted: "hosted"}
        for kind, name in kinds.items():
            for k, step in enumerate(step for step in self.steps if isinstance(step, kind)):
                yield step, replace(options, dump_ir=folder / f"{name}{k}" if folder and self.are_cut else folder)


def _models(
    program: Program, compile: Compile, options: Options
) -> tuple[host.Served | None, tuple[str, ...], Kept[host.Numbers]]:
    """What serves the sizes of a part; those that it is compiled for besides, and what makes it for them."""
    served = compile(program, options)
    symbols = () if served is not None and served.is_all else tuple(sorted(_given(program)))
    if served is not None:
        # What data decides is seen when it does.
        served = replace(served, domain=served.domain.without(served.domain.symbols.difference(symbols)))

    # A dump is of what is compiled first: later ones differ in sizes only.
    first = iter([options] if served is None else [])

    def make(key: host.Numbers) -> Model:
        known = compile(program.known(dict(zip(symbols, key, strict=True))), next(first, replace(options, dump_ir=None)))
        assert known is not None and known.is_all, "no sizes are open"
        return known.model

    def told(key: host.Numbers) -> dict[str, str]:
        return {symbol: str(number) for symbol, number in zip(symbols, key, strict=True)}

    advice = "sizes that are served without compiling, and why not all are, compile-model says"
    return served, symbols, Kept(make, recompilations=Recompilations(program.name, advice), tell=told)


def whole(program: Program) -> Segments:
    """The program as one segment."""
    main = entry_of(program.module)
    return Segments(program, (Part(program, list(main.args), _returned(main)),))


def split(program: Program) -> Segments:
    """The program in as few segments as its data-dependent ops allow."""
    main = entry_of(program.module)
    block = main.body.block
    results = _returned(main)
    # A part makes each of its outputs, and once.
    is_part = len({*main.args, *results}) == len(main.args) + len(results)
    if is_part and not any(is_hosted(op) for op in block.ops):
        return whole(program)
    levels, constant = _levels(block)
    last = max(levels.values(), default=0)
    asked = {v for op in block.ops if is_hosted(op) or isinstance(op, func.ReturnOp) for v in op.operands}
    steps: list[Part | Selection | Hosted] = []
    carriers = _carriers(block)
    for level in range(last + 1):
        # Constants are made again wherever they are read; the first segment makes those that are results.
        own = [op for op in block.ops if not is_hosted(op) and not isinstance(op, func.ReturnOp) and levels[op] == level]
        own = [op for op in own if op not in constant or not asked.isdisjoint(op.results)]
        outputs = [r for op in own for r in op.results if _leaves(r, level, levels, constant)]
        if outputs:
            steps.append(_part(program, own, outputs, constant, carriers))
        for op in block.ops:
            if levels[op] != level or not is_hosted(op):
                continue
            steps.append(
                Selection(op) if isinstance(op, DataDependent | DecideOp) else _hosted(program, op, constant, carriers)
            )
    return Segments(program, tuple(steps))


def is_hosted(op: Operation) -> bool:
    """Whether the host runs an op: what data decides the sizes of, and loops and branches with such ops inside."""
    return any(isinstance(inner, DataDependent | DecideOp) for inner in op.walk())


def _sources(op: Operation) -> list[SSAValue]:
    """What an op reads, also inside."""
    return [*op.operands, *(v for region in op.regions for v in captured(region.block))]


def _levels(block: Block) -> tuple[dict[Operation, int], set[Operation]]:
    """How many cuts lie before each op, and the ops that depend on weights alone."""
    levels: dict[Operation, int] = {}
    known = WeightExpressions()
    # Sizes that are data, and how many cuts lie before they are known.
    known_from: dict[str, int] = {}
    for op in block.ops:
        sources = [v.owner for v in _sources(op) if isinstance(v.owner, Operation)]
        sizes = [known_from[s] for s in _symbols_of(op) if s in known_from]
        levels[op] = max((*(levels[s] + is_hosted(s) for s in sources), *sizes), default=0)
        if isinstance(op, DataDependent | DecideOp):
            for symbol in _symbols_of(op):
                known_from.setdefault(symbol, levels[op] + 1)
    return levels, {op for op in block.ops if known.holds(op)}


def _leaves(value: SSAValue, level: int, levels: Mapping[Operation, int], constant: set[Operation]) -> bool:
    """Whether a value is read outside of the segment of its op."""
    assert isinstance(value.owner, Operation)
    readers = users(value)
    hosts = [op for op in readers if is_hosted(op) or isinstance(op, func.ReturnOp)]
    if value.owner in constant:
        # A body makes those that it captures itself.
        return any(value in op.operands for op in hosts)
    return bool(hosts) or any(levels[op] != level for op in readers)


def _part(
    program: Program,
    ops: Sequence[Operation],
    outputs: Sequence[SSAValue],
    constant: set[Operation],
    carriers: Mapping[str, SSAValue],
) -> Part:
    """The ops of a part and the constants that they read, as a program of its own."""
    body = _with_constants(ops, constant)
    made = {r for op in body for r in op.results}
    inputs = list(dict.fromkeys(v for op in body for v in _sources(op) if v not in made))
    inputs += _needed(body, inputs, carriers)
    block = Block(arg_types=[v.type for v in inputs])
    mapper: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args, strict=True))
    for value, argument in zip(inputs, block.args, strict=True):
        argument.name_hint = value.name_hint
    for op in body:
        block.add_op(op.clone(mapper))
    module = _main(block, [mapper[v] for v in outputs])
    entry_of(module).attributes[PART] = UnitAttr()
    state_ranges(entry_of(module), ranges_of(program.module))
    return Part(replace(program, module=module, read_for=None), inputs, outputs)


def _hosted(program: Program, op: Operation, constant: set[Operation], carriers: Mapping[str, SSAValue]) -> Hosted:
    """A loop or branch with its bodies as programs; constants that they read are made there."""
    assert isinstance(op, Control)
    bodies: dict[Block, tuple[Segments, Sequence[SSAValue]]] = {}
    for body in op.blocks:
        if isinstance(body.last_op, FailOp):
            continue
        rest = captured(body)
        inputs = [v for v in rest if v.owner not in constant]
        inputs += _needed(list(body.ops), [*body.args, *inputs], carriers)
        block = Block(arg_types=[v.type for v in (*body.args, *inputs)])
        mapper: dict[SSAValue, SSAValue] = dict(zip((*body.args, *inputs), block.args, strict=True))
        owners = [v.owner for v in rest if isinstance(v.owner, Operation) and v.owner in constant]
        for made in _with_constants(owners, constant):
            block.add_op(made.clone(mapper))
        for inner in body.ops:
            if inner is not body.last_op:
                block.add_op(inner.clone(mapper))
        assert isinstance(body.last_op, YieldOp)
        main = _main(block, [mapper[v] for v in body.last_op.values])
        bodies[body] = split(replace(program, module=main, read_for=None)), inputs
    return Hosted(op, bodies)


def _main(block: Block, results: Sequence[SSAValue]) -> ModuleOp:
    """A module whose entry is a block that returns these values."""
    block.add_op(func.ReturnOp(*results))
    main = func.FuncOp("main", FunctionType.from_lists([a.type for a in block.args], [v.type for v in results]), Region(block))
    main.arg_attrs, main.res_attrs = _names(block.args), _names(results)
    return ModuleOp([main])


def _with_constants(ops: Sequence[Operation], constant: set[Operation]) -> list[Operation]:
    """`ops`, each after the constants that it depends on."""
    body: dict[Operation, None] = {}
    stack = [(op, False) for op in reversed(ops)]
    while stack:
        op, ready = stack.pop()
        if ready:
            body[op] = None
        elif op not in body:
            needed = [v.owner for v in _sources(op) if isinstance(v.owner, Operation) and v.owner in constant]
            stack += [(op, True), *((source, False) for source in needed)]
    return list(body)


def _names(values: Sequence[SSAValue]) -> ArrayAttr[DictionaryAttr]:
    # The number tells values of one name apart.
    return ArrayAttr([DictionaryAttr({"dl.name": StringAttr(f"{v.name_hint or 'value'}_{k}")}) for k, v in enumerate(values)])


def _returned(main: func.FuncOp) -> list[SSAValue]:
    last = main.body.block.last_op
    assert last is not None
    return list(last.operands)


def _carriers(block: Block) -> dict[str, SSAValue]:
    """For each size that a shape says by itself, a value whose shape does: an input, or what data decides the size of."""
    found: dict[str, SSAValue] = {}
    for value in (*block.args, *(r for op in block.ops if isinstance(op, DataDependent) for r in op.results)):
        for name in _named([value]):
            found.setdefault(name, value)
    return found


def _needed(ops: Sequence[Operation], inputs: Sequence[SSAValue], carriers: Mapping[str, SSAValue]) -> list[SSAValue]:
    """What a part takes besides the values that it reads, so that the shapes of its inputs tell all its sizes."""
    own = {name for op in ops if isinstance(op, DataDependent) for name in _symbols_of(op)}
    wanted = {name for op in ops for name in _symbols_of(op)} - own - _named(inputs)
    wanted |= {name for v in inputs for size in shape_of(v) for name in Dim.lift(size).symbols()} - _named(inputs)
    return list(dict.fromkeys(carriers[name] for name in sorted(wanted) if name in carriers))


def _named(values: Sequence[SSAValue]) -> set[str]:
    """The sizes that the shapes of values say by themselves."""
    return {str(size) for v in values for size in shape_of(v) if isinstance(size, Dim) and size == Dim.symbol(str(size))}


def _given(program: Program) -> set[str]:
    """The symbolic sizes in the types and properties of a program, but for those that its own data decides."""
    main = entry_of(program.module)
    inputs = {name for info in program.inputs for size in info.shape for name in Dim.lift(size).symbols()}
    decided = {str(op.count) for op in main.walk() if isinstance(op, SelectionOp)}
    decided |= {op.symbol for op in main.walk() if isinstance(op, DecideOp | HostDecideOp)}
    return inputs.union(*map(_symbols_of, main.body.block.ops)) - decided


def _symbols_of(op: Operation) -> set[str]:
    """The symbolic sizes in the results and properties of an op, and in those of its body."""
    found: list[Size] = []
    for inner in op.walk():
        found += [size for r in inner.results if isinstance(r.type, TensorType) for size in shape_of(r)]
        found += [size for p in inner.properties.values() if isinstance(p, DimsAttr) for size in p.sizes]
    return {name for size in found if isinstance(size, dims.Dim) for name in size.symbols()}
