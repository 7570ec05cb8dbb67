"""Random operators: results equal those of dlc.random with the same key, in each call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

import dlc
from dlc import random
from dlc.errors import UnsupportedError
from tests.frontend.onnx.build import model

FLOAT16, INT64 = TensorProto.FLOAT16, TensorProto.INT64


def node(op: str, inputs: list[str], outputs: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs, outputs.split(), **attributes)


NODES = [
    node("RandomUniform", [], "u", shape=[3, 400], seed=7.0, low=-1.0, high=3.0),
    node("RandomUniform", [], "far", shape=[500], seed=8.0, low=1e6, high=1e6 + 1),
    node("RandomNormal", [], "n", shape=[2000], seed=2.5, mean=2.0, scale=0.5),
    node("RandomNormalLike", ["x"], "first"),
    node("RandomUniformLike", ["x"], "second", dtype=FLOAT16),
    node("Bernoulli", ["x"], "b", seed=3.0, dtype=INT64),
    node("Multinomial", ["logits"], "m", sample_size=4000, seed=4.0, dtype=INT64),
    node("Dropout", ["x", "ratio", "yes"], "d kept", seed=5),
]
OUTPUTS = [name for n in NODES for name in n.output]
X, LOGITS = np.full((40, 50), 0.3, np.float32), np.log(np.float32([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]]))


def test_results_equal_dlc_random() -> None:
    weights = {"ratio": np.float32(0.25), "yes": np.bool_(True)}
    made = dlc.compile_model(model(NODES, {"x": ["rows", 50], "logits": [2, 3]}, OUTPUTS, weights=weights))
    got = made(X, LOGITS)
    again = made(X, LOGITS)
    assert all(np.array_equal(got[name], again[name]) for name in OUTPUTS)
    fraction = int(np.float32(2.5).view(np.uint32))
    own = [random.fold_in(random.key(0), k) for k in range(2)]
    np.testing.assert_array_equal(got["u"], random.uniform(random.key(7), (3, 400), np.float32, -1.0, 3.0))
    np.testing.assert_array_equal(got["far"], random.uniform(random.key(8), (500,), np.float32, 1e6, 1e6 + 1))
    assert got["far"].max() < 1e6 + 1
    np.testing.assert_allclose(got["n"], 2 + 0.5 * np.asarray(random.normal(random.key(fraction), (2000,))), 1e-6)
    np.testing.assert_allclose(got["first"], random.normal(own[0], X.shape), 1e-5, 1e-6)
    np.testing.assert_array_equal(got["second"], random.uniform(own[1], X.shape, np.float16))
    np.testing.assert_array_equal(got["b"], np.asarray(random.bernoulli(random.key(3), 0.3, X.shape)))
    kept = np.asarray(random.uniform(random.key(5), X.shape)) >= 0.25
    np.testing.assert_array_equal(got["kept"], kept)
    np.testing.assert_allclose(got["d"], np.where(kept, X / 0.75, 0), 1e-6)
    # The frequency of each index, within four standard deviations.
    often = [[np.mean(row == place) for place in range(3)] for row in got["m"]]
    np.testing.assert_allclose(often, np.exp(LOGITS), atol=4 * 0.5 / np.sqrt(4000))


def test_random_operators_in_loops() -> None:
    """A scan with random ops is refused; a loop is unrolled, so that each iteration has its own key."""
    info = helper.make_tensor_value_info
    draw = [node("RandomUniformLike", ["s"], "t")]
    scanned = helper.make_graph(draw, "body", [info("s", 1, [2])], [info("t", 1, [2])])
    with pytest.raises(UnsupportedError, match=r"\(RandomUniformLike\).*same values each time"):
        dlc.compile_model(model([node("Scan", ["x"], "y", body=scanned, num_scan_inputs=1)], {"x": [3, 2]}, ["y"]))
    on = info("on", TensorProto.BOOL, [])
    again = [*draw, node("Identity", ["t"], "row")]
    body = helper.make_graph(
        again, "body", [info("i", INT64, []), on, info("s", 1, [2])], [on, info("t", 1, [2]), info("row", 1, [2])]
    )
    source = model([node("Loop", ["n", "", "x"], "y rows", body=body)], {"x": [2]}, ["rows"], weights={"n": np.int64(3)})
    rows = dlc.compile_model(source, target="reference")(X[0, :2])["rows"]
    assert len(np.unique(rows)) == 6
