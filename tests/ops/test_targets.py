"""Every sample, compiled as a program, on every target."""

from __future__ import annotations

import pytest

from dlc.testing.op_checks import check_target
from dlc.testing.sample import Sample
from tests.ops.samples import SAMPLES

TARGETS = ("reference", "cpu")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_sample(sample: Sample, target: str) -> None:
    check_target(sample, target)
