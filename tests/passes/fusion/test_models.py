"""Whole models through the stages `dl` and `fusion`: equal values after every pass, and the expected kernels."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest

from dlc.backends.reference import evaluate
from dlc.dialects import dl
from dlc.frontend.onnx import ImportedModel, import_model
from dlc.instrument.verify import verify
from dlc.ir import Context, ModuleOp, ModulePass
from dlc.passes.dl.programs.bind_dims import bind_dims
from dlc.pipelines import stages_of
from dlc.target import CPU_LEVELS
from tests.models.skeletons import deviation, filled, path_of, recordings

STAGES = [s for s in stages_of(CPU_LEVELS["cpu:avx512"]) if s.name in ("dl", "fusion")]
# A convolution stays one op, to be counted.
PASSES: list[ModulePass] = [p for s in STAGES for p in s.passes if p.name != "winograd"]
# Sums are reassociated; the quantised model may round to the next step.
TOLERANCE = {"mnist_cnn": 1e-5, "llama_tiny_prefill_16": 1e-5, "magika_v3_3": 1e-5, "mnist_cnn_int8_qdq": 1e-2}


def bound(model: ImportedModel, arrays: dict[str, np.ndarray]) -> ModuleOp:
    sizes = {str(s): n for i in model.inputs for s, n in zip(i.shape, arrays[i.name].shape, strict=True)}
    bind_dims(model.module, sizes)
    return model.module


@pytest.mark.parametrize("name", TOLERANCE)
def test_each_pass_preserves_results(name: str) -> None:
    arrays, _ = next(recordings(name))
    model = import_model(path_of(name))
    module = bound(model, arrays)
    inputs = [arrays[i.name] for i in model.inputs]
    expected = evaluate(module, inputs, model.weights)
    for p in PASSES:
        p.apply(Context(), module)
        verify(module)
        for got, array in zip(evaluate(module, inputs, model.weights), expected, strict=True):
            assert deviation(got, array) <= TOLERANCE[name], p.name


def fused(model: onnx.ModelProto) -> ModuleOp:
    module = import_model(model).module
    for p in PASSES:
        p.apply(Context(), module)
    verify(module)
    return module


def ops_in_kernels(module: ModuleOp) -> Counter[str]:
    """Return how often each op runs; kernels count once per dispatch."""
    kernels = {k.symbol: [op.name for op in k.body.block.ops] for k in module.ops if isinstance(k, dl.KernelOp)}
    return Counter(name for op in module.walk() if isinstance(op, dl.DispatchOp) for name in kernels[op.symbol])


# Kernels per model: convolutions and the classifier, padding of the image, pools, gates and concatenations; no others.
@pytest.mark.parametrize(
    ("name", "dispatches"), [("resnet18", 24), ("mobilenet_v2", 55), ("squeezenet1_1", 39), ("efficientnet_b0", 116)]
)
def test_no_transposes_between_convolutions(name: str, dispatches: int) -> None:

    module = fused(filled(name))
    counts = ops_in_kernels(module)
    assert counts["dl.transpose"] <= 1, "only the image is transposed"
    assert sum(isinstance(op, dl.DispatchOp) for op in module.walk()) <= dispatches
