"""Models that store low-precision types: float8, float4, int4 and int2."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dlc
from dlc.frontend.onnx.tensors import TensorReader

NARROW = {
    TensorProto.FLOAT8E4M3FN: "float8_e4m3fn",
    TensorProto.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    TensorProto.FLOAT8E5M2: "float8_e5m2",
    TensorProto.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
    TensorProto.FLOAT4E2M1: "float4_e2m1fn",
    TensorProto.INT4: "int4",
    TensorProto.UINT4: "uint4",
    TensorProto.INT2: "int2",
    TensorProto.UINT2: "uint2",
}


@pytest.mark.parametrize("raw", [False, True], ids=["typed", "raw"])
@pytest.mark.parametrize("data_type", NARROW, ids=NARROW.values())
def test_tensors_of_a_file(data_type: int, raw: bool) -> None:
    # Seven packed elements do not fill whole bytes.
    array = np.array([0, 1, -2, 1.5, 1, -1, 0]).astype(np.float32).astype(getattr(ml_dtypes, NARROW[data_type]))
    tensor = numpy_helper.from_array(array) if raw else helper.make_tensor("t", data_type, [7], array.astype(np.float32))
    read = TensorReader(None).read(tensor, "t")
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read.astype(np.float32), array.astype(np.float32))


def test_powers_of_two() -> None:
    """All rounding modes to float8e8m0 against ml_dtypes, and as block scales."""
    x = np.array([0, 1, -1.1, 1.5, 3, 6.1, 1e-45, 2.0**-127, 3.1e38, np.inf, np.nan], np.float32)
    modes = [(mode, saturate) for mode in ("up", "down", "nearest") for saturate in (0, 1)]
    nodes = [
        helper.make_node("Cast", ["x"], [f"y{k}"], to=TensorProto.FLOAT8E8M0, round_mode=mode, saturate=saturate)
        for k, (mode, saturate) in enumerate(modes)
    ]
    nodes += [
        helper.make_node("Cast", ["x"], ["n"], to=TensorProto.INT8),
        helper.make_node("DequantizeLinear", ["n", "y3"], ["z"], axis=0, output_dtype=TensorProto.FLOAT),
    ]
    infos = [helper.make_tensor_value_info(f"y{k}", TensorProto.FLOAT8E8M0, [11]) for k in range(len(modes))]
    infos.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [11]))
    graph = helper.make_graph(nodes, "powers", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [11])], infos)
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])
    *got, scaled = dlc.compile_model(source, target="reference")(x).values()
    for y, (mode, saturate) in zip(got, modes, strict=True):
        want = numpy_helper.to_float8e8m0(x, bool(saturate), mode)
        np.testing.assert_array_equal(y.view(np.uint8), want.view(np.uint8), f"{mode} {saturate}")
    assert scaled[:6].tolist() == [0, 1, -1, 1, 6, 24] and np.isnan(scaled[-1])


MODEL = """
<ir_version: 11, opset_import: ["" : 23]>
mixed (float[2, 4] x, int4[2, 4] n) => (float[2, 3] y, float8e4m3fn[2, 4] z)
{
    w = DequantizeLinear<axis = 1>(stored, scale)
    wide = Cast<to = 1>(n)
    sum = Add(x, wide)
    y = MatMul(sum, w)
    z = Cast<to = 17>(sum)
}
"""


def test_from_file_to_artifact(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(MODEL)
    stored = (np.arange(12) % 16 - 8).astype(ml_dtypes.int4).reshape(4, 3)
    scale = np.array([0.5, 0.25, 2], np.float32)
    model.graph.initializer.extend([numpy_helper.from_array(stored, "stored"), numpy_helper.from_array(scale, "scale")])
    onnx.save(model, tmp_path / "mixed.onnx")
    x = np.linspace(-500, 700, 8, dtype=np.float32).reshape(2, 4)
    n = np.array([[7, -8, 1, 0], [3, -1, 2, 5]]).astype(ml_dtypes.int4)
    compiled = dlc.compile_model(tmp_path / "mixed.onnx", num_threads=1)
    compiled.save(tmp_path / "mixed.dlc")
    total = x + n.astype(np.float32)
    for loaded in (compiled, dlc.load(tmp_path / "mixed.dlc")):
        y, z = loaded(x, n).values()
        np.testing.assert_allclose(y, total @ (stored.astype(np.float32) * scale), 1e-5)
        assert z.dtype == ml_dtypes.float8_e4m3fn
        np.testing.assert_array_equal(z.astype(np.float32), np.clip(total, -448, 448).astype(z.dtype).astype(np.float32))
