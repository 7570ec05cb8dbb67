"""Nests: the ops of a kernel that belong under one grid, with one naming of their iterators.

Ops are linked when one reads what another left in a local buffer. The iterators with which two linked ops walk that buffer
are the same *dimension* of the nest: they have equal strides on it. A convolution with its epilogue is a nest whose
dimensions (h, w, o) both ops share and whose (kh, k) belong to the convolution alone; the softmax of a row is a nest of five
ops that share the row.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

from dlc.dialects.dl.base import ints
from dlc.dialects.dl.programs.program import ZEROS
from dlc.dialects.remainder import RemFOp
from dlc.dialects.sizes import sizes_of, strides_of
from dlc.dims import Size, substitute
from dlc.errors import UnsupportedError
from dlc.ir import (
    AffineDimExpr,
    AffineMap,
    Block,
    BlockArgument,
    IntegerType,
    IteratorTypeAttr,
    MemRefType,
    Operation,
    SSAValue,
    arith,
    func,
    i1,
    linalg,
    math,
    memref,
)
from dlc.passes.structured import memref_of
from dlc.passes.tiling.access import Access, Term, access, root_of
from dlc.passes.tiling.scatter import scatter_of

StructuredOp = linalg.GenericOp | linalg.FillOp


# Functions that are a dozen instructions or more.
_LONG = (
    math.ExpOp, math.Exp2Op, math.ExpM1Op, math.LogOp, math.Log2Op, math.Log10Op, math.Log1pOp, math.TanhOp, math.ErfOp,
    math.SinOp, math.CosOp, math.TanOp, math.AsinOp, math.AcosOp, math.AtanOp, math.Atan2Op, math.SinhOp, math.CoshOp,
    math.AsinhOp, math.AcoshOp, math.AtanhOp, math.PowFOp, math.CbrtOp, RemFOp,
)  # fmt: skip


@dataclass(frozen=True)
class Stage:
    """One structured op of a nest; accesses and reductions speak of the nest's dimensions.

    `dims`: the dimension of each of the op's iterators. `accesses`: one per operand, the output last; None for a scalar.
    """

    op: StructuredOp
    dims: tuple[int, ...]
    reductions: frozenset[int]
    accesses: tuple[Access | None, ...]

    @property
    def output(self) -> Access:
        out = self.accesses[-1]
        assert out is not None
        return out

    @cached_property
    def inputs(self) -> tuple[Access, ...]:
        """The accesses of the operands that the body reads."""
        return tuple(a for k, a in enumerate(self.accesses[:-1]) if a is not None and is_read(self.op, k))

    @property
    def is_contraction(self) -> bool:
        """A reduction of products of two operands, but for one that reads an operand once, in rows along what it reduces."""
        several = bool(self.reductions) and len(self.inputs) >= 2 and self.scattered is None
        return several and not any(self._is_in_rows(a) for a in self.inputs)

    @cached_property
    def sums(self) -> int:
        """How many sums of floats its body holds per element: two if it adds several products up before the accumulator."""
        additions = [o for o in self.op.regions[0].block.ops if isinstance(o, arith.AddfOp)]
        return 2 if any(o not in _steps_of(self) for o in additions) else 1

    def _is_in_rows(self, a: Access) -> bool:
        return all(a.uses(d) for d in self.dims if d >= 0) and any(a.stride(d) == 1 for d in self.reductions)

    @cached_property
    def scattered(self) -> int | None:
        """The dimension along which data says where its body writes."""
        scatter = scatter_of(self.op)
        return None if scatter is None else self.dims[scatter.iterator]

    @property
    def reads_at_computed_places(self) -> bool:
        return loads_at_computed_places(self.op)

    @cached_property
    def neighbours(self) -> int | None:
        """The dimension along which its loads at computed places read neighbours."""
        d = neighbour_loads(self.op)
        return None if d is None else self.dims[d]

    @property
    def has_long_formulas(self) -> bool:
        """Whether its body calls functions that become polynomials."""
        return any(isinstance(o, _LONG) for o in self.op.regions[0].block.ops)

    @property
    def uses_indices(self) -> bool:
        return any(isinstance(o, linalg.IndexOp) for o in self.op.regions[0].block.ops)


def loads_at_computed_places(op: Operation) -> bool:
    """Whether its body loads from memory at other places than constants: such a body runs element by element."""
    loads = (o for o in op.regions[0].block.ops if isinstance(o, memref.LoadOp))
    return any(not isinstance(index.owner, arith.ConstantOp) for load in loads for index in load.indices)


def neighbour_loads(op: Operation) -> int | None:
    """The iterator along which all loads at computed places read neighbours or the same: they take vectors along it.

    %row = memref.load %indices[%i];  %v = memref.load %x[%row, %j]   →   j
    """
    body = op.regions[0].block
    lanes = [o for o in body.ops if isinstance(o, linalg.IndexOp)]
    for d in sorted({o.dim.value.data for o in lanes}, reverse=True):
        varying: set[SSAValue] = set()
        for inner in body.ops:
            here = isinstance(inner, linalg.IndexOp) and inner.dim.value.data == d
            if here or not varying.isdisjoint(inner.operands):
                varying.update(inner.results)
        loads = [o for o in body.ops if isinstance(o, memref.LoadOp) and not varying.isdisjoint(o.indices)]
        if loads and all(reads_neighbours(load, varying) for load in loads):
            return d
    return None


def reads_neighbours(load: memref.LoadOp, varying: Container[SSAValue]) -> bool:
    """Whether only the last index varies, as an iterator does, on which something may be added, over contiguous memory."""
    *outer, last = load.indices
    if any(i in varying for i in outer) or strides_of(load.memref)[-1] != 1:
        return False
    terms = last.owner.operands if isinstance(last.owner, arith.AddiOp) else [last]
    (term, *others) = [t for t in terms if t in varying]
    return not others and isinstance(term.owner, linalg.IndexOp)


@dataclass(frozen=True)
class OpenNest:
    """Stages in program order, and the extent of each of their dimensions: a number, or a polynomial in the kernel's sizes.

    `zeros` are the buffers that may have blocks of zeros.
    """

    stages: Sequence[Stage]
    extents: Mapping[int, Size]
    zeros: frozenset[SSAValue] = field(default=frozenset(), kw_only=True)

    @property
    def symbolic(self) -> list[int]:
        """The dimensions whose extents are known only when the kernel runs."""
        return [d for d, extent in self.extents.items() if not isinstance(extent, int)]

    def at(self, sizes: Mapping[str, int]) -> Nest:
        """The nest for these sizes."""

        def known(a: Access | None) -> Access | None:
            if a is None:
                return None
            terms = tuple(replace(t, stride=substitute(t.stride, sizes)) for t in a.terms)
            return replace(a, offset=substitute(a.offset, sizes), terms=terms)

        stages = [replace(s, accesses=tuple(map(known, s.accesses))) for s in self.stages]
        extents = {d: int(substitute(extent, sizes)) for d, extent in self.extents.items()}
        # An example may be none of the sizes that there are, and have no element.
        extents |= {d: max(extents[d], 1) for d in self.symbolic}
        return Nest(stages, extents, frozenset(self.symbolic), zeros=self.zeros)

    @property
    def shared(self) -> list[int]:
        """The dimensions that every stage can be cut along: parallel in the last, reduced in none.

        A reduction that lacks a dimension would be computed anew for each part of it, and so would one that may write
        anywhere along it.
        """
        reductions = [s for s in self.stages if s.reductions or s.scattered is not None]
        reduced = {d for s in reductions for d in (*s.reductions, s.scattered)}
        return [d for d in self.stages[-1].dims if d not in reduced and all(d in s.dims for s in reductions)]

    def locals(self) -> set[SSAValue]:
        """The buffers that live inside the nest."""
        return {s.output.root for s in self.stages if isinstance(s.output.root.owner, memref.AllocaOp)}


@dataclass(frozen=True)
class Nest(OpenNest):
    """A nest whose extents are numbers; those of `open` dimensions are examples."""

    extents: Mapping[int, int]
    open: frozenset[int] = frozenset()

    @cached_property
    def element_bytes(self) -> int:
        """The bytes of the elements that a register is full of: four, or fewer where its ops have narrow integers alone."""
        values = (v for s in self.stages for v in (*_body(s).args, *(r for o in _body(s).ops for r in o.results)))
        types = {v.type for v in values} - {i1}
        widths = [int(cast(IntegerType, t).width.data) // 8 for t in types if isinstance(t, IntegerType)]
        return min(4, max(widths)) if widths and len(widths) == len(types) else 4


def _body(stage: Stage) -> Block:
    return stage.op.regions[0].block


def combiner_of(stage: Stage) -> Operation | None:
    """The op that combines the accumulator with an element, if the body ends in one such op, or in several additions."""
    steps = _steps_of(stage)
    if not steps or (len(steps) > 1 and not all(isinstance(s, arith.AddfOp) for s in steps)):
        return None
    # Operands in the order (accumulator, element), as the final reduction passes them.
    return steps[-1]


def _steps_of(stage: Stage) -> list[Operation]:
    """The ops of two operands that lead from the accumulator to what the body yields; none where it goes another way."""
    body, steps = stage.op.regions[0].block, list[Operation]()
    value: SSAValue = body.args[-1]
    while (use := value.get_user_of_unique_use()) is not body.last_op:
        if use is None or len(use.operands) != 2 or len(use.results) != 1:
            return []
        steps.append(use)
        value = use.results[0]
    return steps


def initial_of(stage: Stage, nest: OpenNest) -> Stage | None:
    """The stage that filled the accumulator."""
    fills = (s for s in nest.stages if isinstance(s.op, linalg.FillOp) and s.output.root is stage.output.root)
    return next(fills, None)


def can_split(stage: Stage, nest: Nest) -> bool:
    """Whether parts of a reduction can be computed from its identity, and combined."""
    return combiner_of(stage) is not None and initial_of(stage, nest) is not None


def identity_of(stage: Stage, nest: Nest) -> SSAValue:
    """The scalar that the accumulator was filled with.

    Raises UnsupportedError for a reduction that cannot be split.
    """
    initial = initial_of(stage, nest)
    if initial is None or combiner_of(stage) is None:
        raise UnsupportedError("a reduction has no combiner or no identity to split it with")
    return initial.op.operands[0]


def choice_of(stage: Stage) -> tuple[int, SSAValue] | None:
    """The operand by whose elements a stage chooses between what it computes and a number, and that number, if it does."""
    body = stage.op.regions[0].block
    last = body.last_op
    made = last.operands[0].owner if last is not None and last.operands else None
    if not isinstance(made, arith.SelectOp) or not isinstance(made.cond, BlockArgument) or made.cond.owner is not body:
        return None
    if made.rhs.owner is body or (isinstance(made.rhs.owner, Operation) and made.rhs.owner.parent is body):
        return None
    return made.cond.index, made.rhs


def lane_dim(nest: Nest, stage: Stage) -> int | None:
    """The dimension that is contiguous in memory: in the output, else in most inputs."""
    candidates = [d for d in stage.dims if d >= 0]
    votes = {d: 0 for d in candidates}
    for weight, accesses in ((2, (stage.output,)), (1, stage.inputs)):
        for a in accesses:
            for d in candidates:
                votes[d] += weight * (a.stride(d) == 1)
    if stage.reductions and not any(votes[d] >= 2 for d in candidates):
        # A reduction to few elements: along the inputs' contiguous dimension, if that is reduced.
        contiguous = [d for d in stage.reductions if any(a.stride(d) == 1 for a in stage.inputs)]
        return max(contiguous, key=lambda d: nest.extents[d], default=None)
    best = max(candidates, key=lambda d: (votes[d], nest.extents[d]), default=None)
    return best if best is not None and votes[best] else None


def is_read(op: StructuredOp, k: int) -> bool:
    """Whether the body uses operand `k`: a window's shape, say, is an operand for its sizes alone."""
    return op.regions[0].block.args[k].first_use is not None


