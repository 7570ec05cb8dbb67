"""Nests: the ops of a kernel that belong under one grid, with one naming of their iterators.

Ops are linked when one reads what another left in a local buffer. The iterators with which two linked ops walk that buffer
are the same *dimension* of the nest: they have equal strides on it. A convolution with its epilogue is a nest whose
dimensions (h, w, o) both ops share and whose (kh, k) belong to the convolution alone; the softmax of a row is a nest of five
ops that share the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from dlc.errors import UnsupportedError
from dlc.ir import AffineMap, IteratorTypeAttr, MemRefType, SSAValue, func, linalg, math, memref
from dlc.passes.structured import memref_of
from dlc.passes.tiling.access import Access, Term, access

StructuredOp = linalg.GenericOp | linalg.FillOp


# Functions of the `math` dialect that are a dozen instructions or more.
_LONG = (
    math.ExpOp, math.Exp2Op, math.ExpM1Op, math.LogOp, math.Log2Op, math.Log10Op, math.Log1pOp, math.TanhOp, math.ErfOp,
    math.SinOp, math.CosOp, math.TanOp, math.AsinOp, math.AcosOp, math.AtanOp, math.Atan2Op, math.SinhOp, math.CoshOp,
    math.AsinhOp, math.AcoshOp, math.AtanhOp, math.PowFOp, math.CbrtOp,
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
        """A reduction of products of two operands."""
        return bool(self.reductions) and len(self.inputs) >= 2

    @property
    def reads_at_computed_places(self) -> bool:
        """Whether its body loads from memory: such a body runs element by element."""
        return any(isinstance(o, memref.LoadOp) for o in self.op.regions[0].block.ops)

    @property
    def has_long_formulas(self) -> bool:
        """Whether its body calls functions that become polynomials."""
        return any(isinstance(o, _LONG) for o in self.op.regions[0].block.ops)

    @property
    def uses_indices(self) -> bool:
        return any(isinstance(o, linalg.IndexOp) for o in self.op.regions[0].block.ops)


@dataclass
class Nest:
    """Stages in program order, and the extent of each of their dimensions."""

    stages: list[Stage]
    extents: dict[int, int] = field(default_factory=dict[int, int])

    @property
    def shared(self) -> list[int]:
        """The dimensions that every stage can be cut along: parallel in the last, reduced in none."""
        reduced = {d for s in self.stages for d in s.reductions}
        return [d for d in self.stages[-1].dims if d not in reduced]

    def locals(self) -> set[SSAValue]:
        """The buffers that live inside the nest."""
        return {s.output.root for s in self.stages if isinstance(s.output.root.owner, memref.AllocaOp)}


def is_read(op: StructuredOp, k: int) -> bool:
    """Whether the body uses operand `k`: a window's shape, say, is an operand for its sizes alone."""
    return op.regions[0].block.args[k].first_use is not None


def operand_maps(op: StructuredOp) -> list[AffineMap]:
    """One map per operand."""
    if isinstance(op, linalg.FillOp):
        rank = len(memref_of(op.outputs[0]).get_shape())
        return [AffineMap(rank, 0, ()), AffineMap.identity(rank)]
    return [m.data for m in op.indexing_maps]


def reduction_iterators(op: StructuredOp) -> list[bool]:
    """Which iterators are reduced."""
    if isinstance(op, linalg.FillOp):
        return [False] * len(memref_of(op.outputs[0]).get_shape())
    return [t == IteratorTypeAttr.reduction() for t in op.iterator_types]


def iterator_extents(op: StructuredOp) -> list[int]:
    """The number of steps of each iterator, from the shapes that plain map results index.

    An iterator that no operand indexes by itself (one inside a sum or a division only) has no such shape: lowering adds
    none, as in MLIR, where these loops would have no bounds.
    """
    maps = operand_maps(op)
    extents = [-1] * maps[0].num_dims
    for operand, map_ in zip(op.operands, maps, strict=True):
        if not isinstance(operand.type, MemRefType):
            continue
        for size, expr in zip(memref_of(operand).get_shape(), map_.results, strict=True):
            for d in range(len(extents)):
                if expr == AffineMap.identity(len(extents)).results[d]:
                    extents[d] = size
    if -1 in extents:
        raise UnsupportedError(f"{op.name}: iterator {extents.index(-1)} has no operand that gives its extent")
    return extents


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


