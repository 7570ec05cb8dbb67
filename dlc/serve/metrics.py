"""Counters of the server, in the text format of Prometheus.

https://prometheus.io/docs/instrumenting/exposition_formats
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping

# Upper bounds of the latency histogram's buckets.
_BUCKET_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Requests by model and status code, and their latencies; updated by the event loop only."""

    def __init__(self) -> None:
        self._requests: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._buckets: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(_BUCKET_SECONDS) + 1))
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self.reloads: defaultdict[tuple[str, str], int] = defaultdict(int)

    def record(self, model: str, status: int, seconds: float) -> None:
        """Count a request to a served model."""
        self._requests[model, status] += 1
        self._buckets[model][bisect_left(_BUCKET_SECONDS, seconds)] += 1
        self._seconds[model] += seconds

    def text(self, pending: Mapping[str, int], running: Mapping[str, int]) -> str:
        """Return all metrics, with the current number of pending and running calls of each model."""
        return "\n".join([*self._lines(pending, running), ""])

    def _lines(self, pending: Mapping[str, int], running: Mapping[str, int]) -> Iterator[str]:
        yield from _header("dlc_requests_total", "counter", "Inference requests by status code.")
        for (model, status), count in sorted(self._requests.items()):
            yield f'dlc_requests_total{{model="{_escape(model)}",status="{status}"}} {count}'
        yield from _header("dlc_request_seconds", "histogram", "Time from a request to its response.")
        for model, buckets in sorted(self._buckets.items()):
            label, total = _escape(model), 0
            for bound, count in zip((*map(str, _BUCKET_SECONDS), "+Inf"), buckets, strict=True):
                total += count
                yield f'dlc_request_seconds_bucket{{model="{label}",le="{bound}"}} {total}'
            yield f'dlc_request_seconds_sum{{model="{label}"}} {self._seconds[model]:.6f}'
            yield f'dlc_request_seconds_count{{model="{label}"}} {total}'
        yield from _gauges("dlc_pending_calls", "Calls that have not started.", pending)
        yield from _gauges("dlc_running_calls", "Calls that are running.", running)
        yield from _header("dlc_model_loads_total", "counter", "Models that were loaded, by result.")
        for (model, result), count in sorted(self.reloads.items()):
            yield f'dlc_model_loads_total{{model="{_escape(model)}",result="{result}"}} {count}'


def _header(name: str, kind: str, help: str) -> Iterator[str]:
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {kind}"


def _gauges(name: str, help: str, values: Mapping[str, int]) -> Iterator[str]:
    yield from _header(name, "gauge", help)
    for model, value in sorted(values.items()):
        yield f'{name}{{model="{_escape(model)}"}} {value}'


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
