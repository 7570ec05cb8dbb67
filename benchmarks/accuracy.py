"""Measure the errors of elementwise functions: python benchmarks/accuracy.py [FUNCTION …] [--every N] [--write].

Prints the largest error of each function in units in the last place (ulp), and the arguments that have it. An error of 0.5 is a
correctly rounded result; ∞ means that a result is NaN or infinite and the exact one is not, or the reverse.

- f64: --double random samples, half of them f32 values; exact results by Arb, in as many bits as necessary.
- f32, one argument: every N-th of all 2^32 values (--every 1: all of them). f32, two arguments: --samples random pairs. Exact
  results by dlc in f64: the f64 error in ulp, times 2^-29, is the error of the reference in ulp of f32.

--write updates the rows in docs/numerics.accuracy.md. Needs Arb: `pip install -e '.[bench]'`.
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
from optional_imports import optional_imports
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import dlc
import dlc.numpy as dnp
from dlc import nn, special
from dlc.nn import activations

with optional_imports(__doc__):
    import flint
    from flint import acb, arb

PAGE = Path(__file__).parents[1] / "docs" / "numerics.accuracy.md"
PAGE_HEADER = """# Errors of elementwise functions

The largest error found, in units in the last place, and its arguments; [numerics.md](numerics.md) describes the method, and the
reasons for large errors.

