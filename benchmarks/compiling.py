"""What compiling costs: python benchmarks/compiling.py MODEL.onnx […] [--repeat N].

For each model the processor's seconds, of the system's work beside, and the most memory in MB, of a new process that compiles
it without the cache, all processes that it starts included; the cheapest of N runs. Seconds as they pass count other users of a
machine, those of the processor do not, though busy neighbours make them longer too: compare with runs that take turns.
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


def cost(model: Path) -> tuple[float, float, float]:
    """Seconds of the processor, of them those of the system, and MB, of one compilation."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    made = subprocess.run([sys.executable, "-c", _COMPILE, str(model)], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    system = after.ru_stime - before.ru_stime
    return after.ru_utime - before.ru_utime + system, system, float(made.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    chosen = parser.parse_args()
    table = Table("model", "processor s", "of the system", "MB")
    for model in chosen.models:
        seconds, system, memory = min(cost(model) for _ in range(chosen.repeat))
        table.add_row(model.stem, f"{seconds:.1f}", f"{system:.1f}", f"{memory:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
