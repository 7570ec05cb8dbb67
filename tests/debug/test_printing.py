"""`dlc.debug.print` prints once per executed step, in program order, on every target."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.errors import DlcError
from tests.targets import TARGETS


def shows(x: Any, n: Any) -> Any:
    dlc.debug.print("{x:.1f} and {} {k!r}", n, x=x, k="key")
    y = dnp.negative(x).astype("bfloat16")
    dlc.debug.print("{}|{:.0f}", x + 1, y)
    c, _ = lax.scan(lambda c, t: (dlc.debug.print("step {}", t), (c + t, t))[1], 0, x)

    def body(i: Any, v: Any) -> Any:
        lax.cond(i % 2 == 0, lambda: dlc.debug.print("even {}", i), lambda: None)
        return v + i

    z = lax.fori_loop(0, n, body, 0)
    lax.fori_loop(0, 1, lambda i, v: (dlc.debug.print("of no use"), v)[1], 0)
    dlc.debug.print("{{{}}} {}", z, x[0] > 1)
    return c, z


SHOWN = """\
[1.0 2.0] and 3 'key'
[2. 3.]|[-1 -2]
step 1.0
step 2.0
even 0
even 2
of no use
{3} False
"""
X = np.float32([1, 2])


@pytest.mark.parametrize("target", ["eager", *TARGETS])
def test_lines_appear_in_program_order(target: str, capfd: pytest.CaptureFixture[str]) -> None:
    with dlc.disable_jit(target == "eager"):
        dlc.jit(target="cpu" if target == "eager" else target)(shows)(X, 3)
    assert capfd.readouterr().out == SHOWN


@pytest.mark.parametrize("target", TARGETS)
def test_symbolic_and_data_dependent_sizes(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each call prints once, even if it restarts because it needs more memory."""

    @dlc.jit(dynamic={"x": {0: "N"}}, target=target)
    def f(x: Any) -> Any:
        dlc.debug.print("{}", x)
        y = (2 * x)[x > 1]
        dlc.debug.print("{} of {}", y, x)
        return y

    for x in (X, np.float32([3])):
        np.testing.assert_array_equal(f(x), 2 * x[x > 1])
    assert capsys.readouterr().out == "[1. 2.]\n[4.] of [1. 2.]\n[3.]\n[6.] of [3.]\n"


def loops(x: Any) -> Any:
    def step(c: Any, t: Any) -> Any:
        c = dnp.sin(c * x + t)
        dlc.debug.print("scan {:.2f}", t)
        return c, None

    c = lax.scan(step, x, np.float32([1, 2]))[0]
    c = lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, (dlc.debug.print("while {}", s[0]), s[1] * x)[1]), (0, c))[1]
    return lax.cond(x > 0, lambda: (dlc.debug.print("cond"), x * c)[1], lambda: c)


def test_derivatives_print_the_forward_pass_once(capsys: pytest.CaptureFixture[str]) -> None:
    lines = "scan 1.00\nscan 2.00\nwhile 0\nwhile 1\ncond\n"
    for function in (dlc.grad(loops), dlc.grad(dlc.checkpoint(loops)), lambda x: dlc.jvp(loops, (x,), (x,))[0]):
        function(np.float32(0.5))
        assert capsys.readouterr().out == lines


def test_batched_arrays_are_printed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        dlc.debug.print("{:.1f} {}", x, 7)
        return x + 1

    dlc.vmap(f)(X)
    with dlc.disable_jit():
        dlc.vmap(f)(X)
    assert capsys.readouterr().out == "[1.0 2.0] 7\n" * 2


def test_saved_functions_print_in_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = dlc.jit(shows).lower(X, 3).compile()
    model.save(tmp_path / "shows.dlc")
    dlc.load(tmp_path / "shows.dlc")(X, 3)
    assert capsys.readouterr().out == SHOWN


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{x}", "('{x}'): there is no {x}; the arguments are {0}"),
        ("{} {}", "('{} {}'): there is no {1}; the arguments are {0}"),
        ("{", "('{'): Single '{' encountered in format string; the arguments are {0}"),
        ("{:d}", "('{:d}'): Unknown format code 'd' for object of type 'float'; the arguments are {0}"),
        (X, ": expected a string with a field for each array, such as 'x = {}', got ndarray"),
    ],
)
def test_invalid_formats_are_refused(text: Any, problem: str) -> None:
    with pytest.raises(DlcError, match=rf"test_printing.py:\d+: dlc.debug.print{re.escape(problem)}$"):
        dlc.jit(lambda x: (dlc.debug.print(text, x), x)[1])(X)
