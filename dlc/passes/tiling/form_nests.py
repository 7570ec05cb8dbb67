"""Form loop nests: link the ops of a kernel, unify the iterators that are the same dimension, and merge dimensions.

If two ops traverse a local buffer with different iterators (one linearly, the other in rows), the coarser iterator
is split first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dlc.dialects.dl.base import ints
from dlc.dialects.dl.programs.program import ZEROS
from dlc.errors import UnsupportedError
from dlc.ir import MemRefType, func, linalg, memref
from dlc.passes.tiling.affine_access import AffineAccess, AffineTerm, access, root_of, view_order
from dlc.passes.tiling.loop_nests import LoopNest, NestOp
from dlc.passes.tiling.merge_iterators import merge_iterators
from dlc.passes.tiling.structured_ops import StructuredOp, is_read, iterator_extents, operand_maps, reduction_iterators
from dlc.shapes.dims import Size
from dlc.target import REFERENCE, Target


@dataclass
class _OpIteration:
    """The iterators of an op, including those that splits have added, and its accesses."""

    op: StructuredOp
    extents: list[Size]
    reduced: list[bool]
    accesses: list[AffineAccess | None]

    @staticmethod
    def of(op: StructuredOp) -> _OpIteration:
        for inner in op.regions[0].block.ops:
            if isinstance(inner, memref.LoadOp) and isinstance(root_of(inner.memref)[0].owner, memref.AllocaOp):
                raise UnsupportedError(f"{op.name} loads from a local buffer at computed indices; split the kernel")
        extents = iterator_extents(op)

        def simplified(a: AffineAccess) -> AffineAccess:
            return a._replace(terms=tuple(_simplified(a.terms, extents)))

        accesses = [
            simplified(access(operand, map_)) if isinstance(operand.type, MemRefType) else None
            for operand, map_ in zip(op.operands, operand_maps(op), strict=True)
        ]
        return _OpIteration(op, extents, reduction_iterators(op), accesses)

    @property
    def output(self) -> AffineAccess:
        out = self.accesses[-1]
        assert out is not None
        return out

    def split(self, iterator: int, inner: Size) -> None:
        """Split an iterator into one over blocks of `inner` iterations, which keeps its number, and one inside a block."""
        if any(isinstance(o, linalg.IndexOp) and o.dim.value.data == iterator for o in self.op.regions[0].block.ops):
            raise UnsupportedError(f"{self.op.name}: cannot split an iterator whose index the body reads; split the kernel")
        new = len(self.extents)
        self.extents[iterator] = self.extents[iterator] // inner
        self.extents.append(inner)
        self.reduced.append(self.reduced[iterator])

        def split_term(t: AffineTerm) -> tuple[AffineTerm, ...]:
            if t.iterator != iterator:
                return (t,)
            if not t.is_plain:
                raise UnsupportedError(f"{self.op.name}: cannot split an iterator of a packed operand; split the kernel")
            return t._replace(stride=t.stride * inner), AffineTerm(new, t.stride)

        self.accesses = [
            None if a is None else a._replace(terms=tuple(d for t in a.terms for d in split_term(t))) for a in self.accesses
        ]


class _UnionFind:
    """Union-find over pairs (op, iterator)."""

    def __init__(self) -> None:
        self.parent: dict[tuple[int, int], tuple[int, int]] = {}

    def find(self, x: tuple[int, int]) -> tuple[int, int]:
        while (p := self.parent.setdefault(x, x)) != x:
            x = p
        return x

    def unite(self, a: tuple[int, int], b: tuple[int, int]) -> None:
        ra, rb = self.find(a), self.find(b)
        self.parent[max(ra, rb)] = min(ra, rb)


def form_loop_nests(kernel: func.FuncOp, target: Target = REFERENCE) -> list[LoopNest]:
    """Return the loop nests of a kernel, in program order. Iterators of extent 1 are not dimensions.

    Which iterators are merged depends on the target's vectors.
    """
    iterations = [_OpIteration.of(op) for op in kernel.body.block.ops if isinstance(op, linalg.GenericOp | linalg.FillOp)]
    links = [
        (writer, reader, operand)
        for reader, iteration in enumerate(iterations)
        for operand in range(len(iteration.accesses))
        for writer in _writers(iterations, reader, operand)
    ]
    while any([_align(iterations[writer], iterations[reader], operand) for writer, reader, operand in links]):
        pass
    union = _UnionFind()
    group_of = list(range(len(iterations)))
    for writer, reader, operand in links:
        for matching, term in _matching_terms(iterations[writer], iterations[reader], operand):
            union.unite((writer, matching.iterator), (reader, term.iterator))
        group_of = [group_of[writer] if g == group_of[reader] else g for g in group_of]
    zeros = frozenset(kernel.body.block.args[k] for k in ints(kernel.attributes.get(ZEROS)))
    groups = ([(i, iterations[i]) for i in range(len(iterations)) if group_of[i] == g] for g in sorted(set(group_of)))
    return [_numbered(merge_iterators(replace(_build_nest(group, union), zeros=zeros), target)) for group in groups]


def _writers(iterations: Sequence[_OpIteration], r: int, k: int) -> list[int]:
    """Return the earlier ops that operand `k` of op `r` depends on: they write the buffer that it reads, or a local buffer.

    Writes of disjoint subviews of an argument (the padding and the interior of a padded result) are independent.
    """
    op, access = iterations[r].op, iterations[r].accesses[k]
    if access is None:
        return []
    is_output = k == len(op.operands) - 1
    reads_operand = isinstance(op, linalg.GenericOp) and is_read(op, k)
    if is_output and not reads_operand and not isinstance(access.root.owner, memref.AllocaOp):
        return []
    return [w for w in range(r) if iterations[w].output.root is access.root]


def _align(writer: _OpIteration, reader: _OpIteration, k: int) -> bool:
    """Split an iterator of the coarser op if the other op traverses the same elements with two; return whether it did."""
    access = reader.accesses[k]
    assert access is not None
    for term in access.terms:
        for t in writer.output.terms:
            reader_extent, writer_extent = reader.extents[term.iterator], writer.extents[t.iterator]
            if t.stride != term.stride or reader_extent == writer_extent:
                continue
            if reader_extent % writer_extent == 0:
                reader.split(term.iterator, writer_extent)
                return True
            if writer_extent % reader_extent == 0:
                writer.split(t.iterator, reader_extent)
                return True
    return False


def _matching_terms(writer: _OpIteration, reader: _OpIteration, k: int) -> Iterator[tuple[AffineTerm, AffineTerm]]:
    """Yield the pairs of terms (written, read) by which both ops traverse the buffer in the same order."""
    access, output = reader.accesses[k], writer.output
    assert access is not None
    for term in access.terms:
        extent = reader.extents[term.iterator]
        written_term = next((t for t in output.terms if t.stride == term.stride and writer.extents[t.iterator] == extent), None)
        if written_term is None or access.offset != output.offset:
            raise UnsupportedError(
                f"a kernel reads its local buffer {access.root.name_hint or ''} in another order than it was written; "
                "split the kernel"
            )
        yield written_term, term


def _simplified(terms: Sequence[AffineTerm], extents: Sequence[Size]) -> Iterator[AffineTerm]:
    """Drop terms of extent 1 and of i floordiv c with i < c, and the modulus of i mod c with i < c."""
    for t in terms:
        extent = extents[t.iterator]
        if extent == 1 or (isinstance(extent, int) and t.divisor >= extent):
            continue
        yield t._replace(modulus=0) if isinstance(extent, int) and t.modulus >= extent else t


def _build_nest(members: list[tuple[int, _OpIteration]], union: _UnionFind) -> LoopNest:
    """Build a nest of linked ops."""
    dim_numbers: dict[tuple[int, int], int] = {}
    nest_ops: list[NestOp] = []
    extents: dict[int, Size] = {}
    for nest_op, iteration in members:
        dims = {
            i: dim_numbers.setdefault(union.find((nest_op, i)), len(dim_numbers))
            for i, extent in enumerate(iteration.extents)
            if extent != 1
        }
        extents |= {d: iteration.extents[i] for i, d in dims.items()}
        reductions = frozenset(d for i, d in dims.items() if iteration.reduced[i])
        iterators, operands = tuple(map(dims.get, range(len(iteration.extents)))), tuple(iteration.op.operands)
        # The only purpose of an operand that is not read is to define the extents of iterators.
        accesses = tuple(
            None if a is None or (a is not iteration.output and not is_read(iteration.op, k)) else a.renumber(dims)
            for k, a in enumerate(iteration.accesses)
        )
        nest_ops.append(NestOp(iteration.op, operands, iterators, reductions, accesses))
    return LoopNest(nest_ops, extents)


def _numbered(nest: LoopNest) -> LoopNest:
    """Number the dimensions in the order of their first iterator, and sort the terms of accesses as the axes of a view."""
    numbers = {d: n for n, d in enumerate(dict.fromkeys(d for op in nest.ops for d in op.dims))}

    def numbered(a: AffineAccess | None) -> AffineAccess | None:
        return None if a is None else a._replace(terms=tuple(view_order(a.renumber(numbers).terms)))

    nest_ops = [
        replace(
            op,
            iterators=tuple(None if d is None else numbers[d] for d in op.iterators),
            reductions=frozenset(numbers[d] for d in op.reductions),
            accesses=tuple(map(numbered, op.accesses)),
        )
        for op in nest.ops
    ]
    return replace(nest, ops=nest_ops, extents={n: nest.extents[d] for d, n in numbers.items()})
