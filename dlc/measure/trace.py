"""Write a run as a trace in the JSON format of Perfetto (ui.perfetto.dev) and Chrome's about:tracing."""

from __future__ import annotations

import json
from pathlib import Path

from dlc.files.atomic_writes import atomic_write
from dlc.measure.kernel_times import Measurement


def write_trace(measurement: Measurement, path: Path) -> None:
    """Write the fastest run, one row of launches per thread, with the layers that a launch computes."""
    kernels = {k.name: k for k in measurement.artifact.kernels}
    spans = measurement.timeline
    events: list[dict[str, object]] = [
        {"ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": {"name": measurement.artifact.name}},
        *(
            {"ph": "M", "pid": 1, "tid": k, "name": "thread_name", "args": {"name": name}}
            for k, name in enumerate(measurement.rows)
        ),
    ]
    for span in spans:
        layers = list(kernels[span.kernel].origins) if span.kernel in kernels else []
        # The format uses microseconds.
        times = {"ts": span.start * 1e6, "dur": span.seconds * 1e6}
        arguments = {"layers": layers, "tasks": span.tasks, "run": span.launch}
        event = {"ph": "X", "pid": 1, "tid": span.thread, "cat": "kernel", "name": span.kernel, "args": arguments}
        events.append({**event, **times})
    with atomic_write(path) as file:
        file.write(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}).encode())
