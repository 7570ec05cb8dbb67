"""Benchmark language models of every block format against llama.cpp: rows of the speed table of docs/language_models.md.

    python benchmarks/generate_formats.py [FORMAT …] [--threads 1 2] [--texts 4 8] [--layers 3] [--width 2048] [--rounds 3]

Writes a Llama with random weights of each format to a temporary folder (benchmarks/random_llama.py). Prints a row for each
format and number of threads: tokens per second of the prompt and of generation (benchmarks/generate.py) with dlc and llama.cpp,
their ratios, the rate at which generation reads the file's bytes, and the time of steps of several texts relative to one.

`DLC_CPU=avx2` selects AVX2 for dlc; the package xllamacpp uses AVX2. All formats on one and two threads take about 10 minutes
on two idle processors.
"""

from __future__ import annotations

import argparse
import os
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import numpy as np
from generate import dlc_run, llama_cpp_run, measure
from random_llama import write_llama

import dlc
from dlc.language_models.checkpoints.block_formats import GGUF_TYPES
from dlc.language_models.sampling import Sampling

_FORMATS = [kind.name for kind in GGUF_TYPES.values() if kind.decode is not None]
# Tokens of the prompts of texts that are decoded together.
_BATCH_PROMPT_TOKENS = 4


def step_seconds(model: dlc.LanguageModel, texts: int, tokens: int, threads: int) -> float:
    """Return the time of a step that decodes a token of each of several texts: the fastest of `tokens` steps."""
    batch, clock = model.batch(), process_time if threads == 1 else perf_counter
    for k in range(texts):
        batch.add(range(300 + k, 300 + k + _BATCH_PROMPT_TOKENS), tokens + 2 * texts, Sampling(), ignore_end=True)
    while not all(text.tokens for text in batch.running) or len(batch.running) < texts:
        list(batch.advance())
    times: list[float] = []
    for _ in range(tokens):
        start = clock()
        list(batch.advance())
        times.append(clock() - start)
    return min(times)


def measure_format(name: str, folder: Path, threads: int, arguments: argparse.Namespace) -> str:
    """Return the row of a format."""
    path = folder / f"{name}.gguf"
    if not path.exists():
        write_llama(path, name, arguments.layers, arguments.width, arguments.width * 11 // 4, 2048)
    context = -(-(arguments.prompt + arguments.tokens + 1) // 64) * 64
    engines = {"dlc": dlc_run} | ({"llama.cpp": llama_cpp_run} if find_spec("xllamacpp") else {})
    prompt = [int(token) for token in np.random.default_rng(0).integers(300, 2000, arguments.prompt)]
    runs = {engine: run(path, threads, context) for engine, run in engines.items()}
    speeds = measure(runs, prompt, arguments.tokens, arguments.rounds, threads)
    cells = [name, str(threads)]
    for k in range(2):
        values = [speed[k] for speed in speeds.values()]
        cells += [f"{value:.1f}" for value in values] + [f"{values[0] / values[-1]:.2f}"]
    cells.append(f"{speeds['dlc'][1] * path.stat().st_size / 1e9:.1f}")
    if arguments.texts:
        runs.clear()
        model = dlc.LanguageModel.load(path, num_threads=threads, context=64, max_texts=max(arguments.texts))
        times = {texts: float("inf") for texts in (1, *arguments.texts)}
        for _ in range(arguments.rounds):
            times = {texts: min(best, step_seconds(model, texts, arguments.tokens, threads)) for texts, best in times.items()}
        cells += [f"{times[texts] / times[1]:.2f}" for texts in arguments.texts]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=f"default: all of {', '.join(_FORMATS)}")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--texts", type=int, nargs="*", default=[], help="texts that steps decode together")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt (default: 512)")
    parser.add_argument("--tokens", type=int, default=32, help="generated tokens (default: 32)")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if unknown := set(arguments.formats) - set(_FORMATS):
        parser.error(f"unknown format {min(unknown)}; expected {', '.join(_FORMATS)}")
    columns = ["format", "threads", "prompt: dlc", "llama.cpp", "ratio", "generation: dlc", "llama.cpp", "ratio", "GB/s"]
    columns += [f"{texts} texts" for texts in arguments.texts]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
    with TemporaryDirectory() as folder:
        # Cached models read their weights from a mapped file.
        os.environ |= {"DLC_CACHE": "1", "DLC_CACHE_DIR": f"{folder}/cache"}
        for name in arguments.formats or _FORMATS:
            for threads in arguments.threads:
                print(measure_format(name, Path(folder), threads, arguments), flush=True)
            (Path(folder) / f"{name}.gguf").unlink()


if __name__ == "__main__":
    main()
