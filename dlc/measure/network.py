"""Measure the latency and bandwidth of messages between the ranks of a job."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2
from time import perf_counter

import numpy as np

from dlc.runtime.collectives.transport import Transport

# Calls of an all-reduce of one element and of many; the minimum time excludes waits for the scheduler.
_SMALL_ROUNDS, _LARGE_ROUNDS = 100, 10
_LARGE_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class NetworkRates:
    """The time of an empty message, and the rate at which a rank sends, in collectives of all ranks."""

    latency_seconds: float
    bytes_per_second: float


def measure_network(transport: Transport) -> NetworkRates:
    """Measure all-reduces of all ranks, at least two, which call this together."""
    ranks, axes = transport.mesh.size, [name for name, _ in transport.mesh.axes]

    def shortest(elements: int, rounds: int) -> float:
        x = np.zeros(elements, np.float32)
        times: list[float] = []
        for _ in range(rounds):
            start = perf_counter()
            transport.all_reduce(x, axes, "sum", "measurement of the network")
            times.append(perf_counter() - start)
        return min(times)

    small, large = shortest(1, _SMALL_ROUNDS), shortest(_LARGE_ELEMENTS, _LARGE_ROUNDS)
    # An all-reduce takes two trees of messages, and sends each byte twice, except for the rank's own part.
    sent_bytes = 2 * 4 * _LARGE_ELEMENTS * (ranks - 1) / ranks
    return NetworkRates(small / (2 * ceil(log2(ranks))), sent_bytes / max(large - small, 1e-9))
