"""`dlc bench`: how fast a model is, beside other runtimes and beside what the machine can do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.markup import escape
from rich.table import Table

from dlc.backends.limits import Limits
from dlc.cli.given import Shapes, shape_option
from dlc.cli.run import input_option, prepared, seed_option
from dlc.cli.shared import (
    ARTIFACT_SUFFIX,
    Numbers,
    json_option,
    model_argument,
    no_cache_option,
    numerics_option,
    out,
    precision_option,
    reports_errors,
    shown_progress,
    target_option,
    threads_option,
    weights_options,
)
from dlc.errors import UnsupportedError
from dlc.files.whole_files import require_writable
from dlc.instrument.report import Doing
from dlc.measure.kernels import KernelTime, Measurement, measure
from dlc.measure.latency import Latency, interleaved
from dlc.measure.peers import PEERS, peers
from dlc.measure.profile import time_text
from dlc.measure.trace import write_trace
from dlc.options import Options, thread_count
from dlc.runtime.load import CompiledProgram
from dlc.runtime.models.model import Model

# How wide the bar of the kernel that takes longest is, in characters; on a terminal that is narrower, names need the room.
_BAR, _WIDE = 10, 100


def _names(context: click.Context, option: click.Parameter, value: str | None) -> list[str]:
    return [name.strip() for name in value.split(",")] if value else []


@click.command("bench")
@model_argument
@input_option
@target_option
@shape_option
@seed_option
@threads_option
@numerics_option
@precision_option
@weights_options
@no_cache_option
@click.option("--seconds", type=Numbers(0), default=2.0, show_default=True, help="How long to measure.")
@click.option("--kernels", is_flag=True, help="Show each kernel's time, and its share of what the machine can do.")
@click.option(
    "--trace",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a run, thread by thread and kernel by kernel, for Perfetto (ui.perfetto.dev) or Chrome to show.",
)
@click.option(
    "--vs", "others", metavar="RUNTIME,…", callback=_names, help=f"Compare with {', '.join(PEERS)}, where they are installed."
)
@json_option
@reports_errors
def bench_command(
    model: Path,
    inputs: tuple[str, ...],
    target: str,
    shapes: Shapes,
    seed: int,
    num_threads: int | None,
    numerics: str,
    precision: str,
    weights: str,
    group: int,
    no_cache: bool,
    seconds: float,
    kernels: bool,
    trace: Path | None,
    others: list[str],
    as_json: bool,
) -> None:
    """Measures how long a call of a model takes.

    The first call is not counted. Runtimes that are compared (--vs) take turns, get the same inputs, number of threads and
    precision; ONNX Runtime has but that of the file.
    """
    rivals = peers(others) if others else []
    if rivals and model.suffix == ARTIFACT_SUFFIX:
        raise click.UsageError(f"--vs: other runtimes read the ONNX model, not {model}")
    options = Options.of(
        num_threads=num_threads,
        numerics=numerics,
        precision=precision,
        weights=weights,
        group=group,
        cache=False if no_cache else None,
    )
    threads = thread_count(options.num_threads)
    if trace is not None:
        require_writable(trace)
    with shown_progress() as progress:
        compiled, arrays = prepared(model, shapes, inputs, seed, target, options, progress)
        artifact = compiled.artifact
        if model.suffix == ARTIFACT_SUFFIX:
            target = artifact.target.name if isinstance(artifact, CompiledProgram) else "as compiled"
        if (kernels or trace is not None) and not isinstance(artifact, CompiledProgram):
            raise UnsupportedError(
                "--kernels, --trace: the model must be one program for a CPU or an OpenCL device: give its sizes (--shape)"
            )
        if progress is not None:
            progress(Doing("measuring"))
        runs = {"dlc": partial(_run, compiled, arrays), **{p.name: p.open(model, arrays, threads, precision) for p in rivals}}
        latencies = interleaved(runs, seconds, threads)
        measured = None
        if (kernels or trace is not None) and isinstance(artifact, CompiledProgram):
            measured = measure(artifact, compiled.checked(arrays), threads)
            if trace is not None:
                write_trace(measured, trace)
    shown = measured if kernels else None
    if as_json:
        click.echo(json.dumps(_report(compiled.name, target, threads, latencies, shown), indent=1))
        return
    _print_latencies(compiled.name, target, threads, latencies)
    if shown is not None:
        _print_kernels(shown.kernels, shown.limits)
    if trace is not None:
        out.print(f"Saved as {escape(str(trace))}.")


def _run(model: Model, inputs: Mapping[str, NDArray[Any]]) -> None:
    for result in model(inputs).values():
        np.asarray(result)  # a device computes until somebody looks


def _report(
    name: str,
    target: str,
    threads: int,
    latencies: dict[str, Latency],
    measured: Measurement | None,
) -> dict[str, object]:
    runtimes = {
        runtime: {
            "calls": len(latency.runs),
            "min_ms": latency.least * 1e3,
            "median_ms": latency.median * 1e3,
            "p90_ms": latency.ninth_decile * 1e3,
        }
        for runtime, latency in latencies.items()
    }
    report: dict[str, object] = {"model": name, "target": target, "threads": threads, **runtimes.pop("dlc"), "others": runtimes}
    if measured is not None:
        report |= {"kernels": [asdict(t) for t in measured.kernels], "limits": asdict(measured.limits)}
    return report


def _print_latencies(name: str, target: str, threads: int, latencies: dict[str, Latency]) -> None:
    table = Table("runtime", "calls", "min ms", "median ms", "90 % ms", "dlc is", title=f"{escape(name)}, {threads} threads")
    for column in table.columns[1:]:
        column.justify = "right"
    ours = latencies["dlc"].median
    for runtime, latency in latencies.items():
        label, faster = (f"dlc, {target}", "") if runtime == "dlc" else (runtime, f"{latency.median / ours:.2f} × as fast")
        shown = (f"{value * 1e3:.3f}" for value in (latency.least, latency.median, latency.ninth_decile))
        table.add_row(label, str(len(latency.runs)), *shown, faster)
    out.print(table)


def _print_kernels(times: Sequence[KernelTime], limits: Limits) -> None:
    table = Table("kernel", "runs", "time", "share", "GFLOP/s", "GB/s", "of limit", "layers", title="Kernels, in one call")
    for column in table.columns[1:-1]:
        # Where there is little room, names give way.
        column.no_wrap, column.justify = True, "right"
    table.columns[3].justify = "left"
    total, most = sum(t.seconds for t in times), max((t.seconds for t in times), default=0.0)
    is_wide = out.width >= _WIDE
    for t in times:
        first = t.origins[0] if t.origins else ""
        table.add_row(
            escape(t.name),
            str(t.runs),
            time_text(t.seconds),
            # On no elements kernels take no time.
            f"{t.seconds / (total or 1):6.1%}{' ' + '█' * max(1, round(_BAR * t.seconds / (most or 1))) if is_wide else ''}",
            _rate(t.flops, t.seconds),
            _rate(t.bytes, t.seconds),
            _share(t.least, t.seconds),
            escape(first) + (f" and {len(t.origins) - 1} more" if len(t.origins) > 1 else ""),
        )
    table.add_section()
    table.add_row(
        "all", str(sum(t.runs for t in times)), time_text(total), "", "", "", _share(sum(t.least for t in times), total)
    )
    out.print(table)
    out.print(
        f"Limits, measured: {limits.flops / 1e9:.0f} GFLOP/s (f32), {limits.cache / 1e9:.0f} GB/s from the cache, "
        f"{limits.memory / 1e9:.1f} GB/s from memory. A kernel's limit is the slower of its arithmetic and its buffers."
    )


def _rate(amount: float, seconds: float) -> str:
    """Billions a second; nothing of nothing."""
    return f"{amount / seconds / 1e9:.1f}" if amount and seconds else ""


def _share(least: float, seconds: float) -> str:
    """Of a limit, which is measured: what seems to go beyond it has reached it."""
    return f"{min(least / seconds, 1):.0%}" if seconds else ""
