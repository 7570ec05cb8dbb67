"""`gpu.multiply_words`: items that run in lockstep put their parts of matrices together, and take theirs of the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.backends.reference.machine import Frame, rule
from dlc.backends.reference.values import Array, EvaluationError, Value, describe
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.narrow_numbers.words import DOTS
from dlc.dialects.matrices import COLUMNS, ITEMS, ROWS, WORDS, MultiplyWordsOp
from dlc.ir import SSAValue

# Item 4g + t: eight of g, four of t.
_G, _T = 8, 4


@rule(MultiplyWordsOp)
def multiply_words(op: MultiplyWordsOp, frame: Frame) -> Sequence[Value]:
    points = frame.points or 1
    if not frame.has_whole_groups or points % ITEMS:
        raise EvaluationError(f"{describe(op)}: some of {ITEMS} items reach it and others do not")

    def parts(value: SSAValue, *shape: int) -> Array:
        """The parts that 32 items have of a value: an axis of matrices, then g, t, and those of a part."""
        return np.broadcast_to(frame.array(value), (points, *shape)).reshape(points // ITEMS, _G, _T, *shape)

    def numbers(words: Array) -> Array:
        """The two numbers in each word, as an axis of their own."""
        kind: np.dtype[Any] = numpy_dtype(DOTS[op.dot.data].data)
        return np.ascontiguousarray(words)[..., None].view(kind).astype(np.float32)

    # Words of rows g and g + 8 in turns: [matrices, row of two, g, t, word, number] is wanted.
    a = numbers(parts(op.rows, 2, 4).reshape(-1, _G, _T, 4, 2)).transpose(0, 4, 1, 2, 3, 5)
    b = numbers(parts(op.words, 4, 4)).transpose(0, 2, 4, 5, 1, 3)
    product = np.matmul(a.reshape(-1, ROWS, 2 * WORDS), b.reshape(-1, 2 * WORDS, COLUMNS)).reshape(-1, 2, _G, _T, 8)
    sums = (parts(v, 8) + product[:, k] for k, v in enumerate((op.upper_sums, op.lower_sums)))
    return [s.reshape(points, 8) for s in sums]
