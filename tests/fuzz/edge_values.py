"""Compare library functions with NumPy at the ends of dtypes.

Integers of all dtypes at their limits, at 2³¹ and 2⁶³, against sizes, counters and Python integers; complex numbers with infinite,
undefined and zero parts; arrays of up to four axes, of all memory layouts; gradients and sums of more equal elements than half precision counts.
"""

from __future__ import annotations

import random
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc.dialects.dl.base import Array
from dlc.errors import DlcError
from tests.fuzz.axis_functions import random_axis_call
from tests.fuzz.edge_functions import COMPLEX_FUNCTIONS, COUNTED_FUNCTIONS, INTEGER_FUNCTIONS, Draw, Library
from tests.fuzz.trials import Trial, TrialOutcome, compared, trial_outcomes

TARGETS = ("reference", "cpu")
TIMEOUT_SECONDS = 120
INTEGER_DTYPES = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
_SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -2.0, 1e-30, 1e30, 3.0)
# Half precision counts up to 65,504.
_EQUAL_ELEMENTS = (65_504, 65_505, 70_000, 131_073)
# Relative errors of elementary functions of complex numbers and of sums, in units of the dtype's epsilon.
_COMPLEX_ULP, _COUNTED_ULP, _AXIS_ULP = 64, 64, 8


@dataclass(frozen=True)
class Call:
    """A function of a library's arrays, its arguments, and the tolerance of its results in epsilons of their dtype."""

    name: str
    function: Callable[..., Any]
    arguments: Sequence[Array]
    tolerance_ulp: float = 0
    is_dynamic: bool = False
    reference: Callable[..., Any] | None = None

    def expected(self) -> list[Array]:
        compute = self.reference or (lambda *arguments: self.function(Library(np), *arguments))
        return _arrays(compute(*self.arguments))

    def compiled(self, target: str) -> list[Array]:
        def call(*arguments: Any) -> Any:
            return self.function(Library(dnp), *arguments)

        functions: dict[str, Any] = {"call": call}
        names = [f"x{k}" for k in range(len(self.arguments))]
        exec(f"def function({', '.join(names)}): return call({', '.join(names)})", functions)
        # Arguments of equal length share a symbol.
        lengths = {name: {0: f"n{x.shape[0]}"} for name, x in zip(names, self.arguments, strict=True) if x.ndim}
        settings: dict[str, Any] = {"dynamic": lengths} if self.is_dynamic and lengths else {}
        return _arrays(dlc.jit(functions["function"], target=target, num_threads=1, cache=False, **settings)(*self.arguments))


def _arrays(results: Any) -> list[Array]:
    return [np.asarray(x) for x in (results if isinstance(results, tuple | list) else [results])]


def integer_values(draw: random.Random, dtype: Any, size: int) -> Array:
    """Return small integers, and integers next to the ends of all narrower and equally wide dtypes."""
    info = np.iinfo(dtype)
    ends = [e + d for bits in (7, 8, 15, 16, 31, 32, 53, 63, 64) for e in (1 << bits, -(1 << bits)) for d in (-1, 0, 1)]
    ends = [int(info.min), int(info.max), *(e for e in ends if info.min <= e <= info.max)]
    small = [e for e in range(-3, 10) if info.min <= e]
    return np.array([draw.choice(ends if draw.random() < 0.4 else small) for _ in range(size)], dtype)


def _integer_call(draw: random.Random) -> Call:
    name = draw.choice(list(INTEGER_FUNCTIONS))
    length = draw.choice([0, 1, 2, 3, 5, 8, 8, 130, 300])
    dtypes = [draw.choice(INTEGER_DTYPES) for _ in range(2)]
    arguments = [integer_values(draw, dtype, length) for dtype in dtypes]
    parameters = Draw(draw, [integer_values(draw, np.int64, 1)[0].item() for _ in range(3)], length)
    function = INTEGER_FUNCTIONS[name](parameters)
    return Call(name, function, arguments[: function.__code__.co_argcount - 1], is_dynamic=draw.random() < 0.5)


def _complex_call(draw: random.Random) -> Call:
    name, size = draw.choice(list(COMPLEX_FUNCTIONS)), draw.choice([1, 3, 17])
    dtype = draw.choice([np.complex64, np.complex128])
    arguments: list[Array] = []
    for _ in range(2):
        x = np.zeros(size, dtype)
        x.real, x.imag = ([draw.choice(_SPECIAL) for _ in range(size)] for _ in range(2))
        arguments.append(x)
    function = COMPLEX_FUNCTIONS[name]
    return Call(name, function, arguments[: function.__code__.co_argcount - 1], _COMPLEX_ULP)