def operand_maps(op: StructuredOp) -> list[AffineMap]:
    """One map per operand."""
    if isinstance(op, linalg.FillOp):
        rank = len(memref_of(op.outputs[0]).get_shape())
        return [AffineMap(rank, 0, ()), AffineMap.identity(rank)]
    return [m.data for m in op.indexing_maps]


_REDUCTION = IteratorTypeAttr.reduction()


def reduction_iterators(op: StructuredOp) -> list[bool]:
    """Which iterators are reduced."""
    if isinstance(op, linalg.FillOp):
        return [False] * len(memref_of(op.outputs[0]).get_shape())
    return [t == _REDUCTION for t in op.iterator_types]


def iterator_extents(op: StructuredOp) -> list[Size]:
    """The number of steps of each iterator, from the shapes that plain map results index.

    An iterator that no operand indexes by itself (one inside a sum or a division only) has no such shape: lowering adds
    none, as in MLIR, where these loops would have no bounds.
    """
    maps = operand_maps(op)
    extents: list[Size] = [-1] * maps[0].num_dims
    for operand, map_ in zip(op.operands, maps, strict=True):
        if not isinstance(operand.type, MemRefType):
            continue
        for size, expr in zip(sizes_of(operand), map_.results, strict=True):
            if isinstance(expr, AffineDimExpr):
                extents[expr.position] = size
    if -1 in extents:
        raise UnsupportedError(f"{op.name}: iterator {extents.index(-1)} has no operand that gives its extent")
    return extents


