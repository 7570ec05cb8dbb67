"""A short run of the fuzzers, and that they see what they should."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from dlc.compiler import compile
from dlc.dialects import dl
from dlc.ir import Block
from dlc.runtime.opencl.devices import all_devices
from tests.fuzz import control, counts, derivatives, files, graphs, lanes, programs
from tests.fuzz.bounds import track
from tests.fuzz.drawing import random_program, rounded_program
from tests.fuzz.draws import Unsuitable
from tests.fuzz.graph_control import CONTROL
from tests.fuzz.graph_drawing import OPERATORS, RECIPES, random_graph
from tests.fuzz.random_graph import RandomGraph
from tests.fuzz.recipes import OPS
from tests.fuzz.supervise import supervised
from tests.fuzz.tracked import Tracked, difference


def test_every_op_is_drawn() -> None:
    missing, seed = set(OPS), 0
    while missing and seed < 4000:
        missing -= random_program(seed).ops
        seed += 1
    assert not missing, f"not drawn by {seed} seeds: {', '.join(sorted(op.name for op in missing))}"


def test_most_results_are_exact_and_few_are_free() -> None:
    results = [r.tracked for seed in range(300) for r in random_program(seed).results if r.tracked.array.size]
    assert np.mean([r.error is None for r in results]) > 0.4
    assert np.mean([r.free.mean() for r in results]) < 0.02


@pytest.mark.filterwarnings("ignore")
def test_programs() -> None:
    ops = set[object]()
    failures = list(programs.fuzz(programs.trials(0, 100), 1, lambda report: ops.update(report.ops)))
    assert not failures, "\n".join(map(str, failures))
    assert len(ops) > 60


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_programs_of_a_precision(precision: str) -> None:
    """Contractions with weights are as far off as numbers of 16 bits make them, and are seen to be further off than f32."""
    chosen = programs.trials(0, 25, "cpu", precision=precision)
    assert not (failures := list(programs.fuzz(chosen, 1))), "\n".join(map(str, failures))
    batch = programs.Batch(rounded_program, range(5))
    model = compile(batch.program, "cpu", replace(programs.OPTIONS, precision=precision))
    got = [np.asarray(r) for r in model.run_unchecked(batch.inputs)]
    assert any(difference(a, want) for a, want in zip(got, batch.expected, strict=True))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("target", "count"), [("reference", 40), ("cpu", 6)])
def test_functions_in_lanes(target: str, count: int) -> None:
    failures = list(lanes.fuzz(lanes.trials(0, count, target), 1))
    assert not failures, "\n".join(map(str, failures))


@pytest.mark.filterwarnings("ignore")
def test_derivatives_of_functions() -> None:
    failures = list(derivatives.fuzz(derivatives.trials(0, 8, "reference"), 1))
    assert not failures, "\n".join(map(str, failures))


def test_counts() -> None:
    outcomes = list(counts.fuzz(counts.trials(0, 5), 1))
    assert not [f"{trial}\n{wrong}" for trial, _, wrong in outcomes if wrong]
    assert {kind for _, kind, _ in outcomes} == {"one program"}


def test_graphs_beside_the_reference_of_onnx() -> None:
    outcomes = list(graphs.fuzz(graphs.trials(0, 60), 1))
    assert not [f"{trial}\n{wrong}" for trial, _, wrong in outcomes if wrong is not None]
    assert sum(what == "compared" for _, what, _ in outcomes) > 55


def test_every_operator_is_drawn() -> None:
    assert not [op for op in OPERATORS if not any(draws(seed, op) for seed in range(1000))]


def test_graphs_have_bodies_text_sequences_and_external_data() -> None:
    found, seed = set[str](), 0
    wanted = {*(f"a body in {outer}" for outer in CONTROL), "text", "sequences", "external"}
    while not wanted <= found and seed < 1000:
        graph = random_graph(seed)
        found |= {"text"} if graph.has_text else {"external"} if graph.external and graph.weights else set()
        found |= {"sequences"} if graph.in_sequences and not graph.has_text else set()
        bodies = [(node.op_type, a.g.node) for node in graph.nodes for a in node.attribute if a.HasField("g")]
        bodies += [(f.name, f.node) for f in graph.functions]
        found |= {f"a body in {outer}" for outer, nodes in bodies for inner in nodes if inner.op_type in CONTROL}
        seed += 1
    assert wanted <= found, f"not drawn by {seed} seeds: {wanted - found}"


def draws(seed: int, op: str) -> bool:
    graph = RandomGraph(seed)
    with suppress(Unsuitable):
        RECIPES[op](graph, op)
    return any(node.op_type == op for node in graph.nodes)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ["onnx", "external", "dump", "tflite"])
def test_files(family: str) -> None:
    chosen = files.trials(0, {"dump": 12, "tflite": 15}.get(family, 25), [family])
    outcomes = list(files.fuzz(chosen, 1))
    assert len(outcomes) == len(chosen)
    assert not [f"{trial}\n{wrong}" for trial, _, wrong in outcomes if wrong is not None]


def test_artifacts_by_the_command() -> None:
    """Some are for a device: a process of its own, in which no driver was open before it forked."""
    command = [sys.executable, "-m", "tests.fuzz", "files", "--of", "artifact", "--count", "100", "--jobs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "loaded" in done.stdout and "run" in done.stdout


PARENT = """
import sys
from tests.fuzz import __main__, files
files.prepare("artifact")
sys.exit("pyopencl" in sys.modules)
"""


def test_no_fuzzer_opens_a_driver_before_it_forks() -> None:
    assert subprocess.run([sys.executable, "-c", PARENT], check=False).returncode == 0


@pytest.mark.skipif(not all_devices(), reason="no OpenCL device")
def test_a_driver_that_was_open_before_is_an_error_at_once() -> None:
    ((_, became, wrong),) = control.fuzz(control.trials(0, 1, "opencl"), 1)
    assert became == "failed" and "OpenCL was opened before this process was forked" in (wrong or "")


def test_a_seed_makes_the_same_program_and_the_same_file() -> None:
    first, second = (programs.Batch(random_program, [7, 8]) for _ in range(2))
    assert str(first.program.module) == str(second.program.module)
    for a, b in zip(first.inputs, second.inputs, strict=True):
        np.testing.assert_array_equal(a, b)
    assert [t.seed for t in files.trials(5, 4, ["onnx", "dump"])] == [5, 6, 7, 8]


def _misbehaves(how: str) -> str:
    match how:
        case "crashes":
            os.abort()
        case "hangs":
            while True:
                pass
        case "waits":
            time.sleep(60)
        case "allocates":
            return str(len(bytearray(8 << 30)))
        case "raises":
            raise ValueError("wrong")
        case "exits":
            os._exit(3)
    return how


def test_what_misbehaves_is_found_and_the_rest_goes_on() -> None:
    items = ["well", "crashes", "hangs", "waits", "allocates", "raises", "exits", "again"]
    outcomes = {o.item: o for o in supervised(_misbehaves, items, seconds=0.25, memory=1 << 30)}
    assert list(outcomes) == items
    assert [o.result for o in outcomes.values() if o.death is None] == ["well", "again"]
    ends = dict.fromkeys(("hangs", "waits"), "no end after")
    words = {"crashes": "SIGABRT", **ends, "allocates": "MemoryError", "raises": "wrong", "exits": "status 3"}
    for item, word in words.items():
        assert word in (outcomes[item].death or "")


def _bound(op: type, *operands: Tracked, **properties: object) -> Tracked:
    block = Block(arg_types=[dl.base.tensor_type(o.array.shape, dl.dtypes.element_type(o.array.dtype)) for o in operands])
    return track(op.make(*block.args, **properties), *operands)[0]


def test_bounds_follow_the_conditioning() -> None:
    x = Tracked(np.float32([1.0, 3.0]), given=True)
    third = _bound(dl.DivOp, x, Tracked(np.float32([3.0, 3.0]), given=True))
    # 3 / 3 is exact, 1 / 3 is not.
    assert third.errors[1] == 0 < third.errors[0] < 1e-7
    # What is left of a difference of nearly equal numbers is as uncertain as they are.
    rest = _bound(dl.SubOp, third, Tracked(np.float32([0.3333333, 0.5]), given=True))
    assert rest.errors[0] >= abs(rest.array[0]) / 2 > 0
    # A comparison that rounding decides is free, others are exact.
    less = _bound(dl.LessOp, third, Tracked(third.array + np.float32([0, 1]), given=True))
    assert less.free.tolist() == [True, False]
    assert difference(np.array([True, True]), less) is None
    assert difference(np.array([True, False]), less) is not None
    # The smaller one of two is as uncertain as the less certain one of them.
    uncertain = Tracked(np.float32([1.0]), np.array([0.1]))
    places, update = (Tracked(np.asarray(a), given=True) for a in (np.int64([0]), np.float32([2.0])))
    assert _bound(dl.ScatterRowsOp, uncertain, places, update, mode="min").errors[0] >= 0.1


def test_a_difference_is_seen() -> None:
    want = Tracked(np.float32([1, np.nan, np.inf, 2]), np.array([1e-6, 0, 0, np.inf]))
    assert difference(np.float32([1.000001, np.nan, np.inf, 7]), want) is None
    for wrong in ([1.001, np.nan, np.inf, 2], [1, 0, np.inf, 2], [1, np.nan, -np.inf, 2], [np.nan, np.nan, np.inf, 2]):
        assert difference(np.float32(wrong), want) is not None
    assert difference(np.float64([1, np.nan, np.inf, 2]), want) is not None
