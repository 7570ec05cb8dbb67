"""Tests of ops derived from samples: `python -m dlc.testing PACKAGE` tests a plug-in as dlc tests its own ops.

sample.py                samples: an op, operands, and its results by an independent NumPy expression; programs.py
checks.py                all checks of samples
op_checks.py             text, verifier, reference, type inference, decomposition; results on targets, dynamic shapes
body_checks.py           scalar code and affine maps
batching_checks.py       `dl.vmap`, compared with a loop over the batch
derivative_checks.py     forward mode against finite differences, reverse mode against forward mode; derivative_points.py
random_programs.py       the op between random producers and consumers
"""

from __future__ import annotations

from dlc.testing.checks import SampleCheck, checks_of
from dlc.testing.sample import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Sample,
    assert_close,
    exactly,
    values,
)

__all__ = [
    "BF16",
    "BOOL",
    "F16",
    "F32",
    "F64",
    "I8",
    "I16",
    "I32",
    "I64",
    "U8",
    "U16",
    "U32",
    "U64",
    "SampleCheck",
    "Sample",
    "assert_close",
    "checks_of",
    "exactly",
    "values",
]
