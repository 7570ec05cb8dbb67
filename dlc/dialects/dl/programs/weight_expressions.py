"""Weight expressions: values that depend on weights and literals only."""

from __future__ import annotations

from typing import Any

from dlc.dialects.dl.base import DlOp, has_symbolic_dims, has_symbolic_sizes
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.library_kernels.loops import LoopsOp
from dlc.dialects.dl.movement.shaping import BroadcastToOp
from dlc.ir import Block, Operation, SSAValue, func


class WeightExpressions:
    """The set of values that depend on weights and literals only, which have static sizes.

    They are evaluated once, before the first run, so that work hoisted into them costs nothing at run time. Kernels with loops
    are excluded: the evaluator would interpret each step. So are returned broadcasts: a kernel that fills the result reads no
    copy of it. Membership is determined through the producers and memoized: use
    one instance while a pass runs.
    """

    def __init__(self) -> None:
        self._cache: dict[Operation | Block, bool] = {}

    def __contains__(self, value: SSAValue) -> bool:
        cached = self._cache.get(value.owner)
        return self.contains_results_of(value.owner) if cached is None else cached

    def contains_results_of(self, owner: Operation | Block) -> bool:
        """Return whether the results of an op are weight expressions; block arguments are not."""
        cache = self._cache
        if (cached := cache.get(owner)) is not None:
            return cached
        pending: list[Any] = [owner]
        while pending:
            op = pending.pop()
            if not _MAY_BE_EVALUATED[op.__class__]:
                cache[op] = False
                continue
            unknown: list[Operation | Block] = []
            for value in op.operands:
                source = cache.get(value.owner)
                if source is None:
                    unknown.append(value.owner)
                elif not source:
                    cache[op] = False
                    break
            else:
                if unknown:
                    pending += [op, *unknown]
                else:
                    cache[op] = _has_static_sizes(op) and not _is_returned_broadcast(op)
        return cache[owner]


class _MayBeEvaluated(dict[type, bool]):
    """A memoized map from op classes to whether their results can be weight expressions; False for blocks."""

    def __missing__(self, op_class: type) -> bool:
        is_allowed = self[op_class] = issubclass(op_class, DlOp) and not issubclass(op_class, DataDependent | LoopsOp)
        return is_allowed


_MAY_BE_EVALUATED = _MayBeEvaluated()


def _is_returned_broadcast(op: DlOp) -> bool:
    return isinstance(op, BroadcastToOp) and any(isinstance(use.operation, func.ReturnOp) for use in op.result.uses)


def _has_static_sizes(op: DlOp) -> bool:
    """Return whether the sizes in an op's properties and result types are static."""
    return not (has_symbolic_sizes(op) or any([has_symbolic_dims(value) for value in op.results]))
