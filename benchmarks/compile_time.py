"""Measure compile time and memory: python benchmarks/compile_time.py MODEL.onnx […] [--repeat N].

Each model is compiled in a new process, without the cache. Prints processor time (user and system time of all its processes),
system time alone, and peak memory in MB, of the fastest of N runs. Processor time excludes waiting for other processes, but
busy neighbors still lengthen it by sharing caches: compare versions with interleaved runs.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

_COMPILE = """
import sys
import dlc
dlc.compile_model(sys.argv[1], cache=False)
print(int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024)
"""


def compilation_cost(model: Path) -> tuple[float, float, float]:
    """Return the total processor time and the system time in seconds, and the peak memory in MB, of one compilation."""
    usage_before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.run([sys.executable, "-c", _COMPILE, str(model)], capture_output=True, text=True, check=True)
    usage_after = resource.getrusage(resource.RUSAGE_CHILDREN)
    system_seconds = usage_after.ru_stime - usage_before.ru_stime
    return usage_after.ru_utime - usage_before.ru_utime + system_seconds, system_seconds, float(process.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    table = Table("model", "processor s", "of the system", "MB")
    for model in arguments.models:
        seconds, system, memory = min(compilation_cost(model) for _ in range(arguments.repeat))
        table.add_row(model.stem, f"{seconds:.1f}", f"{system:.1f}", f"{memory:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
