"""All samples: every op of the `dl` dialect has at least one."""

from __future__ import annotations

from dlc.testing.sample import Sample
from tests.ops.samples import (
    adjoints,
    composite,
    contraction,
    cumulative,
    data_dependent,
    decision_trees,
    distributed,
    elementwise,
    factorization,
    fourier,
    functions,
    loops,
    random,
    scatter,
    shape,
    sorting,
    storage_formats,
    weight_only,
    winograd,
)

SAMPLES: list[Sample] = [
    *elementwise.SAMPLES,
    *functions.SAMPLES,
    *loops.SAMPLES,
    *shape.SAMPLES,
    *contraction.SAMPLES,
    *winograd.SAMPLES,
    *weight_only.SAMPLES,
    *composite.SAMPLES,
    *fourier.SAMPLES,
    *cumulative.SAMPLES,
    *sorting.SAMPLES,
    *decision_trees.SAMPLES,
    *scatter.SAMPLES,
    *factorization.SAMPLES,
    *adjoints.SAMPLES,
    *storage_formats.SAMPLES,
    *random.SAMPLES,
    *data_dependent.SAMPLES,
    *distributed.SAMPLES,
]
