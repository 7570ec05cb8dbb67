"""Benchmark every function of dlc.numpy against NumPy.

    python benchmarks/numpy_functions.py [--only NAMES] [--sizes N …] [--write]

Times compiled calls on float32 arrays of 10^3, 10^5 and 10^7 elements on one processor, interleaved with NumPy's. Times are
processor time of the fastest call, end to end: dispatch and allocation of results included. A * marks results where NumPy is
faster by less than that overhead. Functions are found in the package; those without an entry in CASES get their required
arguments. --write updates docs/numpy.speed.md.

A long run can be split: --json prints the measurements, and --of FILE … makes the table from such files, where later files
override earlier ones.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

# Set before NumPy's libraries count processors.
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import numpy as np  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.markup import escape  # noqa: E402
from rich.table import Table  # noqa: E402

import dlc  # noqa: E402
import dlc.numpy as dnp  # noqa: E402
from dlc.measure.latency import measure_interleaved  # noqa: E402

PAGE = Path(__file__).parents[1] / "docs" / "numpy.speed.md"
SIZES = (10**3, 10**5, 10**7)

# Functions that do not read the elements of an array.
EXCLUDED = {
    *dnp.dtypes.__all__, "arange", "asarray", "atleast_1d", "broadcast_shapes", "empty", "empty_like", "eye", "from_dlpack",
    "full", "geomspace", "identity", "indices", "linspace", "logspace", "ndim", "ones", "real", "shape", "size", "tri",
    "tril_indices", "triu_indices", "zeros",
}  # fmt: skip

# The operands in CASES, for the page; `arrays` makes them.
_OPERANDS = (
    "Operands of *n* elements: `x`, `y` and `z` are vectors, `p` is positive, `u` is within ±0.95, and `s` is sorted; `f` and "
    "`g` have rows of 100, `q` is square, `v` has rows of 3, and `c` has three axes; `i` and `k` are int32, `b` and `t` are "
    "boolean, and `j` and `o` are indices. `r` has 100 elements. `m` is the module, `dlc.numpy` or NumPy."
)

# Arguments of calls, as Python expressions over the arrays of `arrays`.
CASES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(["acos", "asin", "atanh"], ("u",)),
    **dict.fromkeys(["acosh"], ("p + 1",)),
    **dict.fromkeys(["log", "log10", "log2", "sqrt"], ("p",)),
    **dict.fromkeys(["power", "float_power"], ("p, y",)),
    **dict.fromkeys(["bitwise_and", "bitwise_or", "bitwise_xor"], ("i, k",)),
    **dict.fromkeys(["bitwise_left_shift", "bitwise_right_shift"], ("i, k",)),
    **dict.fromkeys(["logical_and", "logical_or", "logical_xor"], ("b, b[::-1]",)),
    "any": ("x > 9", "t, 0"),
    "all": ("x < 9", "t, 0"),
    **dict.fromkeys(["sum", "max", "mean", "argmax", "var"], ("x", "f, 0", "f, 1")),
    **dict.fromkeys(["cumsum", "cumprod", "cumulative_sum", "cumulative_prod"], ("x, axis=0", "f, axis=0", "f, axis=1")),
    **dict.fromkeys(["convolve", "correlate"], ("x, y[:9]",)),
    **dict.fromkeys(["sort", "argsort"], ("x", "f, 1", "f, 0", "i")),
    **dict.fromkeys(["median"], ("x", "f, 1", "f, 0")),
    **dict.fromkeys(["quantile", "nanquantile"], ("x, 0.3", "f, 0.3, 1")),
    **dict.fromkeys(["percentile", "nanpercentile"], ("x, 30", "f, [10, 90], 1")),
    **dict.fromkeys(["matmul", "dot"], ("q, q", "f, r", "x, y")),
    **dict.fromkeys(["fliplr", "flipud", "matrix_transpose", "tril", "triu", "trace", "diag", "diagonal", "rot90"], ("f",)),
    **dict.fromkeys(["array_split", "split"], ("x, 4",)),
    **dict.fromkeys(["hsplit", "vsplit", "dsplit"], ()),
    **dict.fromkeys(["column_stack", "dstack", "hstack", "vstack"], ("[f, g]",)),
    "astype": ("x, m.int32", "i, m.float32", "x, m.float64", "x, m.float16"),
    "where": ("b, x, y",),
    "clip": ("x, -1, 1",),
    "round": ("x", "x, 2"),
    "bitwise_invert": ("i",),
    "average": ("x, weights=p", "f, 1, r"),
    "ptp": ("f, 1",),
    "gradient": ("x", "f, axis=0", "f, axis=1"),
    "ediff1d": ("x",),
    "unwrap": ("x", "f, axis=1"),
    "polyval": ("r[:6], x",),
    **dict.fromkeys(["cov", "corrcoef"], ("f.T[:8]", "x, y")),
    "nanmedian": ("f, 1",),
    "trapezoid": ("x",),
    "lexsort": ("m.stack([k, i])",),
    "searchsorted": ("s, x",),
    "digitize": ("x, s[:100]",),
    "isin": ("i, k[:100]",),
    "interp": ("x, s, y",),
    "broadcast_to": ("r, f.shape",),
    "expand_dims": ("x, 0",),
    "flip": ("x", "f, 0"),
    "moveaxis": ("c, 0, -1",),
    "permute_dims": ("c, (2, 0, 1)",),
    "repeat": ("x, 3", "f, 3, 0"),
    "reshape": ("f, -1",),
    "roll": ("x, 7", "f, 7, 1"),
    "squeeze": ("x[None]",),
    "swapaxes": ("c, 0, 1",),
    "tile": ("x, 3", "f, (2, 2)"),
    "transpose": ("f", "c, (0, 2, 1)"),
    "append": ("x, y",),
    "concat": ("[x, y]", "[f, g], axis=1"),
    "stack": ("[x, y]", "[x, y], axis=1"),
    "unstack": ("f.T[:8]",),
    "pad": ("f, 1", *(f"f, 3, mode='{mode}'" for mode in ("edge", "reflect", "symmetric", "wrap"))),
    "choose": ("j % 2, [x, y]",),
    "select": ("[x > 0, y > 0], [x, y]",),
    "take": ("x, j", "f, o, 0"),
    "take_along_axis": ("x, j, 0",),
    "broadcast_arrays": ("f, r",),
    "cross": ("v, v[::-1]",),
    "inner": ("x, y",),
    "kron": ("x[:100], y[: x.size // 100]",),
    "matvec": ("f, r", "q, q[0]"),
    "vecmat": ("q[0], q",),
    "outer": ("x[:100], y[: x.size // 100]",),
    "tensordot": ("q, q, 1",),
    "vdot": ("x, y",),
    "vecdot": ("f, g",),
    "einsum": ("'ij,ij->i', f, g", "'ij->ji', f", "'ij,j->i', f, r"),
    "full_like": ("x, y[0]",),
    "meshgrid": ("x[:100], y[: x.size // 100]",),
    "vander": ("x[: x.size // 8], 8",),
    "nan_to_num": ("x",),
    "heaviside": ("x, y",),
    "top_k": ("x, 8", "f, 8, axis=1"),
    "ldexp": ("x, k",),
    "bitwise_count": ("i",),
    **dict.fromkeys(["gcd", "lcm"], ("i, k",)),
    "packbits": ("b",),
    "unpackbits": ("k.astype(m.uint8)",),
    "ravel_multi_index": ("[o, o], (o.size, o.size)",),
    "unravel_index": ("j, (10, j.size // 10)",),
    **dict.fromkeys(["partition", "argpartition"], ("x, x.size // 2",)),
    **dict.fromkeys(["diagflat", "poly", "roots"], ("r[:9]",)),
    "delete": ("x, 7",),
    "insert": ("x, 7, 0",),
    **dict.fromkeys(["polydiv", "polymul"], ("r, x[:9]",)),
    "polyfit": ("x, y, 3",),
    "at": ("x, 'set', j, y", "x, 'add', j, y", "f, 'add', o, g", "f, 'set', slice(3, None, 2), 0.0"),
}  # fmt: skip


def top_k(x: Any, k: int, axis: int = -1) -> Any:
    """Implement dlc.numpy's `top_k` with NumPy."""
    order = np.flip(np.argsort(x, axis, kind="stable"), axis).take(range(k), axis)
    return np.take_along_axis(x, order, axis), order


