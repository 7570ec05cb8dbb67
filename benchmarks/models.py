"""Whole models beside other runtimes: python benchmarks/models.py [MODEL …] [--threads N] [--precision P] [--json FILE] …

MODEL is an ONNX file or the name of one of the set below. Every runtime that is installed (`pip install -e '.[bench]'`) gets
the same inputs and number of threads, computes in f32, and takes turns with the others in one process; medians count. Of one
thread it is the processor's time, in which others that use the machine have no part. With `--precision bf16` or `f16` it
computes in that, but for ONNX Runtime, which has but the precision of the file.
`strict` is dlc with `numerics="strict"`. With `--target opencl` (or another one) dlc's own target `cpu` takes part as well; an
OpenCL driver has its own threads. `memory`: the most that a new process held which imports the runtime, loads the model and
runs it once; dlc loads a compiled model. `error`: the largest difference from the first other runtime's outputs, as a share
of their largest magnitude. A runtime that does not take a model is told of, and has no part in its row.
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
from dlc.measure.latency import interleaved
from dlc.measure.peers import Peer, peers
from dlc.target import CPU_LEVELS, resolve

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.models import skeletons  # noqa: E402
from tests.models.nets import NETS  # noqa: E402

SKELETONS = [
    *("resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0", "squeezenet1_1"),
    *("bert_base_128", "vit_b16", "gpt2_decode_kv"),
]
WRITTEN = [
    *("whisper_encoder", "audio_turns", "encoder_1024", "ocr_detector", "ocr_detector_mobile"),
    *("speech_quality", "unet", "densenet121"),
]
# A skeleton with a free batch, and the batch.
BATCHED = {"resnet18_batch_8": ("resnet18_dynbatch", 8), "resnet18_batch_32": ("resnet18_dynbatch", 32)}
PRETRAINED = ["magika_v3_3", "basic_pitch", "blazeface_front", "ppocr_v2_cls", "silero_vad_16k_op15"]
SMALL = ["mnist_cnn", "lstm_tagger", "gru_stream", "scan_rnn", "loop_if_script"]
SET = [*SKELETONS, *WRITTEN, *BATCHED, *PRETRAINED, *SMALL]
ON_CPU = ("cpu", *CPU_LEVELS)
SECONDS = 4.0

Arrays = Mapping[str, np.ndarray]
Row = dict[str, object]


def known(name: str) -> str:
    """A model's name as an argument: that there is such a model is seen before any is measured."""
    if name not in SET and not Path(name).is_file():
        raise argparse.ArgumentTypeError(f"{name}: neither a file nor one of {', '.join(SET)}")
    return name


def load(name: str) -> tuple[onnx.ModelProto, Arrays]:
    """A model of the set, or a file, and inputs for it."""
    if name in SKELETONS or name in BATCHED:
        skeleton, batch = BATCHED.get(name, (name, None))
        model = skeletons.filled(skeleton)
        return model, skeletons.inputs(skeleton, model, batch)
    if name in WRITTEN:
        model = NETS[name]()
        return model, skeletons.inputs(name, model)
    if name in PRETRAINED + SMALL:
        return onnx.load(skeletons.path_of(name)), next(skeletons.recordings(name))[0]
    model = onnx.load(name)
    return model, skeletons.inputs(name, model)


def measured(name: str, target: str, threads: int, precision: str, others: list[Peer], folder: Path) -> Row:
    """One model: seconds to compile, to load and to run, beside the others; memory; error."""
    model, inputs = load(name)
    path, saved, arrays = folder / "model.onnx", folder / "model.dlc", folder / "inputs.npz"
    onnx.save(model, path)
    np.savez(arrays, allow_pickle=False, **inputs)
    began = time.perf_counter()
    given: dict[str, Any] = {
        "input_shapes": {k: v.shape for k, v in inputs.items()},
        "num_threads": threads,
        "precision": precision,
        "cache": False,
    }
    compiled = dlc.compile_model(path, target=target, **given)
    row: Row = {"model": Path(name).stem, "compile_s": time.perf_counter() - began}
    if target in ON_CPU:
        compiled.save(saved)
        row["load_s"], row["memory_mb"] = in_new_process("dlc", saved, arrays)
    strict = dlc.compile_model(path, target=target, numerics="strict", **given)
    opened: dict[str, Callable[[], Arrays]] = {}
    for peer in others:
        try:
            opened[peer.name] = peer.open(path, inputs, threads, precision)
        except Exception as problem:  # each runtime has errors of its own
            print(f"{name}: {peer.name} does not take it: {str(problem).strip().splitlines()[0]}", file=sys.stderr)
    runs = {"dlc": called(compiled, inputs), "strict": called(strict, inputs), **opened}
    if target not in ON_CPU:
        own = dlc.compile_model(path, **given)
        runs["cpu"] = called(own, inputs)
    clock = time.process_time if threads == 1 and target in ON_CPU else time.perf_counter
    for runtime, latency in interleaved(runs, SECONDS, threads, clock).items():
        row[f"{runtime}_s"] = latency.median
    for runtime, run in opened.items():
        row[f"{runtime}_memory_mb"] = in_new_process(runtime, path, arrays)[1]
        row.setdefault("error", error(compiled(inputs), run()))
    rivals = [row[f"{runtime}_s"] for runtime in opened]
    if rivals:
        row["speedup"] = min(rivals) / row["dlc_s"]
    return row


