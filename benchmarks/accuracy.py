"""How far the functions of numbers are from exact results: python benchmarks/accuracy.py [FUNCTION …] [--every N] [--write].

In units in the last place (ulp) of the result, the largest and where it is. In f64 functions get --double samples, half of
them numbers of f32, and exact is what Arb computes: a number with a bound of its error, with as many bits as that takes. In f32
functions of one number get every N-th of all 2^32 (1: all of them), those of two --samples pairs, and exact is what dlc
computes in f64, which is off by as many units of f64 as stand beside it: 2^-29 of those of f32. Half a unit is a correctly
rounded result; ∞ is NaN or an infinity where there is none, or none where there is one. --write puts the rows into
docs/numerics.accuracy.md, where those of other functions stay. Needs Arb: `pip install -e '.[bench]'`.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from needed import needed
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import dlc
import dlc.numpy as dnp
from dlc import nn, special
from dlc.nn import activations

with needed(__doc__):
    import flint
    from flint import arb

PAGE = Path(__file__).parents[1] / "docs" / "numerics.accuracy.md"
HEAD = """# How far functions are from exact results

The largest error that was found, in units in the last place, and the arguments that have it; [numerics.md](numerics.md) says
how it was measured, and why some are large.

"""
CHUNK = 1 << 18

Exact = Callable[..., Any]
Chunks = Iterator[tuple[np.ndarray, ...]]

# What is rounded once, or not at all; what consists of that and of functions that are measured; what Arb takes too long for.
ROUNDED_ONCE = {
    "abs", "add", "astype", "ceil", "clip", "conj", "copysign", "divmod", "fix", "floor", "floor_divide", "heaviside",
    "hard_sigmoid", "hard_swish", "imag", "leaky_relu", "modf", "multiply", "nan_to_num", "negative", "nextafter", "positive",
    "real", "relu", "rint", "sign", "softsign", "subtract", "trunc", "where",
}  # fmt: skip
OF_OTHERS = {
    "angle", "deg2rad", "elu", "expit", "float_power", "log_softmax", "logsumexp", "rad2deg", "round", "selu", "softmax",
}  # fmt: skip
NOT_MEASURED = {"polygamma", "zeta"}


@dataclass(frozen=True)
class Function:
    """A function of dlc, and of Arb.

    `reach`: the decimal exponent of the largest argument that is of interest in f64. `in_double`: what computes it in f64 for
    numbers of f32, if its own formula does not.
    """

    name: str
    own: Callable[..., Any]
    exact: Exact
    operands: int = 1
    reach: float = 300
    in_double: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Error:
    """The largest error that was found: how many ulp, and at which arguments."""

    ulps: float
    at: tuple[float, ...]


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + (-x).exp())


def _softplus(x: Any) -> Any:
    return x.exp().log1p()


def _normal(x: Any) -> Any:
    """The probability of a normal number below x."""
    return (-x / arb(2).sqrt()).erfc() / 2


def _ln_gamma(x: Any) -> Any:
    return x.lgamma() if x > 0 else (arb.pi() / abs(x.sin_pi())).log() - (1 - x).lgamma()


def _log_add(x: Any, y: Any, base: Any) -> Any:
    return x.max(y) + ((-abs(x - y) * base).exp()).log1p() / base


def _one(name: str, exact: Exact | None = None, reach: float = 300, in_double: Callable[..., Any] | None = None) -> Function:
    """A function that dlc.numpy, dlc.special or dlc.nn has, and Arb."""
    own = next(getattr(m, name) for m in (dnp, special, nn) if hasattr(m, name))
    return Function(name, own, exact or getattr(arb, name), reach=reach, in_double=in_double)


def _two(name: str, exact: Exact, reach: float = 300) -> Function:
    return Function(name, getattr(dnp, name, None) or getattr(special, name), exact, operands=2, reach=reach)


FUNCTIONS = [
    _one("sqrt"),
    _one("cbrt", lambda x: x.sgn() * abs(x).root(3)),
    _one("reciprocal", lambda x: 1 / x),
    _one("square", lambda x: x * x),
    _one("exp"),
    _one("exp2", lambda x: arb(2) ** x),
    _one("expm1"),
    _one("log"),
    _one("log2", lambda x: x.log() / arb.const_log2()),
    _one("log10", lambda x: x.log() / arb.const_log10()),
    _one("log1p"),
    _one("sin"),
    _one("cos"),
    _one("tan"),
    _one("asin"),
    _one("acos"),
    _one("atan"),
    _one("sinh"),
    _one("cosh"),
    _one("tanh"),
    _one("asinh"),
    _one("acosh"),
    _one("atanh"),
    _one("sinc", arb.sinc_pi),
    _one("sigmoid", _sigmoid),
    _one("log_expit", lambda x: -_softplus(-x)),
    _one("logit", lambda x: (x / (1 - x)).log()),
    _one("entr", lambda x: -x * x.log()),
    _one("softplus", _softplus),
    _one("silu", lambda x: x * _sigmoid(x)),
    _one("gelu", lambda x: x * _normal(x), in_double=lambda x: x * special.ndtr(x)),
    _one("mish", lambda x: x * _softplus(x).tanh()),
    _one("erf"),
    _one("erfc"),
    _one("erfcx", lambda x: (x * x).exp() * x.erfc(), reach=6),
    _one("erfinv"),
    _one("ndtr", _normal),
    _one("log_ndtr", lambda x: (-_normal(-x)).log1p() if x > 0 else _normal(x).log(), reach=4),
    _one("gammaln", _ln_gamma, reach=15),
    _one("digamma", reach=15),
    _one("i0", lambda x: x.bessel_i(0), reach=2.84),
    _one("i0e", lambda x: x.bessel_i(0) * (-abs(x)).exp(), reach=3),
    _one("i1", lambda x: x.bessel_i(1), reach=2.84),
    _one("i1e", lambda x: x.bessel_i(1) * (-abs(x)).exp(), reach=3),
    _two("divide", lambda x, y: x / y),
    _two("power", lambda x, y: x**y),
    _two("atan2", arb.atan2),
    _two("hypot", lambda x, y: (x * x + y * y).sqrt()),
    _two("logaddexp", lambda x, y: _log_add(x, y, 1)),
    _two("logaddexp2", lambda x, y: _log_add(x, y, arb.const_log2())),
    # Exact, by NumPy: Arb has none.
    _two("remainder", lambda x, y: arb(np.remainder(float(x), float(y)))),
    _two("fmod", lambda x, y: arb(np.fmod(float(x), float(y)))),
    _two("xlogy", lambda x, y: x * y.log()),
    _two("xlog1py", lambda x, y: x * y.log1p()),
]


def unlisted() -> list[str]:
    """Functions of numbers that stand in none of these lists."""
    listed = {f.name for f in FUNCTIONS} | ROUNDED_ONCE | OF_OTHERS | NOT_MEASURED
    families = (dnp.elementwise, dnp.complex_numbers, dnp.floats, special, activations)
    return [n for f in families for n in f.__all__ if inspect.isfunction(getattr(f, n, None)) and n not in listed]


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
            singles = x.astype(np.float32).astype(dtype)
        x = np.where(np.isfinite(singles) & (singles != 0) & (draw.random(size) < 0.5), singles, x)
        if operands == 2:
            x[1] = np.where(draw.random(size) < 0.2, x[0] * draw.uniform(0.5, 2, size).astype(dtype), x[1])
        yield tuple(x)


def in_singles(function: Function, targets: Sequence[str]) -> Callable[..., list[tuple[Any, Any]]]:
    """A function that gives the largest error in ulp of f32, and its place, for each target."""
    beyond = 2.0**128

    def errors(arguments: Sequence[Any], results: Sequence[Any]) -> list[tuple[Any, Any]]:
        exact = (function.in_double or function.own)(*(a.astype(np.float64) for a in arguments))
        nearest = dnp.abs(dnp.clip(exact, -3.4e38, 3.4e38)).astype(np.float32)
        # Infinities count as the number after the largest.
        unit, exact = (
            (dnp.nextafter(nearest, np.float32(np.inf)) - nearest).astype(np.float64),
            dnp.clip(exact, -beyond, beyond),
        )
        undefined = dnp.isnan(exact)
        found = []
        for result in results:
            error = dnp.abs(dnp.clip(result.astype(np.float64), -beyond, beyond) - exact) / unit
            agreed = dnp.where(dnp.logical_and(undefined, dnp.isnan(result)), 0.0, np.inf)
            error = dnp.where(dnp.logical_or(undefined, dnp.isnan(result)), agreed, error)
            found.append((dnp.max(error), dnp.argmax(error)))
        return found

    compared, own = dlc.jit(errors), [dlc.jit(function.own, target=target) for target in targets]
    return lambda arguments: compared(arguments, [np.asarray(f(*arguments)) for f in own])


def by_arb(function: Function, arguments: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Exact results as the sums of two f64, NaN where there is none."""
    high, low = np.empty(arguments[0].shape), np.zeros(arguments[0].shape)
    for k, x in enumerate(zip(*(a.tolist() for a in arguments), strict=True)):
        for flint.ctx.prec in (128, 512, 2048):
            exact = function.exact(*map(arb, x))
            if exact.is_exact() or exact.rel_accuracy_bits() > 80:
                break
        exact = exact.mid()
        high[k] = float(exact)
        if np.isfinite(high[k]):
            low[k] = float(exact - high[k])
    return high, low