def update_with_numpy(x: Any, mode: str, key: Any, value: Any) -> Any:
    """Implement `x.at[key].set(value)` or `add` with NumPy."""
    result = x.copy()
    if mode == "set":
        result[key] = value
    else:
        np.add.at(result, key, value)
    return result


def update_with_dlc(x: Any, mode: str, key: Any, value: Any) -> Any:
    return getattr(dnp.at(x)[key], mode)(value)


@dataclass(frozen=True)
class Row:
    """The measurements of a call for one array size.

    Attributes:
        call: The text of the call.
        size: The number of elements.
        dlc: The seconds of the fastest call of dlc.
        numpy: The seconds of the fastest call of NumPy.
        overhead: The seconds of a call of dlc on a small array.
    """

    call: str
    size: int
    dlc: float
    numpy: float
    overhead: float

    @property
    def ratio(self) -> float:
        """Speedup over NumPy."""
        return self.numpy / self.dlc

    @property
    def formatted(self) -> str:
        """The speedup, marked if NumPy is faster only because of the overhead of a call."""
        by_overhead = self.ratio < 1 and self.dlc - self.overhead <= self.numpy
        return f"{self.ratio:.2f}{'*' if by_overhead else ''}"


def arrays(size: int) -> dict[str, Any]:
    """Return arrays of about `size` elements: 1-D, rows of 100, a square matrix, 3-D, of several dtypes."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    x, side, rows = normal(size), int(size**0.5), size // 100
    return {
        "x": x, "y": normal(size), "z": normal(size), "p": np.abs(normal(size)) + np.float32(0.1), "s": np.sort(x),
        "u": (rng.random(size, np.float32) - np.float32(0.5)) * np.float32(1.9),
        "f": normal(rows, 100), "g": normal(rows, 100), "r": normal(100), "q": normal(side, side), "v": normal(size // 3, 3),
        "c": normal(10, rows // 10 or 1, 100), "b": rng.random(size) < 0.5, "t": rng.random((rows, 100)) < 0.999,
        "i": rng.integers(-1000, 1000, size, np.int32), "k": rng.integers(0, 31, size, np.int32),
        "j": rng.integers(0, size, size), "o": rng.integers(0, rows, rows),
    }  # fmt: skip


def list_calls() -> Iterator[tuple[str, str]]:
    """Yield every compiled function with the text of its arguments."""
    for family in dnp.FAMILIES:
        if family is dnp.data_dependent_shapes:
            continue
        for name in family.__all__:
            function = getattr(family, name, None)
            if not inspect.isfunction(function) or name in EXCLUDED:
                continue
            required = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
            yield from ((name, text) for text in CASES.get(name, (", ".join("xyz"[: len(required)]),)))


def dlc_and_numpy_calls(name: str, text: str, data: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return the call by dlc and by NumPy on these arrays."""
    functions = {"at": (update_with_dlc, update_with_numpy), "top_k": (dnp.top_k, top_k)}.get(name)
    if functions is None:
        functions = (getattr(dnp, name), getattr(np, name))
    code = compile(f"call({text})", "<call>", "eval")
    operand_names = [n for n in code.co_names if n in data]

    def run(call: Any, module: Any) -> Callable[..., Any]:
        def function(*values: Any) -> Any:
            return eval(code, {"call": call, "m": module}, dict(zip(operand_names, values, strict=True)))

        return function

    compiled, operands = dlc.jit(num_threads=1)(run(functions[0], dnp)), [data[n] for n in operand_names]
    numpy_call = run(functions[1], np)
    return {"dlc": lambda: compiled(*operands), "numpy": lambda: copy_views(numpy_call(*operands))}


