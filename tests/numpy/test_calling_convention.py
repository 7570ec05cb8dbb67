"""Functions of dlc.numpy are called as NumPy's: with the same parameter names, positions and default values."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.errors import UnsupportedError
from dlc.numpy.calling_convention import is_accepted, parameters_of_numpy, positional_names
from tests.numpy.cases import CASES, DATA
from tests.numpy.test_functions import EXPECTED, call, report

MODULES: list[tuple[ModuleType, ModuleType]] = [(dnp, np), (dnp.linalg, np.linalg), (dnp.fft, np.fft)]
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    f"{module.__name__}.{name}": (getattr(module, name), getattr(reference, name))
    for module, reference in MODULES
    for name in module.__all__
    if inspect.isfunction(getattr(module, name)) and hasattr(reference, name)
}

# Parameters that only NumPy's functions have: dlc.numpy accepts their default, and the values of calling_convention.py.
ONLY_DEFAULT = {
    "out": "a traced array cannot be written to",
    "where": "of a ufunc without out: it leaves elements uninitialized",
    "order": "a traced array has no memory layout",
    "subok": "there are no subclasses of traced arrays",
    "like": "arrays are created by the function that is called",
    "casting": "of a ufunc: dtypes are promoted",
    "dtype": "of a ufunc: convert the operands with .astype",
    "signature": "of a ufunc: it selects an inner loop",
    "axes": "of a ufunc: use moveaxis",
    "axis": "of a product of matrices: use moveaxis",
    "keepdims": "of a product of matrices: use expand_dims",
    "overwrite_input": "a traced array cannot be written to",
    "copy": "a traced array has no memory of its own",
    "optimize": "the compiler chooses the order of products",
    "assume_unique": "unique values give the same result",
    "sorted": "unique values are always sorted",
    "mode": "of ravel_multi_index: coordinates are not checked",
    "full": "of polyfit: use linalg.lstsq",
    "cov": "of polyfit: use linalg.lstsq",
    "ndmax": "lists of objects are not supported",
}
# Defaults that differ in value: a missing dtype means float32 in dlc.numpy, and that of a ufunc has no value.
OTHER_DEFAULTS = {("eye", "dtype"), ("tri", "dtype"), ("vecdot", "axis")}


def is_missing(value: object) -> bool:
    """Return whether a default stands for an argument that was not passed."""
    return value is None or value is False or "no value" in repr(value)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signature(name: str) -> None:
    function, reference = FUNCTIONS[name]
    parameters, numpy_parameters = inspect.signature(function).parameters, parameters_of_numpy(reference)
    names = positional_names(inspect.signature(function), numpy_parameters)
    positional = [p.name for p in parameters.values() if p.kind is Parameter.POSITIONAL_ONLY]
    assert list(names.values()) == positional, "positional parameters without a counterpart"
    variadic = Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD
    for parameter in numpy_parameters.values():
        if parameter.kind in variadic:
            continue
        own = parameters.get(names.get(parameter.name, parameter.name))
        if own is None:
            assert parameter.name in ONLY_DEFAULT, f"no parameter {parameter.name}"
            continue
        is_equal = own.default == parameter.default or (is_missing(own.default) and is_missing(parameter.default))
        is_optional = parameter.default is Parameter.empty
        assert is_equal or is_optional or (function.__name__, parameter.name) in OTHER_DEFAULTS, parameter.name
    # Parameters that may be positional are at NumPy's positions.
    own_order = [p.name for p in parameters.values() if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
    numpy_order = [p.name for p in numpy_parameters.values() if p.kind not in (*variadic, Parameter.KEYWORD_ONLY)]
    shared = [n for n in own_order if n in numpy_parameters]
    assert shared == numpy_order[len(names) :][: len(shared)] or all(
        numpy_parameters[n].kind is Parameter.KEYWORD_ONLY for n in shared
    )


def calls() -> list[tuple[str, str, str]]:
    """Return the first call of each function that NumPy accepts."""
    found: list[tuple[str, str, str]] = []
    for family, functions in CASES.items():
        for name, texts in functions.items():
            module = np.linalg if family == "linalg" else np
            texts = [t for t in texts if not isinstance(EXPECTED[family, name, t], Exception)]
            found += [(family, name, texts[0])] if texts and hasattr(module, name) else []
    return found


class WithNumpyDefaults:
    """The functions of dlc.numpy, called by NumPy's names and with the default of every other parameter."""

    def __init__(self, module: Any, reference: Any) -> None:
        self._module, self._reference = module, reference

    @property
    def linalg(self) -> WithNumpyDefaults:
        return WithNumpyDefaults(self._module.linalg, self._reference.linalg)

    def __getattr__(self, name: str) -> Any:
        function, reference = getattr(self._module, name), getattr(self._reference, name, None)
        parameters = parameters_of_numpy(reference) if inspect.isfunction(function) and callable(reference) else {}
        if not parameters or any(p.kind is Parameter.VAR_POSITIONAL for p in parameters.values()):
            return function

        def with_defaults(*args: Any, **settings: Any) -> Any:
            bound = inspect.signature(reference).bind(*args, **settings)
            own = inspect.signature(function).parameters
            only_numpy = {
                n for n in parameters if n not in own and n not in positional_names(inspect.signature(function), parameters)
            }
            defaults = {n: p.default for n, p in parameters.items() if n in only_numpy and p.kind is not Parameter.VAR_KEYWORD}
            by_position = [n for n, p in parameters.items() if p.kind is Parameter.POSITIONAL_ONLY and n in bound.arguments]
            given = {n: v for n, v in bound.arguments.items() if n not in by_position}
            return function(*(bound.arguments[n] for n in by_position), **(defaults | given))

        return with_defaults


