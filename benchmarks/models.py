"""Benchmark whole models against other runtimes.

    python benchmarks/models.py [MODEL …] [--threads N] [--precision P] [--target T] [--json FILE] [--plot FILE]

MODEL is an ONNX file or the name of a model in SET (default: all of SET). All installed runtimes (`pip install -e '.[bench]'`)
get the same inputs and number of threads and compute in f32; runs are interleaved in one process, and medians are reported.
On one thread, times are processor time, which excludes other load. With `--precision bf16` or `f16`, all but ONNX Runtime
compute in that precision. With `--target opencl` or another target, dlc's `cpu` target is measured as well; an OpenCL driver
has threads of its own.

- strict: dlc with `numerics="strict"`.
- memory: the peak of a new process that imports the runtime, loads the model (for dlc a compiled one) and runs it once.
- error: the largest difference from the first other runtime, relative to its largest magnitude.

A runtime that fails on a model is reported on stderr and left out of its row.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

import dlc
from dlc.backends.cpu.limits import measured_limits
from dlc.measure.latency import measure_interleaved
from dlc.measure.other_runtimes import Peer, installed_peers
from dlc.target import CPU_LEVELS, resolve

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.models import skeletons  # noqa: E402
from tests.models.nets import NETS  # noqa: E402

SKELETONS = [
    *("resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0", "squeezenet1_1"),
    *("bert_base_128", "vit_b16", "gpt2_decode_kv"),
]
GENERATED = [
    *("whisper_encoder", "audio_turns", "encoder_1024", "ocr_detector", "ocr_detector_mobile"),
    *("speech_quality", "unet", "densenet121"),
]
# Skeletons with a symbolic batch size, and the batch size to run.
BATCHED = {"resnet18_batch_8": ("resnet18_dynbatch", 8), "resnet18_batch_32": ("resnet18_dynbatch", 32)}
PRETRAINED = ["magika_v3_3", "basic_pitch", "blazeface_front", "ppocr_v2_cls", "silero_vad_16k_op15"]
SMALL = ["mnist_cnn", "lstm_tagger", "gru_stream", "scan_rnn", "loop_if_script"]
SET = [*SKELETONS, *GENERATED, *BATCHED, *PRETRAINED, *SMALL]
CPU_TARGETS = ("cpu", *CPU_LEVELS)
SECONDS_PER_MODEL = 4.0

Arrays = Mapping[str, np.ndarray]
Row = dict[str, object]


def model_name(name: str) -> str:
    """Check that a command-line argument names a model, before anything is measured."""
    if name not in SET and not Path(name).is_file():
        raise argparse.ArgumentTypeError(f"{name}: expected an ONNX file or one of {', '.join(SET)}")
    return name


def load(name: str) -> tuple[onnx.ModelProto, Arrays]:
    """Return a model and inputs for it."""
    if name in SKELETONS or name in BATCHED:
        skeleton, batch = BATCHED.get(name, (name, None))
        model = skeletons.filled(skeleton)
        return model, skeletons.inputs(skeleton, model, batch)
    if name in GENERATED:
        model = NETS[name]()
        return model, skeletons.inputs(name, model)
    if name in PRETRAINED + SMALL:
        return onnx.load(skeletons.path_of(name)), next(skeletons.recordings(name))[0]
    model = onnx.load(name)
    return model, skeletons.inputs(name, model)


def measure(name: str, target: str, threads: int, precision: str, peers: list[Peer], folder: Path) -> Row:
    """Measure one model with all runtimes: times in seconds, memory in MB, error."""
    model, inputs = load(name)
    path, artifact, arrays = folder / "model.onnx", folder / "model.dlc", folder / "inputs.npz"
    onnx.save(model, path)
    np.savez(arrays, allow_pickle=False, **inputs)
    start = time.perf_counter()
    options: dict[str, Any] = {
        "input_shapes": {k: v.shape for k, v in inputs.items()},
        "num_threads": threads,
        "precision": precision,
        "cache": False,
    }
    compiled = dlc.compile_model(path, target=target, **options)
    row: Row = {"model": Path(name).stem, "compile_s": time.perf_counter() - start}
    if target in CPU_TARGETS:
        compiled.save(artifact)
        row["load_s"], row["memory_mb"] = in_new_process("dlc", artifact, arrays)
    strict = dlc.compile_model(path, target=target, numerics="strict", **options)
    peer_runs: dict[str, Callable[[], Arrays]] = {}
    for peer in peers:
        try:
            peer_runs[peer.name] = peer.open(path, inputs, threads, precision)
        except Exception as problem:  # each runtime has its own exception types
            print(f"{name}: {peer.name} fails: {str(problem).strip().splitlines()[0]}", file=sys.stderr)
    runs = {"dlc": blocking_call(compiled, inputs), "strict": blocking_call(strict, inputs), **peer_runs}
    if target not in CPU_TARGETS:
        cpu_model = dlc.compile_model(path, **options)
        runs["cpu"] = blocking_call(cpu_model, inputs)
    clock = time.process_time if threads == 1 and target in CPU_TARGETS else time.perf_counter
    for runtime, latency in measure_interleaved(runs, SECONDS_PER_MODEL, threads, clock).items():
        row[f"{runtime}_s"] = latency.median
    for runtime, run in peer_runs.items():
        row[f"{runtime}_memory_mb"] = in_new_process(runtime, path, arrays)[1]
        row.setdefault("error", largest_error(compiled(inputs), run()))
    peer_seconds = [row[f"{runtime}_s"] for runtime in peer_runs]
    if peer_seconds:
        row["speedup"] = min(peer_seconds) / row["dlc_s"]
    return row


def blocking_call(model: dlc.Model, inputs: Arrays) -> Callable[[], object]:
    """Return a call that waits for its outputs; calls on a device are asynchronous."""
    return lambda: [np.asarray(output) for output in model(inputs).values()]


def largest_error(outputs: Arrays, expected: Arrays) -> float:
    """Return the largest difference of any output, relative to the output's largest finite magnitude."""
    largest = 0.0
    for name, output in outputs.items():
        a, b = np.asarray(output, np.float64), np.asarray(expected[name], np.float64)
        finite = np.isfinite(b)
        scale = np.abs(b[finite]).max(initial=0) or 1.0
        largest = max(largest, float(np.abs(a[finite] - b[finite]).max(initial=0) / scale))
    return largest


