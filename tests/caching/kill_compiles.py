"""Kill compilations at random moments and check what they leave behind.

    python -m tests.caching.kill_compiles [COUNT] [MODEL.onnx]

Each compilation writes a file and a cache entry in a process of its own, which is killed after a random fraction of the usual
time. Afterwards the file and the entries must be complete or absent, and the model must compile.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from dlc.caching import model_cache
from dlc.caching.cache import Cache
from dlc.caching.model_cache import MODEL_KIND
from dlc.instrument.report import Report
from dlc.models.model_files import compile_file
from dlc.runtime.load import program_in

MNIST = Path(__file__).parents[1] / "models" / "small" / "mnist_cnn.onnx"
# Processes start from one that has imported the compiler already.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["dlc.models.model_files", "dlc.compiler"])


def compile_in(cache: Path, model: Path, output: Path | None = None) -> bool:
    """Compile with the cache in a folder; return whether it was a cache hit."""
    os.environ.update(DLC_CACHE="1", DLC_CACHE_DIR=str(cache), DLC_VERIFY="0")
    # Who edits dlc while this runs shall see it pass.
    model_cache.sources_changed = lambda: False
    report = Report()
    compiled = compile_file(model, report=report)
    if output is not None:
        compiled.save(output)
    return report.from_cache


def kill_compiles(count: int, model: Path, folder: Path, seed: int = 0) -> dict[str, int]:
    """Kill `count` compilations; return how many left an entry, a file, and partial files."""
    cache, output = folder / "cache", folder / "model.dlc"
    kept = {"entries": 0, "files": 0, "unfinished": 0}

    def start() -> multiprocessing.process.BaseProcess:
        Cache(cache).clear()
        output.unlink(missing_ok=True)
        process = FORKS.Process(target=compile_in, args=(cache, model, output))
        process.start()
        return process

    start().join()  # the first one waits for the imports
    began = time.perf_counter()
    start().join()
    whole = time.perf_counter() - began
    rng = random.Random(seed)
    for _ in range(count):
        process = start()
        process.join(rng.random() * whole * 1.1)
        process.kill()
        process.join()
        entries = Cache(cache).entries(MODEL_KIND)
        for path in [*(e.path for e in entries), *([output] if output.exists() else [])]:
            program_in(path)
        kept["entries"] += len(entries)
        kept["files"] += output.exists()
        kept["unfinished"] += len(list((cache / "new").iterdir()))
        age(cache / "new")
        age(folder)
    last = start()
    last.join()
    assert last.exitcode == 0 and len(Cache(cache).entries(MODEL_KIND)) == 1
    left = [*(cache / "new").iterdir(), *folder.glob(".*"), *(cache / "locks").iterdir()]
    assert not left, left
    return kept


def age(folder: Path) -> None:
    """Make partial files look two hours old."""
    for path in folder.glob(".*" if folder.name != "new" else "*"):
        os.utime(path, (time.time() - 7200,) * 2)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    times = int(arguments[0]) if arguments else 100
    with tempfile.TemporaryDirectory() as scratch:
        result = kill_compiles(times, Path(arguments[1]) if len(arguments) > 1 else MNIST, Path(scratch))
    print(f"{times} compilations killed; every file and entry is whole or not there: {result}")
