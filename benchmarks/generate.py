"""Benchmark language models against llama.cpp: tokens per second of prompts and of generation.

    python benchmarks/generate.py MODEL.gguf [--threads 1 2] [--prompt 512] [--tokens 64] [--rounds 5]

llama.cpp is measured if the package xllamacpp is installed. Rounds of both are interleaved, and the fastest counts: on a shared
machine it is the least disturbed. Times of one thread are processor time, others wall time. Both read the same prompt of random
tokens without their caches of earlier prompts, and generate greedily past the end of the text. The time of generation is that
of the tokens after the first: the time of a short prompt with one token is subtracted.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

import dlc
from dlc.language_models.sampling import Sampling

# Tokens of the prompt of a generated text.
_SHORT_PROMPT_TOKENS = 4

# Generates this many tokens after a prompt.
Run = Callable[[Sequence[int], int], Any]


def dlc_run(path: Path, threads: int, context: int) -> Run:
    model = dlc.LanguageModel.load(path, num_threads=threads, context=context)

    def run(prompt: Sequence[int], count: int) -> None:
        session = model.session()
        token = session.advance(prompt, Sampling())
        for _ in range(count - 1):
            token = session.advance([token], Sampling())

    return run


def llama_cpp_run(path: Path, threads: int, context: int) -> Run:
    library = import_module("xllamacpp")
    settings = library.CommonParams()
    settings.model.path, settings.n_ctx, settings.n_gpu_layers, settings.n_parallel = str(path), context, 0, 1
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
    server = library.Server(settings)

    def run(prompt: Sequence[int], count: int) -> None:
        request = {"prompt": list(prompt), "n_predict": count, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
        answer = server.handle_completions({**request, "max_tokens": count})
        usage = (json.loads(answer) if isinstance(answer, str) else answer)["usage"]
        assert usage["completion_tokens"] == count and usage["prompt_tokens"] == len(prompt), usage

    return run


def measure(
    runs: dict[str, Run], prompt: Sequence[int], tokens: int, rounds: int, threads: int
) -> dict[str, tuple[float, float]]:
    """Return for each engine the tokens per second of the prompt and of generation."""
    clock = process_time if threads == 1 else perf_counter
    short = prompt[:_SHORT_PROMPT_TOKENS]
    parts = ((prompt, 1), (short, 1), (short, 1 + tokens))
    best = {name: [float("inf")] * len(parts) for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            for k, (part, count) in enumerate(parts):
                start = clock()
                run(part, count)
                best[name][k] = min(best[name][k], clock() - start)
    return {name: (len(prompt) / whole, tokens / (text - first)) for name, (whole, first, text) in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt (default: 512)")
    parser.add_argument("--tokens", type=int, default=64, help="generated tokens (default: 64)")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    context = -(-(arguments.prompt + arguments.tokens + 1) // 64) * 64
    prompt = [int(t) for t in np.random.default_rng(0).integers(100, 1000, arguments.prompt)]
    engines = {"dlc": dlc_run} | ({"llama.cpp": llama_cpp_run} if find_spec("xllamacpp") else {})
    print("| threads | engine | prompt, tokens/s | generation, tokens/s |\n|---|---|---|---|", flush=True)
    for threads in arguments.threads:
        runs = {name: engine(arguments.model, threads, context) for name, engine in engines.items()}
        for name, speeds in measure(runs, prompt, arguments.tokens, arguments.rounds, threads).items():
            print(f"| {threads} | {name} | {speeds[0]:.1f} | {speeds[1]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
