"""How far the functions of numbers are from exact results: python benchmarks/accuracy.py [FUNCTION …] [--every N] [--write].

In units in the last place (ulp) of the result, the largest and where it is. In f32, functions of one number get every N-th
of all 2^32 (1: all of them), those of two get --samples pairs, and exact is what NumPy or SciPy computes in f64; in f64 they
get --double samples, and exact is what mpmath computes with 40 digits. Half a unit is a correctly rounded result; ∞ is NaN or
an infinity where there is none, or none where there is one. --write puts the rows into docs/numerics.accuracy.md, where
those of other functions stay. Needs SciPy and mpmath: `pip install -e '.[bench]'`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
from mpmath import mp
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from scipy import special as scipy_special

import dlc
import dlc.numpy as dnp
from dlc import nn, special

PAGE = Path(__file__).parents[1] / "docs" / "numerics.accuracy.md"
HEAD = """# How far functions are from exact results

The largest error that was found, in units in the last place, and the arguments that have it; [numerics.md](numerics.md) says
how it was measured, and why some are large.

"""
CHUNK = 1 << 20
mp.dps = 40

Exact = Callable[..., Any]
Chunks = Iterator[tuple[np.ndarray, ...]]


@dataclass(frozen=True)
class Function:
    """A function of dlc, what computes it in f64, and what with 40 digits.

    `reach`: the decimal exponent of the largest argument that is of interest in f64.
    """

    name: str
    own: Callable[..., Any]
    double: Exact
    many_digits: Exact
    operands: int = 1
    reach: float = 300


@dataclass(frozen=True)
class Error:
    """The largest error that was found: how many ulp, and at which arguments."""

    ulps: float
    at: tuple[float, ...]


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def _sinc(x: Any) -> Any:
    whole = np.rint(x)
    return np.where(x == 0, 1, np.sin(np.pi * (x - whole)) * np.cos(np.pi * np.remainder(whole, 2)) / (np.pi * x))


def _bessel(function: Exact) -> Exact:
    # SciPy's are NaN at infinities.
    return lambda x: np.where(np.isinf(x), np.abs(x) if function is scipy_special.i0 else x, function(x))


def _softplus(x: Any) -> Any:
    return mp.log1p(mp.exp(x))


def _remainder(x: Any, y: Any) -> Any:
    # mpmath's is rounded to its precision; these are exact.
    return np.remainder(np.float64(x), np.float64(y))


def _one(name: str, double: Exact | None = None, digits: Exact | None = None, reach: float = 300) -> Function:
    """A function that dlc.numpy, dlc.special or dlc.nn has, and NumPy or SciPy, and mpmath."""
    own = next(getattr(m, name) for m in (dnp, special, nn) if hasattr(m, name))
    numpys = double or getattr(np, name, None) or getattr(scipy_special, name)
    return Function(name, own, numpys, digits or getattr(mpmath, name), reach=reach)


def _two(name: str, double: Exact | None, digits: Exact) -> Function:
    own = getattr(dnp, name, None) or getattr(special, name)
    return Function(name, own, double or getattr(np, name), digits, operands=2)


FUNCTIONS = [
    _one("sqrt"),
    _one("cbrt", digits=lambda x: mp.sign(x) * mp.cbrt(abs(x))),
    _one("reciprocal", lambda x: 1 / x, lambda x: 1 / x),
    _one("square", digits=lambda x: x * x),
    _one("exp"),
    _one("exp2", digits=lambda x: mp.power(2, x)),
    _one("expm1"),
    _one("log"),
    _one("log2", digits=lambda x: mp.log(x, 2)),
    _one("log10"),
    _one("log1p"),
    _one("sin"),
    _one("cos"),
    _one("tan"),
    _one("arcsin", digits=mpmath.asin),
    _one("arccos", digits=mpmath.acos),
    _one("arctan", digits=mpmath.atan),
    _one("sinh"),
    _one("cosh"),
    _one("tanh"),
    _one("arcsinh", digits=mpmath.asinh),
    _one("arccosh", digits=mpmath.acosh),
    _one("arctanh", digits=mpmath.atanh),
    _one("sinc", _sinc, mpmath.sincpi),
    _one("sigmoid", scipy_special.expit, _sigmoid),
    _one("log_expit", scipy_special.log_expit, lambda x: -_softplus(-x)),
    _one("logit", digits=lambda x: mp.log(x / (1 - x))),
    _one("softplus", lambda x: np.logaddexp(x, 0), _softplus),
    _one("silu", lambda x: x * scipy_special.expit(x), lambda x: x * _sigmoid(x)),
    _one("gelu", lambda x: x * scipy_special.ndtr(x), lambda x: x * mp.ncdf(x)),
    _one("mish", lambda x: x * np.tanh(np.logaddexp(x, 0)), lambda x: x * mp.tanh(_softplus(x))),
    _one("erf"),
    _one("erfc"),
    _one("erfcx", digits=lambda x: mp.exp(x * x) * mp.erfc(x), reach=6),
    _one("erfinv"),
    _one("ndtr", digits=mpmath.ncdf),
    _one("log_ndtr", digits=lambda x: mp.log1p(-mp.ncdf(-x)) if x > 0 else mp.log(mp.ncdf(x)), reach=6),
    _one("gammaln", digits=lambda x: mp.re(mp.loggamma(x)), reach=15),
    _one("digamma", reach=15),
    _one("i0", _bessel(scipy_special.i0), digits=lambda x: mp.besseli(0, x), reach=2.84),
    _one("i0e", digits=lambda x: mp.besseli(0, x) * mp.exp(-abs(x)), reach=3),
    _one("i1", _bessel(scipy_special.i1), lambda x: mp.besseli(1, x), reach=2.84),
    _one("i1e", scipy_special.i1e, lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), reach=3),
    _two("divide", None, lambda x, y: x / y),
    _two("power", None, mp.power),
    _two("arctan2", None, mp.atan2),
    _two("hypot", None, mp.hypot),
    _two("logaddexp", None, lambda x, y: max(x, y) + _softplus(-abs(x - y))),
    _two("remainder", None, _remainder),
    _two("fmod", None, lambda x, y: np.fmod(np.float64(x), np.float64(y))),
    _two("xlogy", scipy_special.xlogy, lambda x, y: x * mp.log(y)),
    _two("xlog1py", scipy_special.xlog1py, lambda x, y: x * mp.log1p(y)),
]


def every(step: int) -> Chunks:
    """Every `step`-th of all f32, by their bits."""
    for first in range(0, 1 << 32, step * CHUNK):
        yield (np.arange(first, min(first + step * CHUNK, 1 << 32), step, np.uint64).astype(np.uint32).view(np.float32),)


def drawn(operands: int, count: int, dtype: type, reach: float) -> Chunks:
    """Random numbers: in each chunk a part of any magnitude, a part around 1, and for two operands a part of like ones."""
    draw = np.random.default_rng(0)
    low, high = (-38, min(reach, 38)) if dtype is np.float32 else (-300, reach)
    for first in range(0, count, CHUNK):
        size = min(CHUNK, count - first)
        exponents = draw.uniform(low, high, (operands, size))
        around = draw.uniform(-3, min(2, reach), (operands, size))
        exponents = np.where(draw.random(size) < 0.3, exponents, around)
        with np.errstate(over="ignore"):
            x = (10**exponents * draw.choice([-1, 1], (operands, size), p=[0.25, 0.75])).astype(dtype)
        if operands == 2:
            x[1] = np.where(draw.random(size) < 0.2, x[0] * draw.uniform(0.5, 2, size).astype(dtype), x[1])
        yield tuple(x)


def in_singles(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """The errors of f32 results in ulp, beside f64 ones; infinities count as the number after the largest."""
    beyond = 2.0**128
    unit = np.spacing(np.abs(np.clip(exact, -3.4e38, 3.4e38)).astype(np.float32)).astype(np.float64)
    error = np.abs(np.clip(got.astype(np.float64), -beyond, beyond) - np.clip(exact, -beyond, beyond)) / unit
    undefined = np.isnan(exact)
    return np.where(undefined | np.isnan(got), np.where(undefined & np.isnan(got), 0, np.inf), error)


def in_doubles(function: Function, got: np.ndarray, arguments: Sequence[np.ndarray]) -> np.ndarray:
    """The errors of f64 results in ulp, beside those of many digits."""
    beyond, errors = mp.mpf(2) ** 1024, np.zeros(got.shape)
    for k, (y, *x) in enumerate(zip(got.tolist(), *(a.tolist() for a in arguments), strict=True)):
        try:
            exact = function.many_digits(*map(mp.mpf, x))
        except (ValueError, ArithmeticError, mpmath.libmp.NoConvergence):
            continue  # a pole, or mpmath's own limits
        if isinstance(exact, mpmath.mpc) or mp.isnan(exact):
            errors[k] = 0 if np.isnan(y) else np.inf
        elif np.isnan(y):
            errors[k] = np.inf
        else:
            exact = min(max(mp.mpf(exact), -beyond), beyond)
            y = min(max(mp.mpf(y), -beyond), beyond)
            largest = min(abs(exact), mp.mpf(sys.float_info.max))
            errors[k] = float(abs(y - exact) / float(np.spacing(float(largest))))
    return errors


def largest_error(function: Function, chunks: Chunks, dtype: type, target: str, each: Callable[[int], None]) -> Error:
    own, worst = dlc.jit(function.own, target=target), Error(0.0, ())
    for arguments in chunks:
        got = np.asarray(own(*arguments))
        if dtype is np.float32:
            errors = in_singles(got, function.double(*(a.astype(np.float64) for a in arguments)))
        else:
            errors = in_doubles(function, got, arguments)
        k = int(errors.argmax())
        if errors[k] > worst.ulps:
            worst = Error(float(errors[k]), tuple(float(a[k]) for a in arguments))
        each(arguments[0].size)
    return worst


def shown(ulps: float) -> str:
    return "∞" if np.isinf(ulps) else f"{ulps:.2f}" if ulps < 1000 else f"{ulps:.2g}"


def written(heads: Sequence[str]) -> list[list[str]]:
    """The rows of the page, if it is of the same targets."""
    table = [line[2:-2].split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return table[2:] if table and table[0] == [*heads] else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = {f.name: f for f in FUNCTIONS}
    parser.add_argument("functions", nargs="*", metavar="FUNCTION", help=f"of {', '.join(names)}")
    parser.add_argument("--every", type=int, default=64, help="of f32, one of so many (default: 64)")
    parser.add_argument("--samples", type=int, default=10**7, help="pairs of f32 (default: 10,000,000)")
    parser.add_argument("--double", type=int, default=10**5, help="samples of f64 (default: 100,000)")
    parser.add_argument("--targets", default="cpu", help="separated by commas (default: cpu)")
    parser.add_argument("--write", action="store_true", help=f"put the table into docs/{PAGE.name}")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.functions if name not in names]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(names)}")
    targets, rows = arguments.targets.split(","), []
    chosen = [names[name] for name in arguments.functions] or FUNCTIONS
    heads = ["function", *(h for t in targets for h in (f"{t}, f32", "at", f"{t}, f64", "at"))]
    with Progress(console=Console(stderr=True)) as progress, np.errstate(all="ignore"):
        for function in chosen:
            row = [function.name]
            for target in targets:
                for dtype in (np.float32, np.float64):
                    single = dtype is np.float32
                    if single and function.operands == 1:
                        count, chunks = 2**32 // arguments.every, every(arguments.every)
                    else:
                        count = arguments.samples if single else arguments.double
                        chunks = drawn(function.operands, count, dtype, function.reach)
                    task = progress.add_task(f"{function.name}, {target}, {dtype.__name__}", total=count)
                    error = largest_error(function, chunks, dtype, target, lambda n, task=task: progress.advance(task, n))
                    progress.remove_task(task)
                    row += [shown(error.ulps), ", ".join(f"{a:.9g}" for a in error.at)]
            rows.append(row)
            print(*row, sep="\t", flush=True)
    if arguments.write:
        kept = {row[0]: row for row in written(heads)} | {row[0]: row for row in rows}
        lines = [heads, ["---"] * len(heads), *(kept[name] for name in names if name in kept)]
        PAGE.write_text(HEAD + "".join(f"| {' | '.join(line)} |\n" for line in lines))
        return
    table = Table(*heads)
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 140).print(table)


if __name__ == "__main__":
    main()
