"""The node tests of ONNX: supported cases are correct, and the list of unsupported cases is exact."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from dlc.frontend.onnx import import_model
from dlc.frontend.onnx.operators import OPERATORS
from tests.frontend.onnx.build import model, run
from tests.suites.onnx_node import cases, node_suite, run_node_test
from tests.suites.record import differences, read_record
from tests.suites.suite import run_case

RECORD = read_record("onnx-node")
GAPS = RECORD.gaps
# Operators without a passing case in the suite; they are tested here and in test_operator_edge_cases.py, test_sequences.py,
# test_random.py.
UNTESTED = {
    "GlobalLpPool", "Optional", "SequenceConstruct", "SequenceAt", "SequenceErase", "ConcatFromSequence",
    "RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike", "Bernoulli", "Multinomial",
    "MaxRoiPool",
}  # fmt: skip
PARTS = 8

pytestmark = pytest.mark.skipif(
    f"onnx {onnx.__version__}," not in RECORD.conditions, reason=f"the results are recorded for {RECORD.conditions}"
)


@pytest.mark.parametrize("part", range(PARTS))
def test_reference(part: int) -> None:
    suite = node_suite("reference")
    outcomes = [run_case(suite, name) for name in suite.names[part::PARTS]]
    assert not differences(RECORD, outcomes), "run python -m tests.suites onnx-node --update-docs to record the results"


def test_a_sample_on_cpu() -> None:
    for name in [name for name in cases() if name not in GAPS][::40]:
        run_node_test(name, "cpu")


def test_the_list_names_cases_of_the_suite() -> None:
    assert GAPS.keys() <= cases().keys()


def test_every_operator_has_a_case() -> None:
    passing = {node.op_type for name, case in cases().items() if name not in GAPS for node in case.model.graph.node}
    assert OPERATORS.keys() - passing == UNTESTED


def test_global_lp_pool() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    source = model([helper.make_node("GlobalLpPool", ["x"], ["y"], p=3)], {"x": x.shape}, ["y"])
    expected = (np.abs(x) ** 3).sum((2, 3), keepdims=True) ** (1 / 3)
    np.testing.assert_allclose(run(import_model(source), {"x": x})["y"], expected, 1e-5)
