"""Nests: the ops of a kernel that belong under one grid, with one naming of their iterators.

Ops are linked when one reads what another left in a local buffer. The iterators with which two linked ops walk that buffer
are the same *dimension* of the nest: they have equal strides on it. A convolution with its epilogue is a nest whose
dimensions (h, w, o) both ops share and whose (kh, k) belong to the convolution alone; the softmax of a row is a nest of five
ops that share the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import gcd
from typing import cast

from dlc.dialects.remainder import RemFOp
from dlc.dims import Size, substitute
from dlc.errors import UnsupportedError
from dlc.ir import Block, IntegerType, Operation, SSAValue, arith, i1, linalg, math, memref
from dlc.passes.structured import PLACE_ARITHMETIC
from dlc.passes.tiling.access import Access
from dlc.passes.tiling.scatter import scatter_of
from dlc.passes.tiling.structured_ops import StructuredOp, is_read, loads_at_computed_places, neighbour_loads

# The elements of a vector of an open length that its tasks are made for: enough for several tasks.
_LONG_VECTOR = 1 << 16

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

    @cached_property
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
        once = all(t.is_plain for t in a.terms) and all(a.uses(d) for d in self.dims if d >= 0)
        return once and any(a.stride(d) == 1 for d in self.reductions)

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

    def is_batch(self, d: int) -> bool:
        """Whether products of a batch lie along a dimension: each reads elements of its own of all inputs, in one piece."""
        return all(a.uses(d) and a.stride(d) != 1 for a in self.inputs)

    @property
    def has_long_formulas(self) -> bool:
        """Whether its body calls functions that become polynomials."""
        return any(isinstance(o, _LONG) for o in self.op.regions[0].block.ops)

    @property
    def asked(self) -> set[int]:
        """The dimensions whose places its body asks for."""
        return {self.dims[o.dim.value.data] for o in self.op.regions[0].block.ops if isinstance(o, linalg.IndexOp)}


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
            terms = tuple(t._replace(stride=substitute(t.stride, sizes)) for t in a.terms)
            return a._replace(offset=substitute(a.offset, sizes), terms=terms)

        stages = [replace(s, accesses=tuple(map(known, s.accesses))) for s in self.stages] if sizes else self.stages
        extents = {d: int(substitute(extent, sizes)) for d, extent in self.extents.items()}
        # An example may be none of the sizes that there are, and have no element. What has no other dimension takes time where
        # it is long.
        least = _LONG_VECTOR if len(extents) == 1 and not any(s.reductions for s in self.stages) else 1
        extents |= {d: max(extents[d], least) for d in self.symbolic}
        return Nest(stages, extents, frozenset(self.symbolic), zeros=self.zeros)

    @cached_property
    def shared(self) -> list[int]:
        """The dimensions that every stage can be cut along: parallel in the last, reduced in none.

        A reduction that lacks a dimension would be computed anew for each part of it, and so would one that may write
        anywhere along it.
        """
        reductions = [s for s in self.stages if s.reductions or s.scattered is not None]
        reduced = {d for s in reductions for d in (*s.reductions, s.scattered)}
        return [d for d in self.stages[-1].dims if d not in reduced and all(d in s.dims for s in reductions)]

    @cached_property
    def packed_periods(self) -> Mapping[int, int]:
        """Dimensions along which an operand is packed in panels, and the panel's size: what is computed at once divides it."""
        periods: dict[int, int] = {}
        for t in (t for s in self.stages for a in s.accesses if a is not None for t in a.terms if t.modulus):
            # 0, for a dimension not yet seen, divides nothing: gcd(0, n) = n.
            periods[t.iterator] = gcd(periods.get(t.iterator, 0), t.modulus)
        return periods

    @cached_property
    def repetitions(self) -> Mapping[int, int]:
        """Dimensions along which an operand repeats elements, and how often: a tile has whole ones of these, or part of one."""
        terms = (t for s in self.stages for a in s.accesses if a is not None for t in a.terms)
        return {t.iterator: t.divisor for t in terms if t.divisor > 1 and t.iterator not in self.packed_periods}

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


@dataclass(frozen=True)
class Choice:
    """What a stage chooses by between what it computes and a number: it gives `otherwise` where one of `conditions` is false.

    Each is an argument of its body, or what places alone decide.
    """

    conditions: tuple[SSAValue, ...]
    otherwise: SSAValue


def choice_of(stage: Stage) -> Choice | None:
    """The choice that a stage makes last, if it does."""
    body = stage.op.regions[0].block
    last = body.last_op
    made = last.operands[0].owner if last is not None and last.operands else None
    conditions: list[SSAValue] = []
    otherwise: SSAValue | None = None
    while isinstance(made, arith.SelectOp) and (otherwise is None or made.rhs is otherwise):
        if made.rhs.owner is body or (isinstance(made.rhs.owner, Operation) and made.rhs.owner.parent is body):
            break
        if not is_by_places(made.cond) and made.cond.owner is not body:
            break
        conditions.append(made.cond)
        otherwise, made = made.rhs, made.lhs.owner
    return None if otherwise is None else Choice(tuple(conditions), otherwise)


def choosing(stages: Sequence[Stage]) -> tuple[Stage, Choice] | None:
    """The stage of a sweep that makes a choice last, and the choice; reductions of what it makes may follow."""
    makes = (s for s in reversed(stages) if s.is_contraction or not (s.reductions or isinstance(s.op, linalg.FillOp)))
    last = next(makes, None)
    choice = None if last is None else choice_of(last)
    return None if last is None or choice is None else (last, choice)


def is_by_places(value: SSAValue) -> bool:
    """Whether a value in a body is made of places and known numbers alone."""
    return isinstance(value.owner, PLACE_ARITHMETIC) and all(map(is_by_places, value.owner.operands))


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
