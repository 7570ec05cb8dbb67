"""One lowering per op interface, from a `dl` op to structured ops that write to a destination."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import element_type_of, rank_of, shape_of
from dlc.dialects.dl.interfaces import (
    Body,
    Contraction,
    Elementwise,
    GatherLike,
    Reduction,
    ScatterLike,
    Structure,
    Window,
    broadcast_map,
    storage_type,
)
from dlc.ir import AffineExpr, AffineMap, Attribute, IntegerAttr, SSAValue, arith, i64, index, linalg, tensor
from dlc.passes.linalg.linalg_builder import LinalgBuilder, ScalarCode, TensorAccess, dense_tensor_type, element, shape
from dlc.passes.linalg.source_reads import SourceRead, standalone_dims
from dlc.passes.structured import CONSTANT_MATRIX, PACKED_DOT
from dlc.shapes.dims import Size

# Calls a function of the destination tensor, stores its result there, and returns the result.
Store = Callable[[Callable[[SSAValue], SSAValue]], SSAValue]


class OperandReads(Protocol):
    """Reads the operands of the ops of a kernel."""

    def read(self, value: SSAValue) -> SourceRead: ...

    def view(self, value: SSAValue, to: Sequence[Size]) -> SourceRead: ...


def map_elements(
    builder: LinalgBuilder, operands: Sequence[SourceRead], destination: SSAValue, code: ScalarCode, name: str
) -> SSAValue:
    """Apply `code` to the operands' elements at each index of `destination`.

    `code(body, *elements)` returns the element of the result. A scalar operand is the element at every index.
    """

    inputs = list(dict.fromkeys(r for r in operands if not r.is_scalar))

    def with_literals(body: Body, *elements: SSAValue) -> SSAValue:
        element_of = dict(zip(inputs, elements, strict=False))
        return code(body, *(r.source if r.is_scalar else element_of[r] for r in operands))

    identity = AffineMap.identity(len(shape(destination)))
    accesses = [(r.source, r.map) for r in inputs]
    return builder.generic(accesses, (destination, identity), (False,) * identity.num_dims, with_literals, name)


def elementwise(builder: LinalgBuilder, op: Elementwise, operands: OperandReads, store: Store) -> SSAValue:
    reads = [operands.read(v).through(broadcast_map(v, op.results[0])) for v in op.operands]

    def code(body: Body, *elements: SSAValue) -> SSAValue:
        return op.scalar(body, *elements)

    return store(lambda destination: map_elements(builder, reads, destination, code, short_name(op.name)))


def copy(builder: LinalgBuilder, value: SourceRead, destination: SSAValue, name: str = "copy") -> SSAValue:
    """Copy `value` to `destination`."""

    def identity(_: Body, x: SSAValue) -> SSAValue:
        return x

    return map_elements(builder, [value], destination, identity, name)


def _accumulate(
    builder: LinalgBuilder,
    inputs: Sequence[TensorAccess],
    structure: Structure,
    identity: int | float,
    code: ScalarCode,
    element_type: Attribute,
    name: str,
    store: Store,
    attributes: Mapping[str, Attribute] | None = None,
) -> SSAValue:
    """Reduce elements with an accumulator that starts with `identity`; f16 and bf16 accumulate in f32."""
    stored = storage_type(element_type)
    accumulator_type = scalar.wide_float(stored)
    start = builder.constant(identity, accumulator_type)

    def accumulate_into(destination: SSAValue) -> SSAValue:
        filled = builder.fill(start, destination)
        return builder.generic(inputs, (filled, structure.maps[-1]), structure.reductions, code, name, attributes=attributes)

    if accumulator_type == stored:
        return store(accumulate_into)
    total = SourceRead.of(accumulate_into(builder.empty(structure.views[-1], accumulator_type)))

    def narrow(body: Body, x: SSAValue) -> SSAValue:
        return scalar.convert(body, x, accumulator_type, stored)

    return store(lambda destination: map_elements(builder, [total], destination, narrow, "rounded"))


def _materialize(builder: LinalgBuilder, value: SourceRead, sizes: Sequence[Size]) -> SourceRead:
    """Store a value in a new tensor."""
    destination = builder.empty(sizes, element(value.source))
    return SourceRead.of(builder.fill(value.source, destination) if value.is_scalar else copy(builder, value, destination))


def _inputs(builder: LinalgBuilder, reads: Sequence[SourceRead], structure: Structure) -> list[TensorAccess]:
    """Return the reads as inputs of a structured op; a scalar becomes a tensor along the reduced iterators.

    Extents follow from maps that have an iterator as a result by itself. If the reads lack one (a reversed or broadcast axis
    that is summed over), a value is copied first. A value that is read element by element is preferred to one read by sliding
    windows: tiles store their copies, and windows reach beyond a tile.
    """
    reduced = [i for i, r in enumerate(structure.reductions) if r]
    reduced_map = AffineMap(len(structure.extents), 0, tuple(AffineExpr.dimension(i) for i in reduced))

    def access(read: SourceRead, map_: AffineMap) -> TensorAccess:
        if not read.is_scalar:
            return read.source, read.map.compose(map_)
        return builder.fill(
            read.source, builder.empty([structure.extents[i] for i in reduced], element(read.source))
        ), reduced_map

    *maps, result = structure.maps
    inputs = [access(read, map_) for read, map_ in zip(reads, maps, strict=True)]
    for k in sorted(range(len(maps)), key=lambda k: len(standalone_dims([maps[k]])) < len(maps[k].results)):
        undetermined = standalone_dims(structure.maps) - standalone_dims([result, *(m for _, m in inputs)])
        if undetermined & standalone_dims([maps[k]]):
            inputs[k] = copy(builder, reads[k], builder.empty(structure.views[k], element(reads[k].source))), maps[k]
    return inputs


def reduction(builder: LinalgBuilder, op: Reduction, operands: OperandReads, store: Store) -> SSAValue:
    (x,) = op.operands
    sizes, remaining_axes = shape_of(x), [a for a in range(rank_of(x)) if a not in op.reduction_axes]
    # Iterators: the axes that are not reduced, then the reduced ones.
    order = [*remaining_axes, *op.reduction_axes]
    iterators = {axis: AffineExpr.dimension(i) for i, axis in enumerate(order)}
    zero = AffineExpr.constant(0)
    result = [
        iterators.get(a, zero) if a in remaining_axes else zero
        for a in range(len(sizes))
        if a in remaining_axes or op.keeps_reduced_axes
    ]
    structure = Structure(
        maps=(
            AffineMap(len(sizes), 0, tuple(iterators[a] for a in range(len(sizes)))),
            AffineMap(len(sizes), 0, tuple(result)),
        ),
        extents=tuple(sizes[a] for a in order),
        reductions=tuple(a not in remaining_axes for a in order),
        views=(sizes, shape_of(op.results[0])),
    )
    return _lower_reduction(builder, op, structure, operands, store)


def window(builder: LinalgBuilder, op: Window, operands: OperandReads, store: Store) -> SSAValue:
    return _lower_reduction(builder, op, op.structure(), operands, store)


def _lower_reduction(
    builder: LinalgBuilder, op: Reduction | Window, structure: Structure, operands: OperandReads, store: Store
) -> SSAValue:
    (x,), element_type = op.operands, element_type_of(op.operands[0])
    inputs = _inputs(builder, [operands.read(x)], structure)
    window = sorted(set(range(len(structure.extents))) - standalone_dims(structure.maps))
    if window:
        # No operand has the window's extents (h + kh is a single size): an uninitialized tensor provides them.
        taps = builder.empty([structure.extents[i] for i in window], storage_type(element_type))
        map_ = AffineMap(len(structure.extents), 0, tuple(AffineExpr.dimension(i) for i in window))
        inputs.append((taps, map_))

    def code(body: Body, *elements: SSAValue) -> SSAValue:
        return op.combine(body, elements[-1], scalar.convert(body, elements[0], element_type, elements[-1].type))

    return _accumulate(builder, inputs, structure, op.identity(), code, element_type, short_name(op.name), store)


def contraction(
    builder: LinalgBuilder, op: Contraction, structure: Structure, operands: OperandReads, store: Store
) -> SSAValue:
    reads = [operands.view(v, view) for v, view in zip(op.operands, structure.views, strict=False)]
    reads += [reads[k] for k in structure.repeated_operands]
    inputs = _inputs(builder, reads, structure)

    def code(body: Body, *elements: SSAValue) -> SSAValue:
        *factors, accumulator = elements
        return op.accumulate(body, accumulator, *factors)

    element_type = element_type_of(op.results[0])
    attributes: dict[str, Attribute] = {} if op.constant_matrix is None else {CONSTANT_MATRIX: op.constant_matrix}
    if op.packed_dot_name is not None:
        attributes[PACKED_DOT] = op.packed_dot_name
    return _accumulate(builder, inputs, structure, 0, code, element_type, short_name(op.name), store, attributes)


def gather(builder: LinalgBuilder, op: GatherLike, operands: OperandReads, store: Store) -> SSAValue:
    sources: dict[SSAValue, SourceRead] = {}
    stand_ins: list[SSAValue] = []
    for value in op.operands:
        read = operands.read(value)
        if read.is_tensor:
            stand_ins.append(read.source)
            continue
        # An operand with a map is represented by a stand-in tensor, which the body replaces by reads through the map.
        stand_in = tensor.EmptyOp.create(
            result_types=[dense_tensor_type(shape_of(value), storage_type(element_type_of(value)))]
        ).results[0]
        sources[stand_in] = read
        stand_ins.append(stand_in)
    rank = rank_of(op.results[0])

    def code(body: Body, *_: SSAValue) -> SSAValue:
        indices = [
            body(linalg.IndexOp.create(properties={"dim": IntegerAttr(d, i64)}, result_types=[index])) for d in range(rank)
        ]
        return op.gather(body, stand_ins, indices)

    identity, name = AffineMap.identity(rank), short_name(op.name)
    return store(lambda destination: builder.generic([], (destination, identity), (False,) * rank, code, name, sources))


def scatter(
    builder: LinalgBuilder, op: ScatterLike, operands: OperandReads, store: Store, *, in_place: bool = False
) -> SSAValue:
    """Lower a scatter: the result starts as `x`, and update [i…, s…] applies to row r if its index is r:

    y[r, s…] = if r = row(indices[i…]) then y[r, s…] ∘ updates[i…, s…] else y[r, s…], for each i… in order.

    With `in_place` the destination is the memory of `x`.
    """
    x, indices, updates = (operands.read(v) for v in op.operands)
    index_rank, result_rank = rank_of(op.operands[1]), rank_of(op.results[0])
    # Iterators: the row, the axes of the indices, the other axes of a row.
    rank = index_rank + result_rank
    d = [AffineExpr.dimension(a) for a in range(rank)]
    target_map = AffineMap(rank, 0, (d[0], *d[index_rank + 1 :]))

    def accesses() -> list[TensorAccess]:
        operand_dims = ((indices, d[1 : index_rank + 1]), (updates, d[1:]))
        return [(r.source, r.map.compose(AffineMap(rank, 0, tuple(dims)))) for r, dims in operand_dims if not r.is_scalar]

    if not standalone_dims(m for _, m in accesses()) >= set(range(1, index_rank + 1)):
        # Neither operand has the extents of the index axes.
        indices = _materialize(builder, indices, shape_of(op.operands[1]))

    def code(body: Body, *elements: SSAValue) -> SSAValue:
        *input_elements, element = elements
        index_, update = (r.source if r.is_scalar else input_elements.pop(0) for r in (indices, updates))
        row, in_bounds = op.row(body, index_)
        combined = op.combine(body, element, update)
        if in_bounds is not None:
            combined = scalar.select(body, in_bounds, combined, element)
        current_row = body(linalg.IndexOp.create(properties={"dim": IntegerAttr(0, i64)}, result_types=[index]))
        return scalar.select(body, body(arith.CmpiOp(current_row, row, "eq")), combined, element)

    def scatter_into(destination: SSAValue) -> SSAValue:
        start = (
            destination if in_place else builder.fill(x.source, destination) if x.is_scalar else copy(builder, x, destination)
        )
        reductions = (False, *(True for _ in range(index_rank)), *(False for _ in range(result_rank - 1)))
        return builder.generic(accesses(), (start, target_map), reductions, code, short_name(op.name))

    return store(scatter_into)


def short_name(op_name: str) -> str:
    """Return the name of an op's result: `dl.reduce_sum` → `reduce_sum`."""
    return op_name.rpartition(".")[2]
