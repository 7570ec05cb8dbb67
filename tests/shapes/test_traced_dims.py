"""Sizes of traced arrays belong to their trace; symbolic sizes outside of traces are plain data."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.errors import DlcError
from dlc.frontend.trace import Trace, tracing
from dlc.shapes.dims import Dim, UndecidableError, decided_negative, is_nonnegative
from dlc.shapes.parsing import parse_size
from dlc.shapes.traced_dims import TracedDim, untraced

X = np.arange(3, dtype=np.float32)
USES: dict[str, Callable[[Any], Any]] = {
    "equality": lambda n: n == 3,
    "order": lambda n: n < 3,
    "truth": bool,
    "hash": hash,
    "integer": int,
    "sum": lambda n: n + 1,
    "quotient": lambda n: n / 2,
    "negation": lambda n: -n,
    "ufunc": np.sqrt,
    "shape": lambda n: dnp.zeros((n, 2)),
    "array": lambda n: dnp.add(n, X),
    "with_another": lambda n: dlc.jit(target="reference", dynamic={"x": {0: "M"}})(lambda x: x * (x.shape[0] + n))(X),
}  # fmt: skip


def facts_of_plain_sizes() -> list[object]:
    """Return the outcomes of operations on plain sizes, with sets and dicts of them."""
    n, m = Dim.symbol("n"), Dim.symbol("m")
    table = {n: "n", n + 1: "n + 1", 3: "3"}
    return [
        n == parse_size("n"),
        n == m,
        n == 3,
        n != 1,
        bool(n),
        hash(n) == hash(parse_size("n")),
        hash(Dim.lift(3)) == hash(3),
        len({n, parse_size("n"), n + 1, m, Dim.lift(3), 3}),
        n in {parse_size("n")},
        m in table,
        [table.get(key) for key in (parse_size("n"), parse_size("1 + n"), m, 3, Dim.lift(3))],
        sorted(map(str, {n, m} & {n, 1})),
        (n, 2) == (parse_size("n"), 2),
    ]


def size_after_tracing() -> TracedDim:
    """Return a size of a traced array, after its function was traced."""
    sizes: list[TracedDim] = []

    @dlc.jit(target="reference", dynamic={"x": {0: "N"}})
    def keeps_a_size(x: Any) -> Any:
        sizes.append(x.shape[0])
        return x

    keeps_a_size(X)
    return sizes[0]


def test_plain_sizes_are_the_same_data_inside_of_a_trace() -> None:
    inside: list[object] = []
    dlc.jit(target="reference", dynamic={"x": {0: "n"}})(lambda x: (inside.append(facts_of_plain_sizes()), x)[1])(X)
    outside = facts_of_plain_sizes()
    assert inside == [outside]
    assert outside == [
        True, False, False, True, True, True, True, 4, True, False, ["n", "n + 1", None, "3", "3"], ["n"], True
    ]  # fmt: skip


def test_sizes_are_found_in_a_set_in_another_process() -> None:
    size = parse_size("(N // 2 + 1) * M")
    assert {size, parse_size("M * (N // 2 + 1)")} == {size}
    check = (
        "import pickle, sys; size = pickle.load(sys.stdin.buffer); sys.exit(size not in {pickle.loads(pickle.dumps(size)) + 0})"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    assert subprocess.run([sys.executable, "-c", check], input=pickle.dumps(size), env=environment, check=False).returncode == 0


def test_sizes_of_a_trace_are_converted_at_its_boundary() -> None:
    def function(x: Any) -> Any:
        n = x.shape[0]
        assert all(type(size) is TracedDim for size in (n, x.size, n + 1, 1 + n, n - Dim.symbol("k"), n * n, copy.deepcopy(n)))
        assert type(untraced(n)) is Dim and untraced(n) == Dim.symbol("N") and untraced((n, [2])) == (Dim.symbol("N"), (2,))
        assert str(n) == repr(n) == "N" and n - n == 0 and type(n - n) is int
        return dnp.zeros((n, 2))

    assert dlc.jit(target="reference", dynamic={"x": {0: "N"}})(function)(X).shape == (3, 2)


def test_a_size_without_guards_is_not_hashable() -> None:
    trace = Trace("f")
    with tracing(trace):
        n = TracedDim(Dim.symbol("n"), trace)
        with pytest.raises(UndecidableError, match="the size n is symbolic: it cannot be hashed"):
            hash(n)
        with pytest.raises(UndecidableError, match="is n == 3"):
            _ = n == 3


@pytest.mark.parametrize("name", USES)
def test_a_size_used_after_tracing_names_its_function(name: str) -> None:
    n = size_after_tracing()
    assert str(n) == "N"
    with pytest.raises(DlcError, match=r"the size N of an array in keeps_a_size is used after keeps_a_size was traced"):
        USES[name](n)


@pytest.mark.parametrize("name", ["sum", "order", "shape"])
def test_sizes_of_two_traces_do_not_mix(name: str) -> None:
    outer, inner = Trace("outer"), Trace("inner")
    uses: dict[str, Callable[[Any, Any], Any]] = {
        "sum": lambda n, m: n + m,
        "order": lambda n, m: n < m,
        "shape": lambda n, m: inner.value(np.float32(1)) + dnp.zeros((n, m)),
    }
    with tracing(outer), tracing(inner):
        n, m = TracedDim(Dim.symbol("n"), inner), TracedDim(Dim.symbol("n"), outer)
        with pytest.raises(DlcError, match=r"the size n belongs to another trace than that of inner"):
            uses[name](n, m)


def test_a_quotient_of_a_negated_size_is_not_taken_for_positive() -> None:
    n = Dim.symbol("n")
    padded = -(-n // 4) * 4
    assert decided_negative(n - padded) is None
    assert decided_negative((n - 3) // 2) is None
    assert decided_negative((n + 1) // 2) is False
    assert decided_negative(-n - 1) is True
    assert is_nonnegative(padded - n)
