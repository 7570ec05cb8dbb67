"""`dlc bench`: measure a model's latency, compare it with other runtimes, and compare its kernels with the machine's limits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.markup import escape
from rich.table import Table

from dlc.backends.limits import Limits
from dlc.cli.common import (
    ARTIFACT_SUFFIX,
    NonNanFloatRange,
    examples,
    json_option,
    model_argument,
    progress_display,
    reports_errors,
    target_option,
)
from dlc.cli.compile_options import NUMERIC_OPTIONS, PLAN_OPTIONS, compile_options
from dlc.cli.console import out
from dlc.cli.run import input_option, load_or_compile, seed_option
from dlc.cli.shape_options import Shapes, shape_option
from dlc.errors import UnsupportedError
from dlc.files.atomic_writes import require_writable
from dlc.instrument.report import Progress, ProgressEvent
from dlc.machine.cpus import usable_cpus
from dlc.measure.kernel_times import KernelTime, Measurement, measure
from dlc.measure.latency import Latency, measure_interleaved
from dlc.measure.other_runtimes import PEERS, installed_peers
from dlc.measure.profile import time_text
from dlc.measure.throughput import Throughput, measure_throughput
from dlc.measure.trace import write_trace
from dlc.options import MAX_THREADS, Options, thread_count
from dlc.runtime.compiled_program import CompiledProgram
from dlc.runtime.models.model import Model

# Width of the longest bar, and the terminal width below which bars are hidden to leave room for kernel names.
_BAR_CHARS, _MIN_BAR_TERMINAL_CHARS = 10, 100
# The median relative to the fastest run above which times of kernels are not reproducible.
_MAX_REPRODUCIBLE_TIME_RATIO = 1.1


def _parse_streams(context: click.Context, option: click.Parameter, value: str | None) -> list[int]:
    """Return the numbers of streams to measure; `auto` stands for 1, 2, 4, … up to the number of processors."""
    if value is None:
        return []
    if value == "auto":
        cpus = usable_cpus()
        return sorted({*(1 << k for k in range(cpus.bit_length()) if 1 << k <= cpus), cpus})
    try:
        counts = [int(text) for text in value.split(",")]
    except ValueError:
        counts = [0]
    if not all(0 < count <= MAX_THREADS for count in counts):
        raise click.BadParameter(f"{value}: expected auto, or numbers from 1 to {MAX_THREADS} such as 1,2,4")
    return counts


def _parse_names(context: click.Context, option: click.Parameter, value: str | None) -> list[str]:
    return [name.strip() for name in value.split(",")] if value else []


@click.command(
    "bench",
    epilog=examples(
        "dlc bench model.onnx",
        "dlc bench model.onnx --kernels               time of each kernel",
        "dlc bench model.onnx --vs onnxruntime        comparison with another runtime",
        "dlc bench model.onnx --streams auto          throughput, and the best number of streams",
    ),
)
@model_argument
@input_option
@target_option
@shape_option
@seed_option
@click.option("--seconds", type=NonNanFloatRange(0), default=2.0, show_default=True, help="How long to measure, in seconds.")
@click.option("--kernels", is_flag=True, help="Profile: show the time of each kernel and its share of the machine's limit.")
@click.option(
    "--trace",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a trace of one run, by thread and kernel, for Perfetto (ui.perfetto.dev) or Chrome.",
)
@click.option(
    "--vs",
    "peer_names",
    metavar="RUNTIME,…",
    callback=_parse_names,
    help=f"Compare with other installed runtimes: {', '.join(PEERS)}.",
)
@click.option(
    "--streams",
    metavar="auto|N,…",
    callback=_parse_streams,
    help="Measure throughput with these numbers of streams (calls at once); auto tries several and marks the best.",
)
@click.option("--in-flight", type=click.IntRange(1), help="With --streams: submitted requests; default: 2 per stream.")
@compile_options("num_threads", "cpus", "inter_op", *NUMERIC_OPTIONS, "cache", *PLAN_OPTIONS)
@json_option
@reports_errors
def bench_command(
    model: Path,
    inputs: tuple[str, ...],
    target: str,
    shapes: Shapes,
    seed: int,
    seconds: float,
    kernels: bool,
    trace: Path | None,
    peer_names: list[str],
    streams: list[int],
    in_flight: int | None,
    as_json: bool,
    compile_settings: dict[str, Any],
) -> None:
    """Measures a model's latency and profiles its kernels.

    The first call is not counted. With --vs the runtimes take turns and get the same inputs, number of threads and precision;
    ONNX Runtime always uses the precision of the file. With --replace-kernel or --plan, the original is measured too.
    """
    peer_runtimes = installed_peers(peer_names) if peer_names else []
    if peer_runtimes and model.suffix == ARTIFACT_SUFFIX:
        raise click.UsageError(f"--vs: other runtimes read ONNX models, got {model}; give the ONNX file")
    options = Options.of(**compile_settings)
    if streams:
        if peer_runtimes or kernels or trace is not None or any(compile_settings[name] for name in PLAN_OPTIONS):
            raise click.UsageError(
                "--streams measures throughput: remove --vs, --kernels, --trace, --replace-kernel, --plan and --write-plan"
            )
        by_streams = {count: Options.of(streams=count, **compile_settings) for count in streams}
        with progress_display() as progress:
            measured = _measure_streams(model, shapes, inputs, seed, target, by_streams, in_flight, seconds, progress)
        _print_throughputs(model.stem, measured, as_json)
        return
    threads = thread_count(options.num_threads)
    if trace is not None:
        require_writable(trace)
    with progress_display() as progress:
        compiled, arrays = load_or_compile(model, shapes, inputs, seed, target, options, progress)
        originals: dict[str, Model] = {}
        if options.replaced_kernels or options.plan is not None:
            original_options = replace(options, replaced_kernels={}, plan=None, write_plan=None)
            originals["original"] = load_or_compile(model, shapes, inputs, seed, target, original_options, progress)[0]
        artifact = compiled.artifact
        if model.suffix == ARTIFACT_SUFFIX:
            target = artifact.target.name if isinstance(artifact, CompiledProgram) else "as compiled"
        if (kernels or trace is not None) and not isinstance(artifact, CompiledProgram):
            raise UnsupportedError(
                "--kernels, --trace: expected a model compiled to one program for a CPU or an OpenCL device; "
                "give static input shapes with --shape"
            )
        if progress is not None:
            progress(ProgressEvent("measuring"))
        runs = {
            "dlc": partial(_run_and_wait, compiled, arrays),
            **{name: partial(_run_and_wait, original, arrays) for name, original in originals.items()},
            **{p.name: p.open(model, arrays, threads, options.precision) for p in peer_runtimes},
        }
        latencies = measure_interleaved(runs, seconds, threads)
        measurement = None
        if (kernels or trace is not None) and isinstance(artifact, CompiledProgram):
            measurement = measure(artifact, compiled.checked(arrays), threads)
            if trace is not None:
                write_trace(measurement, trace)
    kernel_measurement = measurement if kernels else None
    if as_json:
        click.echo(json.dumps(_report(compiled.name, target, threads, latencies, kernel_measurement), indent=1))
        return
    _print_latencies(compiled.name, target, threads, latencies)
    if kernel_measurement is not None:
        _print_kernels(kernel_measurement.kernels, kernel_measurement.limits)
        if (slowdown := kernel_measurement.slowdown) > _MAX_REPRODUCIBLE_TIME_RATIO:
            out.print(
                f"The median run took {slowdown:.2f} times as long as the fastest one, probably because other work shares the "
                "cores: compare times only within this table."
            )
    if trace is not None:
        out.print(f"Saved as {escape(str(trace))}.")


@dataclass(frozen=True)
class _StreamsMeasurement:
    streams: int
    threads: int
    in_flight: int
    throughput: Throughput


def _measure_streams(
    path: Path,
    shapes: Shapes,
    inputs: tuple[str, ...],
    seed: int,
    target: str,
    options: Mapping[int, Options],
    in_flight: int | None,
    seconds: float,
    progress: Progress | None,
) -> list[_StreamsMeasurement]:
    measured: list[_StreamsMeasurement] = []
    for count, stream_options in options.items():
        model, arrays = load_or_compile(path, shapes, inputs, seed, target, stream_options, progress)
        model.set_execution(stream_options)
        model(arrays)
        submitted = in_flight or model.requests.default_in_flight
        throughput = measure_throughput(partial(model.submit, arrays), submitted, seconds)
        measured.append(_StreamsMeasurement(count, thread_count(stream_options.num_threads), submitted, throughput))
    return measured


def _print_throughputs(name: str, measured: Sequence[_StreamsMeasurement], as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "streams": m.streams,
                "threads": m.threads,
                "in_flight": m.in_flight,
                "requests": len(m.throughput.latencies),
                "requests_per_second": m.throughput.requests_per_second,
                **{f"p{percent}_ms": m.throughput.percentile(percent) * 1e3 for percent in (50, 90, 99)},
            }
            for m in measured
        ]
        click.echo(json.dumps({"model": name, "streams": rows}, indent=1))
        return
    columns = ("streams", "threads each", "in flight", "requests/s", "median ms", "90 % ms", "99 % ms", "")
    table = Table(*columns, title=f"Throughput of {escape(name)}")
    for column in table.columns[:-1]:
        column.justify = "right"
    best = max(m.throughput.requests_per_second for m in measured)
    for m in measured:
        latencies = (f"{m.throughput.percentile(percent) * 1e3:.3f}" for percent in (50, 90, 99))
        mark = "best" if m.throughput.requests_per_second == best else f"{m.throughput.requests_per_second / best:.0%} of best"
        rate = f"{m.throughput.requests_per_second:.1f}"
        table.add_row(str(m.streams), str(m.threads), str(m.in_flight), rate, *latencies, mark)
    out.print(table)


def _run_and_wait(model: Model, inputs: Mapping[str, NDArray[Any]]) -> None:
    for result in model(inputs).values():
        np.asarray(result)  # waits for the device, which computes asynchronously


def _report(
    name: str,
    target: str,
    threads: int,
    latencies: dict[str, Latency],
    measurement: Measurement | None,
) -> dict[str, object]:
    runtimes = {
        runtime: {
            "calls": len(latency.runs),
            "min_ms": latency.fastest * 1e3,
            "median_ms": latency.median * 1e3,
            "p90_ms": latency.percentile_90 * 1e3,
        }
        for runtime, latency in latencies.items()
    }
    report: dict[str, object] = {"model": name, "target": target, "threads": threads, **runtimes.pop("dlc"), "others": runtimes}
    if measurement is not None:
        report |= {
            "kernels": [asdict(t) for t in measurement.kernels],
            "limits": asdict(measurement.limits),
            "slowdown": measurement.slowdown,
        }
    return report


def _print_latencies(name: str, target: str, threads: int, latencies: dict[str, Latency]) -> None:
    table = Table("runtime", "calls", "min ms", "median ms", "90 % ms", "dlc is", title=f"{escape(name)}, {threads} threads")
    for column in table.columns[1:]:
        column.justify = "right"
    dlc_median = latencies["dlc"].median
    for runtime, latency in latencies.items():
        label, relative_speed = (
            (f"dlc, {target}", "") if runtime == "dlc" else (runtime, f"{latency.median / dlc_median:.2f} × as fast")
        )
        latency_cells = (f"{value * 1e3:.3f}" for value in (latency.fastest, latency.median, latency.percentile_90))
        table.add_row(label, str(len(latency.runs)), *latency_cells, relative_speed)
    out.print(table)


def _print_kernels(times: Sequence[KernelTime], limits: Limits) -> None:
    table = Table("kernel", "runs", "time", "share", "GFLOP/s", "GB/s", "of limit", "layers", title="Kernels of one call")
    for column in table.columns[1:-1]:
        # On a narrow terminal only the names are wrapped.
        column.no_wrap, column.justify = True, "right"
    table.columns[3].justify = "left"
    total, max_seconds = sum(t.seconds for t in times), max((t.seconds for t in times), default=0.0)
    is_wide = out.width >= _MIN_BAR_TERMINAL_CHARS

    def bar_length(seconds: float) -> int:
        return max(1, round(_BAR_CHARS * seconds / (max_seconds or 1)))

    for t in times:
        first_origin = t.origins[0] if t.origins else ""
        table.add_row(
            escape(t.name),
            str(t.runs),
            time_text(t.seconds),
            # The total is zero if all tensors are empty.
            f"{t.seconds / (total or 1):6.1%}" + (f" {'█' * bar_length(t.seconds)}" if is_wide else ""),
            _rate(t.flops, t.seconds),
            _rate(t.bytes, t.seconds),
            _share(t.min_seconds, t.seconds),
            escape(first_origin) + (f" and {len(t.origins) - 1} more" if len(t.origins) > 1 else ""),
        )
    table.add_section()
    table.add_row(
        "all", str(sum(t.runs for t in times)), time_text(total), "", "", "", _share(sum(t.min_seconds for t in times), total)
    )
    out.print(table)
    out.print(
        f"Measured limits: {limits.flops / 1e9:.0f} GFLOP/s (f32), {limits.cache / 1e9:.0f} GB/s from the cache, "
        f"{limits.memory / 1e9:.1f} GB/s from memory. A kernel's limit is the longer of its compute time and its memory time."
    )


def _rate(amount: float, seconds: float) -> str:
    """Return billions per second as text; empty if the amount or the time is zero."""
    return f"{amount / seconds / 1e9:.1f}" if amount and seconds else ""


def _share(limit_seconds: float, seconds: float) -> str:
    """Return the share of the measured limit that was reached, at most 100 %."""
    return f"{min(limit_seconds / seconds, 1):.0%}" if seconds else ""
