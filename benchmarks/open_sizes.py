"""What sizes cost that come with a call: python benchmarks/open_sizes.py [--threads N] [MODEL.onnx:SIZE=LOW..HIGH,… …].

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
from needed import needed
from rich.console import Console

import dlc
from dlc.arrays import TensorInfo
from dlc.dims import Dim, Range, parse_ranged, substitute
from dlc.measure.latency import interleaved

with needed(__doc__):
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


def ranged(text: str) -> tuple[Path, dict[str, Range | None]]:
    """A model's file and the ranges of its sizes. Raises ArgumentTypeError for another text."""
    path, _, said = text.partition(":")
    if not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"{path}: no such file")
    try:
        return Path(path), dict(parse_ranged(one.replace("=", ":")) for one in said.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text}: expected name.onnx:batch=1..4,length=1..128: {error}") from error


def random_sizes(path: Path, ranges: Mapping[str, Range | None], threads: int, console: Console) -> None:
    runs, draw = runtimes(path, threads), Random(0)
    open_sizes = {
        name for info in runs["dlc"].inputs for size in info.shape if isinstance(size, Dim) for name in size.symbols()
    }
    if missing := sorted(open_sizes - {name for name, sizes in ranges.items() if sizes is not None}):
        raise SystemExit(f"{path}: say the ranges of its sizes, {path}:" + ",".join(f"{name}=1..8" for name in missing))
    ratios: list[float] = []
    for _ in range(PAIRS):
        sizes = {name: draw.randint(r.low, r.high or r.low) for name, r in ranges.items() if r is not None}
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
    parser.add_argument("models", nargs="*", type=ranged, metavar="MODEL.onnx:SIZE=LOW..HIGH,…")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    console = Console(width=160)
    growing_cache(arguments.threads, console)
    for path, ranges in arguments.models:
        random_sizes(path, ranges, arguments.threads, console)


if __name__ == "__main__":
    main()
