"""Latencies: programs run interleaved, and quantiles are those of their own runs."""

from __future__ import annotations

import pytest

from dlc.errors import UnsupportedError
from dlc.measure.latency import Latency, measure_interleaved
from dlc.measure.other_runtimes import PEERS, installed_peers


@pytest.mark.parametrize("threads", [1, 2])
def test_programs_run_interleaved(threads: int) -> None:
    calls: list[str] = []
    latencies = measure_interleaved({name: lambda name=name: calls.append(name) for name in "ab"}, 0, threads)
    assert calls[:2] == ["a", "b"], "one run of each is not counted"
    assert calls.count("a") == calls.count("b")
    assert all(latency.fastest >= 0 for latency in latencies.values())


def test_quantiles() -> None:
    latency = Latency(tuple(range(1, 11)))
    assert (latency.fastest, latency.median, latency.percentile_90) == (1, 5.5, 10)


def test_missing_runtimes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedError, match="no runtime 'fast' to compare with; expected onnxruntime, openvino"):
        installed_peers(["fast"])
    monkeypatch.setattr("dlc.measure.other_runtimes.find_spec", lambda package: None)
    assert installed_peers() == []
    with pytest.raises(UnsupportedError, match="pip install openvino"):
        installed_peers(["openvino"])
    assert list(PEERS) == ["onnxruntime", "openvino"]