def called(model: dlc.Model, inputs: Arrays) -> Callable[[], object]:
    """A call that ends when its outputs are there: a device computes until somebody looks."""
    return lambda: [np.asarray(output) for output in model(inputs).values()]


def error(got: Arrays, expected: Arrays) -> float:
    """The largest difference of any output, as a share of its largest finite magnitude."""
    worst = 0.0
    for name, own in got.items():
        a, b = np.asarray(own, np.float64), np.asarray(expected[name], np.float64)
        finite = np.isfinite(b)
        scale = np.abs(b[finite]).max(initial=0) or 1.0
        worst = max(worst, float(np.abs(a[finite] - b[finite]).max(initial=0) / scale))
    return worst


def in_new_process(runtime: str, model: Path, inputs: Path) -> tuple[float, float]:
    """Seconds from loading to the first result after imports, and the most memory in MB, of one thread's run."""
    command = [sys.executable, ROOT / "benchmarks" / "one_run.py", runtime, model, inputs]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, megabytes = done.stdout.split()[-2:]
    return float(seconds), float(megabytes)


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def table(rows: list[Row], others: list[Peer], title: str) -> Table:
    """What was measured, for people."""
    names = [peer.name for peer in others]
    timed = [*names, *(["cpu"] if any("cpu_s" in row for row in rows) else [])]
    result = Table(
        "model", "compile s", "dlc ms", "strict ms", *(f"{n} ms" for n in timed), "faster than the best", title=title
    )
    for heading in ("error", "load ms", "dlc MB", *(f"{n} MB" for n in names)):
        result.add_column(heading)
    for column in result.columns[1:]:
        column.justify = "right"

    def shown(row: Row, key: str, form: str, factor: float = 1.0) -> str:
        return format(row[key] * factor, form) if key in row else ""

    for row in rows:
        result.add_row(
            str(row["model"]),
            shown(row, "compile_s", ".2f"),
            *(shown(row, f"{n}_s", ".3f", 1e3) for n in ("dlc", "strict", *timed)),
            shown(row, "speedup", ".2f"),
            shown(row, "error", ".0e"),
            shown(row, "load_s", ".0f", 1e3),
            *(shown(row, key, ".0f") for key in ("memory_mb", *(f"{n}_memory_mb" for n in names))),
        )
    return result


def geometric_mean(rows: list[Row]) -> float:
    """Of the speed-ups over the best of the others."""
    return math.exp(sum(math.log(row["speedup"]) for row in rows) / len(rows))


def plot(rows: list[Row], others: list[Peer], title: str, file: Path) -> None:
    """Each runtime's speed as a share of dlc's, one group of bars per model."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 0.42 * len(rows) + 1.4), layout="constrained")
    names = ["dlc", *(peer.name for peer in others)]
    height = 0.8 / len(names)
    for k, name in enumerate(names):
        places = [i + (k - (len(names) - 1) / 2) * height for i in range(len(rows))]
        axes.barh(places, [row["dlc_s"] / row.get(f"{name}_s", math.inf) for row in rows], height * 0.92, label=name)
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
    parser.add_argument("models", nargs="*", type=known, default=SET)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--precision", choices=["f32", "bf16", "f16"], default="f32")
    parser.add_argument("--json", type=Path, help="write what was measured here")
    parser.add_argument("--plot", type=Path, help="draw the speeds here (.svg or .png; needs matplotlib)")
    arguments = parser.parse_args()
    others, console = peers(), Console(width=None if sys.stdout.isatty() else 170)
    title = f"{processor()}, {arguments.threads} thread(s), target {arguments.target}, {arguments.precision}"
    rows: list[Row] = []
    with console.status("measuring") as status:
        for name in arguments.models:
            status.update(f"measuring {name}")
            with tempfile.TemporaryDirectory() as folder:
                rows.append(measured(name, arguments.target, arguments.threads, arguments.precision, others, Path(folder)))
    console.print(table(rows, others, title))
    if others:
        console.print(f"Geometric mean of the speed-ups over the best of the others: {geometric_mean(rows):.3f}")
    if arguments.target in ON_CPU:
        limits = measured_limits(resolve(arguments.target), arguments.threads)
        console.print(f"This machine: {limits.flops / 1e9:.0f} GFLOP/s, {limits.memory / 1e9:.0f} GB/s from memory")
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"title": title, "processor": processor(), "threads": arguments.threads, "models": rows}, indent=1)
        )
    if arguments.plot:
        plot(rows, others, title, arguments.plot)


if __name__ == "__main__":
    main()
