"""What sizes cost that come with a call: python benchmarks/open_sizes.py [--threads N] [MODEL.onnx ...].

First a decoder whose cache grows by each token, from none to 64: µs a token, medians of rounds that take turns with ONNX
Runtime; and by how much the process grew in the last half of the rounds. Then models with open sizes at random ones, given
as `name.onnx:batch=1..4,length=1..128`: how dlc compares at each, compiled once.
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
import onnxruntime
from rich.console import Console

import dlc
from dlc.arrays import TensorInfo
from dlc.dims import parse_ranged, substitute
from dlc.measure.latency import interleaved

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
    """Seconds of each token."""
    past = {f"past.{layer}.{part}": np.zeros((1, 4, 0, 32), np.float32) for layer in (0, 1) for part in "kv"}
    seconds: list[float] = []
    for n in range(TOKENS):
        feeds = {"input_ids": np.array([[37 * n % 1000]]), "position_ids": np.array([[n]]), **past}
        began = perf_counter()
        got = run(feeds)
        seconds.append(perf_counter() - began)
        past = {name: np.asarray(got[name.replace("past", "present")]) for name in past}
    return seconds


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def growing_cache(threads: int, console: Console) -> None:
    runs = runtimes(DECODER, threads)
    rounds: dict[str, list[list[float]]] = {name: [] for name in runs}
    sizes: list[int] = []
    for _ in range(ROUNDS):
        for name, run in runs.items():
            decode(run)
            rounds[name].append(decode(run))
        sizes.append(resident())
    for name, seconds in rounds.items():
        times = np.median(np.array(seconds), axis=0) * 1e6
        shown = ", ".join(f"{times[n]:.0f} at {n}" for n in (0, 1, 16, 32, 64))
        console.print(f"growing cache, {name}: {times.mean():.1f} µs a token; {shown}")
    console.print(
        f"the process grew by {(sizes[-1] - sizes[ROUNDS // 2]) / 1024:.0f} KiB in {ROUNDS // 2 * TOKENS} tokens of each"
    )


def random_sizes(text: str, threads: int, console: Console) -> None:
    path, _, said = text.partition(":")
    ranges = dict(parse_ranged(one.replace("=", ":")) for one in said.split(","))
    runs, draw = runtimes(Path(path), threads), Random(0)
    ratios: list[float] = []
    for _ in range(PAIRS):
        sizes = {str(name): draw.randint(r.low, r.high or r.low) for name, r in ranges.items() if r is not None}
        feeds = {info.name: _drawn(info, sizes) for info in runs["dlc"].inputs}
        times = interleaved({name: partial(run, feeds) for name, run in runs.items()}, SECONDS, threads)
        ours, theirs = (latency.median for latency in times.values())
        ratios.append(theirs / ours)
        console.print(f"{sizes}: dlc {ours * 1e3:.3f} ms, ONNX Runtime {theirs * 1e3:.3f} ms: {ratios[-1]:.2f}")
    mean = np.exp(np.mean(np.log(ratios)))
    console.print(
        f"{path}: {mean:.2f} times as fast, {min(ratios):.2f} to {max(ratios):.2f}; slower at {sum(r < 1 for r in ratios)}"
    )


def _drawn(info: TensorInfo, sizes: Mapping[str, int]) -> np.ndarray:
    shape = [int(substitute(size, sizes)) for size in info.shape]
    if "mask" in info.name:
        return np.ones(shape, info.dtype)
    draw = np.random.default_rng(0)
    return (draw.integers(0, 2, shape) if info.dtype.kind in "iu" else draw.standard_normal(shape)).astype(info.dtype)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    console = Console(width=160)
    growing_cache(arguments.threads, console)
    for text in arguments.models:
        random_sizes(text, arguments.threads, console)


if __name__ == "__main__":
    main()