"""
CHUNK = 1 << 18

Exact = Callable[..., Any]
Chunks = Iterator[tuple[np.ndarray, ...]]

# Functions that are exact or rounded once, functions composed of measured ones, and functions that are too slow in Arb, or
# composed of these.
ROUNDED_ONCE = {
    "abs", "add", "astype", "ceil", "clip", "conj", "copysign", "divmod", "fabs", "fix", "floor", "floor_divide", "frexp",
    "gammasgn", "hard_sigmoid", "hard_swish", "hard_tanh", "heaviside", "imag", "iscomplex", "iscomplexobj", "isreal",
    "isrealobj", "ldexp", "leaky_relu", "modf", "multiply", "nan_to_num", "negative", "nextafter", "one_hot", "positive",
    "real", "relu", "relu6", "rint", "sign", "softsign", "spacing", "subtract", "trunc", "where",
}  # fmt: skip
COMPOSED = {
    "angle", "beta", "binom", "boxcox", "boxcox1p", "celu", "comb", "deg2rad", "elu", "expit", "factorial", "float_power",
    "glu", "huber", "inv_boxcox", "inv_boxcox1p", "kl_div", "log_sigmoid", "log_softmax", "logsumexp",
    "multigammaln", "perm", "poch", "pseudo_huber", "psi", "rad2deg", "rel_entr", "round", "selu", "softmax", "squareplus",
}  # fmt: skip
NOT_MEASURED = {
    "bdtr", "bdtrc", "betainc", "betaincc", "betaln", "chdtr", "chdtrc", "fdtr", "fdtrc", "gammainc", "gammaincc", "gdtr",
    "gdtrc", "pdtr", "pdtrc", "polygamma", "stdtr", "zeta",
}  # fmt: skip


@dataclass(frozen=True)
class Function:
    """A function of dlc and its exact counterpart in Arb.

    Attributes:
        operands: The number of arguments.
        max_exponent: The decimal exponent of the largest f64 argument to test.
        f64_reference: A function that computes f64 results for f32 arguments, if the f64 formula of dlc differs.
    """

    name: str
    dlc_function: Callable[..., Any]
    exact: Exact
    operands: int = 1
    max_exponent: float = 300
    f64_reference: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Error:
    """The largest error found, in ulp, and its arguments."""

    ulps: float
    arguments: tuple[float, ...]


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + (-x).exp())


def _softplus(x: Any) -> Any:
    return x.exp().log1p()


def _normal(x: Any) -> Any:
    """Return the probability that a standard normal variable is below x."""
    return (-x / arb(2).sqrt()).erfc() / 2


def _ln_gamma(x: Any) -> Any:
    return x.lgamma() if x > 0 else (arb.pi() / abs(x.sin_pi())).log() - (1 - x).lgamma()


def _real(z: Any) -> Any:
    """Return a complex number that is real; NaN if it is not."""
    return z.real if z.imag.is_zero() else arb("nan")


def _log_add(x: Any, y: Any, base: Any) -> Any:
    return x.max(y) + ((-abs(x - y) * base).exp()).log1p() / base


def _unary(
    name: str, exact: Exact | None = None, max_exponent: float = 300, f64_reference: Callable[..., Any] | None = None
) -> Function:
    """Return a function of one argument that dlc.numpy, dlc.special or dlc.nn and Arb have."""
    dlc_function = next(getattr(m, name) for m in (dnp, special, nn) if hasattr(m, name))
    return Function(name, dlc_function, exact or getattr(arb, name), max_exponent=max_exponent, f64_reference=f64_reference)


def _binary(name: str, exact: Exact, max_exponent: float = 300) -> Function:
    return Function(name, getattr(dnp, name, None) or getattr(special, name), exact, operands=2, max_exponent=max_exponent)


FUNCTIONS = [
    _unary("sqrt"),
    _unary("cbrt", lambda x: x.sgn() * abs(x).root(3)),
    _unary("reciprocal", lambda x: 1 / x),
    _unary("square", lambda x: x * x),
    _unary("exp"),
    _unary("exp2", lambda x: arb(2) ** x),
    _unary("exp10", lambda x: arb(10) ** x),
    _unary("expm1"),
    _unary("exprel", lambda x: x.expm1() / x),
    _unary("log"),
    _unary("log2", lambda x: x.log() / arb.const_log2()),
    _unary("log10", lambda x: x.log() / arb.const_log10()),
    _unary("log1p"),
    _unary("sin"),
    _unary("cos"),
    _unary("cosm1", lambda x: -2 * (x / 2).sin() ** 2),
    _unary("tan"),
    _unary("asin"),
    _unary("acos"),
    _unary("atan"),
    _unary("sinh"),
    _unary("cosh"),
    _unary("tanh"),
    _unary("asinh"),
    _unary("acosh"),
    _unary("atanh"),
    _unary("sinc", arb.sinc_pi),
    _unary("sigmoid", _sigmoid),
    _unary("log_expit", lambda x: -_softplus(-x)),
    _unary("logit", lambda x: (x / (1 - x)).log()),
    _unary("entr", lambda x: -x * x.log()),
    _unary("softplus", _softplus),
    _unary("silu", lambda x: x * _sigmoid(x)),
    _unary("gelu", lambda x: x * _normal(x), f64_reference=lambda x: x * special.ndtr(x)),
    _unary("mish", lambda x: x * _softplus(x).tanh()),
    _unary("erf"),
    _unary("erfc"),
    _unary("erfcx", lambda x: (x * x).exp() * x.erfc(), max_exponent=6),
    _unary("erfinv"),
    _unary("erfcinv"),
    _unary("ndtr", _normal),
    _unary("ndtri", lambda p: -(2 * p).erfcinv() * arb(2).sqrt()),
    _unary("log_ndtr", lambda x: (-_normal(-x)).log1p() if x > 0 else _normal(x).log(), max_exponent=4),
    _unary("gammaln", _ln_gamma, max_exponent=15),
    _unary("gamma", max_exponent=2.3),
    _unary("rgamma", max_exponent=2.3),
    _unary("digamma", max_exponent=15),
    _unary("ellipk", lambda m: _real(acb(m).elliptic_k())),
    _unary("ellipkm1", lambda p: _real(acb(1 - p).elliptic_k())),
    _unary("ellipe", lambda m: _real(acb(m).elliptic_e())),
    _unary("i0", lambda x: x.bessel_i(0), max_exponent=2.84),
    _unary("i0e", lambda x: x.bessel_i(0) * (-abs(x)).exp(), max_exponent=3),
    _unary("i1", lambda x: x.bessel_i(1), max_exponent=2.84),
    _unary("i1e", lambda x: x.bessel_i(1) * (-abs(x)).exp(), max_exponent=3),
    _unary("j0", lambda x: x.bessel_j(0), max_exponent=8),
    _unary("j1", lambda x: x.bessel_j(1), max_exponent=8),
    _unary("y0", lambda x: x.bessel_y(0), max_exponent=8),
    _unary("y1", lambda x: x.bessel_y(1), max_exponent=8),
    _unary("k0", lambda x: x.bessel_k(0), max_exponent=2.84),
    _unary("k0e", lambda x: x.bessel_k(0) * x.exp(), max_exponent=3),
    _unary("k1", lambda x: x.bessel_k(1), max_exponent=2.84),
    _unary("k1e", lambda x: x.bessel_k(1) * x.exp(), max_exponent=3),
    # Bessel functions of one order above those with a function of their own.
    Function("jn", lambda x: special.jn(3, x), lambda x: x.bessel_j(3), max_exponent=8),
    Function("yn", lambda x: special.yn(3, x), lambda x: x.bessel_y(3), max_exponent=8),
    Function("kn", lambda x: special.kn(3, x), lambda x: x.bessel_k(3), max_exponent=2.84),
    _binary("divide", lambda x, y: x / y),
    _binary("power", lambda x, y: x**y),
    _binary("atan2", arb.atan2),
    _binary("hypot", lambda x, y: (x * x + y * y).sqrt()),
    _binary("logaddexp", lambda x, y: _log_add(x, y, 1)),
    _binary("logaddexp2", lambda x, y: _log_add(x, y, arb.const_log2())),
    # NumPy is exact here; Arb lacks these functions.
    _binary("remainder", lambda x, y: arb(np.remainder(float(x), float(y)))),
    _binary("fmod", lambda x, y: arb(np.fmod(float(x), float(y)))),
    _binary("xlogy", lambda x, y: x * y.log()),
    _binary("xlog1py", lambda x, y: x * y.log1p()),
]


def missing_functions() -> list[str]:
    """Return elementwise functions of dlc that are in none of the lists."""
    listed = {f.name for f in FUNCTIONS} | ROUNDED_ONCE | COMPOSED | NOT_MEASURED
    families = (dnp.elementwise, dnp.complex_numbers, dnp.floats, special, activations)
    return [n for f in families for n in f.__all__ if inspect.isfunction(getattr(f, n, None)) and n not in listed]


def strided_f32(step: int) -> Chunks:
    """Yield every `step`-th of all f32 values, in the order of their bits."""
    for start in range(0, 1 << 32, step * CHUNK):
        yield (np.arange(start, min(start + step * CHUNK, 1 << 32), step, np.uint64).astype(np.uint32).view(np.float32),)


def random_values(operands: int, count: int, dtype: type, max_exponent: float) -> Chunks:
    """Yield random values: some of any magnitude, some near 1, and for two operands some that are close to each other."""
    rng = np.random.default_rng(0)
    low, high = (-38, min(max_exponent, 38)) if dtype is np.float32 else (-300, max_exponent)
    for start in range(0, count, CHUNK):
        size = min(CHUNK, count - start)
        exponents = rng.uniform(low, high, (operands, size))
        moderate_exponents = rng.uniform(-3, min(2, max_exponent), (operands, size))
        exponents = np.where(rng.random(size) < 0.3, exponents, moderate_exponents)
        with np.errstate(over="ignore"):
            x = (10**exponents * rng.choice([-1, 1], (operands, size), p=[0.25, 0.75])).astype(dtype)
            f32_values = x.astype(np.float32).astype(dtype)
        x = np.where(np.isfinite(f32_values) & (f32_values != 0) & (rng.random(size) < 0.5), f32_values, x)
        if operands == 2:
            x[1] = np.where(rng.random(size) < 0.2, x[0] * rng.uniform(0.5, 2, size).astype(dtype), x[1])
        yield tuple(x)


def f32_error(function: Function, targets: Sequence[str]) -> Callable[..., list[tuple[Any, Any]]]:
    """Return a function that computes, for each target, the largest error in ulp of f32 and its index."""
    limit = 2.0**128

    def errors(arguments: Sequence[Any], results: Sequence[Any]) -> list[tuple[Any, Any]]:
        exact = (function.f64_reference or function.dlc_function)(*(a.astype(np.float64) for a in arguments))
        nearest = dnp.abs(dnp.clip(exact, -3.4e38, 3.4e38)).astype(np.float32)
        # An infinity counts as the next value after the largest finite one.
        unit, exact = (
            (dnp.nextafter(nearest, np.float32(np.inf)) - nearest).astype(np.float64),
            dnp.clip(exact, -limit, limit),
        )
        undefined = dnp.isnan(exact)
        errors_of_targets = []
        for result in results:
            error = dnp.abs(dnp.clip(result.astype(np.float64), -limit, limit) - exact) / unit
            undefined_error = dnp.where(dnp.logical_and(undefined, dnp.isnan(result)), 0.0, np.inf)
            error = dnp.where(dnp.logical_or(undefined, dnp.isnan(result)), undefined_error, error)
            errors_of_targets.append((dnp.max(error), dnp.argmax(error)))
        return errors_of_targets

    compute_errors, compiled = dlc.jit(errors), [dlc.jit(function.dlc_function, target=target) for target in targets]
    return lambda arguments: compute_errors(arguments, [np.asarray(f(*arguments)) for f in compiled])


def exact_by_arb(function: Function, arguments: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return exact results as unevaluated sums of two f64 values; NaN where the function is undefined."""
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


