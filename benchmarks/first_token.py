"""Measure the time of a new process until the first token of a cached language model, against llama.cpp.

    python benchmarks/first_token.py MODEL.gguf [--prompt TEXT] [--threads 1] [--rounds 15]

llama.cpp is measured if the package xllamacpp is installed. Processes of both are interleaved. Wall time is that until the
first byte on standard output, and processor time is that of the whole process with one generated token.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter

_LLAMA_CPP = """
import sys
import xllamacpp
settings = xllamacpp.CommonParams()
settings.model.path, settings.n_ctx, settings.n_gpu_layers, settings.n_parallel = sys.argv[1], 256, 0, 1
settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = int(sys.argv[3])
xllamacpp.Server(settings).handle_completions({"prompt": sys.argv[2], "n_predict": 1, "max_tokens": 1, "temperature": 0})
print("first token", flush=True)
"""


def start(command: list[str]) -> tuple[float, float]:
    """Run a command; return the wall time until its first output, and its processor time, in seconds."""
    reader, writer = os.pipe()
    errors = os.open(os.devnull, os.O_WRONLY)
    begin = perf_counter()
    files = [(os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_DUP2, errors, 2)]
    process = os.posix_spawn(command[0], command, os.environ, file_actions=files)
    os.close(writer)
    os.close(errors)
    first = os.read(reader, 1)
    wall = perf_counter() - begin
    while os.read(reader, 4096):
        pass
    os.close(reader)
    _, status, usage = os.wait4(process, 0)
    assert first and status == 0, f"{command} failed"
    return wall, usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--prompt", default="w1 w2")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    model, prompt, threads = str(arguments.model), arguments.prompt, str(arguments.threads)
    options = ["--threads", threads, "--context", "256", "--max-tokens", "1"]
    commands = {"dlc": [sys.executable, "-m", "dlc", "generate", model, "--prompt", prompt, *options]}
    if find_spec("xllamacpp"):
        commands["llama.cpp"] = [sys.executable, "-c", _LLAMA_CPP, model, prompt, threads]
    start(commands["dlc"])  # Compiles the model.
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(arguments.rounds):
        for name, command in commands.items():
            times[name].append(start(command))
    print("| engine | wall, ms: minimum | median | processor, ms: minimum | median |\n|---|---|---|---|---|")
    for name, pairs in times.items():
        cells = [f"{1e3 * statistic(column):.0f}" for column in zip(*pairs, strict=True) for statistic in (min, median)]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
