"""Gradients of residual networks with respect to all weights, computed by artifacts and compared with PyTorch."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import dlc
from tests.models.skeletons import filled
from tests.training.models import write

# The norm of each weight's gradient and its product with a direction, by network and weight; from record_with_torch.py.
RECORDED = Path(__file__).with_name("torch_recordings.npz")
# A program that runs the artifact without the compiler.
_ALONE = """\
import sys, numpy, dlc
model = dlc.load("g.dlc")
with numpy.load("given.npz") as given: numpy.savez("found.npz", **model(dict(given)))
print(*(m for m in ("xdsl", "onnx", "llvmlite", "click") if m in sys.modules))
"""


def residual(path: Path) -> Path:
    """Write ResNet-18 in f64 with its first two kinds of blocks, few channels and small images."""
    draw, nodes, weights = np.random.default_rng(3), [], dict[str, NDArray[Any]]()

    def node(kind: str, result: str, *operands: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, operands, [result], name=result, **attributes))
        return result

    def conv(name: str, x: str, inputs: int, outputs: int, size: int, stride: int) -> str:
        weights[f"{name}.w"] = draw.standard_normal((outputs, inputs, size, size)) / (inputs * size * size) ** 0.5
        weights[f"{name}.b"] = 0.1 * draw.standard_normal(outputs)
        pads, kernel = [size // 2] * 4, [size, size]
        return node("Conv", name, x, f"{name}.w", f"{name}.b", kernel_shape=kernel, pads=pads, strides=[stride, stride])

    x = node("Relu", "stem.relu", conv("stem", "input", 3, 8, 7, 2))
    x = node("MaxPool", "pool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    y = conv("a2", node("Relu", "a1.relu", conv("a1", x, 8, 8, 3, 1)), 8, 8, 3, 1)
    x = node("Relu", "a", node("Add", "a.sum", y, x))
    y = conv("b2", node("Relu", "b1.relu", conv("b1", x, 8, 16, 3, 2)), 16, 16, 3, 1)
    x = node("Relu", "b", node("Add", "b.sum", y, conv("skip", x, 8, 16, 1, 2)))
    x = node("Flatten", "flat", node("GlobalAveragePool", "mean", x))
    weights["head.w"], weights["head.b"] = draw.standard_normal((5, 16)), draw.standard_normal(5)
    node("Gemm", "logits", x, "head.w", "head.b", transB=1)
    ends = {"input": (np.float64, (2, 3, 20, 20))}, {"logits": (np.float64, (2, 5))}
    return write(path, nodes, *ends, weights)


def resnet18(path: Path) -> Path:
    """Write ResNet-18 in f64: f32 rounding moves elements across the zero of a ReLU and gradients by up to 0.5 %, as in PyTorch."""
    model = filled("resnet18")
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    del model.graph.value_info[:]
    onnx.save(model, path)
    return path


NETS = {"residual": residual, "resnet18": resnet18}


def given(model: onnx.ModelProto) -> dict[str, NDArray[Any]]:
    """Return an input and the cotangent of the output."""
    draw, arrays = np.random.default_rng(0), dict[str, NDArray[Any]]()
    for prefix, (info,) in (("", model.graph.input), ("cotangent:", model.graph.output)):
        dtype = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        arrays[prefix + info.name] = draw.standard_normal(shape).astype(dtype)
    return arrays


def summary(weight: str, gradient: NDArray[Any]) -> NDArray[np.float64]:
    """Return the recorded summary of a gradient."""
    direction = np.random.default_rng(zlib.crc32(weight.encode())).standard_normal(gradient.shape)
    return np.array([np.linalg.norm(gradient), np.vdot(gradient, direction)], np.float64)


def in_f32(path: Path) -> Path:
    """Convert a network to f32, rounding its weights."""
    model = onnx.load(path)
    for k, tensor in enumerate(model.graph.initializer):
        if tensor.data_type == onnx.TensorProto.DOUBLE:
            model.graph.initializer[k].CopyFrom(
                numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name)
            )
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    onnx.save(model, path)
    return path


def wrong_gradients(
    net: str, folder: Path, recorded: float, differences: float, step: float, *, narrow: bool = False
) -> list[str]:
    """Return the gradients that differ from the recording, computed in a process without the compiler; `narrow` uses f32."""
    wide, path = NETS[net](folder / "wide.onnx"), NETS[net](folder / f"{net}.onnx")
    path = in_f32(path) if narrow else path
    arrays = given(onnx.load(path))
    output = next(name for name in arrays if name.startswith("cotangent:")).removeprefix("cotangent:")
    model = dlc.compile_model(path, vjp=output, wrt="weights")
    model.save(folder / "g.dlc")
    weights = {name: array for name, array in model.defaults.items() if not name.startswith("cotangent:")}
    np.savez(folder / "given.npz", **arrays, **weights)
    done = subprocess.run([sys.executable, "-c", _ALONE], capture_output=True, text=True, check=True, cwd=folder)
    wrong = [f"the process has imported {done.stdout}"] if done.stdout.strip() else []
    with np.load(RECORDED) as file, np.load(folder / "found.npz") as found:
        gradients = {name: found[f"grad:{name}"] for name in weights}
        expected = {name: file[f"{net}/{name}"] for name in weights}
    for name, gradient in gradients.items():
        got = summary(name, gradient)
        if not np.allclose(got, expected[name], rtol=0, atol=recorded * expected[name][0]):
            wrong.append(f"{name}: {got}, PyTorch {expected[name]}")
    draw = np.random.default_rng(1)
    along = {n: draw.standard_normal(a.shape) * np.abs(a).mean() for n, a in weights.items()}
    slope = sum(float(np.vdot(gradients[name], d)) for name, d in along.items())
    net_itself = dlc.compile_model(wide, parameters=[*weights])
    data = {name: array.astype(np.float64) for name, array in arrays.items()}
    cotangent = data.pop(f"cotangent:{output}")
    ahead, behind = (net_itself(**data, **{n: a + by * along[n] for n, a in weights.items()})[output] for by in (step, -step))
    quotient = float(np.vdot(ahead - behind, cotangent)) / (2 * step)
    if not np.isclose(slope, quotient, rtol=differences, atol=0):
        wrong.append(f"slope {slope}, quotient of differences {quotient}")
    return wrong


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        problems = wrong_gradients("resnet18", Path(made), recorded=1e-9, differences=1e-3, step=1e-9)
    print("\n".join(problems) or "ResNet-18: the gradients of all weights are PyTorch's, and the limit of differences")
    sys.exit(bool(problems))
