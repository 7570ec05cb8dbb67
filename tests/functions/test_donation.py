"""Donated arguments: results reuse their memory, whatever the order of reads."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.arrays import address_of
from dlc.errors import DTypeError, ShapeError, UnsupportedError

draw = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return draw.standard_normal(shape).astype(np.float32)


def update_then_read(p: Any, g: Any) -> Any:
    """The last reader of `p` comes after the op that overwrites it."""
    return p - 0.1 * g, dnp.matmul(g, p)


def by_rows(p: Any, g: Any) -> Any:
    return p / dnp.sum(dnp.abs(p), axis=1, keepdims=True), g


def product(p: Any, g: Any) -> Any:
    return dnp.matmul(p, g), dnp.sum(p)


def backwards(p: Any, g: Any) -> Any:
    return p[::-1] + g, g


def unchanged(p: Any, g: Any) -> Any:
    return p, p + g


def reads_what_replaces(p: Any, g: Any) -> Any:
    """The last reader of `p` depends on the result that overwrites it."""
    q = p + g
    return q, dnp.matmul(q, p)


def in_a_loop(p: Any, g: Any) -> Any:
    return p + g, dlc.lax.fori_loop(0, 12, lambda _, x: dnp.tanh(dnp.matmul(x, p)), g)


CASES: list[Callable[..., Any]] = [
    update_then_read, by_rows, product, backwards, unchanged, reads_what_replaces, in_a_loop,
]  # fmt: skip


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_results_reuse_donated_memory(function: Callable[..., Any]) -> None:
    p, g = normal(32, 32), normal(32, 32)
    expected = [np.array(r) for r in dlc.jit(function)(p, g)]
    place = address_of(p)
    results = dlc.jit(donate_argnames=("p",), num_threads=2)(function)(p, g)
    assert address_of(np.asarray(results[0])) == place
    for result, value in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, value)


def test_update_runs_after_the_last_reader_without_copies() -> None:
    model = dlc.jit(donate_argnames=("p",))(update_then_read).lower(normal(8, 8), normal(8, 8)).compile()
    names = [launch.kernel for launch in model.artifact.host.launches]  # pyright: ignore
    assert len(names) == 2
    assert names[-1].startswith("mul_sub")


def test_steps_reuse_their_memory() -> None:
    @dlc.jit(donate_argnames=("state",))
    def step(state: Any, x: Any) -> Any:
        w = state["w"] - 0.01 * dnp.matmul(dnp.matrix_transpose(x), dnp.tanh(dnp.matmul(x, state["w"])))
        return {"w": w, "mean": 0.9 * state["mean"] + 0.1 * w, "count": state["count"] + 1}, dnp.sum(w)

    state: Any = {"w": normal(200, 200), "mean": np.zeros((200, 200), np.float32), "count": np.zeros((), np.int32)}
    places = {name: address_of(array) for name, array in state.items()}
    x = normal(16, 200)
    for _ in range(100):
        state, _ = step(state, x)
    assert {name: address_of(np.asarray(array)) for name, array in state.items()} == places
    assert int(state["count"]) == 100


def test_what_cannot_be_overwritten_is_copied() -> None:
    add = dlc.jit(donate_argnames=("p",))(lambda p, g: p + g)
    p = normal(4, 4)
    frozen = p.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(add(frozen, frozen), p + p)
    # An argument that shares its memory with another one, wholly or in part.
    np.testing.assert_array_equal(add(p, p), frozen + frozen)
    both = normal(8, 4)
    expected = both[:4] + both[2:6]
    np.testing.assert_array_equal(add(both[:4], both[2:6]), expected)


def test_an_argument_without_a_result_of_its_type_is_an_error() -> None:
    total = dlc.jit(donate_argnames=("p",))(lambda p: dnp.sum(p))
    with pytest.raises(ShapeError, match=r"the donated p, tensor<4xf32>, cannot be reused: no result has its type"):
        total(normal(4))


def test_what_cannot_be_donated_is_an_error() -> None:
    swapped = dlc.jit(donate_argnames=("p", "q"))(lambda p, q: (q, p))
    with pytest.raises(UnsupportedError, match="result 0 is the donated argument"):
        swapped(normal(4), normal(4))

    @partial(dlc.jit, donate_argnames=("p",))
    def carried(p: Any, q: Any, count: Any) -> Any:
        """The loop carries p unchanged, while q is computed in its memory."""
        step = lambda s: (s[0] + 1, dnp.sort(s[1]) * 2, s[2])  # noqa: E731
        return lax.while_loop(lambda s: s[0] < count, step, (np.int32(0), q, p))[1:]

    with pytest.raises(UnsupportedError, match="result 1 is the donated argument 'p' itself; do not donate it"):
        carried(normal(70), normal(70), np.int32(2))
    with pytest.raises(DTypeError, match=r"donate_argnames \['y'\]: no parameters"):
        dlc.jit(donate_argnames=("y",))(lambda x: x)
    with pytest.raises(DTypeError, match="nor be combined with dynamic dimensions"):
        dlc.jit(donate_argnames=("x",), dynamic={"x": {0: "N"}})(lambda x: x)


def test_saved_program_keeps_donations(tmp_path: Path) -> None:
    p, g = normal(8, 8), normal(8, 8)
    model = dlc.jit(donate_argnames=("p",))(update_then_read).lower(p, g).compile()
    model.save(tmp_path / "step.dlc")
    expected, place = p - np.float32(0.1) * g, address_of(p)
    results = list(dlc.load(tmp_path / "step.dlc")(p, g).values())
    assert address_of(np.asarray(results[0])) == place
    np.testing.assert_allclose(results[0], expected, rtol=1e-6)


def write_rows(cache: Any, rows: Any, position: Any) -> Any:
    """Later ops read the updated array."""
    updated = dnp.at(cache)[position + dnp.arange(rows.shape[0])].set(rows)
    return updated, dnp.sum(updated, 0)


def test_rows_are_scattered_into_a_donated_argument() -> None:
    """Only the rows are written: no kernel copies the array."""
    cache, rows = normal(1000, 8), normal(2, 8)
    function = dlc.jit(donate_argnames=("cache",))(write_rows)
    lowered = function.lower(cache, rows, np.int64(0))
    fused = lowered.as_text("fusion")
    assert "output_aliases = array<i64: 0>" in fused and "@keep" not in fused
    assert "memref.copy" not in lowered.as_text("tiling").partition("@kernels")[0]
    for position in (0, 500, 998):
        expected, place = cache.copy(), address_of(cache)
        expected[position : position + 2] = rows
        updated, total = function(cache, rows, np.int64(position))
        cache = np.asarray(updated)
        assert address_of(cache) == place
        np.testing.assert_array_equal(cache, expected)
        np.testing.assert_allclose(total, expected.sum(0), rtol=1e-4, atol=1e-4)


def test_rows_scattered_over_values_that_are_read_later_are_copied_at_the_end() -> None:
    def swap(cache: Any, rows: Any) -> Any:
        return dnp.at(cache)[dnp.arange(2)].set(rows), cache[:2] * 2, dnp.at(cache)[dnp.arange(2) + 1].set(rows)

    cache, rows = normal(10, 4), normal(2, 4)
    expected = cache.copy()
    first, before, second = dlc.jit(donate_argnames=("cache",))(swap)(cache.copy(), rows)
    np.testing.assert_array_equal(before, expected[:2] * 2)
    np.testing.assert_array_equal(second, np.concatenate([expected[:1], rows, expected[3:]]))
    np.testing.assert_array_equal(first, np.concatenate([rows, expected[2:]]))


@pytest.mark.parametrize("donated", [(), ("params", "state")], ids=["new", "donated"])
def test_a_thousand_training_steps_hold_memory_constant(donated: tuple[str, ...]) -> None:
    optimizer = dlc.optim.adamw(1e-3, weight_decay=0.01)

    @dlc.jit(donate_argnames=donated)
    def step(params: Any, state: Any, x: Any) -> Any:
        gradient = dlc.grad(lambda p: dnp.sum(dnp.tanh(x @ p) ** 2))(params)
        updates, state = optimizer.update(gradient, state, params)
        return dlc.optim.apply_updates(params, updates), state

    def resident() -> int:
        """Return the resident memory of this process in bytes."""
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    params, x = normal(128, 128), normal(8, 128)
    state = optimizer.init(params)
    for k in range(1100):
        if k == 100:
            before = resident()
        params, state = step(params, state, x)
    # Leaking one array in each step would take 64 MB.
    assert resident() - before < 4 << 20


SELECTIONS: dict[str, Callable[[Any], Any]] = {
    "read after the size is known": lambda p: (p * 2, dnp.sum(p[p > 0]), dnp.sum(p, axis=0)),
    "computed from the size": lambda p: (dnp.tanh(p) + dnp.sum(p[p > 0]), dnp.sum(p, axis=0)),
    "selected itself": lambda p: (p * 2, (p * 2)[p * 2 > 1], dnp.sum(p, axis=0)),
    "rows": lambda p: (p.at[1].set(9), dnp.sum(p[p > 0])),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_data_dependent_sizes(name: str) -> None:
    """The first call begins again when its size is known: only then may it overwrite the argument."""
    function, p = SELECTIONS[name], normal(6, 5)
    expected, donating = dlc.jit(function)(p), dlc.jit(function, donate_argnames="p")
    for _ in range(2):
        memory = p.copy()
        results = donating(memory)
        assert address_of(np.asarray(results[0])) == address_of(memory)
        for result, value in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, value)
