"""Forming nests: which ops of a kernel are linked, and which of their iterators are the same dimension.

Two ops that walk one local buffer with other iterators (one goes along it as a whole, the other in rows) are aligned first:
the iterator of the coarser walk is split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dlc.dialects.dl.base import ints
from dlc.dialects.dl.programs.program import ZEROS
from dlc.dims import Size
from dlc.errors import UnsupportedError
from dlc.ir import MemRefType, func, linalg, memref
from dlc.passes.tiling.access import Access, Term, access, root_of
from dlc.passes.tiling.nests import OpenNest, Stage
from dlc.passes.tiling.structured_ops import StructuredOp, is_read, iterator_extents, operand_maps, reduction_iterators


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

        def simplified(a: Access) -> Access:
            return a._replace(terms=tuple(_simplified(a.terms, extents)))

        accesses = [
            simplified(access(operand, map_)) if isinstance(operand.type, MemRefType) else None
            for operand, map_ in zip(op.operands, operand_maps(op), strict=True)
        ]
        return _Walk(op, extents, reduction_iterators(op), accesses)

    @property
    def output(self) -> Access:
        out = self.accesses[-1]
        assert out is not None
        return out

    def split(self, iterator: int, inner: Size) -> None:
        """Makes two iterators of one: its steps of `inner`, in its place, and a new one of `inner` steps."""
        if any(isinstance(o, linalg.IndexOp) and o.dim.value.data == iterator for o in self.op.regions[0].block.ops):
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
            return t._replace(stride=t.stride * inner), Term(new, t.stride)

        self.accesses = [
            None if a is None else a._replace(terms=tuple(d for t in a.terms for d in digits(t))) for a in self.accesses
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
        yield t._replace(modulus=0) if isinstance(extent, int) and t.modulus >= extent else t


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
            None if a is None else a._replace(terms=tuple(t._replace(iterator=dims[t.iterator]) for t in a.terms))
            for a in walk.accesses
        )
        reductions = frozenset(d for d, r in zip(dims, walk.reduced, strict=True) if r and d >= 0)
        stages.append(Stage(walk.op, tuple(dims), reductions, renamed))
    return OpenNest(stages, extents)
