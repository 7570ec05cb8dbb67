"""Benchmark attention alone: python benchmarks/attention.py [--threads N] [--lengths 128,512] [--heads 12] [--width 64].

Measures softmax(q·kᵀ/√D)·v as exporters write it, and ONNX's Attention with a causal mask, against ONNX Runtime and PyTorch
where they are installed, and as a share of the peak of one core. Reports the fastest of interleaved calls; on one thread it
counts processor time, which is independent of other load. FLOPs are counted without the mask.
"""

from __future__ import annotations

import argparse
import ctypes
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import dlc
from dlc.arrays import aligned_empty
from dlc.backends.cpu.limits import peak_flops, peak_text
from dlc.backends.cpu.llvm import compile_text
from dlc.measure.other_runtimes import installed_peers
from dlc.runtime.cpu.code.loader import load_object
from dlc.target import resolve


def attention(heads: int, length: int, width: int, causal: bool) -> onnx.ModelProto:
    """Build the model: separate ops, or one Attention op if causal."""
    shape = [1, heads, length, width]
    q, k, v, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "qkvy")
    nodes = [
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "kt"], ["products"]),
        helper.make_node("Mul", ["products", "scale"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v"], ["y"]),
    ]
    if causal:
        nodes = [helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=1)]
    scale = numpy_helper.from_array(np.array(width**-0.5, np.float32), "scale")
    graph = helper.make_graph(nodes, "attention", [q, k, v], [y], [] if causal else [scale])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


def torch_run(inputs: dict[str, np.ndarray], threads: int, causal: bool) -> Callable[[], Any]:
    torch = import_module("torch")
    torch.set_num_threads(threads)
    q, k, v = (torch.from_numpy(x) for x in inputs.values())
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def dlc_run(path: Path, inputs: dict[str, np.ndarray], threads: int) -> Callable[[], Any]:
    compiled = dlc.compile_model(path, num_threads=threads, cache=False)
    return lambda: compiled(inputs)


def peak_run() -> tuple[Callable[[], Any], float]:
    """Return a loop of multiply-adds on registers, and its number of operations."""
    target, steps = resolve("cpu"), 400_000
    code = load_object(compile_text(peak_text(target), target))
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address("peak"))
    scratch = aligned_empty((4096,), np.dtype(np.float32))
    scratch.fill(0)  # subnormal values would slow down the processor
    return lambda: (code, function(scratch.ctypes.data, steps)), peak_flops(target, steps)


def fastest_seconds(
    runs: dict[str, Callable[[], Any]], clock: Callable[[], float], pause: float, rounds: int
) -> dict[str, float]:
    """Return the fastest time of each function, interleaved; `pause` lets the threads of the previous runtime go idle."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            time.sleep(pause)
            run()
            start_time = clock()
            run()
            best[name] = min(best[name], clock() - start_time)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--lengths", default="128,256,512,1024,1500,2048,4096,8192")
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--plain", action="store_true", help="without causal masks")
    options = parser.parse_args()
    threads, heads, width = options.threads, options.heads, options.width
    clock, pause = (time.thread_time, 0.0) if threads == 1 else (time.perf_counter, 0.03)
    peers = [p for p in installed_peers() if p.name == "onnxruntime"]
    names = ["dlc", *(p.name for p in peers), *(["torch"] if find_spec("torch") is not None else [])]
    peak, operations = peak_run()
    console = Console(width=160)
    console.print(f"{threads} thread(s), {heads} heads of {width}")
    table = Table("length", "causal", *(f"{n} ms" for n in names), *(f"{n} GFLOP/s" for n in names), "of peak", "speedup")
    for length in map(int, options.lengths.split(",")):
        for causal in (False, True)[: 1 if options.plain else 2]:
            rng = np.random.default_rng(0)
            inputs = {n: rng.standard_normal((1, heads, length, width), np.float32) for n in "qkv"}
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "attention.onnx")
                onnx.save(attention(heads, length, width, causal), path)
                runs = {"dlc": dlc_run(path, inputs, threads)} | {p.name: p.open(path, inputs, threads) for p in peers}
                if "torch" in names:
                    runs["torch"] = torch_run(inputs, threads, causal)
                best = fastest_seconds({**runs, "peak": peak}, clock, pause, options.rounds)
            flops = 4.0 * heads * length * length * width
            rates = [flops / best[n] / 1e9 for n in names]
            speedup = min((best[n] for n in names[1:]), default=float("nan")) / best["dlc"]
            limit = threads * operations / best["peak"] / 1e9
            milliseconds = [f"{best[n] * 1e3:.3g}" for n in names]
            share = f"{100 * rates[0] / limit:.0f} %"
            table.add_row(
                str(length), "yes" if causal else "", *milliseconds, *(f"{r:.0f}" for r in rates), share, f"{speedup:.2f}"
            )
            # Print each row at once; the table follows at the end.
            summary = ", ".join(f"{n} {ms} ms" for n, ms in zip(names, milliseconds, strict=True))
            console.print(f"{length}{' causal' if causal else ''}: {summary}, {share} of peak")
    console.print(table)


if __name__ == "__main__":
    main()