@pytest.mark.parametrize(("family", "name", "text"), calls(), ids=[f"{n}({t})" for _, n, t in calls()])
def test_calls_by_name(family: str, name: str, text: str) -> None:
    got = call(WithNumpyDefaults(dnp, np), family, name, text, DATA)
    assert not (problem := report(family, {(name, text): got})), problem


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: m.sum(x, out=np.zeros(())),
        lambda m, x: m.add(x, x, where=x > 1),
        lambda m, x: m.median(x, 0, np.zeros(2)),
        lambda m, x: m.nan_to_num(x, False),
        lambda m, x: m.multiply(x, x, dtype=np.float64),
        lambda m, x: m.sum(x, 0, None, np.zeros(2)),
    ],
)
def test_other_values_are_errors_that_name_the_parameter(function: Callable[..., Any]) -> None:
    x = np.float32([[1, 2], [3, 4]])
    for run in (lambda: function(dnp, x), lambda: dlc.jit(lambda x: function(np, x))(x)):
        with pytest.raises(
            UnsupportedError, match=r"test_calling_convention\.py:\d+: \w+: (out|where|copy|dtype) = .*; dlc\.numpy supports"
        ):
            run()


def test_methods() -> None:
    x = np.float32([[1, 2], [3, 4]])
    for method in (
        lambda x: x.sum(0, None, None, True),
        lambda x: x.clip(2, 3, None),
        lambda x: x.argsort(0, "stable"),
        lambda x: x.astype(np.float64, copy=False),
        lambda x: x.ravel("F"),
        lambda x: x.max(axis=1, out=None, keepdims=True),
    ):
        np.testing.assert_array_equal(dlc.jit(method)(x), method(x))


def test_accepted_values() -> None:
    parameter = inspect.signature(np.add).parameters["order"]
    assert is_accepted(parameter, "C") and not is_accepted(parameter, "F") and not is_accepted(parameter, np.ones(2))


@pytest.mark.parametrize("bins", ["auto", "fd", "doane", "scott", "stone", "rice", "sturges", "sqrt"])
def test_estimated_bins(bins: str) -> None:
    x = np.random.default_rng(0).normal(size=100)
    for got, expected in zip(dnp.histogram(x, bins), np.histogram(x, bins), strict=True):
        np.testing.assert_array_equal(got, expected)
    with pytest.raises(UnsupportedError, match=r"bins '\w+' of a traced array: .*histogram_bin_edges"):
        dlc.jit(lambda x: dnp.histogram(x, bins))(x)