@dataclass
class _Walk:
    """How one op walks its operands: its iterators (more than the op's own once some are split), and accesses by them."""

    op: StructuredOp
    extents: list[Size]
    reduced: list[bool]
    accesses: list[Access | None]

    @staticmethod
    def of(op: StructuredOp) -> _Walk:
        for inner in op.regions[0].block.ops:
            if isinstance(inner, memref.LoadOp) and isinstance(root_of(inner.memref)[0].owner, memref.AllocaOp):
                raise UnsupportedError(f"{op.name} loads from a local buffer at computed places; form two kernels of it")
        extents = iterator_extents(op)
        accesses = [
            access(operand, map_) if isinstance(operand.type, MemRefType) else None
            for operand, map_ in zip(op.operands, operand_maps(op), strict=True)
        ]
        walk = _Walk(op, extents, reduction_iterators(op), accesses)
        walk.accesses = [None if a is None else replace(a, terms=tuple(_simplified(a.terms, extents))) for a in accesses]
        return walk

    @property
    def output(self) -> Access:
        out = self.accesses[-1]
        assert out is not None
        return out

    def split(self, iterator: int, inner: Size) -> None:
        """Makes two iterators of one: its steps of `inner`, in its place, and a new one of `inner` steps."""
        if any(isinstance(o, linalg.IndexOp) for o in self.op.regions[0].block.ops):
            raise UnsupportedError(f"{self.op.name}: an iterator that the body asks for must be split; form two kernels of it")
        new = len(self.extents)
        self.extents[iterator] = self.extents[iterator] // inner
        self.extents.append(inner)
        self.reduced.append(self.reduced[iterator])

        def digits(t: Term) -> tuple[Term, ...]:
            if t.iterator != iterator:
                return (t,)
            if not t.is_plain:
                raise UnsupportedError(f"{self.op.name}: an iterator of a packed operand must be split; form two kernels of it")
            return replace(t, stride=t.stride * inner), Term(new, t.stride)

        self.accesses = [
            None if a is None else replace(a, terms=tuple(d for t in a.terms for d in digits(t))) for a in self.accesses
        ]


