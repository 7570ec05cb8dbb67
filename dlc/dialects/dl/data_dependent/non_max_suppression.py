"""Non-maximum suppression of boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dlc.dialects.dl.arithmetic.activation import cast_to
from dlc.dialects.dl.arithmetic.elementwise import AddOp, DivOp, MaximumOp, MinimumOp, MulOp, SubOp
from dlc.dialects.dl.arithmetic.logic import GreaterOp, LessOp
from dlc.dialects.dl.base import Array, Tensor, compatible, element_type_of, flag, rank_of, shape_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.creation import IotaOp
from dlc.dialects.dl.data_dependent.selection import SelectionOp, true_indices
from dlc.dialects.dl.dtypes import is_integer
from dlc.dialects.dl.interfaces import LibraryKernel
from dlc.dialects.dl.library_kernels.sorting import ArgsortOp
from dlc.dialects.dl.movement.indexing import GatherElementsOp, GatherOp
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ConcatOp, ReshapeOp, SliceOp
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    BoolAttr,
    SSAValue,
    TensorType,
    f32,
    i1,
    i64,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    result_def,
)
from dlc.runtime.python_ops.registry import OpSetting, select_boxes
from dlc.shapes.dims import Size, is_known_different, product


@irdl_op_definition
class SuppressOverlapsOp(LibraryKernel):
    """Greedy suppression in each row of boxes: keep the first candidate, drop the candidates that overlap it, and repeat.

    The result, i64 [.., n], holds the indices of the kept boxes, ascending, followed by n as padding. `boxes` [.., n, 4] are a
    lower and an upper corner each, best box first; `candidates` [.., n] may be kept, up to `max_kept` [..] per row. Boxes
    overlap if their intersection is more than `iou` [..] times their union, as in `dl.non_max_suppression`.
    (C1) boxes and `iou` are f32, candidates bool, `max_kept` i64; (C2) leading axes are equal.
    """

    name = "dl.suppress_overlaps"
    boxes = operand_def(TensorType)
    candidates = operand_def(TensorType)
    max_kept = operand_def(TensorType)
    iou = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        shape, elements = shape_of(self.candidates), [element_type_of(v) for v in self.operands]
        expected = (*shape, 4), shape, shape[:-1], shape[:-1]
        if not shape or not all(compatible(shape_of(v), s) for v, s in zip(self.operands, expected, strict=True)):
            shapes = ", ".join(str(shape_of(v)) for v in self.operands)
            raise ShapeError(f"dl.suppress_overlaps: shapes {shapes}; expected [.., n, 4], [.., n], [..] and [..] (C2)")
        if elements != [f32, i1, i64, f32]:
            raise DTypeError(
                f"dl.suppress_overlaps: element types {', '.join(map(str, elements))}; expected f32, i1, i64, f32 (C1)"
            )
        return [tensor_type(shape, i64)]

    def reference(self, *operands: Array) -> Array:
        boxes, candidates, max_kept, iou = operands
        result = np.full(candidates.shape, candidates.shape[-1], np.int64)
        for row in np.ndindex(*max_kept.shape):
            corners, candidate_indices = (boxes[row][:, :2], boxes[row][:, 2:]), np.flatnonzero(candidates[row])
            selected = list(select_boxes(corners, candidate_indices, int(max_kept[row]), iou[row]))
            result[row][: len(selected)] = selected
        return result


@irdl_op_definition
class NonMaxSuppressionOp(SelectionOp):
    """Drops boxes that overlap a box with a higher score; each row of the result is (batch, class, box) of a remaining box.

    `boxes` [batch, n, 4] are two opposite corners (y, x, y, x), with `center_point` (x, y, width, height); `scores` [batch,
    classes, n]. For each batch and class, the box with the highest score above `score_threshold` is selected, and boxes whose
    intersection with it exceeds `iou_threshold` times the union are dropped. This repeats until `max_boxes` boxes are selected.
    Of equal scores the first is selected; a box without area overlaps no other.
    (C1) boxes, scores and thresholds are f32, `max_boxes` is an integer; (C2) the three settings have rank 0; (C3) the
    result is i64 of shape (`size`, 3), in the order of batch, class and selection.
    """

    name = "dl.non_max_suppression"
    boxes = operand_def(TensorType)
    scores = operand_def(TensorType)
    max_boxes = operand_def(TensorType)
    iou_threshold = operand_def(TensorType)
    score_threshold = operand_def(TensorType)
    center_point = opt_prop_def(BoolAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        boxes, scores = shape_of(self.boxes), shape_of(self.scores)
        settings = [self.max_boxes, self.iou_threshold, self.score_threshold]
        if (
            len(boxes) != 3
            or len(scores) != 3
            or is_known_different(boxes[0], scores[0])
            or is_known_different(boxes[1], scores[2])
        ):
            raise ShapeError(f"{self.name}: boxes {boxes} and scores {scores}; expected [batch, n, 4] and [batch, classes, n]")
        if is_known_different(boxes[2], 4) or any(rank_of(v) for v in settings):
            shapes = [shape_of(v) for v in settings]
            raise ShapeError(f"{self.name}: boxes {boxes}, settings {shapes}; expected 4 coordinates and rank-0 settings (C2)")
        floats = {element_type_of(v) for v in (self.boxes, self.scores, *settings[1:])}
        if floats != {f32} or not is_integer(element_type_of(self.max_boxes)):
            types = [str(element_type_of(v)) for v in self.operands]
            raise DTypeError(f"{self.name}: element types {types}; expected f32, and an integer for max_boxes (C1)")
        return [tensor_type((self.count, 3), i64)]

    @property
    def settings(self) -> Mapping[str, OpSetting]:
        return {"center_point": flag(self.center_point)}

    @property
    def max_size(self) -> Size:
        return product(shape_of(self.scores))

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        """Sort the boxes of each batch and class by score, suppress overlaps, and collect the remaining boxes."""
        build, (boxes, scores, max_boxes, iou, threshold), size = DlBuilder(self), operands, self.count
        batches, classes, n = shape_of(self.scores)
        rows = batches * classes
        order = build(ArgsortOp, scores, axis=2, descending=True)
        is_candidate = build(GreaterOp, build(GatherElementsOp, scores, order, axis=2), threshold)
        corners = build(BroadcastToOp, self._corners(build, boxes), shape=(batches, classes, n, 4))
        corners = build(ReshapeOp, corners, shape=(rows * n, 4))
        row = build(ReshapeOp, build(IotaOp, size=(rows,), to=i64, start=0, step=1), shape=(rows, 1))
        order = build(ReshapeOp, order, shape=(rows, n))
        sorted_corners = build(GatherOp, corners, build(AddOp, build(MulOp, row, build.size(n, like=row)), order), axis=0)
        selected = build(
            SuppressOverlapsOp,
            sorted_corners,
            build(ReshapeOp, is_candidate, shape=(rows, n)),
            build(BroadcastToOp, cast_to(build, max_boxes, i64), shape=(rows,)),
            build(BroadcastToOp, iou, shape=(rows,)),
        )
        selected = build(ReshapeOp, selected, shape=(rows * n,))
        positions = true_indices(build, build(LessOp, selected, build.size(n, like=selected)), size)
        positions = build(SliceOp, positions, starts=(0,), limits=(size,), strides=(1,))
        row = build(DivOp, positions, build.size(n, like=positions))
        position = build(AddOp, build(MulOp, row, build.size(n, like=row)), build(GatherOp, selected, positions, axis=0))
        batch = build(DivOp, row, build.size(classes, like=row))
        box_class = build(SubOp, row, build(MulOp, batch, build.size(classes, like=row)))
        box = build(GatherOp, build(ReshapeOp, order, shape=(rows * n,)), position, axis=0)
        return [build(ConcatOp, *(build(ReshapeOp, column, shape=(size, 1)) for column in (batch, box_class, box)), axis=1)]

    def _corners(self, build: DlBuilder, boxes: SSAValue) -> SSAValue:
        """Return the lower and the upper corner of each box: [batch, 1, n, 4]."""
        batches, n, _ = shape_of(boxes)

        def half(start: int) -> SSAValue:
            return build(SliceOp, boxes, starts=(0, 0, start), limits=(batches, n, start + 2), strides=(1, 1, 1))

        p, q = half(0), half(2)
        if flag(self.center_point):
            half_size = build(DivOp, q, build.scalar(2, like=q))
            p, q = build(SubOp, p, half_size), build(AddOp, p, half_size)
        corners = build(ConcatOp, build(MinimumOp, p, q), build(MaximumOp, p, q), axis=2)
        return build(ReshapeOp, corners, shape=(batches, 1, n, 4))
