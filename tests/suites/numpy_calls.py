"""Random calls of NumPy's functions, with its own parameters: dlc.numpy must give NumPy's result, or refuse the call.

A call is drawn from the signature of NumPy's function: arrays of several dtypes and shapes for its operands, and values by the
names of its other parameters. Calls that NumPy refuses are not counted.
"""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter
from typing import Any

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc.errors import DlcError
from dlc.numpy.calling_convention import parameters_of_numpy

DTYPES = ("bool", "int8", "int32", "int64", "uint8", "float16", "float32", "float64", "complex64")
SHAPES = ((3, 4), (3, 4), (4,), (3,), (2, 3, 4), (4, 4), (), (1, 4), (0, 3))
# Functions whose results are not determined: uninitialized memory, signs of vectors, order of unique values, and objects.
UNDETERMINED = {
    "empty",
    "empty_like",
    "eig",
    "eigh",
    "eigvals",
    "svd",
    "qr",
    "unique_values",
    "from_dlpack",
    "finfo",
    "iinfo",
    "argpartition",
    "partition",
    "roots",
}
# Functions with differences that docs/numpy.md documents, with the reasons.
DOCUMENTED = {
    "argsort": "NumPy's default sort is not stable: equal elements may be in another order",
    "gradient": "coordinates of narrow dtypes are subtracted in the dtype of the values, where NumPy's differences wrap",
    "linspace": "computed in the dtype of the result, where NumPy's bounds may be narrower",
    "logspace": "as linspace",
    **dict.fromkeys(("polydiv", "polymul"), "leading zeros of the result are not removed"),
    "nanmean": "a mean of no elements as an integer is 0",
    "reciprocal": "1 / 0 of integers is 0",
    "spacing": "NumPy's half-precision results have no sign",
    "unwrap": "integers are promoted before they are subtracted, where NumPy's differences wrap",
    **dict.fromkeys(
        ("linalg.cond", "linalg.inv", "linalg.solve", "linalg.pinv", "linalg.det"), "rounding of ill-conditioned matrices"
    ),
}
# Differences that docs/numpy.md documents: results of another dtype, compared in it.
_DOCUMENTED_DTYPES = {("float64", "float32"), ("float64", "float16"), ("complex128", "complex64"), ("float32", "float16")}
_TOLERANCES = {"float16": 5e-3, "float32": 3e-5, "float64": 1e-10, "complex64": 1e-4, "complex128": 1e-10}

Draw = Callable[[np.random.Generator], Any]


def _array(*, shapes: tuple[tuple[int, ...], ...] = SHAPES, dtypes: tuple[str, ...] = DTYPES) -> Draw:
    def draw(random: np.random.Generator) -> Any:
        shape, dtype = shapes[random.integers(len(shapes))], dtypes[random.integers(len(dtypes))]
        values = random.normal(size=shape) * 3
        if dtype == "complex64":
            values = values + 1j * random.normal(size=shape)
        if dtype == "uint8":
            values = np.abs(values)
        return np.asarray(values).astype(dtype)

    return draw


def _choice(*values: Any) -> Draw:
    return lambda random: values[random.integers(len(values))]


_VECTOR, _ANY = _array(shapes=((4,), (3,))), _array()
_INDICES = _choice(np.array([0, 1, 1]), 1, np.array([[0, 2], [1, 0]]), np.array([-1, 0]))
_AXIS = _choice(None, 0, 1, -1, (0, 1), 2)
_BOOLEAN = _choice(True, False)
_SHAPE = _choice((2, 3), 4, (3, 4), (12,), (-1, 2), (2, 2, 3))