class _Union:
    """Union-find over (stage, iterator)."""

    def __init__(self) -> None:
        self.parent: dict[tuple[int, int], tuple[int, int]] = {}

    def find(self, x: tuple[int, int]) -> tuple[int, int]:
        while (p := self.parent.setdefault(x, x)) != x:
            x = p
        return x

    def join(self, a: tuple[int, int], b: tuple[int, int]) -> None:
        ra, rb = self.find(a), self.find(b)
        self.parent[max(ra, rb)] = min(ra, rb)


def nests_of(kernel: func.FuncOp) -> list[OpenNest]:
    """The nests of a kernel, in program order. Iterators of extent 1 are in no dimension."""
    walks = [_Walk.of(op) for op in kernel.body.block.ops if isinstance(op, linalg.GenericOp | linalg.FillOp)]
    links = [(w, r, k) for r, walk in enumerate(walks) for k in range(len(walk.accesses)) for w in _writers(walks, r, k)]
    while any([_align(walks[w], walks[r], k) for w, r, k in links]):
        pass
    union = _Union()
    group = list(range(len(walks)))
    for w, r, k in links:
        for twin, term in _twins(walks[w], walks[r], k):
            union.join((w, twin.iterator), (r, term.iterator))
        group = [group[w] if g == group[r] else g for g in group]
    zeros = frozenset(kernel.body.block.args[k] for k in ints(kernel.attributes.get(ZEROS)))
    members = ([(i, walks[i]) for i in range(len(walks)) if group[i] == g] for g in sorted(set(group)))
    return [replace(_nest(m, union), zeros=zeros) for m in members]