def f64_error(result: np.ndarray, high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Return the errors of f64 results in ulp. An infinity counts as the largest value, or as NaN where undefined."""
    largest = np.finfo(np.float64).max
    undefined, finite = np.isnan(high), np.clip(high, -largest, largest)
    correction = np.where(np.abs(high) < largest, low, 0)
    error = np.abs((np.clip(result, -largest, largest) - finite) - correction) / np.spacing(np.abs(finite))
    error = np.where(np.isnan(result), np.inf, error)
    return np.where(undefined, np.where(np.isfinite(result), np.inf, 0), error)


def measure_f32(
    function: Function, targets: Sequence[str], chunks: Chunks, report_progress: Callable[[int], None]
) -> list[Error]:
    """Return the largest f32 error for each target."""
    compare, largest_errors = f32_error(function, targets), [Error(0.0, ())] * len(targets)
    for arguments in chunks:
        for t, (ulps, index) in enumerate(compare(arguments)):
            if ulps > largest_errors[t].ulps:
                largest_errors[t] = Error(float(ulps), tuple(float(a[int(index)]) for a in arguments))
        report_progress(arguments[0].size)
    return largest_errors


def measure_f64(
    function: Function, targets: Sequence[str], chunks: Chunks, report_progress: Callable[[int], None]
) -> list[Error]:
    """Return the largest f64 error for each target."""
    compiled, largest_errors = (
        [dlc.jit(function.dlc_function, target=target) for target in targets],
        [Error(0.0, ())] * len(targets),
    )
    for arguments in chunks:
        high, low = exact_by_arb(function, arguments)
        for t, f in enumerate(compiled):
            errors = f64_error(np.asarray(f(*arguments)), high, low)
            k = int(errors.argmax())
            if errors[k] > largest_errors[t].ulps:
                largest_errors[t] = Error(float(errors[k]), tuple(float(a[k]) for a in arguments))
        report_progress(arguments[0].size)
    return largest_errors


def format_error(ulps: float) -> str:
    return "∞" if np.isinf(ulps) else f"{ulps:.2f}" if ulps < 1000 else f"{ulps:.2g}"


def read_rows(heads: Sequence[str]) -> list[list[str]]:
    """Return the rows of the page, or none if it is about other targets."""
    table = [line[2:-2].split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return table[2:] if table and table[0] == [*heads] else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = {f.name: f for f in FUNCTIONS}
    parser.add_argument("functions", nargs="*", metavar="FUNCTION", help=f"one of {', '.join(names)}")
    parser.add_argument("--every", type=int, default=64, help="test every N-th f32 value (default: 64)", metavar="N")
    parser.add_argument("--samples", type=int, default=10**7, help="number of f32 pairs (default: 10,000,000)", metavar="N")
    parser.add_argument("--double", type=int, default=10**5, help="number of f64 samples (default: 100,000)", metavar="N")
    parser.add_argument("--targets", default="cpu", help="targets, separated by commas (default: cpu)")
    parser.add_argument("--write", action="store_true", help=f"update the table in docs/{PAGE.name}")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.functions if name not in names]
    if unknown:
        parser.error(f"unknown functions: {', '.join(unknown)}; expected some of {', '.join(names)}")
    if unlisted_names := missing_functions():
        parser.error(f"add to FUNCTIONS, ROUNDED_ONCE or COMPOSED: {', '.join(unlisted_names)}")
    targets, rows = arguments.targets.split(","), []
    functions = [names[name] for name in arguments.functions] or FUNCTIONS
    header = ["function", *(h for t in targets for h in (f"{t}, f32", "argument", f"{t}, f64", "argument"))]
    with Progress(console=Console(stderr=True)) as progress, np.errstate(all="ignore"):
        for function in functions:
            num_values, num_pairs = 2**32 // arguments.every, arguments.samples
            measurements = {
                "f32": (measure_f32, num_values, strided_f32(arguments.every))
                if function.operands == 1
                else (measure_f32, num_pairs, random_values(2, num_pairs, np.float32, function.max_exponent)),
                "f64": (
                    measure_f64,
                    arguments.double,
                    random_values(function.operands, arguments.double, np.float64, function.max_exponent),
                ),
            }
            errors: list[list[Error]] = []
            for dtype, (measure, count, chunks) in measurements.items():
                task = progress.add_task(f"{function.name}, {dtype}", total=count)
                errors.append(measure(function, targets, chunks, lambda n, task=task: progress.advance(task, n)))
                progress.remove_task(task)
            cells = [
                (format_error(e.ulps), ", ".join(f"{a:.9g}" for a in e.arguments))
                for pair in zip(*errors, strict=True)
                for e in pair
            ]
            rows.append([function.name, *(text for cell in cells for text in cell)])
            print(*rows[-1], sep="\t", flush=True)
    if arguments.write:
        by_name = {row[0]: row for row in read_rows(header)} | {row[0]: row for row in rows}
        lines = [header, ["---"] * len(header), *(by_name[name] for name in names if name in by_name)]
        PAGE.write_text(PAGE_HEADER + "".join(f"| {' | '.join(line)} |\n" for line in lines))
        return
    table = Table(*header)
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 140).print(table)


if __name__ == "__main__":
    main()
