"""Programs in which data decides a size, cut there.

    %c = dl.reduce_sum %m                           part 0:  (%m) -> %c
    dl.decide %c {size = #dl.dims<"n">}             n
    %p = dl.places %m {size = #dl.dims<"n">}        part 1:  (%m) -> %p

A part is a program without data-dependent ops, whose sizes are known before it runs; a program without such ops is one part. A
loop or branch with such ops inside is between parts as well: its bodies are programs, in parts of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dlc import dims
from dlc.compiler.program import Program
from dlc.dialects.dl.base import DimsAttr, shape_of
from dlc.dialects.dl.data_dependent.selection import DecideOp
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.programs.control import Control, FailOp, captured
from dlc.dialects.dl.programs.program import PART, YieldOp
from dlc.dialects.dl.programs.ranges import equal_of, ranges_of, state_equal, state_ranges
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.entry import entry_of
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
    contains,
    func,
)
from dlc.options import Options
from dlc.passes.dl.rewriting import users


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a program without data-dependent ops, and what it takes and gives."""

    program: Program
    inputs: Sequence[SSAValue]
    outputs: Sequence[SSAValue]


@dataclass(frozen=True, eq=False)
class _Between:
    """An op between parts."""

    op: Operation

    @property
    def inputs(self) -> Sequence[SSAValue]:
        return self.op.operands

    @property
    def outputs(self) -> Sequence[SSAValue]:
        return self.op.results


@dataclass(frozen=True, eq=False)
class Selection(_Between):
    """A data-dependent op, or what decides a size by what was counted."""

    op: DataDependent | DecideOp


@dataclass(frozen=True, eq=False)
class Hosted(_Between):
    """A loop or branch: its bodies as programs, which take their arguments and then what they capture."""

    op: Control
    bodies: Mapping[Block, tuple[Segments, Sequence[SSAValue]]]


@dataclass(frozen=True)
class Segments:
    """A program as steps: parts, and what is between them."""

    program: Program
    steps: tuple[Part | Selection | Hosted, ...]

    @property
    def are_cut(self) -> bool:
        """Whether anything hangs on data."""
        return any(not isinstance(step, Part) for step in self.steps)

    def options_of_parts(self, options: Options) -> Iterator[tuple[Part | Hosted, Options]]:
        """Each part and hosted op with its options: of several, each dumps to a folder of its own."""
        folder, kinds = options.dump_ir, {Part: "segment", Hosted: "hosted"}
        for kind, name in kinds.items():
            for k, step in enumerate(step for step in self.steps if isinstance(step, kind)):
                yield step, replace(options, dump_ir=folder / f"{name}{k}" if folder and self.are_cut else folder)


def split(program: Program) -> Segments:
    """The program in as few segments as its data-dependent ops allow."""
    main = entry_of(program.module)
    block = main.body.block
    results = _returned(main)
    # A part makes each of its outputs, and once.
    is_part = len({*main.args, *results}) == len(main.args) + len(results)
    if is_part and not any(is_hosted(op) for op in block.ops):
        return Segments(program, (Part(program, list(main.args), results),))
    levels, constant = _levels(block, _checked(program.module))
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
    """Whether an op is between parts: what data decides the sizes of, and loops and branches with such ops inside."""
    return contains(op, DataDependent, DecideOp)


def _sources(op: Operation) -> list[SSAValue]:
    """What an op reads, also inside."""
    return [*op.operands, *(v for region in op.regions for v in captured(region.block))]


def _checked(module: ModuleOp) -> set[str]:
    """The sizes that data decides which have to be others, or numbers."""
    return {*equal_of(module), *(symbol for symbol, r in ranges_of(module).items() if r.low == r.high)}


def _levels(block: Block, checked: Collection[str]) -> tuple[dict[Operation, int], set[Operation]]:
    """How many cuts lie before each op, and the ops that depend on weights alone.

    Behind a decision that is `checked` nothing says by its size that it comes later, but whatever is written there does: what
    reads at places that are only there if the size is right, say.
    """
    levels: dict[Operation, int] = {}
    known = WeightExpressions()
    # Sizes that are data, and how many cuts lie before they are known.
    known_from: dict[str, int] = {}
    least = 0
    for op in block.ops:
        sources = [v.owner for v in _sources(op) if isinstance(v.owner, Operation)]
        sizes = [known_from[s] for s in _symbols_of(op) if s in known_from]
        levels[op] = max((*(levels[s] + is_hosted(s) for s in sources), *sizes, least))
        if isinstance(op, DecideOp) and op.symbol in checked:
            least = levels[op] + 1
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
        state_ranges(entry_of(main), ranges_of(program.module))
        state_equal(entry_of(main), equal_of(program.module))
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


def _symbols_of(op: Operation) -> set[str]:
    """The symbolic sizes in the results and properties of an op, and in those of its body."""
    found: list[Size] = []
    for inner in op.walk():
        found += [size for r in inner.results if isinstance(r.type, TensorType) for size in shape_of(r)]
        found += [size for p in inner.properties.values() if isinstance(p, DimsAttr) for size in p.sizes]
    return {name for size in found if isinstance(size, dims.Dim) for name in size.symbols()}
