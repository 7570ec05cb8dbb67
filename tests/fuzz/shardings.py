"""Compare random programs with random shardings, on all ranks of a mesh, with the unsharded program.

Even seeds are programs of `dl` ops, whose results have error bounds. Odd seeds are differentiable functions, of ops and of loops
in turn, with their gradients; one in three of them runs in `dlc.shard_map`. Ranks are threads.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc import P, lax
from dlc.compiler import Program, compile
from dlc.compiler.sharding import shard_program
from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.distributed.sharding import PartialSpec, spec_attribute
from dlc.dialects.entry import entry_of
from dlc.ir import ModuleOp, Region, SSAValue, func
from dlc.passes.dl.rewriting import program_blocks
from dlc.passes.sharding.varying_axes import VaryingAxes
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.shards import assemble, shard_of
from dlc.runtime.collectives.threads import run_ranks
from dlc.shapes.dims import Size
from tests.fuzz.batching import EXCLUDED_OPS
from tests.fuzz.bounded_value import BoundedArray, difference
from tests.fuzz.draw_program import random_program
from tests.fuzz.functions import random_function
from tests.fuzz.programs import OPTIONS
from tests.fuzz.random_program import named_values
from tests.fuzz.trials import Trial, TrialOutcome, compared, trial_outcomes

MESHES = tuple(map(Mesh.of, ({"data": 2}, {"data": 4}, {"data": 2, "model": 2})))
SIZES = (1, 2, 3, 4, 4, 6, 8, 8, 12, 16)
# The target of most programs, and of one in eight.
TARGETS = ("reference", "cpu")
TIMEOUT_SECONDS = 240
# Gradients may differ by this much, relative to the largest element.
GRADIENT_TOLERANCE = 1e-7
# An exact result that ranks compute from parts may be rounded this often, relative to the largest element or 1.
_MAX_ROUNDINGS = 4


def run_sharded(
    program: Program,
    mesh: Mesh,
    inputs: Sequence[PartialSpec | None],
    outputs: Sequence[PartialSpec | None],
    arrays: Sequence[Array],
    target: str = "reference",
) -> list[Array]:
    """Return the results of a program that all ranks of a mesh run, each as a thread."""
    sharded = shard_program(program, mesh, inputs, outputs)
    model = compile(sharded.program, target, OPTIONS)
    # Programs take arrays; functions may draw NumPy scalars.
    arrays = list(map(np.asarray, arrays))

    def run(rank: int) -> list[Array]:
        shards = [shard_of(mesh, rank, x, spec) for x, spec in zip(arrays, sharded.inputs, strict=True)]
        return [np.array(r) for r in model.run_unchecked(shards)]

    by_rank = run_ranks(mesh, run)
    return [assemble(mesh, shards, spec) for shards, spec in zip(zip(*by_rank, strict=True), sharded.outputs, strict=True)]


class RandomShardings:
    """Random annotations of a program for a random mesh."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.mesh = self.random.choice(MESHES)

    def spec(self, shape: Sequence[Size]) -> PartialSpec:
        """Return a valid spec; axes are mostly unconstrained."""
        free, result = [name for name, _ in self.mesh.axes], list[tuple[str, ...] | None]()
        for size in shape:
            count = self.random.choice([0, 0, 1, 1, 2])
            axes = tuple(self.random.sample(free, min(count, len(free))))
            if not axes or not isinstance(size, int) or size % self.mesh.shard_count(axes):
                result.append(self.random.choice([None, None, ()]))
                continue
            free = [name for name in free if name not in axes]
            result.append(axes)
        return result

    def specs(self, values: Sequence[SSAValue]) -> list[PartialSpec | None]:
        return [self.spec(shape_of(v)) if self.random.random() < 0.5 else None for v in values]

    def annotate(self, module: ModuleOp) -> None:
        """Annotate one global result in four."""
        varying = VaryingAxes(entry_of(module).body.block)
        for block in program_blocks(module):
            for op in list(block.ops):
                if isinstance(op, DlOp) and op.next_op is not None and self.random.random() < 0.25:
                    if varying.of(op.results[0]) is not None:
                        continue
                    shard = DlBuilder(op.next_op)(
                        dl.ShardOp, op.results[0], spec=spec_attribute(self.spec(shape_of(op.results[0])))
                    )
                    op.results[0].replace_uses_with_if(shard, lambda use, own=shard.owner: use.operation is not own)

    def on_shards(self, function: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
        """Return a function with the same results that gathers its shards, and combines equal results of all ranks."""
        axes = tuple(name for name, _ in self.mesh.axes)

        def gather(shard: Any, spec: Sequence[tuple[str, ...]]) -> Any:
            for axis, names in enumerate(spec):
                shard = lax.all_gather(shard, names, axis=axis, tiled=True) if names else shard
            return shard

        def combine(x: Any, way: int) -> Any:
            name, size = self.mesh.axes[-1]
            match way:
                case 0:
                    return lax.psum(x * (1 + lax.axis_index(axes)), axes) / sum(range(1, self.mesh.size + 1))
                case 1:
                    return lax.pmean(lax.ppermute(x, name, [(k, (k + 1) % size) for k in range(size)]), axes)
                case 2:
                    return lax.pmean(lax.all_gather(x, name)[size - 1], axes)
                case _:
                    return lax.pmean(lax.psum_scatter(dnp.stack([x] * size), name) / size, axes)

        def call(*point: Any) -> Sequence[Any]:
            specs = [tuple(axes or () for axes in self.spec(x.shape)) for x in point]
            ways = [self.random.randrange(4) for _ in range(16)]

            def body(*shards: Any) -> Sequence[Any]:
                results = function(*map(gather, shards, specs))
                return [combine(x, way) for x, way in zip(results, ways, strict=False)]

            return dlc.shard_map(body, in_specs=tuple(P(*spec) for spec in specs), out_specs=P())(*point)

        return call


def run(trial: Trial) -> tuple[str, str | None]:
    """Run a trial; return its outcome, and the results that differ from those of the unsharded program or None."""
    try:
        return compared(list((_gradient_case if trial.seed % 2 else _op_case)(trial)))
    except Exception:
        return "failed", traceback.format_exc()


def _op_case(trial: Trial) -> Iterator[str]:
    """Yield the wrong results of a program of `dl` ops."""
    shardings = RandomShardings(trial.seed)
    drawn = random_program(trial.seed, size=shardings.random.choice([2, 3, 4, 6, 8]), excluded_ops=EXCLUDED_OPS, sizes=SIZES)
    results, expected = [r.value for r in drawn.results], [r.bounded for r in drawn.results]
    drawn.block.add_op(func.ReturnOp(*results))
    main = func.FuncOp("main", ([a.type for a in drawn.block.args], [v.type for v in results]), Region(drawn.block))
    main.arg_attrs, main.res_attrs = named_values("x", len(main.args)), named_values("y", len(results))
    program = Program(ModuleOp([main]), drawn.weights, f"random{trial.seed}")
    got_results = _run_annotated(program, shardings, drawn.inputs, trial.target)
    for k, (got, want) in enumerate(zip(got_results, expected, strict=True)):
        if mismatch := difference(got, _with_rounding_of_parts(want)):
            yield f"result {k} on {shardings.mesh}: {mismatch}"


def _with_rounding_of_parts(want: BoundedArray) -> BoundedArray:
    """Return an exact result of floats with a bound: ranks scale partial sums, so that a mean of integers may be rounded."""
    if want.error is not None or want.array.dtype.name not in ("float32", "float64"):
        return want
    finite = np.abs(want.array[np.isfinite(want.array)]).max(initial=0)
    return replace(want, error=np.full(want.array.shape, _MAX_ROUNDINGS * np.finfo(want.array.dtype).eps * (1 + finite)))


def _gradient_case(trial: Trial) -> Iterator[str]:
    """Yield the wrong results and gradients of a function."""
    shardings, rng = RandomShardings(trial.seed), np.random.default_rng(trial.seed)
    function = random_function(trial.seed // 2, SIZES)

    def gradients_of(run: Callable[..., Sequence[Any]]) -> Callable[..., Any]:
        def loss(*point: Any) -> Any:
            results = run(*point)
            return sum(dnp.sum(w * r) for w, r in zip(weights, results, strict=True)), results

        def gradients(*point: Any) -> Any:
            (_, results), cotangents = dlc.value_and_grad(loss, tuple(range(len(point))), has_aux=True)(*point)
            return results, cotangents

        return gradients

    with np.errstate(all="ignore"):
        weights = [rng.uniform(-1, 1, v.shape) for v in function.plain(*function.point)]
        program = dlc.jit(gradients_of(function.run)).lower(*function.point).program
        expected = compile(program, "reference", OPTIONS).run_unchecked(function.point)
        if trial.seed % 3 == 0 and len(weights) <= 16:
            on_shards = gradients_of(shardings.on_shards(function.run))
            program = dlc.jit(mesh=shardings.mesh)(on_shards).lower(*function.point).program
        got = _run_annotated(program, shardings, function.point, trial.target)
    for k, (a, b) in enumerate(zip(got, map(np.asarray, expected), strict=True)):
        if not np.isfinite(b).all() or not (function.finite or np.isfinite(a).all()):
            continue
        error, scale = np.max(np.abs(a - b), initial=0), 1 + np.max(np.abs(b), initial=0)
        if not error <= GRADIENT_TOLERANCE * scale:
            yield f"result {k} on {shardings.mesh} differs by {error:.3g}, the largest element is {scale - 1:.3g}"


def _run_annotated(program: Program, shardings: RandomShardings, arrays: Sequence[Array], target: str) -> list[Array]:
    module = program.module.clone()
    main = entry_of(module)
    assert main.body.block.last_op is not None
    inputs, outputs = shardings.specs(main.args), shardings.specs(main.body.block.last_op.operands)
    shardings.annotate(module)
    return run_sharded(replace(program, module=module), shardings.mesh, inputs, outputs, arrays, target)


def trials(seed: int, count: int, target: str | None = None) -> list[Trial]:
    """Return the trials of `count` seeds from `seed` on."""
    return [Trial("shardings", s, (target or TARGETS[s % 16 in (6, 7)],)) for s in range(seed, seed + count)]


def fuzz(selected_trials: Sequence[Trial], jobs: int) -> Iterator[TrialOutcome[Trial]]:
    """Yield the outcome of each trial, with a description of a failure or None."""
    return trial_outcomes(run, selected_trials, jobs, TIMEOUT_SECONDS)