def in_doubles(got: np.ndarray, high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """The errors of f64 results in ulp; an infinity counts as the largest number, and as NaN where nothing is defined."""
    most = np.finfo(np.float64).max
    undefined, finite = np.isnan(high), np.clip(high, -most, most)
    error = np.abs((np.clip(got, -most, most) - finite) - np.where(np.abs(high) < most, low, 0)) / np.spacing(np.abs(finite))
    error = np.where(np.isnan(got), np.inf, error)
    return np.where(undefined, np.where(np.isfinite(got), np.inf, 0), error)


def measured(function: Function, targets: Sequence[str], chunks: Chunks, each: Callable[[int], None]) -> list[Error]:
    """The largest errors in f32."""
    compare, worst = in_singles(function, targets), [Error(0.0, ())] * len(targets)
    for arguments in chunks:
        for t, (ulps, place) in enumerate(compare(arguments)):
            if ulps > worst[t].ulps:
                worst[t] = Error(float(ulps), tuple(float(a[int(place)]) for a in arguments))
        each(arguments[0].size)
    return worst


def measured_by_arb(function: Function, targets: Sequence[str], chunks: Chunks, each: Callable[[int], None]) -> list[Error]:
    """The largest errors in f64."""
    own, worst = [dlc.jit(function.own, target=target) for target in targets], [Error(0.0, ())] * len(targets)
    for arguments in chunks:
        high, low = by_arb(function, arguments)
        for t, f in enumerate(own):
            errors = in_doubles(np.asarray(f(*arguments)), high, low)
            k = int(errors.argmax())
            if errors[k] > worst[t].ulps:
                worst[t] = Error(float(errors[k]), tuple(float(a[k]) for a in arguments))
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
    if missing := unlisted():
        parser.error(f"neither measured nor listed as rounded once or composed: {', '.join(missing)}")
    targets, rows = arguments.targets.split(","), []
    chosen = [names[name] for name in arguments.functions] or FUNCTIONS
    heads = ["function", *(h for t in targets for h in (f"{t}, f32", "at", f"{t}, f64", "at"))]
    with Progress(console=Console(stderr=True)) as progress, np.errstate(all="ignore"):
        for function in chosen:
            singles, pairs = 2**32 // arguments.every, arguments.samples
            ways = {
                "f32": (measured, singles, every(arguments.every))
                if function.operands == 1
                else (measured, pairs, drawn(2, pairs, np.float32, function.reach)),
                "f64": (
                    measured_by_arb,
                    arguments.double,
                    drawn(function.operands, arguments.double, np.float64, function.reach),
                ),
            }
            errors: list[list[Error]] = []
            for dtype, (measure, count, chunks) in ways.items():
                task = progress.add_task(f"{function.name}, {dtype}", total=count)
                errors.append(measure(function, targets, chunks, lambda n, task=task: progress.advance(task, n)))
                progress.remove_task(task)
            cells = [(shown(e.ulps), ", ".join(f"{a:.9g}" for a in e.at)) for both in zip(*errors, strict=True) for e in both]
            rows.append([function.name, *(text for cell in cells for text in cell)])
            print(*rows[-1], sep="\t", flush=True)
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