def copy_views(result: Any) -> Any:
    """Copy views among the results, since a compiled function returns new arrays."""
    if isinstance(result, list | tuple):
        return [copy_views(r) for r in result]
    return result.copy() if isinstance(result, np.ndarray) and result.base is not None else result


def measure(size: int, names: Sequence[str], seconds: float) -> Iterator[Row]:
    data, small = arrays(size), arrays(100)
    with np.errstate(all="ignore"):
        overhead = measure_interleaved({"dlc": dlc_and_numpy_calls("negative", "x", small)["dlc"]}, 0.2, clock=process_time)[
            "dlc"
        ].fastest
        for name, text in list_calls():
            if names and name not in names:
                continue
            try:
                times = measure_interleaved(dlc_and_numpy_calls(name, text, data), seconds, clock=process_time)
                # The clock may be too coarse for the fastest call: repeat.
                while not all(t.fastest for t in times.values()):
                    times = measure_interleaved(dlc_and_numpy_calls(name, text, data), seconds, clock=process_time)
            except Exception as error:
                print(f"{name}({text}) of {size}: {error}", file=sys.stderr)
                continue
            yield Row(f"{name}({text})", size, times["dlc"].fastest, times["numpy"].fastest, overhead)


def format_microseconds(seconds: float) -> str:
    """Format a time with four significant digits, without an exponent."""
    return f"{float(f'{1e6 * seconds:.4g}'):,.10g}"