def nests_of(kernel: func.FuncOp) -> list[Nest]:
    """The nests of a kernel, in program order. Iterators of extent 1 are in no dimension."""
    ops = [op for op in kernel.body.block.ops if isinstance(op, linalg.GenericOp | linalg.FillOp)]
    extents = [iterator_extents(op) for op in ops]
    accesses = [_accesses(op, e) for op, e in zip(ops, extents, strict=True)]
    union = _Union()
    group = list(range(len(ops)))
    for s, op in enumerate(ops):
        for operand, here in zip(op.operands, accesses[s], strict=True):
            writers = [w for w in range(s) if _same_root(accesses[w][-1], here)]
            if not writers or here is None or not _is_link(op, operand, here):
                continue
            for w in writers:
                there = accesses[w][-1]
                assert there is not None
                _link(union, (w, there, extents[w]), (s, here, extents[s]))
                old, new = group[s], group[w]
                group = [new if g == old else g for g in group]
    return [
        _nest(
            [(i, ops[i]) for i in range(len(ops)) if group[i] == g], union, extents, accesses
        )
        for g in sorted(set(group))
    ]


def _same_root(a: Access | None, b: Access | None) -> bool:
    return a is not None and b is not None and a.root is b.root


def _is_link(op: StructuredOp, operand: SSAValue, here: Access) -> bool:
    """Whether an earlier write of the operand's buffer matters: it is read, or it is a local buffer.

    Two plain writes to disjoint windows of an argument (the border and the interior of a padded result) do not.
    """
    if operand is not op.operands[-1] or isinstance(here.root.owner, memref.AllocaOp):
        return True
    body = op.regions[0].block
    return isinstance(op, linalg.GenericOp) and bool(body.args[len(op.operands) - 1].first_use)


def _accesses(op: StructuredOp, extents: Sequence[int]) -> list[Access | None]:
    result: list[Access | None] = []
    for operand, map_ in zip(op.operands, operand_maps(op), strict=True):
        if not isinstance(operand.type, MemRefType):
            result.append(None)
            continue
        a = access(operand, map_)
        result.append(replace(a, terms=tuple(_simplified(a.terms, extents))))
    return result


def _simplified(terms: Sequence[Term], extents: Sequence[int]) -> Iterator[Term]:
    """Terms without steps that never happen: extent 1, i floordiv c with i < c, i mod c with i < c."""
    for t in terms:
        extent = extents[t.iterator]
        if extent == 1 or t.divisor >= extent:
            continue
        yield replace(t, modulus=0) if t.modulus >= extent else t


def _link(union: _Union, writer: tuple[int, Access, list[int]], reader: tuple[int, Access, list[int]]) -> None:
    (w, there, w_extents), (r, here, r_extents) = writer, reader
    for term in here.terms:
        twin = next(
            (t for t in there.terms if t.stride == term.stride and w_extents[t.iterator] == r_extents[term.iterator]), None
        )
        if twin is None or here.offset != there.offset:
            raise UnsupportedError(
                f"a kernel reads its local buffer {here.root.name_hint or ''} in another order than it was written; "
                "form two kernels of it"
            )
        union.join((w, twin.iterator), (r, term.iterator))


def _nest(
    members: list[tuple[int, StructuredOp]],
    union: _Union,
    extents: list[list[int]],
    accesses: list[list[Access | None]],
) -> Nest:
    numbers: dict[tuple[int, int], int] = {}
    nest = Nest([])
    for s, op in members:
        dims: list[int] = []
        for i, extent in enumerate(extents[s]):
            # An iterator of extent 1 stands for no dimension: -1 keeps the positions of the others.
            d = -1 if extent == 1 else numbers.setdefault(union.find((s, i)), len(numbers))
            dims.append(d)
            if d >= 0:
                nest.extents[d] = extent
        renamed = tuple(
            None if a is None else replace(a, terms=tuple(replace(t, iterator=dims[t.iterator]) for t in a.terms))
            for a in accesses[s]
        )
        reductions = frozenset(d for d, r in zip(dims, reduction_iterators(op), strict=True) if r and d >= 0)
        nest.stages.append(Stage(op, tuple(dims), reductions, renamed))
    return nest