def in_new_process(runtime: str, model: Path, inputs: Path) -> tuple[float, float]:
    """Run a model once on one thread in a new process; return the seconds to load and run it, and the peak memory in MB."""
    command = [sys.executable, ROOT / "benchmarks" / "load_and_run.py", runtime, model, inputs]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, megabytes = process.stdout.split()[-2:]
    return float(seconds), float(megabytes)


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def table(rows: list[Row], peers: list[Peer], title: str) -> Table:
    """Format the measurements as a table."""
    names = [peer.name for peer in peers]
    timed_runtimes = [*names, *(["cpu"] if any("cpu_s" in row for row in rows) else [])]
    result = Table(
        "model", "compile s", "dlc ms", "strict ms", *(f"{n} ms" for n in timed_runtimes), "speedup over the best", title=title
    )
    for heading in ("error", "load ms", "dlc MB", *(f"{n} MB" for n in names)):
        result.add_column(heading)
    for column in result.columns[1:]:
        column.justify = "right"

    def cell(row: Row, key: str, spec: str, factor: float = 1.0) -> str:
        return format(row[key] * factor, spec) if key in row else ""

    for row in rows:
        result.add_row(
            str(row["model"]),
            cell(row, "compile_s", ".2f"),
            *(cell(row, f"{n}_s", ".3f", 1e3) for n in ("dlc", "strict", *timed_runtimes)),
            cell(row, "speedup", ".2f"),
            cell(row, "error", ".0e"),
            cell(row, "load_s", ".0f", 1e3),
            *(cell(row, key, ".0f") for key in ("memory_mb", *(f"{n}_memory_mb" for n in names))),
        )
    return result


def geometric_mean(rows: list[Row]) -> float:
    """Return the geometric mean of the speedups over the best of the other runtimes."""
    return math.exp(sum(math.log(row["speedup"]) for row in rows) / len(rows))


def plot(rows: list[Row], peers: list[Peer], title: str, file: Path) -> None:
    """Plot the speed of each runtime relative to dlc, one group of bars per model."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 0.42 * len(rows) + 1.4), layout="constrained")
    names = ["dlc", *(peer.name for peer in peers)]
    height = 0.8 / len(names)
    for k, name in enumerate(names):
        positions = [i + (k - (len(names) - 1) / 2) * height for i in range(len(rows))]
        axes.barh(positions, [row["dlc_s"] / row.get(f"{name}_s", math.inf) for row in rows], height * 0.92, label=name)
    axes.set_yticks(range(len(rows)), [str(row["model"]) for row in rows])
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("speed, dlc = 1 (longer is faster)")
    axes.set_title(title, fontsize=10)
    axes.legend(loc="lower right", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=model_name, default=SET)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--precision", choices=["f32", "bf16", "f16"], default="f32")
    parser.add_argument("--json", type=Path, help="write the measurements to this file")
    parser.add_argument("--plot", type=Path, help="plot the speeds to this file (.svg or .png; needs matplotlib)")
    arguments = parser.parse_args()
    peers, console = installed_peers(), Console(width=None if sys.stdout.isatty() else 170)
    title = f"{processor()}, {arguments.threads} thread(s), target {arguments.target}, {arguments.precision}"
    rows: list[Row] = []
    with console.status("measuring") as status:
        for name in arguments.models:
            status.update(f"measuring {name}")
            with tempfile.TemporaryDirectory() as folder:
                rows.append(measure(name, arguments.target, arguments.threads, arguments.precision, peers, Path(folder)))
    console.print(table(rows, peers, title))
    if peers:
        console.print(f"Geometric mean of the speedups over the best of the others: {geometric_mean(rows):.3f}")
    if arguments.target in CPU_TARGETS:
        limits = measured_limits(resolve(arguments.target), arguments.threads)
        console.print(f"This machine: {limits.flops / 1e9:.0f} GFLOP/s, {limits.memory / 1e9:.0f} GB/s from memory")
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"title": title, "processor": processor(), "threads": arguments.threads, "models": rows}, indent=1)
        )
    if arguments.plot:
        plot(rows, peers, title, arguments.plot)


if __name__ == "__main__":
    main()
