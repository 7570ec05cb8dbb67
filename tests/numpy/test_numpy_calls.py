"""Random calls of NumPy's functions give NumPy's results, or are refused."""

from __future__ import annotations

import pytest

from tests.suites.numpy_calls import count_calls


@pytest.mark.parametrize(("traced", "calls_per_function"), [(False, 8), (True, 1)])
def test_random_calls(traced: bool, calls_per_function: int) -> None:
    calls = count_calls(1, calls_per_function, traced=traced)
    assert not calls.undocumented, "\n".join(calls.undocumented)
    assert calls.equal_fraction >= 0.8, calls.counts
