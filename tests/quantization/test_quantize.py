"""`dlc.quantize`: results in dlc and in ONNX's evaluator, and layers in float."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper

import dlc
from dlc.quantization.report import QuantizationReport
from dlc.quantization.sensitivity import min_float_layers
from tests.quantization.models import evaluated, images, model_of, small_net

SAMPLES, FRESH = images(80), images(8, seed=2)
draw = np.random.default_rng(9)


def error(model: ModelProto, reference: ModelProto, samples: np.ndarray = FRESH) -> float:
    """Return the relative norm of the difference between two models in ONNX's evaluator."""
    got, expected = (np.stack([evaluated(m, x) for x in samples]) for m in (model, reference))
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


@pytest.fixture(scope="module")
def made() -> QuantizationReport:
    return dlc.quantize(small_net(), SAMPLES, layers=True)


def test_outputs_are_close_to_float(made: QuantizationReport) -> None:
    assert made.error is not None and 0 < made.error < 0.02
    assert error(made.model, small_net()) < 0.02
    # The reported error equals that in ONNX's evaluator.
    assert error(made.model, small_net(), SAMPLES) == pytest.approx(made.error, rel=1e-3)
    assert (made.samples, made.kept_in_float, made.skipped_nodes) == (80, 0, {})
    assert "r1_even" in {name for node in made.model.graph.node for name in node.output}


def test_layers_are_quantized_with_either_activation_dtype(made: QuantizationReport) -> None:
    kinds = {t.name: t.data_type for t in made.model.graph.initializer}
    readers = {name: node for node in made.model.graph.node for name in node.output}
    layers = [node for node in made.model.graph.node if node.op_type in ("Conv", "Gemm")]
    assert len(layers) == 4
    for layer in layers:
        found = [readers[name] for name in layer.input]
        assert [node.op_type for node in found] == ["DequantizeLinear"] * 3
        integers = [kinds[node.input[2]] for node in found]
        assert integers == [onnx.TensorProto.UINT8, onnx.TensorProto.INT8, onnx.TensorProto.INT32]


def test_sensitivity_of_each_layer(made: QuantizationReport) -> None:
    assert [layer.name for layer in made.layers] == ["first", "depthwise", "pointwise", "classes"]
    errors = [layer.error for layer in made.layers]
    assert made.error is not None
    assert all(e is not None and 0 < e < 2 * made.error for e in errors)


@pytest.mark.parametrize(
    "options",
    [{"quantize_outputs": True, "reduce_range": True}, {"activations": "s8", "symmetric": True, "rounding": "nearest"}],
)
def test_other_settings(options: dict[str, object]) -> None:
    made = dlc.quantize(small_net("N"), list(SAMPLES), per_channel=False, equalize=False, **options)  # type: ignore[arg-type]
    assert error(made.model, small_net("N")) < 0.03
    quantizable = sum(node.op_type == "QuantizeLinear" for node in made.model.graph.node)
    assert quantizable == (8 if "quantize_outputs" in options else 6)


def test_sensitive_layers_stay_in_float(made: QuantizationReport) -> None:
    assert made.error is not None
    bounded = dlc.quantize(small_net(), SAMPLES, max_error=made.error * 0.8, keep_float=["point*"])
    assert bounded.error is not None and bounded.error <= made.error * 0.8
    kept_in_float = [layer.name for layer in bounded.layers if layer.kept_in_float]
    assert "pointwise" in kept_in_float and 1 < len(kept_in_float) < 4


def test_shared_weights() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="once"),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["b"], name="twice"),
        helper.make_node("Add", ["b", "w"], ["y"], name="itself"),
    ]
    model = model_of(nodes, {"w": draw.standard_normal((6, 6)).astype(np.float32)}, (6, 6))
    x = draw.standard_normal((30, 6, 6)).astype(np.float32)
    made = dlc.quantize(model, x, layers=True)
    assert made.error is not None and len(made.layers) == 2
    assert error(made.model, model, x) == pytest.approx(made.error, rel=1e-3) and made.error < 0.02


def test_fewest_layers_stay_in_float() -> None:
    costs = {"a": 0.5, "b": 0.2, "c": 0.1, "d": 0.01}

    def error(layers: Sequence[str]) -> float:
        return sum(costs[name] for name in layers)

    assert [min_float_layers(error, list(costs), max_error) for max_error in (1, 0.4, 0.2, 0.05)] == [0, 1, 2, 3]
    with pytest.raises(dlc.DlcError, match=r"max_error 0\.001: .* least sensitive one, 'd', the output error is 0\.01"):
        min_float_layers(error, list(costs), 0.001)


def test_dynamic_quantization_needs_no_samples() -> None:
    weights = {
        "w": draw.standard_normal((8, 16)).astype(np.float32),
        "v": draw.standard_normal((4, 16)).astype(np.float32),
        "b": draw.standard_normal(4).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "v", "b"], ["y"], name="second", transB=1),
    ]
    model = model_of(nodes, weights, ("N", 8))
    made = dlc.quantize(model, dynamic=True)
    assert made.error is None
    x = draw.standard_normal((5, 8)).astype(np.float32)
    expected = evaluated(model, x)
    assert np.abs(evaluated(made.model, x) - expected).max() < 0.03 * np.abs(expected).max()
    np.testing.assert_allclose(dlc.compile_model(made.model)(x)["y"], evaluated(made.model, x), rtol=1e-4, atol=1e-4)
    with pytest.raises(dlc.UnsupportedError, match="dynamic quantization needs MatMul or Gemm"):
        dlc.quantize(
            model_of([helper.make_node("Conv", ["x", "w"], ["y"])], {"w": np.ones((1, 1, 1), np.float32)}, (1, 1, 4)),
            dynamic=True,
        )
    with pytest.raises(dlc.DlcError, match="needs calibration data"):
        dlc.quantize(model)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("equalize", [False, True])
def test_non_finite_activations_are_errors(equalize: bool) -> None:
    broken = SAMPLES[:3].copy()
    broken[1] = np.nan
    with pytest.raises(dlc.DlcError, match=r"tensor 'x', calibration set 1: the float model computes NaN"):
        dlc.quantize(small_net(), broken, equalize=equalize)
