"""Programs in which data decides a size, or how often a loop runs: cut there, and compiled for the sizes of each call.

    %m = dl.not_equal %x, %zero                     segment 0: (%x) -> %m
    %p = dl.nonzero %m {size = #dl.dims<"n">}       the host:  %p, and so n
    %y = dl.gather %x, %p                           segment 1: (%x, %p) -> %y

A segment is a program without data-dependent ops. Its symbolic sizes come from the shapes of the inputs and of what ran
before it; it is compiled once for each set of them. A program without data-dependent ops is one segment. A loop or branch
with such ops inside is run by the host as well: its bodies are programs, in segments of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc import dims
from dlc.compiler.program import Program
from dlc.dialects.dl.base import DimsAttr, shape_of
from dlc.dialects.dl.control import Control, FailOp, captured
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.program import YieldOp
from dlc.dialects.dl.ranges import ranges_of
from dlc.dialects.dl.weight_expressions import WeightExpressions
from dlc.dialects.host import entry_of
from dlc.dims import Size, bind_sizes, require_in_range
from dlc.errors import ShapeError, UnsupportedError
from dlc.ir import ArrayAttr, Block, DictionaryAttr, FunctionType, ModuleOp, Operation, Region, SSAValue, StringAttr, func
from dlc.options import Options
from dlc.passes.dl.rewriting import users
from dlc.runtime.model import Run

Arrays = dict[SSAValue, NDArray[Any]]
# Compiles a program of known sizes.
Compile = Callable[[Program, Options], Run]

# Sizes that data decides differ from call to call: what was compiled for those that came first makes room for new ones.
_MOST_SIZES = 128


class NotSaveable:
    """The artifact that a program in segments has not."""

    def __init__(self, name: str) -> None:
        self._name = name

    def save(self, path: Path) -> None:
        raise UnsupportedError(
            f"{self._name}: data decides sizes or how often a loop runs, so that the host runs it in parts; only a "
            "model in one part can be saved"
        )


class Segment:
    """A part of a program without data-dependent ops, and what it was compiled to for the sizes that occurred."""

    def __init__(self, program: Program, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> None:
        self.program = program
        self.inputs = inputs
        self.outputs = outputs
        self.symbols = sorted(_symbols(program.module))
        self._compiled: dict[tuple[int, ...], Run] = {}
        self._lock = Lock()

    def compiled(self, values: Mapping[str, int], compile: Compile, options: Options) -> Run:
        """What runs the segment for these sizes."""
        missing = [s for s in self.symbols if s not in values]
        if missing:
            raise ShapeError(
                f"{self.program.name}: the size {missing[0]} follows from no shape; inputs: "
                f"{', '.join(map(str, self.program.inputs))}"
            )
        key = tuple(values[s] for s in self.symbols)
        run = self._compiled.get(key)
        if run is None:
            with self._lock:
                run = self._compiled.get(key)
                if run is None:
                    # A dump is of the first set of sizes: later ones differ in them only.
                    first = options if not self._compiled else replace(options, dump_ir=None)
                    run = compile(self.program.with_sizes(dict(zip(self.symbols, key, strict=True))), first)
                    if len(self._compiled) >= _MOST_SIZES:
                        del self._compiled[next(iter(self._compiled))]
                    self._compiled[key] = run
        return run


@dataclass(frozen=True, eq=False)
class Hosted:
    """A loop or branch that the host runs: its bodies as programs, which take their arguments and then what they capture."""

    op: Control
    bodies: Mapping[Block, tuple[Segments, Sequence[SSAValue]]]

    def run(self, runs: Mapping[Block, Run], known: Arrays) -> Arrays:
        """The results, by the bodies' compiled code."""

        def run(block: Block, arguments: Sequence[Any]) -> Sequence[Any]:
            _, inputs = self.bodies[block]
            return runs[block]([*map(np.asarray, arguments), *(known[v] for v in inputs)])

        return dict(zip(self.op.results, self.op.execute([known[v] for v in self.op.operands], run), strict=True))


