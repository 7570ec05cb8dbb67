"""Models in integers, from Python: what they compute, also where others run them, and what stays in floats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper

import dlc
from dlc.quantization.report import Quantization
from dlc.quantization.sensitivity import least_kept
from tests.quantization.models import evaluated, model_of, pictures, small_net

SAMPLES, FRESH = pictures(80), pictures(8, seed=2)
draw = np.random.default_rng(9)


def error(model: ModelProto, reference: ModelProto, samples: np.ndarray = FRESH) -> float:
    """The norm of the difference of what ONNX's evaluator makes of two models, as a share."""
    got, expected = (np.stack([evaluated(m, x) for x in samples]) for m in (model, reference))
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


@pytest.fixture(scope="module")
def made() -> Quantization:
    return dlc.quantize(small_net(), SAMPLES, layers=True)


def test_outputs_are_near_those_in_floats(made: Quantization) -> None:
    assert made.error is not None and 0 < made.error < 0.02
    assert error(made.model, small_net()) < 0.02
    # The error that is reported is that of the evaluator too.
    assert error(made.model, small_net(), SAMPLES) == pytest.approx(made.error, rel=1e-3)
    assert (made.samples, made.kept, made.others) == (80, 0, {})
    assert "r1_even" in {name for node in made.model.graph.node for name in node.output}


def test_layers_are_integers_of_either_kind(made: Quantization) -> None:
    kinds = {t.name: t.data_type for t in made.model.graph.initializer}
    readers = {name: node for node in made.model.graph.node for name in node.output}
    layers = [node for node in made.model.graph.node if node.op_type in ("Conv", "Gemm")]
    assert len(layers) == 4
    for layer in layers:
        found = [readers[name] for name in layer.input]
        assert [node.op_type for node in found] == ["DequantizeLinear"] * 3
        integers = [kinds[node.input[2]] for node in found]
        assert integers == [onnx.TensorProto.UINT8, onnx.TensorProto.INT8, onnx.TensorProto.INT32]


def test_every_layer_is_measured_alone(made: Quantization) -> None:
    assert [layer.name for layer in made.layers] == ["first", "depthwise", "pointwise", "classes"]
    errors = [layer.error for layer in made.layers]
    assert made.error is not None
    assert all(e is not None and 0 < e < 2 * made.error for e in errors)


@pytest.mark.parametrize("options", [{"everywhere": True}, {"activations": "s8", "symmetric": True, "rounding": "nearest"}])
def test_others_of_its_kind(options: dict[str, object]) -> None:
    made = dlc.quantize(small_net("N"), list(SAMPLES), per_channel=False, equalize=False, **options)  # type: ignore[arg-type]
    assert error(made.model, small_net("N")) < 0.03
    quantised = sum(node.op_type == "QuantizeLinear" for node in made.model.graph.node)
    assert quantised == (8 if "everywhere" in options else 6)


def test_the_worst_layers_stay_in_floats(made: Quantization) -> None:
    assert made.error is not None
    bounded = dlc.quantize(small_net(), SAMPLES, bound=made.error * 0.8, keep=["point*"])
    assert bounded.error is not None and bounded.error <= made.error * 0.8
    kept = [layer.name for layer in bounded.layers if layer.kept]
    assert "pointwise" in kept and 1 < len(kept) < 4


def test_weights_that_two_layers_read() -> None:
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


def test_as_few_layers_as_will_do_are_kept() -> None:
    costs = {"a": 0.5, "b": 0.2, "c": 0.1, "d": 0.01}

    def error(layers: Sequence[str]) -> float:
        return sum(costs[name] for name in layers)

    assert [least_kept(error, list(costs), bound) for bound in (1, 0.4, 0.2, 0.05)] == [0, 1, 2, 3]
    with pytest.raises(dlc.DlcError, match=r"within a bound of 0\.001: with 'd' alone, .* differ by 0\.01"):
        least_kept(error, list(costs), 0.001)


def test_dynamic_quantisation_needs_no_samples() -> None:
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
    with pytest.raises(dlc.UnsupportedError, match="nothing to quantise dynamically: it has convolutions"):
        dlc.quantize(
            model_of([helper.make_node("Conv", ["x", "w"], ["y"])], {"w": np.ones((1, 1, 1), np.float32)}, (1, 1, 4)),
            dynamic=True,
        )
    with pytest.raises(dlc.DlcError, match="needs samples of it"):
        dlc.quantize(model)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("equalize", [False, True])
def test_inputs_that_make_no_numbers_are_named(equalize: bool) -> None:
    broken = SAMPLES[:3].copy()
    broken[1] = np.nan
    with pytest.raises(dlc.DlcError, match=r"tensor 'x', calibration set 1: a NaN in what the model computes"):
        dlc.quantize(small_net(), broken, equalize=equalize)
