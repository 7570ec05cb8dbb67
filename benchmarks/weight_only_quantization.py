"""Benchmark weight-only quantization: speed and errors.

    python benchmarks/weight_only_quantization.py [MODEL …] [--nbits MxKxN …] [--group N] [--threads N] [--seconds S]

Each MODEL of the tests' skeletons (default: gpt2_decode_kv) is compiled with f32, bf16, f16, int8 and int4 weights. Prints the
latency, the speedup over f32, and two errors of the first output: the largest relative to the largest magnitude, and the
relative root mean square. Skeletons have random weights, whose errors do not cancel like those of trained weights.

Each product MxKxN of `--nbits` is a MatMulNBits with 4 and 8 bits, compared with ONNX Runtime at accuracy_level 0 (f32) and 4
(int8 activations allowed). Calls are interleaved; on one thread, times are processor time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

import dlc

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.models import skeletons  # noqa: E402

Run = Callable[[], np.ndarray]


def measure_milliseconds(runs: Mapping[str, Run], threads: int, seconds: float) -> dict[str, float]:
    """Return the fastest time of each function, interleaved."""
    clock = process_time if threads == 1 else perf_counter
    best = dict.fromkeys(runs, float("inf"))
    end, first = perf_counter() + seconds, True
    while first or perf_counter() < end:
        first = False
        for name, run in runs.items():
            start = clock()
            run()
            best[name] = min(best[name], clock() - start)
    return {name: 1e3 * t for name, t in best.items()}


def measure_model(name: str, group: int, threads: int, seconds: float) -> None:
    proto = skeletons.filled(name)
    inputs, runs = skeletons.inputs(name, proto), dict[str, Run]()
    halves = {precision: {"precision": precision} for precision in ("bf16", "f16")}
    integers = {weights: {"weights": weights, "group": group} for weights in ("int8", "int4")}
    for weights, options in ({"float": {}} | halves | integers).items():
        compiled = dlc.compile_model(proto, num_threads=threads, cache=False, **options)
        runs[weights] = lambda compiled=compiled: next(iter(compiled(inputs).values()))
    exact, times = runs["float"]().astype(np.float64), measure_milliseconds(runs, threads, seconds)
    for weights, run in runs.items():
        error = run() - exact
        largest, mean = np.abs(error).max() / np.abs(exact).max(), np.sqrt((error**2).mean() / (exact**2).mean())
        speed = times["float"] / times[weights]
        print(f"| {name} | {weights} | {times[weights]:.2f} | {speed:.2f} | {largest:.1e} | {mean:.1e} |", flush=True)


def matmul_n_bits(rows: int, k: int, n: int, bits: int, group: int, level: int) -> ModelProto:
    rng, blocks = np.random.default_rng(0), k // group
    weights = {
        "w": rng.integers(0, 256, (n, blocks, group * bits // 8)).astype(np.uint8),
        "s": rng.uniform(0.01, 0.02, n * blocks).astype(np.float32),
    }
    settings = {"K": k, "N": n, "bits": bits, "block_size": group, "accuracy_level": level}
    node = helper.make_node("MatMulNBits", ["x", *weights], ["y"], domain="com.microsoft", **settings)
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [rows, k]), ("y", [rows, n]))
    )
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(w, name) for name, w in weights.items()])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def measure_product(text: str, group: int, threads: int, seconds: float) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    rows, k, n = map(int, text.split("x"))
    x = np.random.default_rng(1).standard_normal((rows, k), np.float32)
    for bits in (4, 8):
        runs = dict[str, Run]()
        for level in (0, 4):
            proto = matmul_n_bits(rows, k, n, bits, group, level).SerializeToString()
            session = onnxruntime.InferenceSession(proto, options, providers=["CPUExecutionProvider"])
            runs[f"onnxruntime {level}"] = lambda session=session: session.run(None, {"x": x})[0]
            compiled = dlc.compile_model(matmul_n_bits(rows, k, n, bits, group, level), num_threads=threads, cache=False)
            runs[f"dlc {level}"] = lambda compiled=compiled: compiled(x)["y"]
        times, expected = measure_milliseconds(runs, threads, seconds), runs["onnxruntime 0"]()
        errors = [np.abs(runs[f"{name} 4"]() - expected).max() / np.abs(expected).max() for name in ("dlc", "onnxruntime")]
        columns = [f"{times[f'{name} {level}']:.2f}" for level in (0, 4) for name in ("dlc", "onnxruntime")]
        columns += [f"{e:.1e}" for e in errors]
        print(f"| {text} | {bits} | {' | '.join(columns)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--nbits", nargs="*", default=[], metavar="MxKxN", help="measure MatMulNBits of these sizes")
    parser.add_argument("--group", type=int, default=32, help="group size of quantized weights (default: 32)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds per measurement (default: 3)")
    arguments = parser.parse_args()
    names = arguments.models or ([] if arguments.nbits else ["gpt2_decode_kv"])
    if names:
        print("| model | weights | ms | speedup over f32 | largest error | RMS error |\n|---|---|---|---|---|---|")
    for name in names:
        measure_model(name, arguments.group, arguments.threads, arguments.seconds)
    if arguments.nbits:
        print("| MxKxN | bits | dlc, level 0, ms | ORT | dlc, level 4, ms | ORT | dlc error, level 4 | ORT error, level 4 |")
        print("|---|---|---|---|---|---|---|---|")
    for text in arguments.nbits:
        measure_product(text, arguments.group, arguments.threads, arguments.seconds)


if __name__ == "__main__":
    main()
