"""One lowering per interface: a `dl` op as structured ops on tensors that write where they are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import element_type_of, rank_of, shape_of
from dlc.dialects.dl.interfaces import (
    Body,
    Contraction,
    Elementwise,
    Gathering,
    Reduction,
    Scattering,
    Structure,
    Window,
    broadcast_map,
    storage_type,
)
from dlc.dims import Size
from dlc.ir import AffineExpr, AffineMap, Attribute, IntegerAttr, SSAValue, arith, i64, index, linalg, tensor
from dlc.passes.linalg.reads import Read, alone
from dlc.passes.linalg.write import Access, ScalarCode, Writer, dense, element, shape
from dlc.passes.structured import DOT, MATRIX

# Stores what a function makes of the tensor that a result is written to, and returns that.
Store = Callable[[Callable[[SSAValue], SSAValue]], SSAValue]


class Operands(Protocol):
    """How the operands of the ops of a kernel are read."""

    def read(self, value: SSAValue) -> Read: ...

    def view(self, value: SSAValue, to: Sequence[Size]) -> Read: ...


def map_elements(write: Writer, operands: Sequence[Read], target: SSAValue, code: ScalarCode, name: str) -> SSAValue:
    """`code` of the operands' elements in each element of `target`; the operands are read at its index.

    `code(body, *elements)`; a literal operand is an element as it stands.
    """

    inputs = list(dict.fromkeys(r for r in operands if not r.is_scalar))

    def with_literals(body: Body, *elements: SSAValue) -> SSAValue:
        element_of = dict(zip(inputs, elements, strict=False))
        return code(body, *(r.source if r.is_scalar else element_of[r] for r in operands))

    identity = AffineMap.identity(len(shape(target)))
    accesses = [(r.source, r.map) for r in inputs]
    return write.generic(accesses, (target, identity), (False,) * identity.num_dims, with_literals, name)


def elementwise(write: Writer, op: Elementwise, operands: Operands, store: Store) -> SSAValue:
    reads = [operands.read(v).through(broadcast_map(v, op.results[0])) for v in op.operands]

    def code(body: Body, *elements: SSAValue) -> SSAValue:
        return op.scalar(body, *elements)

    return store(lambda target: map_elements(write, reads, target, code, short_name(op.name)))


def copy(write: Writer, value: Read, target: SSAValue, name: str = "copy") -> SSAValue:
    """`value` in `target`."""

    def same(_: Body, x: SSAValue) -> SSAValue:
        return x

    return map_elements(write, [value], target, same, name)


def _accumulate(
    write: Writer,
    inputs: Sequence[Access],
    structure: Structure,
    identity: int | float,
    code: ScalarCode,
    element_type: Attribute,
    name: str,
    store: Store,
    known: Mapping[str, Attribute] | None = None,
) -> SSAValue:
    """Combines elements into an accumulator that starts with `identity`; 16-bit floats accumulate in f32."""
    stored = storage_type(element_type)
    wide = scalar.wide_float(stored)
    start = write.number(identity, wide)

    def into(target: SSAValue) -> SSAValue:
        filled = write.fill(start, target)
        return write.generic(inputs, (filled, structure.maps[-1]), structure.reductions, code, name, known=known)

    if wide == stored:
        return store(into)
    total = Read.of(into(write.empty(structure.views[-1], wide)))

    def narrow(body: Body, x: SSAValue) -> SSAValue:
        return scalar.convert(body, x, wide, stored)

    return store(lambda target: map_elements(write, [total], target, narrow, "rounded"))


def _tensor(write: Writer, value: Read, sizes: Sequence[Size]) -> Read:
    """A value as a tensor of its own."""
    target = write.empty(sizes, element(value.source))
    return Read.of(write.fill(value.source, target) if value.is_scalar else copy(write, value, target))


def _inputs(write: Writer, reads: Sequence[Read], structure: Structure) -> list[Access]:
    """The read values as inputs of a structured op; a literal becomes a tensor along what is reduced.

    Extents follow from maps in which an iterator stands alone. Where reads hide one (a reversed or broadcast axis that is
    summed over), one of the values is copied first: one that the op goes through element by element, before one that windows
    slide over, since tiles keep what they copy, and windows reach beyond it.
    """
    reduced = [i for i, r in enumerate(structure.reductions) if r]
    along = AffineMap(len(structure.extents), 0, tuple(AffineExpr.dimension(i) for i in reduced))

    def access(read: Read, map_: AffineMap) -> Access:
        if not read.is_scalar:
            return read.source, read.map.compose(map_)
        return write.fill(read.source, write.empty([structure.extents[i] for i in reduced], element(read.source))), along

    *maps, result = structure.maps
    inputs = [access(read, map_) for read, map_ in zip(reads, maps, strict=True)]
    for k in sorted(range(len(maps)), key=lambda k: len(alone([maps[k]])) < len(maps[k].results)):
        hidden = alone(structure.maps) - alone([result, *(m for _, m in inputs)])
        if hidden & alone([maps[k]]):
            inputs[k] = copy(write, reads[k], write.empty(structure.views[k], element(reads[k].source))), maps[k]
    return inputs


def reduction(write: Writer, op: Reduction, operands: Operands, store: Store) -> SSAValue:
    (x,) = op.operands
    sizes, kept = shape_of(x), [a for a in range(rank_of(x)) if a not in op.reduction_axes]
    # Iterators: the kept axes, then the reduced ones.
    order = [*kept, *op.reduction_axes]
    iterators = {axis: AffineExpr.dimension(i) for i, axis in enumerate(order)}
    zero = AffineExpr.constant(0)
    result = [iterators.get(a, zero) if a in kept else zero for a in range(len(sizes)) if a in kept or op.keeps_axes]
    structure = Structure(
        maps=(
            AffineMap(len(sizes), 0, tuple(iterators[a] for a in range(len(sizes)))),
            AffineMap(len(sizes), 0, tuple(result)),
        ),
        extents=tuple(sizes[a] for a in order),
        reductions=tuple(a not in kept for a in order),
        views=(sizes, shape_of(op.results[0])),
    )
    return _combined(write, op, structure, operands, store)


def window(write: Writer, op: Window, operands: Operands, store: Store) -> SSAValue:
    return _combined(write, op, op.structure(), operands, store)


def _combined(write: Writer, op: Reduction | Window, structure: Structure, operands: Operands, store: Store) -> SSAValue:
    (x,), element_type = op.operands, element_type_of(op.operands[0])
    inputs = _inputs(write, [operands.read(x)], structure)
    window = sorted(set(range(len(structure.extents))) - alone(structure.maps))
    if window:
        # The window's extents follow from no operand (h + kh is one size): a tensor without contents tells them.
        taps = write.empty([structure.extents[i] for i in window], storage_type(element_type))
        map_ = AffineMap(len(structure.extents), 0, tuple(AffineExpr.dimension(i) for i in window))
        inputs.append((taps, map_))

    def code(body: Body, *elements: SSAValue) -> SSAValue:
        return op.combine(body, elements[-1], scalar.convert(body, elements[0], element_type, elements[-1].type))

    return _accumulate(write, inputs, structure, op.identity(), code, element_type, short_name(op.name), store)


def contraction(write: Writer, op: Contraction, structure: Structure, operands: Operands, store: Store) -> SSAValue:
    reads = [operands.view(v, view) for v, view in zip(op.operands, structure.views, strict=False)]
    reads += [reads[k] for k in structure.again]
    inputs = _inputs(write, reads, structure)

    def code(body: Body, *elements: SSAValue) -> SSAValue:
        *factors, accumulator = elements
        return op.added(body, accumulator, *factors)

    element_type = element_type_of(op.results[0])
    known: dict[str, Attribute] = {} if op.known_factor is None else {MATRIX: op.known_factor}
    if op.word_product is not None:
        known[DOT] = op.word_product
    return _accumulate(write, inputs, structure, 0, code, element_type, short_name(op.name), store, known)


def gathering(write: Writer, op: Gathering, operands: Operands, store: Store) -> SSAValue:
    sources: dict[SSAValue, Read] = {}
    stand_ins: list[SSAValue] = []
    for value in op.operands:
        read = operands.read(value)
        if read.is_tensor:
            stand_ins.append(read.source)
            continue
        # What is no tensor as it stands is read through its map: the body knows the stand-in and never emits it.
        stand_in = tensor.EmptyOp.create(result_types=[dense(shape_of(value), storage_type(element_type_of(value)))]).results[0]
        sources[stand_in] = read
        stand_ins.append(stand_in)
    rank = rank_of(op.results[0])

    def code(body: Body, *_: SSAValue) -> SSAValue:
        indices = [
            body(linalg.IndexOp.create(properties={"dim": IntegerAttr(d, i64)}, result_types=[index])) for d in range(rank)
        ]
        return op.gather(body, stand_ins, indices)

    identity, name = AffineMap.identity(rank), short_name(op.name)
    return store(lambda target: write.generic([], (target, identity), (False,) * rank, code, name, sources))


def scattering(write: Writer, op: Scattering, operands: Operands, store: Store, *, in_place: bool = False) -> SSAValue:
    """The result starts as `x`; update [i…, s…] counts in the row r that its index names:

    y[r, s…] = if r = row(indices[i…]) then y[r, s…] ∘ updates[i…, s…] else y[r, s…], for each i… in order.

    `in_place`, the target is where `x` is.
    """
    x, indices, updates = (operands.read(v) for v in op.operands)
    places, whole = rank_of(op.operands[1]), rank_of(op.results[0])
    # Iterators: the row, the places of the indices, the rest of a row.
    rank = places + whole
    d = [AffineExpr.dimension(a) for a in range(rank)]
    target_map = AffineMap(rank, 0, (d[0], *d[places + 1 :]))

    def accesses() -> list[Access]:
        read = ((indices, d[1 : places + 1]), (updates, d[1:]))
        return [(r.source, r.map.compose(AffineMap(rank, 0, tuple(at)))) for r, at in read if not r.is_scalar]

    if not alone(m for _, m in accesses()) >= set(range(1, places + 1)):
        # Neither says how many places there are.
        indices = _tensor(write, indices, shape_of(op.operands[1]))

    def code(body: Body, *elements: SSAValue) -> SSAValue:
        *given, element = elements
        index_, update = (r.source if r.is_scalar else given.pop(0) for r in (indices, updates))
        row, inside = op.row(body, index_)
        made = op.combine(body, element, update)
        if inside is not None:
            made = scalar.select(body, inside, made, element)
        here = body(linalg.IndexOp.create(properties={"dim": IntegerAttr(0, i64)}, result_types=[index]))
        return scalar.select(body, body(arith.CmpiOp(here, row, "eq")), made, element)

    def into(target: SSAValue) -> SSAValue:
        start = target if in_place else write.fill(x.source, target) if x.is_scalar else copy(write, x, target)
        reductions = (False, *(True for _ in range(places)), *(False for _ in range(whole - 1)))
        return write.generic(accesses(), (start, target_map), reductions, code, short_name(op.name))

    return store(into)


def short_name(op_name: str) -> str:
    """`dl.reduce_sum` → `reduce_sum`: what an op's result is called."""
    return op_name.rpartition(".")[2]
