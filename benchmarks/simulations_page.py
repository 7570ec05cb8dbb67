"""Measure simulations for AVX-512 and AVX2, and write the rows of the tables in docs/simulations.md.

    python benchmarks/simulations_page.py [CASE …] [--seconds 2] [--mark ¹] [--avx2-path DIRECTORY]

Runs benchmarks/simulations.py with the same interpreter for each level and float type, and for gradients. The row of a case
begins with its name; its label stays, and rows of other cases are not changed. `--mark` is appended to the labels of the rows,
as the mark of another machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "simulations.md"
LEVELS = ("avx512", "avx2")
OTHERS = ("JAX", "C", "C without FMA", "Numba")
# Cells of a row of simulations.py by column, of a case.
Cells = dict[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="cases of simulations.py, by default all")
    parser.add_argument("--seconds", type=float, default=2.0, help="time per case and configuration")
    parser.add_argument("--mark", default="", help="a mark of the machine after the labels")
    parser.add_argument("--avx2-path", default="", help="a directory with copies of JAX and jaxlib that see no AVX-512")
    options = parser.parse_args()
    times = {(level, dtype): measure(options, level, "--dtype", dtype) for level in LEVELS for dtype in ("f32", "f64")}
    gradients = {level: measure(options, level, "--gradient") for level in LEVELS}
    rows = {case: comparison_cells(times, case) for case in times[LEVELS[0], "f32"]}
    gradient_rows = {case: gradient_cells(gradients, case) for case in gradients[LEVELS[0]]}
    lines = [new_row(line, (rows, gradient_rows), options.mark) for line in PAGE.read_text().splitlines()]
    PAGE.write_text("\n".join(lines) + "\n")


def measure(options: argparse.Namespace, level: str, *arguments: str) -> dict[str, Cells]:
    """Return the rows that simulations.py prints for a level, by case."""
    environment = dict(os.environ)
    if level == "avx2":
        path = [p for p in (options.avx2_path, environment.get("PYTHONPATH", "")) if p]
        environment |= {"DLC_CPU": "avx2", "XLA_FLAGS": "--xla_cpu_max_isa=AVX2", "PYTHONPATH": os.pathsep.join(path)}
    script = Path(__file__).with_name("simulations.py")
    command = [sys.executable, str(script), *options.cases, "--seconds", str(options.seconds), *arguments]
    print(f"{level}: {' '.join(command[1:])}", file=sys.stderr, flush=True)
    printed = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    header, _, *rows = [cells_of(line) for line in printed.splitlines() if line.startswith("|")]
    return {row[0]: dict(zip(header, row, strict=True)) for row in rows}


def cells_of(line: str) -> list[str]:
    """Return the cells of a row of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def comparison_cells(times: dict[tuple[str, str], dict[str, Cells]], case: str) -> list[str]:
    """Return the cells of a case: the time of f32 for a level, and ratios of others for f32 and f64. Numba has one column."""
    result = []
    for level in LEVELS:
        for dtype in ("f32", "f64"):
            cells = times[level, dtype][case]
            others = OTHERS if (level, dtype) == (LEVELS[0], "f32") else OTHERS[:-1]
            time = [rounded(cells["dlc µs"], 1, 100)] if dtype == "f32" else []
            result += [*time, *(rounded(cells[f"{other} / dlc"], 2, 10) for other in others)]
    return result


def gradient_cells(gradients: dict[str, dict[str, Cells]], case: str) -> list[str]:
    """Return the cells of a case: the time of the gradient for each level, divided by that of the sum as well."""
    rows = [gradients[level][case] for level in LEVELS]
    return [cell for row in rows for cell in (rounded(row["gradient µs"], 1, 100), rounded(row["gradient / sum"], 1, 100))]


def rounded(cell: str, digits: int, limit: float) -> str:
    """Return a number with these decimals, without decimals from a limit on; an empty cell stays empty."""
    return cell and f"{float(cell):.{digits if float(cell) < limit else 0}f}"


def new_row(line: str, tables: tuple[dict[str, list[str]], ...], mark: str) -> str:
    """Return a line of the page, with new cells if it is the row of a measured case in one of these tables."""
    if not line.startswith("| `"):
        return line
    label, *old = cells_of(line)
    case = label[1:].partition("`")[0]
    for rows in tables:
        if case in rows and len(rows[case]) == len(old):
            return f"| {' '.join([label.rstrip(' ¹²³'), *([mark] if mark else [])])} | {' | '.join(rows[case])} |"
    return line


if __name__ == "__main__":
    main()