def _counted_call(draw: random.Random) -> Call:
    name = draw.choice(list(COUNTED_FUNCTIONS))
    function, reference = COUNTED_FUNCTIONS[name]
    dtype = draw.choice([np.float16, np.float16, np.float32])
    x = np.full(draw.choice(_EQUAL_ELEMENTS), draw.choice([0.0, 1.0, 0.5, -2.0]), dtype)
    for _ in range(draw.randint(0, 3)):
        x[draw.randrange(x.size)] = draw.choice([-4.0, 4.0, 0.25])
    return Call(name, function, [x], _COUNTED_ULP, reference=reference)


def _axis_call(draw: random.Random) -> Call:
    return Call(*random_axis_call(draw), _AXIS_ULP)


def random_call(seed: int) -> Call:
    """Return the call of a seed."""
    draw = random.Random(seed)
    family = draw.choices([_integer_call, _complex_call, _counted_call, _axis_call], [12, 4, 1, 12])[0]
    return family(draw)


def run(trial: Trial) -> tuple[str, str | None]:
    """Run a trial; return its outcome, and the wrong results of its call or None. NumPy's and dlc's errors are `refused`."""
    call = random_call(trial.seed)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = call.expected()
        except Exception:
            return "invalid", None
        try:
            got = call.compiled(trial.target)
        except DlcError:
            return "refused", None
        except Exception:
            return "failed", f"{call}\n{traceback.format_exc()}"
    return compared(list(_mismatches(call, got, expected)))


def _mismatches(call: Call, got: Sequence[Array], expected: Sequence[Array]) -> Iterator[str]:
    for k, (x, y) in enumerate(zip(got, expected, strict=True)):
        # A view of NumPy keeps the byte order of its operand.
        if x.dtype != y.dtype.newbyteorder("=") or x.shape != y.shape:
            yield f"{call}\nresult {k}: {x.dtype}{list(x.shape)}, expected {y.dtype}{list(y.shape)}"
        elif (differs := _differs(x, y, call.tolerance_ulp)).any():
            operands = [a[differs] if a.shape == differs.shape else a for a in call.arguments]
            yield f"{call.name} of {operands}\nresult {k}: {x[differs]}, expected {y[differs]}"


def _differs(x: Array, y: Array, ulp: float) -> Array:
    """Return where elements differ: by their bits, or floats by more than `ulp` epsilons of their magnitude."""
    if x.dtype.kind not in "fc":
        return x != y
    # Of a complex number with small and large parts, the error of the small one follows the magnitude.
    parts = [(x.real, y.real), (x.imag, y.imag)] if x.dtype.kind == "c" else [(x, y)]
    wide = [(p.astype(np.float64), q.astype(np.float64)) for p, q in parts]
    if x.dtype.kind == "c":
        # C99 does not specify the sign of an infinite part next to an undefined one.
        wide = [(_unsigned(p, q2), _unsigned(q, q2)) for (p, q), (_, q2) in zip(wide, reversed(wide), strict=True)]
    size = sum(np.abs(np.where(np.isfinite(q), q, 0)) for _, q in wide)
    info = np.finfo(x.dtype)
    allowed = ulp * (float(info.eps) * size + float(info.tiny))
    with np.errstate(all="ignore"):
        near = [(np.abs(p - q) <= allowed) | (p == q) | (np.isnan(p) & np.isnan(q)) for p, q in wide]
    return ~np.logical_and.reduce(near)


def _unsigned(part: Array, other: Array) -> Array:
    return np.where(np.isinf(part) & np.isnan(other), np.inf, part)


def trials(seed: int, count: int, target: str | None = None) -> list[Trial]:
    """Return the trials of `count` seeds from `seed` on."""
    return [Trial("edge_values", s, (target or TARGETS[s % 8 == 7],)) for s in range(seed, seed + count)]


def fuzz(selected_trials: Sequence[Trial], jobs: int) -> Iterator[TrialOutcome[Trial]]:
    """Yield the outcome of each trial, with a description of a failure or None."""
    return trial_outcomes(run, selected_trials, jobs, TIMEOUT_SECONDS)