# Values by the names of parameters.
PARAMETERS: Mapping[str, Draw] = {
    **dict.fromkeys(("axis", "axes"), _AXIS),
    **dict.fromkeys(("keepdims", "deg", "increasing", "returned", "retstep", "sparse", "bias", "rowvar", "invert", "right"), _BOOLEAN),
    **dict.fromkeys(("equal_nan", "density", "endpoint", "return_index", "return_inverse", "return_counts", "copy"), _BOOLEAN),
    **dict.fromkeys(("include_initial", "upper", "hermitian", "compute_uv", "full_matrices", "return_indices"), _BOOLEAN),
    **dict.fromkeys(("dtype",), _choice(None, np.float64, np.float32, np.int64)),
    **dict.fromkeys(("order",), _choice("C", "F", "K")),
    **dict.fromkeys(("indices", "repeats"), _INDICES),
    **dict.fromkeys(("shape", "newshape"), _SHAPE),
    **dict.fromkeys(("N", "M", "n", "m", "num", "decimals", "minlength"), _choice(2, 3, 5)),
    **dict.fromkeys(("k", "offset", "shift"), _choice(0, 1, -1, 2)),
    **dict.fromkeys(("axis1", "axis2", "source", "destination", "axisa", "axisb", "axisc"), _choice(0, 1, -1)),
    **dict.fromkeys(("out", "like", "device", "signature", "order"), _choice(None)),
    "initial": _choice(1, 2.5, 0),
    "where": _choice(True, np.array([True, False, True, True])),
    "q": _choice(0.3, 0.5, [0.1, 0.9], 1),
    "method": _choice("linear", "lower", "hazen", "weibull", "nearest", "median_unbiased", "inverted_cdf"),
    "ddof": _choice(0, 1),
    "correction": _choice(0, 1),
    "mode": _choice("full", "same", "valid", "constant", "edge", "reflect", "symmetric", "wrap", "clip", "raise"),
    "pad_width": _choice(1, (1, 2), ((1, 0), (2, 1))),
    "indices_or_sections": _choice(2, [1, 2], 3),
    "bins": _choice(4, np.array([-2.0, -1, 0, 1, 2]), "auto"),
    "range": _choice(None, (-2.0, 2.0)),
    "weights": lambda random: np.abs(_array(dtypes=("float64", "float32", "int64"))(random)),
    "side": _choice("left", "right"),
    "kind": _choice(None, "stable", "quicksort"),
    "indexing": _choice("xy", "ij"),
    "casting": _choice("same_kind", "unsafe"),
    "trim": _choice("fb", "f", "b"),
    "dx": _choice(0.5, 2.0),
    "edge_order": _choice(1, 2),
    "period": _choice(2.5, 1.0),
    "start": _choice(0, 1.0, np.float32(0.5)),
    "stop": _choice(4, 5.0, np.float32(2.5)),
    "step": _choice(1, 2, 0.5),
    "base": _choice(2.0, 10.0),
    "fill_value": _choice(1, 2.5, True),
    "UPLO": _choice("L", "U"),
    "ord": _choice(None, 1, 2, np.inf, "fro"),
    "tol": _choice(None, 0.1),
    "rtol": _choice(1e-5, 0.1),
    "atol": _choice(1e-8, 0.5),
    "discont": _choice(None, 4.0),
    "reps": _choice(2, (2, 1)),
    "dimensions": _choice((2, 3), (4,)),
    "xp": lambda random: np.sort(_array(shapes=((4,),), dtypes=("float64", "float32"))(random)),
    "fp": _array(shapes=((4,),), dtypes=("float64", "float32")),
    "v": _VECTOR,
    **dict.fromkeys(("arrays", "tup", "choices"), lambda random: [_array(shapes=((3, 4), (3, 4), (4,)))(random)] * 2),
    **dict.fromkeys(("condlist",), lambda random: [_array(shapes=((3, 4),), dtypes=("bool",))(random)] * 2),
    **dict.fromkeys(("choicelist",), lambda random: [_array(shapes=((3, 4),))(random)] * 2),
    "type1": _choice(*DTYPES),
    "type2": _choice(*DTYPES),
    "from_": _choice(*DTYPES),
    "to": _choice(*DTYPES),
}  # fmt: skip


@dataclass(frozen=True)
class Calls:
    """The number of calls by outcome, "equal", "refused", "different" and "crashed", and (function, call) for each of the last two."""

    counts: Counter[str] = field(default_factory=Counter[str])
    by_function: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    problems: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    refusals: Counter[str] = field(default_factory=Counter[str])

    @property
    def undocumented(self) -> list[str]:
        return [line for name, line in self.problems if not documented_difference(name)]

    @property
    def equal_fraction(self) -> float:
        return self.counts["equal"] / max(self.counts.total(), 1)


def numpy_functions() -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    """Return NumPy's and dlc's function for each name that both have."""
    modules = (("", np, dnp), ("linalg.", np.linalg, dnp.linalg), ("fft.", np.fft, dnp.fft))
    return {
        prefix + name: (getattr(reference, name), getattr(module, name))
        for prefix, reference, module in modules
        for name in sorted(module.__all__)
        if inspect.isfunction(getattr(module, name)) and callable(getattr(reference, name, None)) and name not in UNDETERMINED
    }


def documented_difference(name: str) -> str:
    """Return why the results of a function differ from NumPy's; "" for functions whose results are NumPy's."""
    return "transforms of half precision are computed in float32" if name.startswith("fft.") else DOCUMENTED.get(name, "")


