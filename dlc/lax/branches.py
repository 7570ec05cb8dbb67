"""Conditionals: one of several functions runs, selected by a traced value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.errors import DTypeError, ShapeError
from dlc.frontend.pytree import unflatten
from dlc.frontend.trace import Trace, Tracer
from dlc.ir import Attribute, Block
from dlc.numpy.apply import ArrayLike, Operand, convert, operand, refuse
from dlc.numpy.functions.comparison import less, not_equal
from dlc.traced_functions.bodies import discard_on_error, require_functions, terminate_body, with_weak_types
from dlc.traced_functions.type_agreement import TracedTree, branch_avals

__all__ = ["cond", "switch"]


def cond(pred: ArrayLike, true_fun: Callable[..., Any], false_fun: Callable[..., Any], /, *operands: Any) -> Any:
    """Return `true_fun(*operands)` if `pred` is true, else `false_fun(*operands)`; only one of them runs.

    `pred` is a bool or a number of rank 0; a nonzero number is true. The results of both functions have the same structure;
    arrays in them agree in shape and dtype, and numbers take the dtype of the corresponding arrays. If `pred` is not traced,
    the branch is selected while tracing.

    Raises ShapeError for a `pred` with axes, and ShapeError or DTypeError, naming every leaf, for results that differ.
    """
    api_name = "dlc.lax.cond"
    require_functions(api_name, true_fun=true_fun, false_fun=false_fun)
    scalar = _scalar(api_name, "pred", pred)
    if not isinstance(scalar, Tracer) or scalar.array is not None:
        return (true_fun if scalar else false_fun)(*operands)
    condition = not_equal(scalar, 0) if scalar.dtype != np.bool_ else scalar

    def choose(trace: Trace, bodies: Sequence[Block], types: Sequence[Attribute]) -> list[Tracer]:
        return trace.insert(dl.IfOp.of(condition.value, bodies[0], bodies[1], types))

    names = ["result{} of true_fun", "result{} of false_fun"]
    return _trace_branches(api_name, names, [true_fun, false_fun], operands, scalar.owner, choose)


def switch(index: ArrayLike, branches: Sequence[Callable[..., Any]], /, *operands: Any) -> Any:
    """Return `branches[index](*operands)`; an index out of range is clamped. Only one branch runs.

    `index` is an integer of rank 0. Results must agree as for `cond`.

    Raises ShapeError for an index with axes and for no branches, DTypeError for an index that is not an integer, and ShapeError
    or DTypeError for results that differ.
    """
    api_name = "dlc.lax.switch"
    scalar = _scalar(api_name, "index", index)
    if scalar.dtype.kind not in "iu":
        refuse(DTypeError(f"{api_name}: index is of dtype {scalar.dtype}; expected an integer"))
    if callable(branches):
        refuse(
            DTypeError(
                f"{api_name}: branches is a function; expected a sequence: write [{getattr(branches, '__name__', 'f')}, …]"
            )
        )
    if not branches:
        refuse(ShapeError(f"{api_name}: no branches; expected at least one"))
    require_functions(api_name, **{f"branches[{k}]": branch for k, branch in enumerate(branches)})
    if not isinstance(scalar, Tracer) or scalar.array is not None:
        return branches[min(max(int(scalar), 0), len(branches) - 1)](*operands)
    if len(branches) == 1:
        return branches[0](*operands)

    def choose(trace: Trace, bodies: Sequence[Block], types: Sequence[Attribute]) -> list[Tracer]:
        return _insert_conditionals(trace, scalar, bodies, 0, types)

    names = [f"result{{}} of branches[{k}]" for k in range(len(branches))]
    return _trace_branches(api_name, names, branches, operands, scalar.owner, choose)


def _scalar(api_name: str, name: str, x: ArrayLike) -> Operand:
    array = operand(x)
    if array.shape:
        refuse(ShapeError(f"{api_name}: {name} has shape {array.shape}; expected a scalar, without axes"))
    if isinstance(array, Tracer):
        array.owner.require_in_scope(array)
    return array


def _trace_branches(
    api_name: str,
    names: Sequence[str],
    branches: Sequence[Callable[..., Any]],
    operands: Sequence[Any],
    trace: Trace,
    choose: Callable[[Trace, Sequence[Block], Sequence[Attribute]], list[Tracer]],
) -> Any:
    """Trace the branches into bodies, and return the results of the op that `choose` inserts for them."""
    bodies = [Block() for _ in branches]
    with discard_on_error(bodies):
        results: list[TracedTree] = []
        for name, branch, body in trace.key_uses.alternatives(zip(names, branches, bodies, strict=True)):
            with trace.in_body(body):
                branch_result = TracedTree.of(api_name, name, branch(*operands))
            results.append(branch_result.reordered_like(results[0]) if results else branch_result)
        avals = branch_avals(results)
        for body, result in zip(bodies, results, strict=True):
            with trace.in_body(body):
                terminate_body(trace, body, [convert(x, aval.dtype) for x, aval in zip(result.leaves, avals, strict=True)])
    branch_results = choose(trace, bodies, [aval.type for aval in avals])
    return unflatten(results[0].tree, iter(with_weak_types(branch_results, avals)))


def _insert_conditionals(
    trace: Trace, index: Tracer, bodies: Sequence[Block], first: int, types: Sequence[Attribute]
) -> list[Tracer]:
    """Insert nested conditionals that select the body of `index` by binary search.

    An index out of range selects the first or the last body.
    """
    half = len(bodies) // 2
    subtrees: list[Block] = []
    for candidates, start in ((bodies[:half], first), (bodies[half:], first + half)):
        if len(candidates) == 1:
            subtrees.append(candidates[0])
            continue
        subtrees.append(Block())
        with trace.in_body(subtrees[-1]):
            terminate_body(trace, subtrees[-1], _insert_conditionals(trace, index, candidates, start, types))
    condition: Tracer = less(index, first + half)
    return trace.insert(dl.IfOp.of(condition.value, subtrees[0], subtrees[1], types))
