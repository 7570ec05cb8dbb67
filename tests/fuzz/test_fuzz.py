"""Short runs of all fuzzers, and tests that they detect faults."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from dlc.compiler import compile
from dlc.dialects import dl
from dlc.ir import Block
from dlc.runtime.opencl.devices import all_devices
from tests.fuzz import (
    batching,
    control,
    data_dependent,
    derivatives,
    edge_values,
    files,
    graphs,
    kernels,
    loops,
    onnx_attributes,
    plans,
    programs,
    ranks,
    regions,
    shapes,
    shardings,
    supervise,
)
from tests.fuzz.bounded_value import BoundedArray, difference
from tests.fuzz.bounds import track
from tests.fuzz.draw_graph import OPERATORS, RECIPES, random_graph
from tests.fuzz.draw_program import random_program, rounded_program
from tests.fuzz.graph_control import CONTROL
from tests.fuzz.random_graph import RandomGraph
from tests.fuzz.random_values import Unsuitable
from tests.fuzz.recipes import OPS
from tests.fuzz.supervise import run_supervised
from tests.fuzz.trials import TrialOutcome


def assert_no_failures(outcomes: Iterable[TrialOutcome[object]]) -> Counter[str]:
    """Check that no trial failed, and return the number of trials by outcome."""
    completed = list(outcomes)
    assert not [f"{trial}\n{mismatch}" for trial, _, mismatch in completed if mismatch is not None]
    return Counter(outcome for _, outcome, _ in completed)


def test_every_op_is_drawn() -> None:
    missing, seed = set(OPS), 0
    while missing and seed < 4000:
        missing -= random_program(seed).ops
        seed += 1
    assert not missing, f"not drawn by {seed} seeds: {', '.join(sorted(op.name for op in missing))}"


def test_most_results_are_exact_and_few_are_unbounded() -> None:
    results = [r.bounded for seed in range(300) for r in random_program(seed).results if r.bounded.array.size]
    assert np.mean([r.error is None for r in results]) > 0.4
    assert np.mean([r.unbounded.mean() for r in results]) < 0.02


@pytest.mark.filterwarnings("ignore")
def test_programs() -> None:
    ops = set[object]()
    failures = list(programs.fuzz(programs.trials(0, 100), 1, lambda report: ops.update(report.ops)))
    assert not failures, "\n".join(map(str, failures))
    assert len(ops) > 60


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_programs_with_reduced_precision(precision: str) -> None:
    """Errors are within the bounds of the precision, and exceed those of f32."""
    trials = programs.trials(0, 25, "cpu", precision=precision)
    assert not (failures := list(programs.fuzz(trials, 1))), "\n".join(map(str, failures))
    batch = programs.Batch(rounded_program, range(5))
    model = compile(batch.program, "cpu", replace(programs.OPTIONS, precision=precision))
    got = [np.asarray(r) for r in model.run_unchecked(batch.inputs)]
    assert any(difference(a, want) for a, want in zip(got, batch.expected, strict=True))


@pytest.mark.filterwarnings("ignore")
def test_kernels() -> None:
    assert_no_failures(kernels.fuzz(kernels.trials(0, 12), 1))


def test_loops() -> None:
    assert_no_failures(loops.fuzz(loops.trials(0, 6), 1))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("target", "count"), [("reference", 40), ("cpu", 6)])
def test_batched_functions(target: str, count: int) -> None:
    assert_no_failures(batching.fuzz(batching.trials(0, count, target), 1))


@pytest.mark.filterwarnings("ignore")
def test_derivatives_of_functions() -> None:
    assert_no_failures(derivatives.fuzz(derivatives.trials(0, 8, "reference"), 1))


def test_regions() -> None:
    counts = assert_no_failures(regions.fuzz(regions.trials(0, 60, "reference"), 1))
    assert counts["compared"] > 40


def test_edge_values() -> None:
    counts = assert_no_failures(edge_values.fuzz(edge_values.trials(0, 60, "reference"), 1))
    assert counts["compared"] > 40


def test_onnx_attributes() -> None:
    pytest.importorskip("onnxruntime")
    counts = assert_no_failures(onnx_attributes.fuzz(onnx_attributes.trials(0, 100, "reference"), 1))
    assert counts["compared"] > 80


@pytest.mark.filterwarnings("ignore")
def test_ranks() -> None:
    assert_no_failures(ranks.fuzz(ranks.trials(0, 4), 1))


def test_shardings() -> None:
    assert_no_failures(shardings.fuzz(shardings.trials(0, 60, "reference"), 1))


@pytest.mark.filterwarnings("ignore")
def test_plans_of_large_shapes() -> None:
    assert_no_failures(plans.fuzz(plans.trials(0, 12), 1))


@pytest.mark.parametrize("target", plans.TARGETS)
def test_a_wide_training_step_has_a_plan(target: str) -> None:
    m, k, n = 1024, 256, 4096
    plans.Case("update", [(k, m), (k, n), (m, n)], np.dtype(np.float32), target, backward=False).emit_kernels()


def test_data_dependent_programs() -> None:
    outcomes = assert_no_failures(data_dependent.fuzz(data_dependent.trials(0, 5), 1))
    assert set(outcomes) == {"one program"}


def test_graphs_match_onnx_reference() -> None:
    outcomes = assert_no_failures(graphs.fuzz(graphs.trials(0, 60), 1))
    assert outcomes["compared"] > 55


def test_dynamic_shapes_match_static_ones() -> None:
    outcomes = assert_no_failures(shapes.fuzz(shapes.trials(0, 16, "reference"), 1))
    assert outcomes["compared"] > 12


def test_every_operator_is_drawn() -> None:
    assert not [op for op in OPERATORS if not any(draws(seed, op) for seed in range(1000))]


def test_graphs_have_subgraphs_strings_sequences_and_external_data() -> None:
    found, seed = set[str](), 0
    required = {*(f"a body in {outer}" for outer in CONTROL), "strings", "sequences", "external"}
    while not required <= found and seed < 1000:
        graph = random_graph(seed)
        found |= {"strings"} if graph.has_strings else {"external"} if graph.external and graph.weights else set()
        found |= {"sequences"} if graph.has_sequence_io and not graph.has_strings else set()
        bodies = [(node.op_type, a.g.node) for node in graph.nodes for a in node.attribute if a.HasField("g")]
        bodies += [(f.name, f.node) for f in graph.functions]
        found |= {f"a body in {outer}" for outer, nodes in bodies for inner in nodes if inner.op_type in CONTROL}
        seed += 1
    assert required <= found, f"not drawn by {seed} seeds: {required - found}"


def draws(seed: int, op: str) -> bool:
    graph = RandomGraph(seed)
    with suppress(Unsuitable):
        RECIPES[op](graph, op)
    return any(node.op_type == op for node in graph.nodes)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ["onnx", "external", "dump", "tflite", "gguf", "folder"])
def test_files(family: str) -> None:
    trials = files.trials(0, {"dump": 12, "tflite": 15}.get(family, 25), [family])
    assert assert_no_failures(files.fuzz(trials, 1)).total() == len(trials)


def test_artifacts_from_the_command_line() -> None:
    """Run the command in its own process: some artifacts need OpenCL, whose driver must not be open before a fork."""
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
def test_opencl_before_a_fork_is_an_error() -> None:
    ((_, outcome, mismatch),) = control.fuzz(control.trials(0, 1, "opencl"), 1)
    assert outcome == "failed" and "OpenCL was used before this process was forked" in (mismatch or "")


def test_seeds_are_deterministic() -> None:
    first, second = (programs.Batch(random_program, [7, 8]) for _ in range(2))
    assert str(first.program.module) == str(second.program.module)
    for a, b in zip(first.inputs, second.inputs, strict=True):
        np.testing.assert_array_equal(a, b)
    assert [t.seed for t in files.trials(5, 4, ["onnx", "dump"])] == [5, 6, 7, 8]


def _misbehaves(behavior: str) -> str:
    match behavior:
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
    return behavior


def test_failing_items_are_reported_and_others_continue() -> None:
    items = ["well", "crashes", "hangs", "waits", "allocates", "raises", "exits", "again"]
    outcomes = {o.item: o for o in run_supervised(_misbehaves, items, seconds=0.25, memory=1 << 30)}
    assert list(outcomes) == items
    assert [o.result for o in outcomes.values() if o.death is None] == ["well", "again"]
    ends = dict.fromkeys(("hangs", "waits"), "no end after")
    words = {"crashes": "SIGABRT", **ends, "allocates": "MemoryError", "raises": "wrong", "exits": "status 3"}
    for item, word in words.items():
        assert word in (outcomes[item].death or "")


def test_a_process_without_a_processor_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = supervise._processor_time(os.getpid())
    child = supervise.Child(os.getpid(), pipe=-1, items=["item"], began=time.monotonic() - 100, spent=spent)
    for queue_seconds, is_late in ((0, True), (95, False)):
        monkeypatch.setattr(supervise, "_queue_time", lambda process, seconds=queue_seconds: seconds)
        assert child.is_late(5) == is_late


def _bound(op: type, *operands: BoundedArray, **properties: object) -> BoundedArray:
    block = Block(arg_types=[dl.base.tensor_type(o.array.shape, dl.dtypes.element_type(o.array.dtype)) for o in operands])
    return track(op.make(*block.args, **properties), *operands)[0]


def test_bounds_follow_the_conditioning() -> None:
    x = BoundedArray(np.float32([1.0, 3.0]), is_source=True)
    third = _bound(dl.DivOp, x, BoundedArray(np.float32([3.0, 3.0]), is_source=True))
    # 3 / 3 is exact, 1 / 3 is not.
    assert third.errors[1] == 0 < third.errors[0] < 1e-7
    # A difference of nearly equal values (cancellation) has the same absolute error as they have.
    rest = _bound(dl.SubOp, third, BoundedArray(np.float32([0.3333333, 0.5]), is_source=True))
    assert rest.errors[0] >= abs(rest.array[0]) / 2 > 0
    # A comparison that rounding may change is unbounded, others are exact.
    less = _bound(dl.LessOp, third, BoundedArray(third.array + np.float32([0, 1]), is_source=True))
    assert less.unbounded.tolist() == [True, False]
    assert difference(np.array([True, True]), less) is None
    assert difference(np.array([True, False]), less) is not None
    # The minimum of two values has the larger of their errors.
    uncertain = BoundedArray(np.float32([1.0]), np.array([0.1]))
    indices, update = (BoundedArray(np.asarray(a), is_source=True) for a in (np.int64([0]), np.float32([2.0])))
    assert _bound(dl.ScatterRowsOp, uncertain, indices, update, mode="min").errors[0] >= 0.1


def test_difference_finds_wrong_elements() -> None:
    want = BoundedArray(np.float32([1, np.nan, np.inf, 2]), np.array([1e-6, 0, 0, np.inf]))
    assert difference(np.float32([1.000001, np.nan, np.inf, 7]), want) is None
    for mismatch in ([1.001, np.nan, np.inf, 2], [1, 0, np.inf, 2], [1, np.nan, -np.inf, 2], [np.nan, np.nan, np.inf, 2]):
        assert difference(np.float32(mismatch), want) is not None
    assert difference(np.float64([1, np.nan, np.inf, 2]), want) is not None
