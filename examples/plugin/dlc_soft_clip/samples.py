"""Samples of the op, from which `python -m dlc.testing dlc_soft_clip` derives tests."""

from __future__ import annotations

import numpy as np

from dlc.testing import BF16, F16, F32, F64, Sample, exactly, values
from dlc_soft_clip.op import SoftClipOp


@exactly
def expected(x: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """The clipped values by another formula: x·limit / (limit + |x|)."""
    return x * limit / (limit + np.abs(x))


def positive(dtype: np.dtype, *shape: int) -> np.ndarray:
    """Return limits, which are above 0."""
    return (np.abs(values(dtype, *shape, seed=1).astype(np.float64)) + 0.5).astype(dtype)


SAMPLES = [
    *(
        Sample(SoftClipOp, (values(t, 3, 4), positive(t, 3, 4)), expected, tolerance=8 * 2.0**-p)
        for t, p in ((F32, 23), (F64, 52))
    ),
    *(Sample(SoftClipOp, (values(t, 5), positive(t)), expected, tolerance=2.0**-p) for t, p in ((F16, 9), (BF16, 6))),
    Sample(SoftClipOp, (values(F32, 2, 1, 3), positive(F32, 4, 1)), expected, tolerance=1e-6, label="broadcast"),
    Sample(SoftClipOp, (values(F32, 0, 4), positive(F32, 4)), expected, label="empty"),
]
