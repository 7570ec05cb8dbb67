"""Builders of loops and branches from functions that emit their bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, shape_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.ir import Attribute, Block, SSAValue, i64
from dlc.passes.autodiff.bodies import ReverseModeContext, builder_at_end, clone_body, replace_yield, yielded_values
from dlc.passes.autodiff.shapes import zeros

# (builder, arguments of a body) -> values to yield. Emits the ops of the body.
BodyBuilder = Callable[[DlBuilder, Sequence[SSAValue]], Sequence[SSAValue]]


def new_body(types: Sequence[Attribute], build_body: BodyBuilder) -> Block:
    """Create a body with arguments of these types."""
    block = Block(arg_types=types)
    block.add_op(dl.YieldOp(build_body(DlBuilder(block), block.args)))
    return block


def i64_constant(build: DlBuilder, value: int) -> SSAValue:
    """Insert a rank-0 i64 constant."""
    return build.constant(np.asarray(value), i64)


def inline_copy(build: DlBuilder, block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
    """Insert a copy of a body for these arguments; return the values that it yields."""
    mapper: dict[SSAValue, SSAValue] = dict(zip(block.args, arguments, strict=True))
    for inner in block.ops:
        if not isinstance(inner, dl.YieldOp):
            build.insert(inner.clone(mapper))
    return [mapper.get(v, v) for v in yielded_values(block)]


def build_while(
    build: DlBuilder, condition: SSAValue, initial_states: Sequence[SSAValue], step: BodyBuilder
) -> Sequence[SSAValue]:
    """Build a while loop; `step` returns whether to continue, and the next states."""
    body = new_body([v.type for v in initial_states], step)
    return build.insert(dl.WhileOp.of(condition, initial_states, body)).results


def build_counting_loop(
    build: DlBuilder,
    condition: SSAValue,
    initial_states: Sequence[SSAValue],
    start: SSAValue,
    step: Callable[[DlBuilder, Sequence[SSAValue], SSAValue], Sequence[SSAValue]],
) -> Sequence[SSAValue]:
    """Build a while loop whose last state counts its iterations from `start`; `step` also takes the next count."""

    def counting_step(build: DlBuilder, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
        *states, k = args
        next_k = build(dl.AddOp, k, i64_constant(build, 1))
        return [*step(build, states, next_k), next_k]

    return build_while(build, condition, [*initial_states, start], counting_step)


def build_scan(
    build: DlBuilder,
    initial_states: Sequence[SSAValue],
    sequences: Sequence[SSAValue],
    steps: int,
    step: BodyBuilder,
    reverse: bool = False,
    snapshots: int | None = None,
) -> Sequence[SSAValue]:
    """Build a scan; return its last states and its stacked outputs."""
    elements = [tensor_type(shape_of(v)[1:], element_type_of(v)) for v in sequences]
    body = new_body([*(v.type for v in initial_states), *elements], step)
    arguments = [*initial_states, *sequences]
    return build.insert(dl.ScanOp.of(arguments, body, len(initial_states), steps, reverse, snapshots)).results


def build_branch(
    build: DlBuilder, condition: SSAValue, otherwise: Sequence[SSAValue], then: Callable[[DlBuilder], Sequence[SSAValue]]
) -> Sequence[SSAValue]:
    """Build a branch whose values are `otherwise` if the condition is false."""
    bodies = new_body([], lambda build, _: then(build)), new_body([], lambda build, _: otherwise)
    return build.insert(dl.IfOp.of(condition, *bodies, [v.type for v in otherwise])).results


def element_at(build: DlBuilder, sequence: SSAValue, index: SSAValue) -> SSAValue:
    """Return the element of a sequence at an index in bounds."""
    return build(dl.GatherOp, sequence, index, axis=0, in_bounds=True)


def with_element(build: DlBuilder, sequence: SSAValue, index: SSAValue, element: SSAValue) -> SSAValue:
    """Return a sequence with another element at an index in bounds."""
    return build(dl.ScatterRowsOp, sequence, index, element, mode="none", clamped=True, in_bounds=True)


def pull_back_body(
    build: DlBuilder,
    block: Block,
    arguments: Sequence[SSAValue],
    differentiated: Sequence[int],
    captures: Sequence[SSAValue],
    seeds: Mapping[int, SSAValue],
    context: ReverseModeContext,
) -> Sequence[SSAValue]:
    """Insert the reverse of a body for these arguments; return the cotangents of some of them, and of captured values.

    `seeds` are the cotangents of the values that the body yields, by index.
    """
    body = clone_body(block)
    inner_seeds: dict[int, SSAValue] = {i: body.insert_arg(v.type, len(body.args)) for i, v in seeds.items()}
    wrt = [*(body.args[i] for i in differentiated), *captures]
    cotangents, inner = context.pull_back_block(body, wrt, inner_seeds), builder_at_end(body)
    replace_yield(body, [zeros(inner, v).value if c is None else c for v, c in zip(wrt, cotangents, strict=True)])
    results = inline_copy(build, body, [*arguments, *seeds.values()])
    body.erase(safe_erase=False)
    return results
