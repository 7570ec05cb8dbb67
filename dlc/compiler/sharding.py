"""Partition a program over a mesh: convert the program of one process to the program of each rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from dlc.arrays import TensorInfo
from dlc.compiler.program import Program
from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, attribute, number, rank_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.distributed.sharding import MESH, RANK, SHARDING, PartialSpec, format_spec, spec_attribute, spec_of
from dlc.dialects.dl.interfaces import Composite, RowComposite
from dlc.dialects.dl.programs.program import DONOR
from dlc.dialects.entry import entry_of
from dlc.dialects.location_text import location_text
from dlc.errors import ShapeError
from dlc.instrument.operation_counts import execution_count
from dlc.instrument.verify import verify
from dlc.ir import ArrayAttr, Context, DictionaryAttr, ModuleOp, NameLoc, SSAValue, StringAttr, func, walk_ops
from dlc.passes.dl.rewriting import program_blocks, rewrite_forward
from dlc.passes.dl.simplification.cse import CsePass
from dlc.passes.dl.simplification.dce import DcePass
from dlc.passes.sharding.buckets import merge_collectives
from dlc.passes.sharding.canonicalize_collectives import canonicalize_collectives
from dlc.passes.sharding.choose import choose_shardings
from dlc.passes.sharding.factors import REPLICATED, factor_rule, factors_of
from dlc.passes.sharding.local_constants import fix_rank_index, sliced_constants
from dlc.passes.sharding.partition import partition
from dlc.passes.sharding.propagate import Shardings, Spec, require_valid_spec, uniform_element
from dlc.passes.sharding.varying_axes import VaryingAxes
from dlc.passes.transformations.expand_transformations import ExpandTransformationsPass
from dlc.runtime.collectives.mesh import Mesh


@dataclass(frozen=True)
class ShardedProgram:
    """The program of each rank of a mesh, with the shardings of its inputs and outputs.

    Attributes:
        module: The module before partitioning, with derivatives and batching expanded.
        shardings: The shardings of the values of `module`.
        shard_calls: Calls of dlc.shard, with their lines, that give the chosen shardings without `auto`.
    """

    program: Program
    mesh: Mesh
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    module: ModuleOp
    shardings: Shardings
    shard_calls: Sequence[str] = ()

    @property
    def has_split_constants(self) -> bool:
        """Return whether ranks take parts of constants."""
        return bool(sliced_constants(self.program.module))

    def program_of(self, rank: int) -> Program:
        """Return the program with the parts of constants that belong to one rank."""
        module = self.program.module.clone()
        fix_rank_index(module, self.mesh, rank)
        entry_of(module).attributes[RANK] = attribute(rank)
        return replace(self.program, module=module)


@dataclass(frozen=True)
class AutoSharding:
    """Options of the automatic choice of shardings.

    Attributes:
        memory_price: Seconds per byte of arguments that a rank stores; a higher price splits more of them.
    """

    memory_price: float = 0.0


def shard_program(
    program: Program,
    mesh: Mesh,
    inputs: Sequence[PartialSpec | None],
    outputs: Sequence[PartialSpec | None],
    auto: AutoSharding | None = None,
) -> ShardedProgram:
    """Partition a program; `inputs` and `outputs` annotate its arguments and results.

    None leaves one to the annotation that its attribute `dl.sharding` stores, else to propagation.

    With `auto`, an integer program chooses the shardings that the annotations do not specify. Results without annotation are
    then replicated, except in donated memory.

    Derivatives and batching are expanded first, so that their ops are partitioned as well. Raises ShapeError for an annotation
    that does not fit, and what `choose_shardings` raises.
    """
    module = program.module.clone()
    _expand(module)
    main = entry_of(module)
    inputs, outputs = (
        [stored if spec is None else spec for spec, stored in zip(specs, stored_specs, strict=True)]
        for specs, stored_specs in zip((inputs, outputs), stored_shardings(module), strict=True)
    )
    if auto is not None:
        donated = [value for _, value in _donations(main)]
        results = zip(_returned(main), outputs, strict=True)
        outputs = [((),) * rank_of(v) if spec is None and v not in donated else spec for v, spec in results]
    for info, value, spec in zip(program.outputs, _returned(main), outputs, strict=True):
        require_valid_spec(mesh, shape_of(value), spec or (), f"out_shardings of {info.name}")
    _annotate_results(module, outputs)
    chosen = {} if auto is None else _choose(module, mesh, program.inputs, inputs, auto)
    shardings = _propagate(module, mesh, program.inputs, inputs, chosen)
    while _decompose_split_rows(module, shardings):
        shardings = _propagate(module, mesh, program.inputs, inputs, chosen)
    _require_donated_shardings(main, shardings, program)
    input_specs, output_specs = (tuple(map(shardings.of, values)) for values in (main.args, _returned(main)))
    shard_calls = _shard_calls(module, mesh, program.inputs, shardings) if auto is not None else ()
    local = partition(module, shardings)
    _simplify(local)
    merge_collectives(local)
    canonicalize_collectives(local)
    _simplify(local)
    _record_shardings(entry_of(local), input_specs, output_specs)
    entry_of(local).attributes[MESH] = StringAttr(str(mesh))
    verify(local)
    local_program = replace(program, module=local, reimport=None)
    return ShardedProgram(local_program, mesh, input_specs, output_specs, module, shardings, shard_calls)


def stored_shardings(module: ModuleOp) -> tuple[list[PartialSpec | None], list[PartialSpec | None]]:
    """Return the annotations of the arguments and results of a module, which importers store; None for one without."""
    main = entry_of(module)

    def specs(attributes: ArrayAttr[DictionaryAttr] | None, count: int) -> list[PartialSpec | None]:
        stored = [None] * count if attributes is None else [named.data.get(SHARDING) for named in attributes]
        return [None if spec is None else spec_of(cast("ArrayAttr[StringAttr]", spec)) for spec in stored]

    return specs(main.arg_attrs, len(main.args)), specs(main.res_attrs, len(_returned(main)))


def _expand(module: ModuleOp) -> None:
    """Expand derivatives, batching, and composites that have no factors."""
    ExpandTransformationsPass().apply(Context(), module)

    def decompose(op: Composite) -> Sequence[SSAValue] | None:
        has_factors = factor_rule(type(op)) is not None or any(issubclass(type(op), kind) for kind in REPLICATED)
        return None if has_factors else op.decompose(*op.operands)

    for block in program_blocks(module):
        rewrite_forward(block, decompose, Composite)
    _simplify(module)


def _simplify(module: ModuleOp) -> None:
    CsePass().apply(Context(), module)
    DcePass().apply(Context(), module)


def _returned(main: func.FuncOp) -> Sequence[SSAValue]:
    last = main.body.block.last_op
    assert last is not None
    return last.operands


def _annotate_results(module: ModuleOp, outputs: Sequence[PartialSpec | None]) -> None:
    """Return an annotated copy of each result, so that equal results may have different shardings."""
    main = entry_of(module)
    last = main.body.block.last_op
    assert last is not None
    build = DlBuilder(last)
    for k, (value, spec) in enumerate(zip(list(last.operands), outputs, strict=True)):
        padded = [*(spec or ()), *(None for _ in range(rank_of(value) - len(spec or ())))]
        last.operands[k] = build(dl.ShardOp, value, spec=spec_attribute(padded))


def _annotated(module: ModuleOp, mesh: Mesh, names: Sequence[TensorInfo], inputs: Sequence[PartialSpec | None]) -> Shardings:
    """Return the annotations of the arguments. A donated argument and the result in its memory get the same sharding."""
    main = entry_of(module)
    shardings = Shardings(mesh, VaryingAxes(main.body.block))
    for k, (argument, spec) in enumerate(zip(main.args, inputs, strict=True)):
        if spec is not None:
            shardings.annotate(argument, spec, f"in_shardings of {names[k].name}")
    for k, value in _donations(main):
        shardings.relate(main.args[k], value)
    return shardings


def _propagate(
    module: ModuleOp,
    mesh: Mesh,
    names: Sequence[TensorInfo],
    inputs: Sequence[PartialSpec | None],
    chosen: Mapping[SSAValue, Spec],
) -> Shardings:
    """Propagate the annotations and the chosen shardings, of which some values may have been decomposed."""
    shardings, blocks = _annotated(module, mesh, names, inputs), list(program_blocks(module))
    values = [v for block in blocks for v in (*block.args, *(r for op in block.ops for r in op.results))]
    for value in values if chosen else ():
        if value in chosen:
            shardings.annotate(value, chosen[value], "auto")
    shardings.propagate(entry_of(module).body.block)
    return shardings


def _choose(
    module: ModuleOp, mesh: Mesh, names: Sequence[TensorInfo], inputs: Sequence[PartialSpec | None], auto: AutoSharding
) -> dict[SSAValue, Spec]:
    """Choose the shardings that the annotations do not specify."""
    main, shardings = entry_of(module), _annotated(module, mesh, names, inputs)
    shardings.collect(main.body.block)
    donations = [(main.args[k], value) for k, value in _donations(main)]
    return choose_shardings(main.body.block, shardings, donations, execution_count, auto.memory_price)


def _shard_calls(module: ModuleOp, mesh: Mesh, names: Sequence[TensorInfo], shardings: Shardings) -> list[str]:
    """Return the calls of dlc.shard without which propagation from arguments and results gives other shardings.

    Values of derivatives have no line in the user's program; they follow from the values that are differentiated.
    """
    main = entry_of(module)
    plain = _propagate(module, mesh, names, list(map(shardings.of, main.args)), {})
    calls = [
        f"dlc.shard(…, P{format_spec(shardings.of(op.results[0]))}) at {location_text(op.location)}"
        for op in walk_ops(module, DlOp)
        if not isinstance(op, dl.ShardOp | dl.ConstantOp | dl.WeightOp) and not isinstance(op.location, NameLoc)
        if rank_of(op.results[0]) and uniform_element(op.results[0]) is None
        if plain.of(op.results[0]) != shardings.of(op.results[0])
    ]
    return list(dict.fromkeys(calls))


def _donations(main: func.FuncOp) -> Iterator[tuple[int, SSAValue]]:
    """Yield the index of each donated argument, and the result in its memory."""
    for named, value in zip(main.res_attrs or (), _returned(main), strict=False):
        donor = named.data.get(DONOR)
        if donor is not None:
            yield int(number(donor)), value


def _require_donated_shardings(main: func.FuncOp, shardings: Shardings, program: Program) -> None:
    """Raise ShapeError for a donated argument whose result has another sharding."""
    for k, value in _donations(main):
        before, after = shardings.of(main.args[k]), shardings.of(value)
        if before != after:
            raise ShapeError(
                f"{program.name}: the donated {program.inputs[k].name} is P{format_spec(before)}, the result in its memory "
                f"P{format_spec(after)}; give both the same spec"
            )


def _decompose_split_rows(module: ModuleOp, shardings: Shardings) -> bool:
    """Decompose row ops whose rows are split, such as a softmax over a sharded axis; return whether there were any."""

    def splits_rows(op: RowComposite) -> bool:
        factors = factors_of(op)
        pairs = (*zip(op.operands, factors.operands, strict=True), *zip(op.results, factors.results, strict=True))
        return any(
            f is None and mesh_axes for value, axes in pairs for f, mesh_axes in zip(axes, shardings.of(value), strict=True)
        )

    split = [op for op in walk_ops(module, RowComposite) if splits_rows(op)]
    for block in program_blocks(module) if split else ():
        rewrite_forward(block, lambda op: op.decompose(*op.operands) if op in split else None, RowComposite)
    return bool(split)


def _record_shardings(main: func.FuncOp, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> None:
    """Store the shardings of arguments and results in their attributes, where dumps show them."""

    def recorded(attributes: ArrayAttr[DictionaryAttr] | None, specs: Sequence[Spec]) -> ArrayAttr[DictionaryAttr]:
        known = attributes.data if attributes is not None else tuple(DictionaryAttr({}) for _ in specs)
        return ArrayAttr(
            [
                DictionaryAttr({**named.data, **({SHARDING: spec_attribute(spec)} if any(spec) else {})})
                for named, spec in zip(known, specs, strict=True)
            ]
        )

    main.arg_attrs, main.res_attrs = recorded(main.arg_attrs, inputs), recorded(main.res_attrs, outputs)
