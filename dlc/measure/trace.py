"""A run as a trace: the JSON that Perfetto (ui.perfetto.dev) and Chrome's about:tracing show."""

from __future__ import annotations

import json
from pathlib import Path

from dlc.measure.kernels import Measurement
from dlc.whole_files import written_whole


def write_trace(measurement: Measurement, path: Path) -> None:
    """Writes the fastest run of a measurement, each launch of a kernel as an event with the layers that it is of."""
    kernels = {k.name: k for k in measurement.artifact.kernels}
    name, threads = measurement.artifact.name, measurement.threads
    events: list[dict[str, object]] = [
        {"ph": "M", "pid": 1, "tid": 1, "name": "process_name", "args": {"name": name}},
        {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": f"kernels, on {threads} threads"}},
    ]
    for span in measurement.timeline:
        layers = list(kernels[span.kernel].origins) if span.kernel in kernels else []
        # In microseconds, as the format has it.
        times = {"ts": span.start * 1e6, "dur": span.seconds * 1e6}
        event = {"ph": "X", "pid": 1, "tid": 1, "cat": "kernel", "name": span.kernel, "args": {"layers": layers}}
        events.append({**event, **times})
    with written_whole(path) as file:
        file.write(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}).encode())
