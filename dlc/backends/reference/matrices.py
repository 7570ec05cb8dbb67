"""`gpu.subgroup_matmul`: assemble matrices from the fragments of 32 work-items, multiply, and distribute the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.backends.reference.evaluation_context import Frame, rule
from dlc.backends.reference.values import Array, EvaluationError, Value, describe
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.low_precision.packed_dot import PACKED_DOTS
from dlc.dialects.matrix_multiply import SUBGROUP_ITEMS, TILE_COLUMNS, TILE_ROWS, TILE_WORDS, SubgroupMatmulOp
from dlc.ir import SSAValue

# Work-item 4g + t has the fragments of row g and column t: 8 values of g, 4 of t.
_G, _T = 8, 4


@rule(SubgroupMatmulOp)
def subgroup_matmul(op: SubgroupMatmulOp, frame: Frame) -> Sequence[Value]:
    points = frame.points or 1
    if not frame.has_whole_groups or points % SUBGROUP_ITEMS:
        raise EvaluationError(f"{describe(op)}: only some of the {SUBGROUP_ITEMS} work-items of a subgroup reach this op")

    def fragments(value: SSAValue, *shape: int) -> Array:
        """Return the fragments of a value, one for each of 32 work-items: axes for the matrix, g, t, and the fragment."""
        return np.broadcast_to(frame.array(value), (points, *shape)).reshape(points // SUBGROUP_ITEMS, _G, _T, *shape)

    def unpack(words: Array) -> Array:
        """Unpack the two elements of each word along a new axis."""
        element_dtype: np.dtype[Any] = numpy_dtype(PACKED_DOTS[op.dot.data].data)
        return np.ascontiguousarray(words)[..., None].view(element_dtype).astype(np.float32)

    # A fragment alternates between rows g and g + 8; transpose to [matrix, row half, g, t, word, element].
    a = unpack(fragments(op.rows, 2, 4).reshape(-1, _G, _T, 4, 2)).transpose(0, 4, 1, 2, 3, 5)
    b = unpack(fragments(op.words, 4, 4)).transpose(0, 2, 4, 5, 1, 3)
    product = np.matmul(a.reshape(-1, TILE_ROWS, 2 * TILE_WORDS), b.reshape(-1, 2 * TILE_WORDS, TILE_COLUMNS)).reshape(
        -1, 2, _G, _T, 8
    )
    sums = (fragments(v, 8) + product[:, k] for k, v in enumerate((op.upper_sums, op.lower_sums)))
    return [s.reshape(points, 8) for s in sums]
