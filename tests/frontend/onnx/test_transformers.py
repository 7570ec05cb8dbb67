"""Transformer operators against results of ONNX Runtime in `transformers.npz`."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.errors import UnsupportedError
from dlc.frontend.onnx import import_model
from dlc.frontend.onnx.operators.transformers import table
from tests.frontend.onnx.build import run
from tests.frontend.onnx.transformers import CASES, GROUPS, HEADS, LENGTH, NEXT, RECORDED, WIDTH, Case


@pytest.mark.parametrize("name", CASES)
def test_equals_onnx_runtime(name: str) -> None:
    case, recorded = CASES[name], np.load(RECORDED)
    outputs = run(import_model(case.model()), case.feeds())
    assert {f"{name}/{o}" for o in outputs} == {key for key in recorded if key.rpartition("/")[0] == name}
    for output, y in outputs.items():
        np.testing.assert_allclose(y, recorded[f"{name}/{output}"], rtol=1e-4, atol=1e-5, err_msg=output)


def test_every_operator_is_recorded() -> None:
    assert {case.op for case in CASES.values()} == table.entries.keys()


@pytest.mark.parametrize(
    "case, problem",
    [
        (Case("MultiHeadAttention", {"q": (1, LENGTH, HEADS, 3, 6)}, {"num_heads": HEADS}), "one tensor"),
        (Case("Attention", {"x": (1, 2, WIDTH), "w": (WIDTH, 3 * WIDTH)}, {"num_heads": HEADS, "do_rotary": 1}), "do_rotary"),
        (Case("GroupQueryAttention", {**NEXT, "total": np.int32(3)}, GROUPS), "a cache of length 3 for 3 keys"),
        (Case("SkipLayerNormalization", {"x": (2, 4), "s": (2, 4), "g": (4,)}, {}, "y mean"), "export without them"),
    ],
)
def test_unsupported_features_are_named(case: Case, problem: str) -> None:
    with pytest.raises(UnsupportedError, match=problem):
        import_model(case.model())
