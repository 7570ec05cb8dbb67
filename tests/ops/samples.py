"""All samples: every op of the `dl` dialect has at least one."""

from __future__ import annotations

from tests.ops import (
    samples_adjoints,
    samples_composite,
    samples_contraction,
    samples_elementwise,
    samples_factorization,
    samples_few_bits,
    samples_fourier,
    samples_functions,
    samples_irregular,
    samples_narrow,
    samples_random,
    samples_selection,
    samples_shape,
    samples_winograd,
)
from tests.ops.sample import Sample

SAMPLES: list[Sample] = [
    *samples_elementwise.SAMPLES,
    *samples_functions.SAMPLES,
    *samples_shape.SAMPLES,
    *samples_contraction.SAMPLES,
    *samples_winograd.SAMPLES,
    *samples_few_bits.SAMPLES,
    *samples_composite.SAMPLES,
    *samples_fourier.SAMPLES,
    *samples_irregular.SAMPLES,
    *samples_factorization.SAMPLES,
    *samples_adjoints.SAMPLES,
    *samples_narrow.SAMPLES,
    *samples_random.SAMPLES,
    *samples_selection.SAMPLES,
]
