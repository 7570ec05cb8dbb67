"""Compare random functions of ranks with one process: pipelines (even seeds), and loops that exchange data (odd seeds).

A pipeline has stages of different functions and shapes; its training step may overwrite donated parameters. A loop in
`dlc.shard_map` mixes collectives with updates of its states; NumPy runs it on the arrays of all ranks. Ranks are threads.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np

import dlc
import dlc.numpy as dnp
from dlc import P, lax
from dlc.dialects.dl.base import Array
from dlc.runtime.collectives.threads import run_ranks
from dlc.testing.sample import F32
from tests.fuzz.trials import Trial, TrialOutcome, compared, trial_outcomes

TIMEOUT_SECONDS = 240
MESHES = ({"stage": 2}, {"stage": 4}, {"data": 2, "stage": 2}, {"stage": 2, "other": 2}, {"stage": 3})
# Differences of results, relative to the largest element; those of programs with 16-bit floats.
TOLERANCE, HALF_TOLERANCE = 2e-5, 4e-2
_WIDTHS = (1, 2, 3, 5, 8, 16)


def run(trial: Trial) -> tuple[str, str | None]:
    """Run a trial; return its outcome, and the results that differ or None."""
    try:
        return compared(list((_loop_case if trial.seed % 2 else _pipeline_case)(trial)))
    except Exception:
        return "failed", traceback.format_exc()


def differences(results: Sequence[Array], expected: Sequence[Array], tolerance: float, where: str) -> Iterator[str]:
    """Yield a description of each result that differs."""
    for k, (got, want) in enumerate(zip(results, expected, strict=True)):
        a, b = (np.asarray(x).astype(np.float64) for x in (got, want))
        if got.dtype != want.dtype or a.shape != b.shape:
            yield f"result {k} {where} is {got.dtype}{a.shape}; expected {want.dtype}{b.shape}"
        elif not np.max(np.abs(a - b), initial=0) <= tolerance * (1 + np.max(np.abs(b), initial=0)):
            yield f"result {k} {where} differs by {np.max(np.abs(a - b)):.3g}, the largest element is {np.max(np.abs(b)):.3g}"


class RandomPipeline:
    """A random function with marks of stages, its parameters and its batch."""

    def __init__(self, seed: int) -> None:
        self.random, self.generator = random.Random(seed), np.random.default_rng(seed)
        self.axes: dict[str, int] = self.random.choice(MESHES)
        self.num_stages = self.axes["stage"] * self.random.choice([1, 1, 2])
        self.is_half = self.random.random() < 0.15
        self.rows = self.random.choice([1, 2, 3])
        self.num_micro_batches = self.random.choice([1, 2, 3, 5])
        self.parameters: dict[str, Any] = {"shared": self.weight(()), "unused": self.weight((3,)), "steps": []}
        size = self.rows * self.num_micro_batches * self.axes.get("data", 1)
        self.has_tokens = self.random.random() < 0.5
        self.widths = [self.random.choice(_WIDTHS) for _ in range(self.num_stages + 1)]
        if self.has_tokens:
            self.parameters["embedding"] = self.weight((7, self.widths[0]))
        x = self.generator.integers(0, 7, size) if self.has_tokens else self.array((size, self.widths[0]))
        self.batch = x, self.array((size, self.widths[-1]))
        kinds = ["dense", "scan", "branch", "skip", "mask", "gated"]
        self.kinds = [self.random.choice(kinds) for _ in range(self.num_stages)]
        for kind, inputs, outputs in zip(self.kinds, self.widths, self.widths[1:], strict=False):
            step = {"w": self.weight((inputs, outputs)), "b": self.weight((outputs,))}
            if kind == "scan":
                step["layers"] = self.weight((self.random.choice([1, 2, 3]), inputs, inputs))
            self.parameters["steps"].append(step)

    def array(self, shape: tuple[int, ...]) -> Array:
        array = self.generator.uniform(-1, 1, shape).astype(F32)
        return array.astype(ml_dtypes.bfloat16) if self.is_half else array

    def weight(self, shape: tuple[int, ...]) -> Array:
        return self.array(shape) * self.array(())

    def loss(self, parameters: Any, x: Any, targets: Any) -> Any:
        """Return the mean loss of a micro-batch."""
        h = parameters["embedding"][x] if self.has_tokens else x
        extra: Any = ()
        for k, (kind, step) in enumerate(zip(self.kinds, parameters["steps"], strict=True)):
            if k:
                h, extra = dlc.stage((h, extra))
            h, extra = self.stage(kind, step, h, extra)
            h = h * parameters["shared"] if k % 2 else h
        difference = h - targets
        return dnp.mean(difference * difference).astype(F32)

    def stage(self, kind: str, step: Any, h: Any, extra: Any) -> tuple[Any, Any]:
        """Return the outputs of one stage."""
        if isinstance(extra, dict) and "skip" in extra:
            h = h + dnp.sum(extra["skip"], axis=1, keepdims=True)
        if isinstance(extra, dict) and "mask" in extra:
            h = dnp.where(extra["mask"][:, None], h, h * 0.5) + extra["count"].astype(h.dtype)[:, None]
        y = dnp.tanh(h @ step["w"] + step["b"])
        match kind:
            case "scan":
                inner = lax.scan(lambda a, w: (a + dnp.tanh(a @ w), None), h, step["layers"])[0]
                return y + dnp.mean(inner, axis=1, keepdims=True), ()
            case "branch":
                condition = dnp.sum(step["b"]) > 0
                return lax.cond(condition, lambda: y * 2, lambda: dnp.sin(y)), ()
            case "skip":
                return y, {"skip": h}
            case "mask":
                return y, {"mask": h[:, 0] > 0, "count": dnp.sum(h > 0, axis=1)}
            case "gated":
                return y / (1 + dnp.exp(-y)), {"skip": y[:, :1]}
            case _:
                return y, ()


def _pipeline_case(trial: Trial) -> Iterator[str]:
    """Yield the wrong results of a training step of a pipeline."""
    drawn = RandomPipeline(trial.seed)
    batch_axes = [name for name in drawn.axes if name == "data"]
    network = dlc.pipeline(drawn.loss, num_micro_batches=drawn.num_micro_batches, batch_axes=batch_axes)
    argnums = (0,) if drawn.has_tokens else (0, 1, 2)
    donates = drawn.random.random() < 0.5

    def step_of(loss: Callable[..., Any]) -> Callable[..., Any]:
        def step(parameters: Any, x: Any, targets: Any) -> Any:
            value, gradients = dlc.value_and_grad(loss, argnums)(parameters, x, targets)
            updated = dlc.tree.map(lambda w, g: (w - 0.5 * g).astype(w.dtype), parameters, gradients[0])
            return updated, value, gradients[1:]

        return step

    mesh = dlc.make_mesh(drawn.axes)
    # A donated argument and its result have one sharding, which propagation chooses.
    in_shardings = None if donates else drawn.random.choice([None, (P(), None, None), (None, P(), P())])
    names = ("parameters",) if donates else ()
    options = {"target": trial.target, "num_threads": 1}
    on_mesh = dlc.jit(mesh=mesh, in_shardings=in_shardings, donate_argnames=names, **options)(step_of(network))
    expected = dlc.tree.leaves(dlc.jit(**options)(step_of(drawn.loss))(drawn.parameters, *drawn.batch))

    def on_rank(rank: int) -> list[Array]:
        parameters = dlc.tree.map(np.array, drawn.parameters)
        return dlc.tree.leaves(dlc.collect(on_mesh(parameters, *drawn.batch)))

    tolerance = HALF_TOLERANCE if drawn.is_half else TOLERANCE
    for rank, results in enumerate(run_ranks(mesh, on_rank)):
        yield from differences(results, expected, tolerance, f"of rank {rank} on {mesh}, stages {drawn.kinds}")


class RandomExchanges:
    """A random loop of ranks: a list of steps, each of which changes one of three states."""

    def __init__(self, seed: int) -> None:
        self.random, self.generator = random.Random(seed), np.random.default_rng(seed)
        self.size = self.random.choice([2, 3, 4])
        self.dtype = np.dtype(self.random.choice([F32, F32, np.int32, np.int8, np.float64]))
        self.rows, self.width = self.random.choice([1, 2, 4]) * self.size, self.random.choice([1, 3, 8])
        self.iterations = self.random.choice([1, 2, 5])
        kinds = ["sum", "max", "ring", "halo", "exchange", "scatter", "gather", "row", "mix", "index", "where"]
        self.steps = [(self.random.choice(kinds), self.random.randrange(3), self.random.randrange(3)) for _ in range(6)]
        shape = (3, self.size, self.rows, self.width)
        is_float = self.dtype.kind == "f"
        drawn = self.generator.uniform(-1, 1, shape) if is_float else self.generator.integers(-3, 4, shape)
        self.states = drawn.astype(self.dtype)

    @property
    def routes(self) -> list[tuple[int, int]]:
        return [(k, k + 1) for k in range(self.size - 1)]

    def reduced(self, x: Any) -> Any:
        """Return numbers that stay small, and whose rounding errors do not grow."""
        return dnp.sin(x) / 4 if self.dtype.kind == "f" else x % 5

    def on_ranks(self, *states: Any) -> Any:
        """Run the loop on the shards of a rank."""
        ring = [(k, (k + 1) % self.size) for k in range(self.size)]

        def step(k: Any, states: Any) -> Any:
            states = list(states)
            for kind, source, target in self.steps:
                x, y = states[source], states[target]
                match kind:
                    case "sum":
                        y = lax.psum(x, "stage")
                    case "max":
                        y = lax.pmax(x, "stage")
                    case "ring":
                        y = lax.ppermute(x, "stage", ring)
                    case "halo":
                        y = y + lax.ppermute(x, "stage", self.routes)
                    case "exchange":
                        y = lax.all_to_all(x, "stage", 0, 0, tiled=True)
                    case "scatter":
                        part = lax.psum_scatter(x, "stage", tiled=True)
                        y = dnp.concatenate([part] * self.size)
                    case "gather":
                        y = dnp.sum(lax.all_gather(x, "stage") * dnp.arange(self.size, dtype=self.dtype)[:, None, None], axis=0)
                    case "row":
                        y = y.at[k % self.rows].set(lax.ppermute(x[k % self.rows], "stage", ring))
                    case "index":
                        y = y + lax.axis_index("stage")
                    case "where":
                        y = lax.cond(lax.axis_index("stage") == 0, lambda x=x: x * 2, lambda y=y: y)
                    case _:
                        y = x - y
                states[target] = lax.pvary(self.reduced(y.astype(self.dtype)), "stage")
            return tuple(states)

        return lax.fori_loop(0, self.iterations, step, tuple(lax.pvary(s[0], "stage") for s in states))

    def on_arrays(self) -> list[Array]:
        """Run the loop with NumPy on the states of all ranks."""
        states, n = [np.array(s) for s in self.states], self.size
        for k in range(self.iterations):
            for kind, source, target in self.steps:
                x, y = states[source], np.array(states[target])
                row = k % self.rows
                match kind:
                    case "sum":
                        y = np.stack([x.sum(0, dtype=self.dtype)] * n)
                    case "max":
                        y = np.stack([x.max(0)] * n)
                    case "ring":
                        y = np.roll(x, 1, axis=0)
                    case "halo":
                        y[1:] += x[:-1]
                    case "exchange":
                        parts = x.reshape(n, n, self.rows // n, self.width)
                        y = parts.swapaxes(0, 1).reshape(x.shape)
                    case "scatter":
                        parts = x.sum(0, dtype=self.dtype).reshape(n, self.rows // n, self.width)
                        y = np.stack([np.concatenate([part] * n) for part in parts])
                    case "gather":
                        y = np.stack([np.tensordot(np.arange(n, dtype=self.dtype), x, 1)] * n)
                    case "row":
                        y[:, row] = np.roll(x, 1, axis=0)[:, row]
                    case "index":
                        y = y + np.arange(n, dtype=self.dtype)[:, None, None]
                    case "where":
                        y[0] = x[0] * 2
                    case _:
                        y = x - y
                y = y.astype(self.dtype)
                states[target] = (np.sin(y) / 4).astype(self.dtype) if self.dtype.kind == "f" else (y % 5).astype(self.dtype)
        return states


def _loop_case(trial: Trial) -> Iterator[str]:
    """Yield the wrong results of a loop that exchanges data."""
    drawn = RandomExchanges(trial.seed)
    mesh = dlc.make_mesh({"stage": drawn.size})
    donates = drawn.random.random() < 0.5
    names = ("a", "b", "c") if donates else ()

    def function(a: Any, b: Any, c: Any) -> Any:
        results = dlc.shard_map(lambda *s: [x[None] for x in drawn.on_ranks(*s)], in_specs=P("stage"), out_specs=P("stage"))
        return results(a, b, c)

    specs = {"in_shardings": (P("stage"),) * 3, "out_shardings": P("stage")} if donates else {}
    compiled = dlc.jit(mesh=mesh, donate_argnames=names, target=trial.target, num_threads=1, **specs)(function)

    def on_rank(rank: int) -> list[Array]:
        return [np.asarray(x) for x in dlc.collect(compiled(*map(np.array, drawn.states)))]

    expected = drawn.on_arrays()
    for rank, results in enumerate(run_ranks(mesh, on_rank)):
        yield from differences(
            results, expected, TOLERANCE, f"of rank {rank}, {drawn.dtype}, {drawn.steps} × {drawn.iterations}"
        )


def trials(seed: int, count: int, target: str | None = None) -> list[Trial]:
    """Return the trials of `count` seeds from `seed` on."""
    return [Trial("ranks", s, (target or "cpu",)) for s in range(seed, seed + count)]


def fuzz(selected_trials: Sequence[Trial], jobs: int) -> Iterator[TrialOutcome[Trial]]:
    """Yield the outcome of each trial, with a description of a failure or None."""
    return trial_outcomes(run, selected_trials, jobs, TIMEOUT_SECONDS)
