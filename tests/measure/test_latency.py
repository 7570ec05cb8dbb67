"""Latencies: programs take turns, and quantiles are those of their own runs."""

from __future__ import annotations

import pytest

from dlc.errors import UnsupportedError
from dlc.measure.latency import Latency, interleaved
from dlc.measure.peers import PEERS, peers


@pytest.mark.parametrize("threads", [1, 2])
def test_programs_take_turns(threads: int) -> None:
    calls: list[str] = []
    latencies = interleaved({name: lambda name=name: calls.append(name) for name in "ab"}, 0, threads)
    assert calls[:2] == ["a", "b"], "one run of each is not counted"
    assert calls.count("a") == calls.count("b")
    assert all(latency.least >= 0 for latency in latencies.values())


def test_quantiles() -> None:
    latency = Latency(tuple(range(1, 11)))
    assert (latency.least, latency.median, latency.ninth_decile) == (1, 5.5, 10)


def test_runtimes_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedError, match="no runtime 'fast' to compare with; there are onnxruntime, openvino"):
        peers(["fast"])
    monkeypatch.setattr("dlc.measure.peers.find_spec", lambda package: None)
    assert peers() == []
    with pytest.raises(UnsupportedError, match="pip install openvino"):
        peers(["openvino"])
    assert list(PEERS) == ["onnxruntime", "openvino"]