@dataclass(frozen=True)
class Segments:
    """A program as steps: segments, and what the host runs between them."""

    program: Program
    steps: tuple[Segment | DataDependent | Hosted, ...]

    @property
    def are_cut(self) -> bool:
        """Whether anything hangs on data."""
        return any(not isinstance(step, Segment) for step in self.steps)

    def run(self, compile: Compile, options: Options) -> Run:
        """Runs the steps in order; segments without symbolic sizes are compiled now, the others when their sizes are known."""
        main = entry_of(self.program.module)
        returned, ranges = _returned(main), ranges_of(self.program.module)
        own = dict(self._options(options))
        for segment, settings in own.items():
            if isinstance(segment, Segment) and not segment.symbols:
                segment.compiled({}, compile, settings)
        bodies = {
            step: {block: body.run(compile, own[step]) for block, (body, _) in step.bodies.items()}
            for step in self.steps
            if isinstance(step, Hosted)
        }

        def run(arrays: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
            known: Arrays = dict(zip(main.args, arrays, strict=True))
            sizes: dict[str, int] = {}
            for value, array in known.items():
                bind_sizes(shape_of(value), array.shape, sizes)
            for value in main.args if ranges else ():
                require_in_range(f"input {value.name_hint}", shape_of(value), sizes, ranges)
            for step in self.steps:
                if isinstance(step, Segment):
                    inputs = [known[v] for v in step.inputs]
                    made = step.compiled(sizes, compile, own[step])(inputs)
                    known.update(zip(step.outputs, made, strict=True))
                    continue
                results = step.run(bodies[step], known) if isinstance(step, Hosted) else _computed(step, known)
                known.update(results)
                for result, array in results.items():
                    bind_sizes(shape_of(result), array.shape, sizes)
            return _own([known[v] for v in returned], arrays)

        return run

    def _options(self, options: Options) -> Iterator[tuple[Segment | Hosted, Options]]:
        """Each segment and hosted op with its options: of several, each dumps to a folder of its own."""
        folder, kinds = options.dump_ir, {Segment: "segment", Hosted: "hosted"}
        for kind, name in kinds.items():
            for k, step in enumerate(step for step in self.steps if isinstance(step, kind)):
                yield step, replace(options, dump_ir=folder / f"{name}{k}" if folder and self.are_cut else folder)


def split(program: Program) -> Segments:
    """The program in as few segments as its data-dependent ops allow."""
    main = entry_of(program.module)
    block = main.body.block
    if not any(is_hosted(op) for op in block.ops):
        return Segments(program, (Segment(program, list(main.args), _returned(main)),))
    levels, constant = _levels(block)
    last = max(levels.values(), default=0)
    asked = {v for op in block.ops if is_hosted(op) or isinstance(op, func.ReturnOp) for v in op.operands}
    steps: list[Segment | DataDependent | Hosted] = []
    for level in range(last + 1):
        # Constants are made again wherever they are read; the first segment makes those that are results.
        own = [op for op in block.ops if not is_hosted(op) and not isinstance(op, func.ReturnOp) and levels[op] == level]
        own = [op for op in own if op not in constant or not asked.isdisjoint(op.results)]
        outputs = [r for op in own for r in op.results if _leaves(r, level, levels, constant)]
        if outputs:
            steps.append(_segment(program, own, outputs, constant))
        for op in block.ops:
            if levels[op] != level or not is_hosted(op):
                continue
            steps.append(op if isinstance(op, DataDependent) else _hosted(program, op, constant))
    return Segments(program, tuple(steps))


def is_hosted(op: Operation) -> bool:
    """Whether the host runs an op: what data decides the sizes of, and loops and branches with such ops inside."""
    return any(isinstance(inner, DataDependent) for inner in op.walk())


def _sources(op: Operation) -> list[SSAValue]:
    """What an op reads, also inside."""
    return [*op.operands, *(v for region in op.regions for v in captured(region.block))]


def _levels(block: Block) -> tuple[dict[Operation, int], set[Operation]]:
    """How many cuts lie before each op, and the ops that depend on weights alone."""
    levels: dict[Operation, int] = {}
    known = WeightExpressions(block)
    # Sizes that are data, and how many cuts lie before they are known.
    known_from: dict[str, int] = {}
    for op in block.ops:
        sources = [v.owner for v in _sources(op) if isinstance(v.owner, Operation)]
        sizes = [known_from[s] for s in _symbols_of(op) if s in known_from]
        levels[op] = max((*(levels[s] + is_hosted(s) for s in sources), *sizes), default=0)
        if isinstance(op, DataDependent):
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


def _segment(program: Program, ops: Sequence[Operation], outputs: Sequence[SSAValue], constant: set[Operation]) -> Segment:
    """The ops of a segment and the constants that they read, as a program of its own."""
    body = _with_constants(ops, constant)
    made = {r for op in body for r in op.results}
    inputs = list(dict.fromkeys(v for op in body for v in _sources(op) if v not in made))
    block = Block(arg_types=[v.type for v in inputs])
    mapper: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args, strict=True))
    for value, argument in zip(inputs, block.args, strict=True):
        argument.name_hint = value.name_hint
    for op in body:
        block.add_op(op.clone(mapper))
    return Segment(replace(program, module=_main(block, [mapper[v] for v in outputs])), inputs, outputs)