def count_calls(
    seed: int = 0, calls_per_function: int = 20, *, traced: bool = False, names: Sequence[str] | None = None
) -> Calls:
    """Draw calls that NumPy accepts of functions, or of all; compare the results: on plain arrays, or traced."""
    found, functions = Calls(), numpy_functions()
    for name in functions if names is None else names:
        reference, function = functions[name]
        counts = found.by_function.setdefault(name, Counter())
        for args, settings, expected in _accepted_calls(name, reference, seed, calls_per_function):
            outcome, detail = _outcome(function, args, settings, expected, traced)
            counts[outcome] += 1
            if outcome in ("different", "crashed"):
                found.problems.append((name, f"{name}({_describe(args, settings)}): {detail}"))
            if outcome == "refused":
                found.refusals[f"{name}: {detail.rpartition('.py:')[2][:100]}"] += 1
        found.counts.update(counts)
    return found


def _accepted_calls(
    name: str, reference: Callable[..., Any], seed: int, count: int
) -> Iterator[tuple[list[Any], dict[str, Any], Any]]:
    """Yield up to `count` calls that NumPy accepts, with its results."""
    random = np.random.default_rng([seed, *name.encode()])
    for _ in range(6 * count):
        args, settings = _draw_call(reference, random)
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                expected = reference(*args, **settings)
        except Exception:
            continue
        yield args, settings, expected
        count -= 1
        if not count:
            return


def _draw_call(reference: Callable[..., Any], random: np.random.Generator) -> tuple[list[Any], dict[str, Any]]:
    args, settings = list[Any](), dict[str, Any]()
    for parameter in parameters_of_numpy(reference).values():
        is_operand = parameter.default is Parameter.empty
        if parameter.kind is Parameter.VAR_POSITIONAL:
            args += [_VECTOR(random), _VECTOR(random)]
        elif parameter.kind is Parameter.VAR_KEYWORD:
            continue
        elif is_operand and not settings:
            args.append(PARAMETERS.get(parameter.name, _ANY)(random))
        elif parameter.name in PARAMETERS and random.random() < 0.2:
            settings[parameter.name] = PARAMETERS[parameter.name](random)
    return args, settings


def _outcome(
    function: Callable[..., Any], args: list[Any], settings: dict[str, Any], expected: Any, traced: bool
) -> tuple[str, str]:
    """Return the outcome of a call, and the error or the difference."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            got = _call_traced(function, args, settings) if traced else function(*args, **settings)
    except DlcError as error:
        return "refused", str(error)
    except Exception as error:
        return "crashed", f"{type(error).__name__}: {error}"
    problem = difference(got, expected)
    return ("different", problem) if problem else ("equal", "")


def _call_traced(function: Callable[..., Any], args: list[Any], settings: dict[str, Any]) -> Any:
    """Call the function in a traced function whose arguments are the arrays among `args`."""
    arrays = {k: x for k, x in enumerate(args) if isinstance(x, np.ndarray)}

    def call(arrays: dict[int, Any]) -> Any:
        return function(*(arrays.get(k, x) for k, x in enumerate(args)), **settings)

    return dlc.jit(call, target="reference")(arrays)


def difference(got: Any, expected: Any) -> str:
    """Describe the difference of a result from NumPy's; "" if there is none but documented dtypes."""
    if isinstance(expected, list | tuple):
        if not isinstance(got, list | tuple) or len(got) != len(expected):
            return f"{got!r:.60} for {len(expected)} results"
        return next((d for pair in zip(got, expected, strict=True) if (d := difference(*pair))), "")
    if isinstance(expected, np.dtype | type) or expected is None:
        return "" if got == expected else f"{got!r}, expected {expected!r}"
    got, expected = np.asarray(got), np.asarray(expected)
    if got.shape != expected.shape:
        return f"shape {got.shape}, expected {expected.shape}"
    if got.dtype != expected.dtype and (expected.dtype.name, got.dtype.name) not in _DOCUMENTED_DTYPES:
        return f"dtype {got.dtype}, expected {expected.dtype}"
    tolerance = _TOLERANCES.get(got.dtype.name, 0)
    # The reference may have overflowed where a wider intermediate result does not.
    scale = float(np.nanmax(np.where(np.isfinite(expected), np.abs(expected), 0), initial=1)) if tolerance else 1
    close = np.isclose(got, expected, tolerance, tolerance * scale, equal_nan=True) if tolerance else got == expected
    return "" if np.all(close) else f"{got[~close][:3]}, expected {expected[~close][:3]}"


def _describe(args: list[Any], settings: dict[str, Any]) -> str:
    words = [f"{x.dtype}{list(x.shape)}" if isinstance(x, np.ndarray) else f"{x!r:.40}" for x in args]
    return ", ".join((*words, *(f"{n}={x!r:.40}" for n, x in settings.items())))
