"""Benchmark recurrences: python benchmarks/recurrence.py [--threads N] [--dynamic].

Compiles and runs LSTMs and GRUs over 32, 300 and 3,000 steps, interleaved with other installed runtimes; compile time should
not grow with the number of steps. Then measures the time per iteration of two ONNX Loops with data-dependent trip counts: a
small one, and one that also collects rows of 64 elements (up to 10,000). With --dynamic: models with symbolic length and batch,
compiled once and run at several sizes, compared with models specialized for each. Times are medians.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import dlc
from dlc.measure.latency import measure_interleaved
from dlc.measure.other_runtimes import Peer, installed_peers

INPUT_WIDTH, SECONDS_PER_MODEL = 64, 3.0
STEPS_AND_BATCHES = ((1, 1), (32, 1), (300, 1), (31, 3), (100, 8))
TRIP_COUNTS = (10, 1010)
GATES = {"LSTM": 4, "GRU": 3}
LOOP = """
<ir_version: 9, opset_import: ["": 17]>
counting (float[8] x, float limit) => (float[8] y)
{
    yes = Constant<value = bool {1}>()
    y = Loop(, yes, x) <body = step (int64 i, bool going, float[8] s) => (bool on, float[8] next)
    {
        one = Constant<value_float = 1.0>()
        next = Add(s, one)
        top = ReduceMax<keepdims = 0>(next)
        on = Less(top, limit)
    }>
}
"""
COLLECTING_LOOP = """
<ir_version: 9, opset_import: ["": 17]>
collecting (float[64] x, float limit) => (float[64] y, float[n, 64] rows)
{
    yes = Constant<value = bool {1}>()
    most = Constant<value = int64 {10000}>()
    y, rows = Loop(most, yes, x) <body = step (int64 i, bool going, float[64] s) => (bool on, float[64] next, float[64] row)
    {
        one = Constant<value_float = 1.0>()
        next = Add(s, one)
        row = Mul(next, next)
        top = ReduceMax<keepdims = 0>(next)
        on = Less(top, limit)
    }>
}
"""


def recurrent(kind: str, steps: int | str, hidden: int, batch: int | str = 1) -> onnx.ModelProto:
    rng, rows = np.random.default_rng(0), GATES[kind] * hidden
    weights = {
        "w": (rng.standard_normal((1, rows, INPUT_WIDTH)) * 0.1).astype(np.float32),
        "r": (rng.standard_normal((1, rows, hidden)) * 0.1).astype(np.float32),
        "b": (rng.standard_normal((1, 2 * rows)) * 0.1).astype(np.float32),
    }
    node = helper.make_node(kind, ["x", "w", "r", "b"], ["y"], hidden_size=hidden)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, batch, INPUT_WIDTH])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [steps, 1, batch, hidden])
    graph = helper.make_graph([node], kind, [x], [y], [numpy_helper.from_array(w, n) for n, w in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def measure(
    model: onnx.ModelProto, inputs: dict[str, np.ndarray], threads: int, peers: list[Peer]
) -> tuple[float, dict[str, float]]:
    """Return the compile time in seconds, and the latency with each runtime."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        onnx.save(model, path)
        start = time.perf_counter()
        compiled = dlc.compile_model(path, num_threads=threads, cache=False)
        seconds = time.perf_counter() - start
        runs = {"dlc": lambda: compiled(inputs), **{p.name: p.open(path, inputs, threads) for p in peers}}
        return seconds, {
            name: latency.median for name, latency in measure_interleaved(runs, SECONDS_PER_MODEL, threads).items()
        }


def measure_dynamic(kind: str, hidden: int, threads: int, peers: list[Peer], table: Table) -> None:
    """Add rows that compare a dynamic-shape model with models specialized for each length and batch."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        onnx.save(recurrent(kind, "L", hidden, "B"), path)
        model = dlc.compile_model(path, num_threads=threads, cache=False)
        for steps, batch in STEPS_AND_BATCHES:
            inputs = {"x": np.ones((steps, batch, INPUT_WIDTH), np.float32)}
            specialized = dlc.compile_model(
                path, num_threads=threads, cache=False, input_shapes={"x": (steps, batch, INPUT_WIDTH)}
            )
            runs = {
                "dynamic": partial(model, inputs),
                "specialized": partial(specialized, inputs),
                **{p.name: p.open(path, inputs, threads) for p in peers},
            }
            times = [latency.median for latency in measure_interleaved(runs, SECONDS_PER_MODEL, threads).values()]
            table.add_row(f"{kind} of {hidden}", f"{steps}×{batch}", *(f"{1e3 * t:.3f}" for t in times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dynamic", action="store_true", help="symbolic length and batch, compiled once")
    arguments = parser.parse_args()
    threads, peers = arguments.threads, installed_peers()
    names = ["dlc", *(peer.name for peer in peers)]
    if arguments.dynamic:
        table = Table("recurrence", "steps×batch", "dynamic ms", "specialized ms", *(f"{p.name} ms" for p in peers))
        for kind in GATES:
            for hidden in (64, 256):
                measure_dynamic(kind, hidden, threads, peers, table)
        Console(width=None if sys.stdout.isatty() else 120).print(table)
        return
    table = Table("recurrence", "steps", "compile s", *(f"{n} ms" for n in names), "speedup over the best")
    # Warm up: load the runtime and the compiler's modules.
    measure(recurrent("GRU", 12, 8), {"x": np.ones((12, 1, INPUT_WIDTH), np.float32)}, threads, [])
    for kind in GATES:
        for hidden in (64, 256):
            for steps in (32, 300, 3000):
                x = np.random.default_rng(1).standard_normal((steps, 1, INPUT_WIDTH), np.float32)
                seconds, times = measure(recurrent(kind, steps, hidden), {"x": x}, threads, peers)
                best = min((t for name, t in times.items() if name != "dlc"), default=times["dlc"])
                row = [f"{seconds:.2f}", *(f"{1e3 * t:.3f}" for t in times.values()), f"{best / times['dlc']:.2f}"]
                table.add_row(f"{kind} of {hidden}", str(steps), *row)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    for label, text, width in (("with a data-dependent end", LOOP, 8), ("that also collects rows", COLLECTING_LOOP, 64)):
        seconds_per_run: dict[str, list[float]] = {}
        for limit in TRIP_COUNTS:
            inputs = {"x": np.zeros(width, np.float32), "limit": np.asarray(limit, np.float32)}
            for name, seconds in measure(onnx.parser.parse_model(text), inputs, threads, peers)[1].items():
                seconds_per_run.setdefault(name, []).append(seconds)
        num_iterations = TRIP_COUNTS[1] - TRIP_COUNTS[0]
        iteration_times = (
            f"{name} {(long - short) / num_iterations * 1e6:.3f}" for name, (short, long) in seconds_per_run.items()
        )
        console.print(f"An iteration of a loop {label}, µs: {', '.join(iteration_times)}")


if __name__ == "__main__":
    main()
