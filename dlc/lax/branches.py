"""Branches: one of several functions runs, and data says which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.errors import DTypeError, ShapeError
from dlc.frontend.pytree import unflatten
from dlc.frontend.trace import Trace, Tracer
from dlc.ir import Attribute, Block
from dlc.lax.agreement import Leaves, agreed
from dlc.lax.bodies import close, discard_on_error, marked, require_functions
from dlc.numpy.apply import ArrayLike, Operand, convert, operand, refuse
from dlc.numpy.functions.comparing import less, not_equal

__all__ = ["cond", "switch"]


def cond(pred: ArrayLike, true_fun: Callable[..., Any], false_fun: Callable[..., Any], /, *operands: Any) -> Any:
    """What `true_fun(*operands)` returns where `pred` holds, else what `false_fun(*operands)` does; one of them runs.

    `pred` is a bool or a number, which holds unless it is 0, without axes. Results of both are of one structure; arrays in
    them agree in shape and dtype, numbers take the dtype of the arrays they stand for. A condition that is not traced
    chooses at once.

    Raises ShapeError for a `pred` with axes, and ShapeError or DTypeError, naming every place, for results that differ.
    """
    where = "dlc.lax.cond"
    require_functions(where, true_fun=true_fun, false_fun=false_fun)
    decides = _scalar(where, "pred", pred)
    if not isinstance(decides, Tracer) or decides.array is not None:
        return (true_fun if decides else false_fun)(*operands)
    condition = not_equal(decides, 0) if decides.dtype != np.bool_ else decides

    def choose(trace: Trace, bodies: Sequence[Block], types: Sequence[Attribute]) -> list[Tracer]:
        return trace.insert(dl.IfOp.of(condition.value, bodies[0], bodies[1], types))

    names = ["result{} of true_fun", "result{} of false_fun"]
    return _branched(where, names, [true_fun, false_fun], operands, decides.owner, choose)


def switch(index: ArrayLike, branches: Sequence[Callable[..., Any]], /, *operands: Any) -> Any:
    """What `branches[index](*operands)` returns; an index outside is moved to the first or the last. One of them runs.

    `index` is an integer without axes. Results agree as those of `cond` do.

    Raises ShapeError for an index with axes and for no branches, DTypeError for an index that is no integer, and ShapeError
    or DTypeError for results that differ.
    """
    where = "dlc.lax.switch"
    decides = _scalar(where, "index", index)
    if decides.dtype.kind not in "iu":
        refuse(DTypeError(f"{where}: index is of dtype {decides.dtype}; expected an integer"))
    if callable(branches):
        refuse(DTypeError(f"{where}: one function for branches; write [{getattr(branches, '__name__', 'f')}, …]"))
    if not branches:
        refuse(ShapeError(f"{where}: no branches; give it one at least"))
    require_functions(where, **{f"branches[{k}]": branch for k, branch in enumerate(branches)})
    if not isinstance(decides, Tracer) or decides.array is not None:
        return branches[min(max(int(decides), 0), len(branches) - 1)](*operands)
    if len(branches) == 1:
        return branches[0](*operands)

    def choose(trace: Trace, bodies: Sequence[Block], types: Sequence[Attribute]) -> list[Tracer]:
        return _choose(trace, decides, bodies, 0, types)

    names = [f"result{{}} of branches[{k}]" for k in range(len(branches))]
    return _branched(where, names, branches, operands, decides.owner, choose)


def _scalar(where: str, name: str, x: ArrayLike) -> Operand:
    array = operand(x)
    if array.shape:
        refuse(ShapeError(f"{where}: {name} has the shape {array.shape}; expected one value, without axes"))
    if isinstance(array, Tracer):
        array.owner.require_own(array)
    return array


def _branched(
    where: str,
    names: Sequence[str],
    branches: Sequence[Callable[..., Any]],
    operands: Sequence[Any],
    trace: Trace,
    choose: Callable[[Trace, Sequence[Block], Sequence[Attribute]], list[Tracer]],
) -> Any:
    """The result of branches whose bodies `choose` puts into the program."""
    bodies = [Block() for _ in branches]
    with discard_on_error(bodies):
        results: list[Leaves] = []
        for name, branch, body in trace.key_uses.alternatives(zip(names, branches, bodies, strict=True)):
            with trace.inside(body):
                made = Leaves.of(where, name, branch(*operands))
            results.append(made.in_order_of(results[0]) if results else made)
        kinds = agreed(results)
        for body, result in zip(bodies, results, strict=True):
            with trace.inside(body):
                close(trace, body, [convert(x, kind.dtype) for x, kind in zip(result.leaves, kinds, strict=True)])
    chosen = choose(trace, bodies, [kind.type for kind in kinds])
    return unflatten(results[0].tree, iter(marked(chosen, kinds)))


def _choose(trace: Trace, index: Tracer, bodies: Sequence[Block], first: int, types: Sequence[Attribute]) -> list[Tracer]:
    """The results of the body that an index chooses of those from `first` on, by halves; one outside goes to an end."""
    half = len(bodies) // 2
    halves: list[Block] = []
    for part, start in ((bodies[:half], first), (bodies[half:], first + half)):
        if len(part) == 1:
            halves.append(part[0])
            continue
        halves.append(Block())
        with trace.inside(halves[-1]):
            close(trace, halves[-1], _choose(trace, index, part, start, types))
    condition: Tracer = less(index, first + half)
    return trace.insert(dl.IfOp.of(condition.value, halves[0], halves[1], types))