def _writers(walks: Sequence[_Walk], r: int, k: int) -> list[int]:
    """The earlier ops whose output matters to operand `k` of op `r`: it reads it, or the buffer is a local one.

    Two plain writes to disjoint windows of an argument (the border and the interior of a padded result) do not.
    """
    op, here = walks[r].op, walks[r].accesses[k]
    if here is None:
        return []
    is_output = k == len(op.operands) - 1
    reads = isinstance(op, linalg.GenericOp) and is_read(op, k)
    if is_output and not reads and not isinstance(here.root.owner, memref.AllocaOp):
        return []
    return [w for w in range(r) if walks[w].output.root is here.root]


def _align(writer: _Walk, reader: _Walk, k: int) -> bool:
    """Splits an iterator of the coarser walk where the other walks the same elements with two; whether it did."""
    here = reader.accesses[k]
    assert here is not None
    for term in here.terms:
        for t in writer.output.terms:
            ours, theirs = reader.extents[term.iterator], writer.extents[t.iterator]
            if t.stride != term.stride or ours == theirs:
                continue
            if ours % theirs == 0:
                reader.split(term.iterator, theirs)
                return True
            if theirs % ours == 0:
                writer.split(t.iterator, ours)
                return True
    return False


def _twins(writer: _Walk, reader: _Walk, k: int) -> Iterator[tuple[Term, Term]]:
    """The writer's and the reader's terms that walk the buffer alike."""
    here, there = reader.accesses[k], writer.output
    assert here is not None
    for term in here.terms:
        extent = reader.extents[term.iterator]
        twin = next((t for t in there.terms if t.stride == term.stride and writer.extents[t.iterator] == extent), None)
        if twin is None or here.offset != there.offset:
            raise UnsupportedError(
                f"a kernel reads its local buffer {here.root.name_hint or ''} in another order than it was written; "
                "form two kernels of it"
            )
        yield twin, term


def _simplified(terms: Sequence[Term], extents: Sequence[Size]) -> Iterator[Term]:
    """Terms without steps that never happen: extent 1, i floordiv c with i < c, i mod c with i < c."""
    for t in terms:
        extent = extents[t.iterator]
        if extent == 1 or (isinstance(extent, int) and t.divisor >= extent):
            continue
        yield replace(t, modulus=0) if isinstance(extent, int) and t.modulus >= extent else t


def _nest(members: list[tuple[int, _Walk]], union: _Union) -> OpenNest:
    numbers: dict[tuple[int, int], int] = {}
    stages: list[Stage] = []
    extents: dict[int, Size] = {}
    for s, walk in members:
        dims: list[int] = []
        for i, extent in enumerate(walk.extents):
            # An iterator of extent 1 stands for no dimension: -1 keeps the positions of the others.
            d = -1 if extent == 1 else numbers.setdefault(union.find((s, i)), len(numbers))
            dims.append(d)
            if d >= 0:
                extents[d] = extent
        renamed = tuple(
            None if a is None else replace(a, terms=tuple(replace(t, iterator=dims[t.iterator]) for t in a.terms))
            for a in walk.accesses
        )
        reductions = frozenset(d for d, r in zip(dims, walk.reduced, strict=True) if r and d >= 0)
        stages.append(Stage(walk.op, tuple(dims), reductions, renamed))
    return OpenNest(stages, extents)
