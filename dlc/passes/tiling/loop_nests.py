"""Loop nests: the structured ops of a kernel that run in one grid, over shared dimensions.

Two ops are linked if one reads a local buffer that the other writes. The iterators with which both traverse the
buffer are the same *dimension* of the nest: their strides in the buffer are equal. A convolution with its epilogue
is a nest; both ops share the dimensions (h, w, o), and (kh, k) are private to the convolution. The softmax of a row
is a nest of five ops that share the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import gcd
from typing import cast

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.remainder import RemFOp
from dlc.errors import UnsupportedError
from dlc.ir import Block, IntegerType, MemRefType, Operation, SSAValue, arith, i1, linalg, math, memref
from dlc.passes.structured import INDEX_ARITHMETIC_OPS
from dlc.passes.tiling.affine_access import AffineAccess, AffineTerm
from dlc.passes.tiling.scatter_tiles import scatter_of
from dlc.passes.tiling.structured_ops import (
    StructuredOp,
    contiguous_load_iterator,
    has_indirect_loads_in_body,
)
from dlc.passes.types import memref_of
from dlc.shapes.dims import Size, substitute

# Minimum representative extent of a one-dimensional nest: enough elements for several tasks.
_MIN_DYNAMIC_VECTOR_ELEMENTS = 1 << 16
# Minimum representative length of a row of an elementwise nest, and minimum number of rows: starting tasks of a few short rows
# takes longer than the tasks. Tasks of 4 rows of 128 f32 took 1.1 to 1.2 times as long on a Zen 4, those of 5 f32 1.2 times.
_MIN_DYNAMIC_ROW_ELEMENTS, _MIN_DYNAMIC_ROWS = 1024, 32

# Ops that expand to a dozen instructions or more.
_TRANSCENDENTAL_OPS = (
    math.ExpOp, math.Exp2Op, math.ExpM1Op, math.LogOp, math.Log2Op, math.Log10Op, math.Log1pOp, math.TanhOp, math.ErfOp,
    math.SinOp, math.CosOp, math.TanOp, math.AsinOp, math.AcosOp, math.AtanOp, math.Atan2Op, math.SinhOp, math.CoshOp,
    math.AsinhOp, math.AcoshOp, math.AtanhOp, math.PowFOp, math.CbrtOp, RemFOp,
)  # fmt: skip


@dataclass(frozen=True)
class NestOp:
    """One structured op of a nest, described in the nest's dimensions.

    Attributes:
        op: The op in the IR.
        operands: The operands of the op, or (when code is generated) views of them with one axis per term of their access.
        iterators: The dimension of each iterator of the op; None for one of extent 1, or one that is merged into another.
        reductions: The dimensions that the op reduces.
        accesses: The access of each operand, the output last; None for a scalar, and for an operand that is not read.
    """

    op: StructuredOp
    operands: tuple[SSAValue, ...]
    iterators: tuple[int | None, ...]
    reductions: frozenset[int]
    accesses: tuple[AffineAccess | None, ...]

    @cached_property
    def dims(self) -> tuple[int, ...]:
        """The dimensions of the op, in the order of its iterators."""
        return tuple(d for d in self.iterators if d is not None)

    @property
    def output(self) -> AffineAccess:
        out = self.accesses[-1]
        assert out is not None
        return out

    @property
    def output_position(self) -> int:
        """The position of the output among the operands."""
        return len(self.accesses) - 1

    def is_used(self, k: int) -> bool:
        """Return whether generated code needs operand `k`: a scalar, or a buffer that is accessed."""
        return self.accesses[k] is not None or not isinstance(self.operands[k].type, MemRefType)

    def axes(self, k: int = -1) -> list[int]:
        """Return the dimension of each axis of an operand, by default of the output."""
        access = self.accesses[k]
        return [] if access is None else [t.iterator for t in access.terms]

    @cached_property
    def input_accesses(self) -> Mapping[int, AffineAccess]:
        """The accesses of the buffers that the body reads, by the position of the operand."""
        return {k: a for k, a in enumerate(self.accesses[:-1]) if a is not None}

    @cached_property
    def inputs(self) -> tuple[AffineAccess, ...]:
        """The accesses of the buffers that the body reads."""
        return tuple(self.input_accesses.values())

    @cached_property
    def reduced_dims(self) -> tuple[int, ...]:
        """The dimensions that the op reduces, in the order of its iterators."""
        return tuple(d for d in self.dims if d in self.reductions)

    @property
    def body(self) -> Block:
        """The scalar body of the op."""
        return self.op.regions[0].block

    @property
    def is_fill(self) -> bool:
        return isinstance(self.op, linalg.FillOp)

    @property
    def terms(self) -> Iterator[AffineTerm]:
        """The terms of all accesses."""
        return (t for a in self.accesses if a is not None for t in a.terms)

    @cached_property
    def is_contraction(self) -> bool:
        """True if it sums products and reuses all operands.

        An operand that is contiguous along a reduction and is read only once is not reused.
        """
        has_products = bool(self.reductions) and len(self.inputs) >= 2 and self.scatter_dim is None
        return has_products and not any(self._is_streamed(a) for a in self.inputs)

    @property
    def multiply_adds_per_point(self) -> int:
        """The multiply-adds of a contraction per point: each element that the body reads after the first is an operand of one.

        A product with packed weights reads a whole block of the reduction per point.
        """
        return len(self.inputs) - 1

    @cached_property
    def num_accumulators(self) -> int:
        """The number of float accumulators per element: two if the body sums products before it adds to the accumulator."""
        additions = [o for o in self.body.ops if isinstance(o, arith.AddfOp)]
        return 2 if any(o not in _combining_ops(self) for o in additions) else 1

    @property
    def sums_integers(self) -> bool:
        """True if the body converts sums of integers to floats, as products with packed weights do."""
        return any(isinstance(o, arith.SIToFPOp) and isinstance(o.input.owner, arith.AddiOp) for o in self.body.ops)

    def _is_streamed(self, a: AffineAccess) -> bool:
        """Return whether an operand is read once, contiguously along a reduced dimension."""
        return a.is_plain and all(map(a.uses, self.dims)) and any(a.stride(d) == 1 for d in self.reductions)

    @cached_property
    def scatter_dim(self) -> int | None:
        """The dimension of the output along which a data-dependent index selects the element that the body updates."""
        scatter = scatter_of(self.op)
        return None if scatter is None else self.iterators[scatter.iterator]

    @property
    def has_indirect_loads(self) -> bool:
        """True if the body loads from memory at computed indices."""
        return has_indirect_loads_in_body(self.op)

    @cached_property
    def contiguous_load_dim(self) -> int | None:
        """The dimension along which all indirect loads read contiguous elements, or None."""
        d = contiguous_load_iterator(self.op)
        return None if d is None else self.iterators[d]

    def element_bytes(self, k: int = -1) -> int:
        """Return the bytes of an element of an operand, by default of the output."""
        return numpy_dtype(memref_of(self.op.operands[k]).element_type).itemsize

    def all_inputs_use(self, d: int) -> bool:
        """Return whether no input is shared along a dimension, such as that of a batch of products."""
        return all(a.uses(d) for a in self.inputs)

    def is_batch_dim(self, d: int) -> bool:
        """Return whether a dimension is a batch of products: all inputs have it, and none is contiguous along it."""
        return self.all_inputs_use(d) and all(a.stride(d) != 1 for a in self.inputs)

    @property
    def has_transcendental_math(self) -> bool:
        """True if the body calls functions that expand to polynomials."""
        return any(isinstance(o, _TRANSCENDENTAL_OPS) for o in self.body.ops)

    @property
    def indexed_dims(self) -> set[int]:
        """The dimensions whose index the body reads."""
        indices = (o for o in self.body.ops if isinstance(o, linalg.IndexOp))
        return {d for o in indices if (d := self.iterators[o.dim.value.data]) is not None}


@dataclass(frozen=True)
class LoopNest:
    """A loop nest: structured ops over shared dimensions.

    Attributes:
        ops: The structured ops, in program order.
        extents: The extent of each dimension: an int, or a polynomial of the kernel's symbols.
        zeros: The buffers that may contain blocks of zeros, so that products with them can be skipped.
    """

    ops: Sequence[NestOp]
    extents: Mapping[int, Size]
    zeros: frozenset[SSAValue] = field(default=frozenset(), kw_only=True)

    @property
    def symbolic_dims(self) -> list[int]:
        """The dimensions with symbolic extents."""
        return [d for d, extent in self.extents.items() if not isinstance(extent, int)]

    def specialize(self, sizes: Mapping[str, int]) -> SizedLoopNest:
        """Return the nest with these representative sizes."""

        def substituted(a: AffineAccess | None) -> AffineAccess | None:
            if a is None:
                return None
            terms = tuple(t._replace(stride=substitute(t.stride, sizes)) for t in a.terms)
            return a._replace(offset=substitute(a.offset, sizes), terms=terms)

        nest_ops = [replace(op, accesses=tuple(map(substituted, op.accesses))) for op in self.ops] if sizes else self.ops
        extents = {d: int(substitute(extent, sizes)) for d, extent in self.extents.items()}
        # Clamp extents: representative sizes may be 0 or violate a guard. Elementwise nests are planned for long rows, such as
        # those of a slice, and for a long extent if it is the only one, since short ones cost little.
        minima = dict.fromkeys(extents, 1)
        if not any(op.reductions for op in self.ops):
            dims = [d for d in self.ops[-1].dims if self.extents[d] != 1]
            minima |= dict.fromkeys(dims, _MIN_DYNAMIC_ROW_ELEMENTS) | dict.fromkeys(dims[:1], _MIN_DYNAMIC_ROWS)
            minima |= dict.fromkeys(extents, _MIN_DYNAMIC_VECTOR_ELEMENTS) if len(extents) == 1 else {}
        extents |= {d: max(extents[d], minima[d]) for d in self.symbolic_dims}
        return SizedLoopNest(nest_ops, extents, frozenset(self.symbolic_dims), zeros=self.zeros)

    @cached_property
    def shared_dims(self) -> list[int]:
        """The dimensions along which all ops can be tiled: parallel in the last op, and reduced in none.

        Every reduction and scatter must iterate over them too; otherwise each tile would recompute it.
        """
        reductions = [op for op in self.ops if op.reductions or op.scatter_dim is not None]
        reduced_dims = {d for op in reductions for d in (*op.reductions, op.scatter_dim)}
        return [d for d in self.ops[-1].dims if d not in reduced_dims and all(d in op.dims for op in reductions)]

    @cached_property
    def contraction(self) -> NestOp | None:
        """The first contraction, or None."""
        return next((op for op in self.ops if op.is_contraction), None)

    @cached_property
    def reduced_dims(self) -> set[int]:
        """The dimensions that any op reduces."""
        return {d for op in self.ops for d in op.reductions}

    def can_split(self, d: int) -> bool:
        """Return whether all reductions along a dimension can be split into partial results."""
        return all(can_split(op, self) for op in self.ops if d in op.reductions)

    @cached_property
    def panel_sizes(self) -> Mapping[int, int]:
        """For dimensions along which operands are packed in panels: the panel size; a tile size must be a divisor of it."""
        sizes_by_dim: dict[int, int] = {}
        for t in (t for op in self.ops for t in op.terms if t.modulus):
            # 0, for a dimension not yet seen, divides nothing: gcd(0, n) = n.
            sizes_by_dim[t.iterator] = gcd(sizes_by_dim.get(t.iterator, 0), t.modulus)
        return sizes_by_dim

    @cached_property
    def repeat_counts(self) -> Mapping[int, int]:
        """For dimensions along which an operand repeats its elements: how many times it repeats each.

        A tile size must be a multiple or a divisor of the count.
        """
        terms = (t for op in self.ops for t in op.terms)
        return {t.iterator: t.divisor for t in terms if t.divisor > 1 and t.iterator not in self.panel_sizes}

    def local_buffers(self) -> set[SSAValue]:
        """Return the buffers that are local to the nest."""
        return {op.output.root for op in self.ops if isinstance(op.output.root.owner, memref.AllocaOp)}


@dataclass(frozen=True)
class SizedLoopNest(LoopNest):
    """A loop nest with integer extents; those of `dynamic_dims` are representative."""

    extents: Mapping[int, int]
    dynamic_dims: frozenset[int] = frozenset()

    @cached_property
    def element_bytes(self) -> int:
        """The bytes per lane: 4, or fewer if the ops compute only with narrower integers."""
        values = (v for op in self.ops for v in (*op.body.args, *(r for o in op.body.ops for r in o.results)))
        types = {v.type for v in values} - {i1}
        widths = [int(cast(IntegerType, t).width.data) // 8 for t in types if isinstance(t, IntegerType)]
        return min(4, max(widths)) if widths and len(widths) == len(types) else 4


def combiner_of(nest_op: NestOp) -> Operation | None:
    """Return the op that combines the accumulator with an element; None if the body has none, or a chain of unequal ops."""
    ops = _combining_ops(nest_op)
    if not ops or (len(ops) > 1 and not all(isinstance(op, arith.AddfOp) for op in ops)):
        return None
    # Its operands are (accumulator, element), in this order.
    return ops[-1]


def _combining_ops(nest_op: NestOp) -> list[Operation]:
    """Return the chain of binary ops from the accumulator to the yielded value; empty if there is no such chain."""
    body, ops = nest_op.body, list[Operation]()
    value: SSAValue = body.args[-1]
    while (use := value.get_user_of_unique_use()) is not body.last_op:
        if use is None or len(use.operands) != 2 or len(use.results) != 1:
            return []
        ops.append(use)
        value = use.results[0]
    return ops


def initial_fill(nest_op: NestOp, nest: LoopNest) -> NestOp | None:
    """Return the op that fills the accumulator of a reduction, or None."""
    fills = (fill for fill in nest.ops if fill.is_fill and fill.output.root is nest_op.output.root)
    return next(fills, None)


def can_split(nest_op: NestOp, nest: LoopNest) -> bool:
    """Return whether a reduction can be split into partial results, which start from its identity and are combined."""
    return combiner_of(nest_op) is not None and initial_fill(nest_op, nest) is not None


def identity_of(nest_op: NestOp, nest: SizedLoopNest) -> SSAValue:
    """Return the scalar that fills the accumulator, which is the identity of the reduction.

    Raises UnsupportedError for a reduction that cannot be split.
    """
    initial = initial_fill(nest_op, nest)
    if initial is None or combiner_of(nest_op) is None:
        raise UnsupportedError("a reduction cannot be split: it has no combiner or no identity")
    return initial.op.operands[0]


@dataclass(frozen=True)
class MaskedSelect:
    """A select at the end of an op: the computed value if all `conditions` hold, else the constant `masked_value`.

    Each condition is an argument of the body or depends only on indices.
    """

    conditions: tuple[SSAValue, ...]
    masked_value: SSAValue


def masked_select_of(nest_op: NestOp) -> MaskedSelect | None:
    """Return the masked select at the end of an op, or None."""
    body = nest_op.body
    yield_op = body.last_op
    producer = yield_op.operands[0].owner if yield_op is not None and yield_op.operands else None
    conditions: list[SSAValue] = []
    masked_value: SSAValue | None = None
    while isinstance(producer, arith.SelectOp) and (masked_value is None or producer.rhs is masked_value):
        if producer.rhs.owner is body or (isinstance(producer.rhs.owner, Operation) and producer.rhs.owner.parent is body):
            break
        if not is_index_computation(producer.cond) and producer.cond.owner is not body:
            break
        conditions.append(producer.cond)
        masked_value, producer = producer.rhs, producer.lhs.owner
    return None if masked_value is None else MaskedSelect(tuple(conditions), masked_value)


def find_masked_select(nest_ops: Sequence[NestOp]) -> tuple[NestOp, MaskedSelect] | None:
    """Return the last contraction or elementwise op of a fused loop and the masked select that it ends in; else None."""
    producers = (
        nest_op for nest_op in reversed(nest_ops) if nest_op.is_contraction or not (nest_op.reductions or nest_op.is_fill)
    )
    nest_op = next(producers, None)
    select = None if nest_op is None else masked_select_of(nest_op)
    return None if nest_op is None or select is None else (nest_op, select)


def is_index_computation(value: SSAValue) -> bool:
    """Return whether a value in a body depends only on indices and constants."""
    return isinstance(value.owner, INDEX_ARITHMETIC_OPS) and all(map(is_index_computation, value.owner.operands))


def lane_dim(nest: SizedLoopNest, nest_op: NestOp) -> int | None:
    """Return the dimension to vectorize: that along which most operands are contiguous, where the output counts twice.

    None if only local buffers are contiguous along it: vectors of strided elements are assembled element by element.
    """
    votes = {d: 0 for d in nest_op.dims}
    for weight, accesses in ((2, (nest_op.output,)), (1, nest_op.inputs)):
        for a in accesses:
            for d in nest_op.dims:
                votes[d] += weight * (a.stride(d) == 1)
    if nest_op.reductions and not any(n >= 2 for n in votes.values()):
        # A reduction to few elements is vectorized along the inputs' contiguous dimension, if that is reduced.
        contiguous_reductions = [d for d in nest_op.reductions if any(a.stride(d) == 1 for a in nest_op.inputs)]
        return max(contiguous_reductions, key=lambda d: nest.extents[d], default=None)
    best = max(nest_op.dims, key=lambda d: (votes[d], nest.extents[d]), default=None)
    local_buffers = nest.local_buffers()
    in_memory = [a for a in (nest_op.output, *nest_op.inputs) if a.root not in local_buffers]
    return best if best is not None and any(a.stride(best) == 1 for a in in_memory) else None


def leading_contraction(nest: SizedLoopNest) -> NestOp | None:
    """Return the leading reduction of a nest if it is a contraction, else None."""
    nest_op = leading_reduction(nest)
    return nest_op if nest_op is not None and nest_op.is_contraction else None


def leading_reduction(nest: SizedLoopNest) -> NestOp | None:
    """Return the first reduction of a nest, if only the fill of its result precedes it.

    None for other nests, and for a reduction with a private parallel dimension.
    """
    reduction = next((k for k, op in enumerate(nest.ops) if op.reductions), 0)
    nest_op = nest.ops[reduction]
    preceding = nest.ops[:reduction]
    if (
        not nest_op.reductions
        or nest_op.scatter_dim is not None
        or nest_op.has_indirect_loads
        or len(preceding) != 1
        or preceding[0] is not initial_fill(nest_op, nest)
    ):
        return None
    private_dims = [d for d in nest_op.dims if d not in nest.shared_dims and d not in nest_op.reductions]
    return None if private_dims else nest_op


def promoted_contraction(nest: SizedLoopNest) -> NestOp | None:
    """Return the contraction whose operands can be promoted to local memory: a leading one of plain operands."""
    nest_op = leading_contraction(nest)
    return nest_op if nest_op is not None and all(a.is_plain for a in (*nest_op.inputs, nest_op.output)) else None