def table_rows(rows: Sequence[Row], sizes: Sequence[int]) -> list[list[str]]:
    """Return a row of cells for each call, the slowest relative to NumPy first."""
    table: dict[str, dict[int, Row]] = {}
    for row in rows:
        table.setdefault(row.call, {})[row.size] = row

    def cells_of(row: Row | None) -> list[str]:
        return ["", ""] if row is None else [format_microseconds(row.dlc), row.formatted]

    ordered = sorted(table.items(), key=lambda item: min(r.numpy / max(r.dlc - r.overhead, 1e-7) for r in item[1].values()))
    return [[call, *(cell for n in sizes for cell in cells_of(by_size.get(n)))] for call, by_size in ordered]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="comma-separated names of functions")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of elements")
    parser.add_argument("--seconds", type=float, default=0.3, help="seconds per call and size (default: 0.3)")
    parser.add_argument("--json", action="store_true", help="print the measurements as JSON")
    parser.add_argument("--of", type=Path, nargs="+", default=[], metavar="FILE", help="read measurements printed by --json")
    parser.add_argument("--write", action="store_true", help=f"update docs/{PAGE.name}")
    arguments = parser.parse_args()
    names = [w for w in arguments.only.split(",") if w]
    if arguments.of:
        measurements = (Row(**row) for file in arguments.of for row in json.loads(file.read_text()))
        rows = list({(row.call, row.size): row for row in measurements}.values())
    else:
        rows = [row for size in arguments.sizes for row in measure(size, names, arguments.seconds)]
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows]))
        return
    header = ["call", *(h for n in arguments.sizes for h in (f"µs, {n:,} elements", "speedup"))]
    cells = table_rows(rows, arguments.sizes)
    if arguments.write:
        lines = [header, ["---"] * len(header), *([f"`{call}`", *rest] for call, *rest in cells)]
        overhead = f"{1e6 * median(row.overhead for row in rows):.0f}"
        text = f"All times include the overhead of a call of dlc, {overhead} µs. {_OPERANDS}\n\n"
        PAGE.write_text(text + "".join(f"| {' | '.join(line)} |\n" for line in lines))
        return
    table = Table(*header)
    for line in cells:
        table.add_row(*map(escape, line))
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    print(f"overhead of a call: {1e6 * median(row.overhead for row in rows):.1f} µs", file=sys.stderr)


if __name__ == "__main__":
    main()
