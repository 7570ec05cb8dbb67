"""All samples: every op of the `dl` dialect has at least one."""

from __future__ import annotations

from tests.ops.sample import Sample
from tests.ops.samples import (
    adjoints,
    composite,
    contraction,
    elementwise,
    factorization,
    few_bits,
    fourier,
    functions,
    narrow,
    random,
    running,
    scatter,
    selection,
    shape,
    sorting,
    trees,
    winograd,
)

SAMPLES: list[Sample] = [
    *elementwise.SAMPLES,
    *functions.SAMPLES,
    *shape.SAMPLES,
    *contraction.SAMPLES,
    *winograd.SAMPLES,
    *few_bits.SAMPLES,
    *composite.SAMPLES,
    *fourier.SAMPLES,
    *running.SAMPLES,
    *sorting.SAMPLES,
    *trees.SAMPLES,
    *scatter.SAMPLES,
    *factorization.SAMPLES,
    *adjoints.SAMPLES,
    *narrow.SAMPLES,
    *random.SAMPLES,
    *selection.SAMPLES,
]
