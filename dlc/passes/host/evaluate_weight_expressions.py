"""Weight expressions, computed once: the only step between the passes that reads the weights store."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from dlc.arrays import aligned
from dlc.dialects.dl.base import Array, DlOp, tensor_of
from dlc.dialects.dl.creation import WeightOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.entry import entry_of
from dlc.files.mapped_files import in_memory
from dlc.ir import ModuleOp, Operation, SSAValue, SymbolRefAttr
from dlc.machine.cpus import usable_cpus
from dlc.machine.threads import Threads
from dlc.weights import WeightStore

# Of all weights, the part from which on one of them is large.
_LARGE_PART = 0.2
# As many elements are computed before another thread has begun.
_SMALL = 1 << 14


def evaluate_weight_expressions(module: ModuleOp, store: WeightStore) -> WeightStore:
    """Replaces each expression over weights and constants alone by a weight that holds its value.

        %p = dl.pack {…} (dl.mul @w, @scale)    →    %p = dl.weight {symbol = @w_1, …}

    Only maximal expressions get a value in the store: those that a dispatch, a reshape of data or the return reads.
    Returns a store with exactly the weights that the entry then refers to; `store` loses nothing.
    """
    block = entry_of(module).body.block
    known = WeightExpressions()
    constant = dict.fromkeys(op for op in block.ops if known.holds(op))
    roots = [r for op in constant for r in op.results if any(use.operation not in constant for use in r.uses)]
    computed = [r for r in roots if not isinstance(r.owner, WeightOp)]
    # All of them before the first is replaced: an expression may be part of another that is being read.
    expressions: dict[SSAValue, Sequence[Operation]] = {root: _expression(root) for root in computed}
    values = _evaluated(expressions, store)
    kept = {r.owner.symbol.string_value() for r in roots if isinstance(r.owner, WeightOp)}
    # New names must differ from all old ones, not only from those that stay: a folder may hold both.
    everything = store.only(store)
    for root in computed:
        name = everything.add(values[root], hint=_hint(expressions[root]))
        _replace(root, name)
        kept.add(name)
    for op in reversed(list(constant)):
        if not any(r.first_use for r in op.results):
            op.detach()
            op.erase()
    return everything.only(kept).in_memory()


def _evaluated(expressions: Mapping[SSAValue, Sequence[Operation]], store: WeightStore) -> dict[SSAValue, Array]:
    """What values are, by the ops that they depend on.

    One that makes a large part of all is computed first and alone, with the least beside it in memory; those of the middle at
    once, since NumPy lets go of the interpreter's lock for large arrays, and they share little.
    """
    sizes = {root: math.prod(tensor_of(root).get_shape()) for root in expressions}
    large = sum(sizes.values()) * _LARGE_PART
    order = sorted(expressions, key=lambda root: -sizes[root])

    def value(root: SSAValue) -> Array:
        return _evaluate(root, expressions[root], store)

    alone = [root for root in order if sizes[root] > large]
    small = [root for root in order if sizes[root] <= min(large, _SMALL)]
    values = {root: value(root) for root in (*alone, *small)}
    with Threads(usable_cpus()) as workers:
        others = order[len(alone) : len(order) - len(small)]
        return values | dict(zip(others, workers.map(value, others), strict=True))


def _expression(root: SSAValue) -> Sequence[Operation]:
    """The ops that `root` depends on, each after those that it depends on itself."""
    order: dict[Operation, None] = {}
    pending = [(root.owner, False)]
    while pending:
        op, operands_done = pending.pop()
        if not isinstance(op, Operation) or op in order:
            continue
        if operands_done:
            order[op] = None
        else:
            pending.append((op, True))
            pending.extend((v.owner, False) for v in op.operands)
    return list(order)


def _evaluate(root: SSAValue, ops: Sequence[Operation], store: WeightStore) -> Array:
    # Values are dropped after their last use: the intermediates of a large expression would otherwise pile up.
    uses = {root: 1}
    for op in ops:
        for v in op.operands:
            uses[v] = uses.get(v, 0) + 1
    values: dict[SSAValue, Array] = {}
    for op in ops:
        assert isinstance(op, DlOp)
        if isinstance(op, WeightOp):
            results: Iterable[Array] = (in_memory(store[op.symbol.string_value()]),)
        else:
            results = op.evaluate(*(values[v] for v in op.operands))
        values.update(zip(op.results, results, strict=True))
        for v in op.operands:
            uses[v] -= 1
            if not uses[v]:
                values.pop(v, None)
    return aligned(values[root])


def _hint(expression: Sequence[Operation]) -> str:
    """The name of the first weight in an expression."""
    return next((op.symbol.string_value() for op in expression if isinstance(op, WeightOp)), "c")


def _replace(root: SSAValue, name: str) -> None:
    owner = root.owner
    assert isinstance(owner, Operation) and owner.parent is not None
    weight = WeightOp.make(symbol=SymbolRefAttr(name), type=tensor_of(root))
    weight.location = owner.location
    weight.result.name_hint = root.name_hint
    owner.parent.insert_op_before(weight, owner)
    root.replace_all_uses_with(weight.result)
