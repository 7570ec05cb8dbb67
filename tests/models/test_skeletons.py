"""Full-size networks on the `cpu` target, compared with recorded outputs and inner tensors.

Each is compiled twice: with the inner tensors as outputs, which shows where an error starts, and as it is, since outputs end
kernels and the model without them is fused further.
"""

from __future__ import annotations

import numpy as np
import pytest

from dlc.compiler import Program, compile
from dlc.frontend.onnx import import_model
from tests.models.skeletons import TOLERANCE, deviation, filled, inputs, recorded, sampled

# A sigmoid of numbers around 10,000, whose own rounding is 1e-3: the recording is 4e-4 away from the exact result.
ILL_CONDITIONED = {("efficientnet_b0", "val_559"): 1e-2}

MODELS = ("resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0", "squeezenet1_1", "bert_base_128", "vit_b16")
COMPILED_BY_OTHERS = {("resnet50", False): "test_resnet50_dump.py"}
CASES = [(name, inner) for name in MODELS for inner in (True, False) if (name, inner) not in COMPILED_BY_OTHERS]


@pytest.mark.parametrize(("name", "inner"), CASES, ids=[f"{name}-{'inner_tensors' if i else 'outputs'}" for name, i in CASES])
def test_skeleton(name: str, inner: bool) -> None:
    model = filled(name)
    outputs, inner_tensors = recorded(name)
    expected = outputs | inner_tensors if inner else outputs
    feeds = inputs(name, model)
    imported = import_model(model, extra_outputs=[n for n in expected if n not in outputs])
    got = compile(Program(imported.module, imported.weights, name))(feeds)
    assert list(got) == list(expected)
    distances = {n: deviation(sampled(np.asarray(got[n])), array) for n, array in expected.items()}
    far = {n: d for n, d in distances.items() if d > ILL_CONDITIONED.get((name, n), TOLERANCE)}
    assert not far, f"tensors that are not what was recorded: {far}"
