"""Constant folding of weight expressions: the only pass that reads the weight store."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from dlc.arrays import aligned
from dlc.dialects.dl.base import Array, DlOp, tensor_of
from dlc.dialects.dl.creation import WeightOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.entry import entry_of
from dlc.files.mapped_files import copy_to_memory
from dlc.ir import ModuleOp, Operation, SSAValue, SymbolRefAttr, erase_op
from dlc.machine.cpus import usable_cpus
from dlc.machine.threads import ThreadPool
from dlc.passes.dl.rewriting import is_unspecified
from dlc.weights import WeightStore

# Minimum fraction of all weight elements in a large expression.
_LARGE_WEIGHT_FRACTION = 0.2
# Minimum elements of an expression that is evaluated in a thread; for smaller ones, starting a thread takes longer.
_MIN_PARALLEL_ELEMENTS = 1 << 14


def evaluate_weight_expressions(module: ModuleOp, store: WeightStore) -> WeightStore:
    """Replace each expression of weights and constants by a weight with its value, except unspecified constants.

        %p = dl.pack {…} (dl.mul @w, @scale)    →    %p = dl.weight {symbol = @w_1, …}

    Only maximal expressions are stored: those that a dispatch, a reshape of data or the return reads. Returns a store with
    exactly the weights that the entry then references; `store` is not modified.
    """
    block = entry_of(module).body.block
    weights = WeightExpressions()
    constant = dict.fromkeys(op for op in block.ops if weights.contains_results_of(op))
    roots = [r for op in constant for r in op.results if any(use.operation not in constant for use in r.uses)]
    computed_roots = [r for r in roots if not isinstance(r.owner, WeightOp) and not is_unspecified(r)]
    # Collect all of them before the first is replaced, since expressions may overlap.
    expressions: dict[SSAValue, Sequence[Operation]] = {root: _expression(root) for root in computed_roots}
    values = _evaluate_all(expressions, store)
    retained = {r.owner.symbol.string_value() for r in roots if isinstance(r.owner, WeightOp)}
    # New names must differ from all old ones, not only from those that stay: a directory may hold both.
    all_weights = store.subset(store)
    for root in computed_roots:
        name = all_weights.add(values[root], hint=_hint(expressions[root]))
        _replace(root, name)
        retained.add(name)
    for op in reversed(list(constant)):
        if not any(r.first_use for r in op.results):
            erase_op(op)
    return all_weights.subset(retained).copy_to_memory()


def _evaluate_all(expressions: Mapping[SSAValue, Sequence[Operation]], store: WeightStore) -> dict[SSAValue, Array]:
    """Evaluate expressions, given the ops that each depends on.

    A large expression is evaluated first and alone, to limit peak memory. Medium ones are evaluated in parallel, since NumPy
    releases the GIL for large arrays; they have few common subexpressions.
    """
    sizes = {root: math.prod(tensor_of(root).get_shape()) for root in expressions}
    large_threshold = sum(sizes.values()) * _LARGE_WEIGHT_FRACTION
    order = sorted(expressions, key=lambda root: -sizes[root])

    def value(root: SSAValue) -> Array:
        return _evaluate(root, expressions[root], store)

    large_roots = [root for root in order if sizes[root] > large_threshold]
    small_roots = [root for root in order if sizes[root] <= min(large_threshold, _MIN_PARALLEL_ELEMENTS)]
    values = {root: value(root) for root in (*large_roots, *small_roots)}
    with ThreadPool(usable_cpus()) as workers:
        medium_roots = order[len(large_roots) : len(order) - len(small_roots)]
        return values | dict(zip(medium_roots, workers.map(value, medium_roots), strict=True))


def _expression(root: SSAValue) -> Sequence[Operation]:
    """Return the ops that `root` depends on, in topological order."""
    order: dict[Operation, None] = {}
    pending = [(root.owner, False)]
    while pending:
        op, are_operands_ordered = pending.pop()
        if not isinstance(op, Operation) or op in order:
            continue
        if are_operands_ordered:
            order[op] = None
        else:
            pending.append((op, True))
            pending.extend((v.owner, False) for v in op.operands)
    return list(order)


def _evaluate(root: SSAValue, ops: Sequence[Operation], store: WeightStore) -> Array:
    # Drop values after their last use, to limit the memory of intermediates.
    uses = {root: 1}
    for op in ops:
        for v in op.operands:
            uses[v] = uses.get(v, 0) + 1
    values: dict[SSAValue, Array] = {}
    for op in ops:
        assert isinstance(op, DlOp)
        if isinstance(op, WeightOp):
            results: Iterable[Array] = (copy_to_memory(store[op.symbol.string_value()]),)
        else:
            results = op.evaluate(*(values[v] for v in op.operands))
        values.update(zip(op.results, results, strict=True))
        for v in op.operands:
            uses[v] -= 1
            if not uses[v]:
                values.pop(v, None)
    return aligned(values[root])


def _hint(expression: Sequence[Operation]) -> str:
    """Return the name of the first weight in an expression."""
    return next((op.symbol.string_value() for op in expression if isinstance(op, WeightOp)), "c")


def _replace(root: SSAValue, name: str) -> None:
    owner = root.owner
    assert isinstance(owner, Operation) and owner.parent is not None
    weight = WeightOp.make(symbol=SymbolRefAttr(name), type=tensor_of(root))
    weight.location = owner.location
    weight.result.name_hint = root.name_hint
    owner.parent.insert_op_before(weight, owner)
    root.replace_all_uses_with(weight.result)