def _hosted(program: Program, op: Operation, constant: set[Operation]) -> Hosted:
    """A loop or branch with its bodies as programs; constants that they read are made there."""
    assert isinstance(op, Control)
    bodies: dict[Block, tuple[Segments, Sequence[SSAValue]]] = {}
    for body in op.blocks:
        if isinstance(body.last_op, FailOp):
            continue
        rest = captured(body)
        inputs = [v for v in rest if v.owner not in constant]
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
        bodies[body] = split(replace(program, module=main)), inputs
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


def _computed(op: DataDependent, known: Arrays) -> Arrays:
    """The results of a data-dependent op on the host; sizes that its types know must be those of its results."""
    results = op.evaluate(*(np.asarray(known[v]) for v in op.operands))
    for result, array in zip(op.results, results, strict=True):
        wanted = shape_of(result)
        if any(isinstance(size, int) and size != got for size, got in zip(wanted, array.shape, strict=True)):
            raise ShapeError(f"{op.name} at {op.location}: a result of shape {array.shape}, expected {wanted}")
    return dict(zip(op.results, results, strict=True))


def _symbols(module: ModuleOp) -> set[str]:
    """The symbolic sizes in the types and properties of a program."""
    main = entry_of(module)
    inputs = {name for a in main.args for size in shape_of(a) if isinstance(size, dims.Dim) for name in size.symbols()}
    return inputs.union(*map(_symbols_of, main.body.block.ops))


def _symbols_of(op: Operation) -> set[str]:
    """The symbolic sizes in the results and properties of an op, and in those of its body."""
    found: list[Size] = []
    for inner in op.walk():
        found += [size for r in inner.results for size in shape_of(r)]
        found += [size for p in inner.properties.values() if isinstance(p, DimsAttr) for size in p.sizes]
    return {name for size in found if isinstance(size, dims.Dim) for name in size.symbols()}


def _own(results: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """The results, copied where they are an input or another result; arrays on a device, which nobody writes to, are not."""
    own: list[Any] = []
    for result in results:
        others = [a for a in (*inputs, *own) if _is_host(a)] if _is_host(result) else []
        shared = any(np.may_share_memory(result, other) for other in others)
        own.append(result.copy() if shared else result)
    return own


def _is_host(array: Any) -> bool:
    return isinstance(array, np.ndarray)
