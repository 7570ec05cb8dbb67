"""The scalar bodies and affine maps of ops agree with their references."""

from __future__ import annotations

import pytest

from dlc.dialects.dl.interfaces import DataMovement, Elementwise, GatherLike, Reduction
from dlc.testing.body_checks import check_combination, check_gather_body, check_scalar_body, check_source_map
from dlc.testing.sample import Sample
from tests.ops.samples import SAMPLES


def samples_of(interface: type):
    chosen = [s for s in SAMPLES if issubclass(s.op, interface)]
    return pytest.mark.parametrize("sample", chosen, ids=[s.name for s in chosen])


@samples_of(Elementwise)
def test_scalar(sample: Sample) -> None:
    check_scalar_body(sample)


@samples_of(GatherLike)
def test_gather(sample: Sample) -> None:
    check_gather_body(sample)


@samples_of(DataMovement)
def test_source_map(sample: Sample) -> None:
    check_source_map(sample)


@samples_of(Reduction)
def test_combine(sample: Sample) -> None:
    check_combination(sample)
