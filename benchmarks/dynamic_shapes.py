"""Benchmark dynamic shapes: python benchmarks/dynamic_shapes.py [--threads N] [MODEL.onnx:SIZE=LOW..HIGH,… …].

First, a decoder whose KV cache grows from 0 to 64 tokens: µs per token (median of rounds interleaved with ONNX Runtime), and
the memory growth of the process over the second half of the rounds. Then each MODEL with symbolic dimensions, such as
`name.onnx:batch=1..4,length=1..128`, compiled once and run at random sizes: the speed relative to ONNX Runtime at each.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import numpy as np
from optional_imports import optional_imports
from rich.console import Console

import dlc
from dlc.arrays import TensorInfo
from dlc.measure.latency import measure_interleaved
from dlc.shapes.dims import Dim, substitute
from dlc.shapes.parsing import parse_size_and_range
from dlc.shapes.ranges import SizeRange

with optional_imports(__doc__):
    import onnxruntime

DECODER = Path(__file__).parents[1] / "tests" / "models" / "small" / "gpt2_tiny_decode_kv_dyn.onnx"
TOKENS, ROUNDS = 65, 40
PAIRS, SECONDS = 40, 0.3

Feeds = Mapping[str, np.ndarray]
Run = Callable[[Feeds], Mapping[str, Any]]


def runtimes(path: Path, threads: int) -> dict[str, Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return {
        "dlc": dlc.compile_model(path, num_threads=threads, cache=False),
        "ONNX Runtime": lambda feeds: dict(zip(names, session.run(names, dict(feeds)), strict=True)),
    }


def decode(run: Run) -> list[float]:
    """Return the seconds of each token."""
    cache = {f"past.{layer}.{kind}": np.zeros((1, 4, 0, 32), np.float32) for layer in (0, 1) for kind in "kv"}
    seconds: list[float] = []
    for n in range(TOKENS):
        feeds = {"input_ids": np.array([[37 * n % 1000]]), "position_ids": np.array([[n]]), **cache}
        start = perf_counter()
        outputs = run(feeds)
        seconds.append(perf_counter() - start)
        cache = {name: np.asarray(outputs[name.replace("past", "present")]) for name in cache}
    return seconds


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def measure_growing_cache(threads: int, console: Console) -> None:
    runs = runtimes(DECODER, threads)
    rounds: dict[str, list[list[float]]] = {name: [] for name in runs}
    sizes: list[int] = []
    for _ in range(ROUNDS):
        for name, run in runs.items():
            decode(run)
            rounds[name].append(decode(run))
        sizes.append(resident_bytes())
    for name, seconds in rounds.items():
        times = np.median(np.array(seconds), axis=0) * 1e6
        summary = ", ".join(f"{times[n]:.0f} at {n}" for n in (0, 1, 16, 32, 64))
        console.print(f"growing cache, {name}: {times.mean():.1f} µs a token; {summary}")
    console.print(
        f"the process grew by {(sizes[-1] - sizes[ROUNDS // 2]) / 1024:.0f} KiB in {ROUNDS // 2 * TOKENS} tokens per runtime"
    )


def model_with_ranges(text: str) -> tuple[Path, dict[str, SizeRange | None]]:
    """Parse a model's file and the ranges of its symbolic sizes. Raises ArgumentTypeError for malformed text."""
    path, _, ranges = text.partition(":")
    if not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"{path}: no such file")
    try:
        return Path(path), dict(parse_size_and_range(item.replace("=", ":")) for item in ranges.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text}: expected name.onnx:batch=1..4,length=1..128: {error}") from error


def measure_random_sizes(path: Path, ranges: Mapping[str, SizeRange | None], threads: int, console: Console) -> None:
    runs, rng = runtimes(path, threads), Random(0)
    symbols = {name for info in runs["dlc"].inputs for size in info.shape if isinstance(size, Dim) for name in size.symbols()}
    if symbols_without_range := sorted(symbols - {name for name, sizes in ranges.items() if sizes is not None}):
        raise SystemExit(
            f"{path}: give ranges for its symbolic sizes: {path}:" + ",".join(f"{name}=1..8" for name in symbols_without_range)
        )
    ratios: list[float] = []
    for _ in range(PAIRS):
        sizes = {name: rng.randint(r.low, r.high or r.low) for name, r in ranges.items() if r is not None}
        feeds = {info.name: _random_input(info, sizes) for info in runs["dlc"].inputs}
        times = measure_interleaved({name: partial(run, feeds) for name, run in runs.items()}, SECONDS, threads)
        dlc_seconds, peer_seconds = (latency.median for latency in times.values())
        ratios.append(peer_seconds / dlc_seconds)
        console.print(f"{sizes}: dlc {dlc_seconds * 1e3:.3f} ms, ONNX Runtime {peer_seconds * 1e3:.3f} ms: {ratios[-1]:.2f}")
    mean = np.exp(np.mean(np.log(ratios)))
    console.print(
        f"{path}: {mean:.2f} times as fast, {min(ratios):.2f} to {max(ratios):.2f}; slower at {sum(r < 1 for r in ratios)}"
    )


def _random_input(info: TensorInfo, sizes: Mapping[str, int]) -> np.ndarray:
    shape = [int(substitute(size, sizes)) for size in info.shape]
    if "mask" in info.name:
        return np.ones(shape, info.dtype)
    rng = np.random.default_rng(0)
    return (rng.integers(0, 2, shape) if info.dtype.kind in "iu" else rng.standard_normal(shape)).astype(info.dtype)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=model_with_ranges, metavar="MODEL.onnx:SIZE=LOW..HIGH,…")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    console = Console(width=160)
    measure_growing_cache(arguments.threads, console)
    for path, ranges in arguments.models:
        measure_random_sizes(path, ranges, arguments.threads, console)


if __name__ == "__main__":
    main()
