"""Errors of `@dlc.jit`, at the user's line."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import nn
from dlc.errors import DlcError, DTypeError, ShapeError

draw = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return draw.standard_normal(shape).astype(np.float32)


def raised_in(
    function: Callable[..., Any], kind: type[DlcError], message: str, *arguments: Any, line: int = 1, **options: Any
) -> None:
    """Assert that a call raises `kind` with the line at this offset from the function's first line."""
    with pytest.raises(kind, match=message) as caught:
        dlc.jit(**options)(function)(*arguments)
    location = f"{Path(__file__).name}:{inspect.getsourcelines(function)[1] + line}: "
    assert str(caught.value).startswith(location), f"{caught.value} does not start with {location}"


def test_errors_of_shape_name_the_users_line() -> None:
    def product(x: Any) -> Any:
        y = dnp.exp(x)
        return y @ y

    def total(x: Any) -> Any:
        return x + dnp.zeros(7)

    def helper(x: Any) -> Any:
        return product(x)

    def picked(x: Any) -> Any:
        return x[5]

    def reshaped(x: Any) -> Any:
        return x.reshape(4, -1)

    def too_many(x: Any) -> Any:
        return x[0, 0, 0]

    def joined(x: Any) -> Any:
        return dnp.concat([x, x.T])

    def convolved(x: Any) -> Any:
        return nn.conv(x[None, :, :, None], dnp.zeros((1, 1, 1, 1)), padding="full")

    x = normal(2, 3)
    raised_in(product, ShapeError, "matmul.*(2, 3)", x, line=2)
    raised_in(total, ShapeError, "(2, 3).*7", x)
    raised_in(picked, ShapeError, "index 5 .* axis 0", x)
    raised_in(reshaped, ShapeError, "6 elements", x)
    raised_in(too_many, ShapeError, "3 indices", x)
    raised_in(joined, ShapeError, "concat", x)
    raised_in(convolved, ShapeError, "'full'", x)
    with pytest.raises(ShapeError, match=rf"{Path(__file__).name}:{inspect.getsourcelines(product)[1] + 2}: "):
        dlc.jit(helper)(x)


def test_elements_are_not_known_while_tracing() -> None:
    def branches(x: Any) -> Any:
        if x > 0:
            return x
        return -x

    def converts(x: Any) -> Any:
        return float(x)

    def counts(x: Any) -> Any:
        return sum(x for _ in range(int(x)))

    def numpys(x: Any) -> Any:
        return np.asarray(x)

    def assigns(x: Any) -> Any:
        x[...] = 1
        return x

    x = np.float32(1)
    raised_in(assigns, DlcError, r"in place.*x\.at\[index\]\.set.*dlc\.numpy\.where", x)
    raised_in(branches, DTypeError, "condition.*dlc.numpy.where.*static_argnames", x)
    raised_in(converts, DTypeError, r"float\(\)", x)
    raised_in(counts, DTypeError, r"int\(\)", x)
    raised_in(numpys, DTypeError, "NumPy function.*dlc.numpy", x)


def test_errors_of_dtype_name_the_users_line() -> None:
    def shifted(x: Any) -> Any:
        return dnp.where(x, 1.0, 2.0) + dnp.take(x, dnp.zeros(2), axis=0)

    def complex_numbers(x: Any) -> Any:
        return dnp.hypot(x, 1j)

    def too_large(x: Any) -> Any:
        return x.astype(np.uint8) + 300

    raised_in(shifted, DTypeError, "gather.*integers", normal(3))
    raised_in(complex_numbers, DTypeError, "hypot: .* complex arrays", normal(3))
    raised_in(too_large, DTypeError, "300 out of bounds for uint8", normal(3))


def test_non_array_arguments() -> None:
    function = dlc.jit(lambda x, mode: x)
    with pytest.raises(DTypeError, match=r"argument mode.*got str.*static_argnames"):
        function(normal(3), "fast")
    with pytest.raises(DTypeError, match=r"argument x\['a'\]\[1\].*got object"):
        function({"a": [normal(1), object()]}, 1)
    with pytest.raises(DTypeError, match=r"argument x: dtype str"):
        function(np.array(["a"]), 1)
    with pytest.raises(DTypeError, match="returned a str"):
        dlc.jit(lambda x: "y")(normal(3))


def test_errors_of_the_function_pass_through() -> None:
    def broken(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        dlc.jit(broken)(normal(3))


def test_values_must_not_outlive_their_trace() -> None:
    kept: list[Any] = []
    dlc.jit(lambda x: kept.append(x) or x)(normal(3))
    with pytest.raises(DlcError, match="traced"):
        dlc.jit(lambda x: x + kept[0])(normal(3))
    with pytest.raises(DlcError, match="traced"):
        kept[0] + 1
    with pytest.raises(DlcError, match="traced"):
        dlc.jit(lambda x: kept[0])(normal(3))


def test_public_names_stay_what_they_are() -> None:
    """Importing a submodule of the package must not hide a function of the same name."""
    for name in dlc._PUBLIC:
        importlib.import_module(dlc._PUBLIC[name])
        assert getattr(dlc, name).__name__ == name


def test_masked_arrays_are_refused() -> None:
    hidden = np.ma.masked_array([1.0, 2.0], [False, True], dtype=np.float32)
    with pytest.raises(dlc.DTypeError, match=r"f: an argument is a masked array; .*\.filled"):

        @dlc.jit
        def f(x: Any) -> Any:
            return x + 1

        f(hidden)
    model = dlc.jit(lambda x: x + 1).lower(np.ones(2, np.float32)).compile()
    with pytest.raises(dlc.DTypeError, match=r"masked array"):
        model(hidden)
    np.testing.assert_array_equal(next(iter(model(np.ma.masked_array(np.ones(2, np.float32))).values())), [2, 2])


def test_decorator_arguments_are_validated() -> None:
    for wrong in ("N", ("N",), {"N": 0}):
        with pytest.raises(DTypeError, match=r"dynamic: x: .*\{0: 'N'\}"):
            dlc.jit(lambda x: x, dynamic=cast(Any, {"x": wrong}))
    with pytest.raises(DTypeError, match=r"dlc\.jit: function = 3; expected a function"):
        dlc.jit(cast(Any, 3))


@pytest.mark.parametrize("use", [lambda x: {x: 1}, lambda x: x in {1, 2}])
def test_traced_value_is_not_hashable(use: Any) -> None:
    with pytest.raises(DTypeError, match=r"test_jit_errors.py:\d+: Tracer.* is a traced array, which cannot be a dict key"):
        dlc.jit(use)(np.ones(2))


def test_a_number_beyond_64_bits_is_an_error_that_says_so() -> None:
    with pytest.raises(DTypeError, match=f"argument k: Python integer {1 << 70} out of bounds for 64 bits"):
        dlc.jit(lambda x, k: x + k)(normal(2), 1 << 70)
