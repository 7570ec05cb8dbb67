"""`peel-borders`: the interior of a stencil reads the unpadded tensor."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.ir import Context, ModuleOp
from dlc.passes.dl.movement import peel_borders
from dlc.passes.dl.rewriting import erase_dead_ops, program_blocks
from dlc.pipelines import stages_of
from dlc.target import OPENCL_PROFILES, Target, resolve

CPU = resolve("cpu:avx2")
Function = Callable[[ModuleType, Any, Any], tuple[Any, ...]]


def padded(np_: ModuleType, x: Any, widths: list[tuple[int, int]], mode: str) -> Any:
    """Pad by `np.pad`, or for the mode `concatenate` by the first elements of each axis, written as a concatenation."""
    if mode != "concatenate":
        return np_.pad(x, widths, **({"constant_values": 1.5} if mode == "constant" else {"mode": mode}))
    for axis, (low, high) in enumerate(widths):
        first = x[(slice(None),) * axis + (slice(0, 1),)]
        x = np_.concatenate([*[first] * low, x, *[first] * high], axis=axis)
    return x


def draw_stencil(rng: np.random.Generator) -> tuple[tuple[int, ...], Function]:
    """Draw a function of padded tensors that are read at shifted positions, and the shape of its arguments."""
    rank = int(rng.integers(1, 4))
    shape = tuple(int(n) for n in rng.integers(3, 14 if rank < 3 else 8, rank))
    widths = [(int(a), int(b)) for a, b in rng.integers(0, 3, (rank, 2))]
    mode = str(rng.choice(["constant", "wrap", "edge", "reflect", "concatenate"]))
    sizes = [n + a + b for n, (a, b) in zip(shape, widths, strict=True)]
    read = [int(rng.integers((n + 1) // 2, n + 1)) for n in sizes]
    starts = [[int(rng.integers(0, n - r + 1)) for n, r in zip(sizes, read, strict=True)] for _ in range(rng.integers(2, 5))]
    prepare = int(rng.integers(4))
    weights = [float(w) for w in rng.normal(size=len(starts)).round(2)]

    def function(np_: ModuleType, x: Any, y: Any) -> tuple[Any, ...]:
        source = [x, x * 2 - y, np_.exp(x), x * y + x][prepare]
        p = padded(np_, source, widths, mode)
        terms = [
            w * p[tuple(slice(a, a + n) for a, n in zip(s, read, strict=True))] for w, s in zip(weights, starts, strict=True)
        ]
        total = sum(terms[2:], terms[0] + terms[1])
        return total, np_.tanh(total) * terms[0] + source.sum(), np_.maximum(terms[0], terms[1])

    return shape, function


@pytest.fixture
def small_stencils(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Peel stencils of any size, and record the number of their ops."""
    monkeypatch.setattr(peel_borders, "_MIN_ELEMENTS", 2)
    monkeypatch.setattr(peel_borders, "_MAX_BORDER_PERCENT", 300)
    peeled, peel = list[int](), peel_borders._Stencil.peeled

    def record(stencil: Any, borders: Any) -> Any:
        peeled.append(len(stencil.ops))
        return peel(stencil, borders)

    monkeypatch.setattr(peel_borders._Stencil, "peeled", record)
    return peeled


def test_stencils_equal_numpy(small_stencils: list[int]) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        shape, function = draw_stencil(rng)
        x, y = rng.normal(size=(2, *shape))
        results = dlc.jit(lambda x, y, f=function: f(dnp, x, y), cache=False)(x, y)
        for result, expected in zip(results, function(np, x, y), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12, err_msg=f"seed {seed}")
    assert len(small_stencils) >= 4


def test_gradients_equal_unpeeled(small_stencils: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(1):
        rng = np.random.default_rng(100 + seed)
        shape, function = draw_stencil(rng)
        x, y = rng.normal(size=(2, *shape))
        gradient = dlc.grad(lambda x, y, f=function: sum((t * t).sum() for t in f(dnp, x, y)), argnums=(0, 1))
        results = dlc.jit(gradient, cache=False)(x, y)
        with monkeypatch.context() as patch:
            patch.setattr(peel_borders, "_MIN_ELEMENTS", 1 << 40)
            expected = dlc.jit(gradient, cache=False)(x, y)
        for a, b in zip(results, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=f"seed {seed}")
    assert small_stencils


def after_pass(function: Callable[..., Any], *arguments: np.ndarray, target: Target = CPU) -> ModuleOp:
    module = dlc.jit(function, cache=False).lower(*arguments).program.module.clone()
    for p in stages_of(target)[0].passes:
        p.apply(Context(), module)
        if p.name == "peel-borders":
            break
    return module


def names(module: ModuleOp) -> list[str]:
    return [op.name for op in module.walk()]


X = np.zeros((200, 100), np.float32)


def neighbors(x: Any) -> Any:
    p = dnp.pad(x, 1)
    return p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]


def test_the_interior_reads_the_unpadded_tensor() -> None:
    module = after_pass(neighbors, X)
    pads = [op.results[0].type.get_shape() for op in module.walk() if op.name == "dl.pad"]
    assert max(np.prod(shape) for shape in pads) <= 2 * 200
    assert "dl.concat" in names(module)


@pytest.mark.parametrize("mode", ["constant", "wrap"])
def test_the_interior_of_a_gradient_reads_the_cotangents(mode: str) -> None:
    def loss(x: Any) -> Any:
        p = dnp.pad(x, 1, mode=mode)
        return ((p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]) ** 2).sum()

    module = after_pass(dlc.grad(loss), X)
    erase_dead_ops(next(program_blocks(module)))
    pads = [op.results[0].type.get_shape() for op in module.walk() if op.name == "dl.pad"]
    assert max(np.prod(shape) for shape in pads) <= 3 * 202


@pytest.mark.parametrize(
    "function",
    [
        lambda x: dnp.pad(x, 1)[:-2, 1:-1] * 2.0,  # one position: its producer writes into the padded tensor
        lambda x: neighbors(x[:100, :50]),  # small
        lambda x: neighbors(x.reshape(4, 5000)),  # most elements of a row of tiles are at the border
        lambda x: sum(dnp.pad(x, 2)[i : i + 200, j : j + 100] for i in range(5) for j in range(5)),  # 25 reads
    ],
)
def test_other_stencils_stay(function: Callable[..., Any]) -> None:
    assert "dl.concat" not in names(after_pass(function, X))


def test_devices_with_work_groups_pad() -> None:
    assert "dl.concat" not in names(after_pass(neighbors, X, target=OPENCL_PROFILES["opencl:gpu"]))
