"""What steps cost: python benchmarks/recurrence.py [--threads N] [--open].

LSTMs and GRUs over 32, 300 and 3,000 steps: seconds to compile, which should not grow, and to run, beside the runtimes that
are installed; medians of runs that take turns. The last lines are what one iteration of a small ONNX Loop takes whose end is
data, and of one that collects rows of 64 elements besides, up to 10,000. With --open: models whose length and batch are open,
compiled once, at several of them, beside code for one pair.
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
from dlc.measure.latency import interleaved
from dlc.measure.peers import Peer, peers

INPUTS, SECONDS = 64, 3.0
PAIRS = ((1, 1), (32, 1), (300, 1), (31, 3), (100, 8))
ITERATIONS = (10, 1010)
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
COLLECTING = """
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
    numbers, rows = np.random.default_rng(0), GATES[kind] * hidden
    weights = {
        "w": (numbers.standard_normal((1, rows, INPUTS)) * 0.1).astype(np.float32),
        "r": (numbers.standard_normal((1, rows, hidden)) * 0.1).astype(np.float32),
        "b": (numbers.standard_normal((1, 2 * rows)) * 0.1).astype(np.float32),
    }
    node = helper.make_node(kind, ["x", "w", "r", "b"], ["y"], hidden_size=hidden)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, batch, INPUTS])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [steps, 1, batch, hidden])
    graph = helper.make_graph([node], kind, [x], [y], [numpy_helper.from_array(w, n) for n, w in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def measured(
    model: onnx.ModelProto, inputs: dict[str, np.ndarray], threads: int, others: list[Peer]
) -> tuple[float, dict[str, float]]:
    """Seconds to compile, and to run by each runtime."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        onnx.save(model, path)
        began = time.perf_counter()
        compiled = dlc.compile_model(path, num_threads=threads, cache=False)
        seconds = time.perf_counter() - began
        runs = {"dlc": lambda: compiled(inputs), **{p.name: p.open(path, inputs, threads) for p in others}}
        return seconds, {name: latency.median for name, latency in interleaved(runs, SECONDS, threads).items()}


def open_sizes(kind: str, hidden: int, threads: int, others: list[Peer], table: Table) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        onnx.save(recurrent(kind, "L", hidden, "B"), path)
        model = dlc.compile_model(path, num_threads=threads, cache=False)
        for steps, batch in PAIRS:
            inputs = {"x": np.ones((steps, batch, INPUTS), np.float32)}
            known = dlc.compile_model(path, num_threads=threads, cache=False, input_shapes={"x": (steps, batch, INPUTS)})
            runs = {
                "open": partial(model, inputs),
                "known": partial(known, inputs),
                **{p.name: p.open(path, inputs, threads) for p in others},
            }
            times = [latency.median for latency in interleaved(runs, SECONDS, threads).values()]
            table.add_row(f"{kind} of {hidden}", f"{steps}×{batch}", *(f"{1e3 * t:.3f}" for t in times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--open", action="store_true")
    arguments = parser.parse_args()
    threads, others = arguments.threads, peers()
    names = ["dlc", *(peer.name for peer in others)]
    if arguments.open:
        table = Table("recurrence", "steps×batch", "open ms", "known ms", *(f"{p.name} ms" for p in others))
        for kind in GATES:
            for hidden in (64, 256):
                open_sizes(kind, hidden, threads, others, table)
        Console(width=None if sys.stdout.isatty() else 120).print(table)
        return
    table = Table("recurrence", "steps", "compile s", *(f"{n} ms" for n in names), "faster than the best")
    # The run-time and the compiler's modules are loaded by whoever comes first.
    measured(recurrent("GRU", 12, 8), {"x": np.ones((12, 1, INPUTS), np.float32)}, threads, [])
    for kind in GATES:
        for hidden in (64, 256):
            for steps in (32, 300, 3000):
                x = np.random.default_rng(1).standard_normal((steps, 1, INPUTS), np.float32)
                seconds, times = measured(recurrent(kind, steps, hidden), {"x": x}, threads, others)
                best = min((t for name, t in times.items() if name != "dlc"), default=times["dlc"])
                row = [f"{seconds:.2f}", *(f"{1e3 * t:.3f}" for t in times.values()), f"{best / times['dlc']:.2f}"]
                table.add_row(f"{kind} of {hidden}", str(steps), *row)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    for what, text, width in (("whose end is data", LOOP, 8), ("that collects rows besides", COLLECTING, 64)):
        turns: dict[str, list[float]] = {}
        for limit in ITERATIONS:
            inputs = {"x": np.zeros(width, np.float32), "limit": np.asarray(limit, np.float32)}
            for name, seconds in measured(onnx.parser.parse_model(text), inputs, threads, others)[1].items():
                turns.setdefault(name, []).append(seconds)
        count = ITERATIONS[1] - ITERATIONS[0]
        each = (f"{name} {(long - short) / count * 1e6:.3f}" for name, (short, long) in turns.items())
        console.print(f"An iteration of a loop {what}, µs: {', '.join(each)}")


if __name__ == "__main__":
    main()
