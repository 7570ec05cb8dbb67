"""The bodies of `dl.loops`: functions on buffers whose grid points must not depend on each other.

Grid points run in lockstep here and in parallel elsewhere. An element of a result that one point of a grid writes and another
point of the same grid reads or writes is an EvaluationError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from dlc.backends.reference.buffers import load, store
from dlc.backends.reference.control import parallel
from dlc.backends.reference.evaluation_context import EvaluationContext, Frame, Rule
from dlc.backends.reference.program import argument, empty_like
from dlc.backends.reference.values import Array, EvaluationError, MemrefView, Value, expand, offsets_of
from dlc.backends.reference.vectors import Transfer, clipped_offsets, resolve_transfer, transfer_read, transfer_write
from dlc.dialects import dl
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.ir import Operation, SSAValue, memref, scf, vector

_NO_POINT, _SEVERAL_POINTS = -1, -2


def evaluate_body(op: dl.LoopsOp, operands: Sequence[Array]) -> tuple[Array, ...]:
    """Run the body of a `dl.loops` on arrays of its operands, and return its results."""
    function = op.body.function
    parameters, sizes = function.body.block.args, [np.asarray(int(size)) for size in op.size_arguments]
    result_parameters = parameters[len(operands) : len(parameters) - len(sizes)]
    arrays = [np.asarray(x, order="C") for x in operands]
    arrays += [empty_like(p.type, tuple(map(int, op.body_shape(p)))) for p in result_parameters]
    values = [
        argument(f"argument {k} of @{op.kernel_name}", a, p.type)
        for k, (a, p) in enumerate(zip([*arrays, *sizes], parameters, strict=True))
    ]
    results = dict(zip(result_parameters, values[len(operands) :], strict=False))
    accesses = _GridAccesses(op, cast("Mapping[SSAValue, MemrefView]", results))
    with np.errstate(all="ignore"):
        Frame(EvaluationContext({}, {}, accesses.rules)).run(function.body.block, values)
    # Buffers store unsigned integers and booleans as signless ones; results have the dtypes of their elements.
    return tuple(a.view(numpy_dtype(e)) for a, e in zip(arrays[len(operands) :], op.elements.data, strict=True))


class _GridAccesses:
    """The accesses to results in the current grid: which of its points read and wrote each element."""

    def __init__(self, op: dl.LoopsOp, results: Mapping[SSAValue, MemrefView]) -> None:
        self._op = op
        self._results = results
        self._writers = {result: np.full(view.base.size, _NO_POINT) for result, view in results.items()}
        self._readers = {result: np.full(view.base.size, _NO_POINT) for result, view in results.items()}
        self.rules: Mapping[type[Operation], Rule] = {
            scf.ParallelOp: self._parallel,
            memref.LoadOp: self._checked(load),
            memref.StoreOp: self._checked(store),
            vector.TransferReadOp: self._checked(transfer_read),
            vector.TransferWriteOp: self._checked(transfer_write),
        }

    def _parallel(self, op: scf.ParallelOp, frame: Frame) -> Sequence[Value]:
        for points in (*self._writers.values(), *self._readers.values()):
            points.fill(_NO_POINT)
        return parallel(op, frame)

    def _checked(self, rule: Rule) -> Rule:
        """Return the rule of an access with the check before it."""

        def run(op: Any, frame: Frame) -> Sequence[Value]:
            if isinstance(op, memref.LoadOp | memref.StoreOp):
                self._check(op, op.memref, op.indices, frame)
            else:
                transfer = frame.context.memoize(op, resolve_transfer)
                self._check(op, transfer.buffer, transfer.indices, frame, transfer)
            return rule(op, frame)

        return run

    def _check(
        self, op: Operation, buffer: SSAValue, indices: Sequence[SSAValue], frame: Frame, transfer: Transfer | None = None
    ) -> None:
        """Check an access, and record it if it is a write."""
        view, grid = self._results.get(buffer), _grid_of(op)
        if view is None or grid is None:
            return
        starts = [frame.array(i) for i in indices]
        is_accessed = None
        if transfer is not None and not all(transfer.in_bounds):
            is_accessed, offsets = clipped_offsets(op, view, starts, transfer)
        else:
            extents = None if transfer is None else transfer.extents(len(view.shape))
            steps = offsets_of(*((), ()) if transfer is None else (transfer.shape, transfer.strides(view)))
            offsets = expand(np.asarray(view.element_offset(op, starts, extents)), steps.ndim) + steps
        # The indices of a point, as one number.
        point = np.zeros((), np.int64)
        for i in grid.body.block.args:
            point = point * (1 << 31) + frame.array(i)
        shape = () if transfer is None else transfer.shape
        points = np.broadcast_to(expand(point, len(shape)), (frame.points or 1, *shape))
        offsets = np.broadcast_to(offsets, points.shape)
        if is_accessed is not None:
            is_accessed = np.broadcast_to(is_accessed, points.shape)
            points, offsets = points[is_accessed], offsets[is_accessed]
        writers, readers = self._writers[buffer], self._readers[buffer]
        is_write = isinstance(op, memref.StoreOp | vector.TransferWriteOp)
        accessors = writers if is_write else readers
        free = accessors[offsets] == _NO_POINT
        accessors[offsets[free]] = points[free]
        accessors[offsets[accessors[offsets] != points]] = _SEVERAL_POINTS
        written_by, read_by = writers[offsets], readers[offsets]
        is_conflict = (written_by != points) & (written_by != _NO_POINT)
        is_conflict |= (written_by != _NO_POINT) & (read_by != points) & (read_by != _NO_POINT)
        conflicts = np.argwhere(is_conflict)
        if len(conflicts):
            element = np.unravel_index(int(offsets[tuple(conflicts[0])]), view.shape)
            verb = "write" if (written_by != points)[tuple(conflicts[0])] and is_write else "read and write"
            raise EvaluationError(
                f"kernel {self._op.kernel_name}: two points of a grid {verb} element {tuple(map(int, element))} of "
                f"{buffer.name_hint or 'a result'}; the points of a grid must be independent"
            )


def _grid_of(op: Operation) -> scf.ParallelOp | None:
    """Return the grid that contains an op."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, scf.ParallelOp):
        parent = parent.parent_op()
    return parent


dl.LoopsOp.EVALUATE_BODY = evaluate_body
