"""`forward-to-next-iteration`: replace loads of elements that the previous iteration stored by loop-carried values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dlc.dialects.dl.scalar import constant_integer
from dlc.ir import BlockArgument, Context, SSAValue, arith, erase_op, func, memref, scf
from dlc.passes.base import KernelPass
from dlc.passes.loops.iter_args import add_iter_args
from dlc.passes.loops.static_loops import is_inside
from dlc.passes.structured import ConstantPool, OpBuilder


@dataclass(frozen=True)
class ForwardToNextIterationPass(KernelPass):
    """Carry a stored element to the next iteration that loads it (scalar replacement).

        scf.for %i = 0 to 9 { %a = memref.load %x[%i];  …;  memref.store %b, %x[%i + 1] }
      →
        %first = memref.load %x[0]
        scf.for %i = 0 to 9 iter_args(%a = %first) { …;  memref.store %b, %x[%i + 1];  scf.yield %b }

    A recurrence through memory would wait for each store to reach the next load. All stores to the buffer in the loop must be
    scalar stores at the top level of its body, whose indices differ by constants, and the loop must run at least once. Buffers
    with views, and loads in nested regions, are not changed. Requires `forward-stores`, for loads within an iteration.
    """

    name = "forward-to-next-iteration"

    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        constants = ConstantPool(kernel)
        for loop in [op for op in kernel.walk() if isinstance(op, scf.ForOp)]:
            _forward(loop, constants)


class _Linear(NamedTuple):
    """An index `coefficient · induction + Σ terms + constant`; the terms do not change in the loop."""

    coefficient: int
    terms: tuple[SSAValue, ...]
    constant: int


def _forward(loop: scf.ForOp, constants: ConstantPool) -> None:
    low, high, step = (constant_integer(v) for v in (loop.lb, loop.ub, loop.step))
    if low is None or high is None or step is None or low >= high:
        return
    stores: dict[SSAValue, list[memref.StoreOp]] = {}
    excluded = set[SSAValue]()
    for op in loop.walk():
        match op:
            case memref.StoreOp() if op.parent is loop.body.block:
                stores.setdefault(op.memref, []).append(op)
            case memref.LoadOp():
                pass
            case _:
                # Other accesses, and views.
                excluded.update(op.operands)
                if isinstance(op, memref.StoreOp):
                    excluded.add(op.memref)
    for buffer, buffer_stores in stores.items():
        if buffer not in excluded and _is_root(buffer):
            loop = _forward_buffer(loop, buffer, buffer_stores, (low, step), constants)


def _is_root(buffer: SSAValue) -> bool:
    """Return whether a buffer is an argument or a local array without views."""
    is_allocated = isinstance(buffer, BlockArgument) or isinstance(buffer.owner, memref.AllocaOp)
    views = (memref.SubviewOp, memref.ReinterpretCastOp)
    return is_allocated and not any(isinstance(use.operation, views) for use in buffer.uses)


def _forward_buffer(
    loop: scf.ForOp, buffer: SSAValue, stores: Sequence[memref.StoreOp], bounds: tuple[int, int], constants: ConstantPool
) -> scf.ForOp:
    """Carry the loads of one buffer; return the loop, which may be a new one."""
    low, step = bounds
    stored = [(store, [_linear(i, loop) for i in store.indices]) for store in stores]
    if any(form is None for _, forms in stored for form in forms):
        return loop
    for load in [op for op in loop.body.block.ops if isinstance(op, memref.LoadOp) and op.memref is buffer]:
        forms = [_linear(i, loop) for i in load.indices]
        if any(form is None for form in forms):
            continue
        # The index of the load one iteration later, as a function of the current iteration.
        next_forms = [f._replace(constant=f.constant + f.coefficient * step) for f in forms if f is not None]
        if not all(_differ_by_constants(next_forms, f) for _, f in stored):
            continue
        sources = [store for store, f in stored if f == next_forms]
        if any(f == forms for _, f in stored) or not sources or not any(f.coefficient for f in next_forms):
            continue
        loop = _carry(loop, load, sources[-1].value, low, constants)
    return loop


def _differ_by_constants(a: Sequence[_Linear], b: Sequence[_Linear | None]) -> bool:
    return all(y is not None and x[:2] == y[:2] for x, y in zip(a, b, strict=True))


def _linear(index: SSAValue, loop: scf.ForOp) -> _Linear | None:
    """Return an index as a linear function of the loop's induction variable; None for other functions."""
    if index is loop.body.block.args[0]:
        return _Linear(1, (), 0)
    number = constant_integer(index)
    if number is not None:
        return _Linear(0, (), number)
    owner = index.owner
    if not is_inside(owner, loop):
        return _Linear(0, (index,), 0)
    if isinstance(owner, arith.AddiOp | arith.SubiOp):
        a, b = _linear(owner.lhs, loop), _linear(owner.rhs, loop)
        if a is None or b is None:
            return None
        if isinstance(owner, arith.AddiOp):
            return _Linear(a.coefficient + b.coefficient, (*a.terms, *b.terms), a.constant + b.constant)
        if not b.terms:
            return _Linear(a.coefficient - b.coefficient, a.terms, a.constant - b.constant)
    return None


def _carry(loop: scf.ForOp, load: memref.LoadOp, stored: SSAValue, low: int, constants: ConstantPool) -> scf.ForOp:
    """Replace a load by a new carried value, whose next value is `stored`."""
    block = loop.parent
    assert block is not None
    builder = OpBuilder(constants, block, load.location, anchor=loop)
    first = memref.LoadOp.create(
        operands=[load.memref, *(_at_start(i, loop, low, builder) for i in load.indices)], result_types=[load.res.type]
    )
    builder.insert(first)
    first.res.name_hint = load.res.name_hint
    new_loop = add_iter_args(loop, [first.res])
    body = new_loop.body.block
    argument = body.args[-1]
    is_unchanged = stored is load.res
    load.res.replace_all_uses_with(argument)
    erase_op(load)
    last = body.last_op
    assert last is not None
    last.operands = [*last.operands, argument if is_unchanged else stored]
    return new_loop


def _at_start(index: SSAValue, loop: scf.ForOp, low: int, builder: OpBuilder) -> SSAValue:
    """Return an index in the first iteration, computed before the loop."""
    form = _linear(index, loop)
    assert form is not None
    total: int | SSAValue = form.coefficient * low + form.constant
    for term in form.terms:
        total = builder.add(term, total)
    return builder.value(total)
