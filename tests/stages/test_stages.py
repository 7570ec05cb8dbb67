"""The module after every stage computes the same results, and so does the code generated from the last one."""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import dlc
from dlc.backends.reference import evaluate
from dlc.backends.registry import backend_of
from dlc.compiler import Program, compile, load_program
from dlc.compiler.compilation import Compilation
from dlc.compiler.lowering import Lowering
from dlc.dialects.dl.base import Array
from dlc.errors import CompileError
from dlc.ir import Context, ModuleOp, print_module
from dlc.options import Options
from dlc.passes.host.plan_arena import PlanArenaPass
from dlc.pipelines import HOST
from tests.fuzz.bounded_value import BoundedArray, difference
from tests.fuzz.draw_program import random_program
from tests.fuzz.random_program import Batch
from tests.models.skeletons import path_of, recordings

# Of a model's results, relative to the largest magnitude.
TOLERANCE = 1e-5
OPTIONS = Options(num_threads=1, workers=1)


def results_by_stage(program: Program, inputs: Sequence[Array]) -> Iterator[tuple[str, list[Array]]]:
    """Yield the results of the last module of each stage, and finally of the machine code."""
    lowering = Lowering(Compilation(program, backend_of("cpu"), OPTIONS))
    for stage in lowering.plan:
        if stage.name == HOST.name:
            # Compiled from where the kernels are lowered to, so that they are not lowered twice.
            passes = ",".join(map(str, stage.passes))
            lowered = Program(lowering.module.clone(), lowering.weights, program.name, remaining_passes=passes)
            lowering.host()
        else:
            lowering.run((stage,))
        yield stage.name, evaluate(lowering.module, inputs, lowering.weights)
    yield "cpu", [np.asarray(r) for r in compile(lowered, "cpu", OPTIONS).run_unchecked(inputs)]


def agree_at_every_stage(program: Program, inputs: Sequence[Array], expected: Sequence[BoundedArray]) -> None:
    seen: list[str] = []
    for stage, results in results_by_stage(program, inputs):
        seen.append(stage)
        for k, (got, want) in enumerate(zip(results, expected, strict=True)):
            wrong = difference(np.asarray(got), want)
            assert wrong is None, f"result {k} at {stage}: {wrong}"
    assert seen == ["dl", "fusion", "linalg", "tiling", "loops", "host", "cpu"]


@pytest.mark.parametrize("name", ["mnist_cnn", "magika_v3_3"])
def test_model(name: str) -> None:
    feeds, _ = next(recordings(name))
    program = load_program(path_of(name), {n: a.shape for n, a in feeds.items()})
    inputs = [feeds[info.name] for info in program.inputs]
    expected = evaluate(program.module, inputs, program.weights)
    # Sums are reassociated and functions approximated anew at some stages.
    bounds = [BoundedArray(e, np.full(e.shape, TOLERANCE * np.abs(e).max())) for e in expected]
    agree_at_every_stage(program, inputs, bounds)


@pytest.mark.filterwarnings("ignore:Mean of empty", "ignore:Degrees of freedom")
@pytest.mark.parametrize("seed", range(24))
def test_random_program(seed: int) -> None:
    made = Batch(partial(random_program, size=8), [seed])
    agree_at_every_stage(made.program, made.inputs, made.expected)


@pytest.mark.parametrize("whole_file", [False, True], ids=["program", "file"])
def test_a_crash_in_the_backend_dumps_the_last_module(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, whole_file: bool
) -> None:
    (tmp_path / "a folder").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "a folder"))
    seen: list[str] = []

    def fails(self: PlanArenaPass, ctx: Context, op: ModuleOp) -> None:
        seen.append(print_module(op))
        raise ValueError("no room")

    monkeypatch.setattr(PlanArenaPass, "apply", fails)
    with pytest.raises(CompileError, match="no room") as crash:
        if whole_file:
            dlc.compile_model(path_of("mnist_cnn"), cache=False)
        else:
            compile(load_program(path_of("mnist_cnn")), "cpu", Options(workers=1, cache=False))
    line = re.search(r"reproduce it: (.*)", str(crash.value))
    assert line is not None
    assert [Path(shlex.split(line[1])[2]).read_text()] == seen
