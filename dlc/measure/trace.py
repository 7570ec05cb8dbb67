"""A run as a trace: the JSON that Perfetto (ui.perfetto.dev) and Chrome's about:tracing show."""

from __future__ import annotations

import json
from pathlib import Path

from dlc.files.whole_files import written_whole
from dlc.measure.kernels import Measurement


def write_trace(measurement: Measurement, path: Path) -> None:
    """Writes the fastest run, a row for each thread: what it did of each launch of a kernel, with its layers."""
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
        # In microseconds, as the format has it.
        times = {"ts": span.start * 1e6, "dur": span.seconds * 1e6}
        about = {"layers": layers, "tasks": span.tasks, "run": span.launch}
        event = {"ph": "X", "pid": 1, "tid": span.thread, "cat": "kernel", "name": span.kernel, "args": about}
        events.append({**event, **times})
    with written_whole(path) as file:
        file.write(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}).encode())
