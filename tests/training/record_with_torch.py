"""`python -m tests.training.record_with_torch` records gradients of the networks computed by PyTorch, which must be installed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import helper, numpy_helper

from tests.training.torch_comparison import NETS, RECORDED, given, summary


def computed(op: str, x: list[Any], a: dict[str, Any]) -> Any:
    """Compute a node of a residual network."""
    match op:
        case "Conv":
            return F.conv2d(*x, stride=a["strides"], padding=a["pads"][:2])
        case "MaxPool":
            return F.max_pool2d(x[0], a["kernel_shape"], a["strides"], a["pads"][:2])
        case "Relu":
            return x[0].relu()
        case "Add":
            return x[0] + x[1]
        case "GlobalAveragePool":
            return x[0].mean((2, 3), keepdim=True)
        case "ReduceMean":
            return x[0].mean(x[1].tolist(), keepdim=True)
        case "Flatten":
            return x[0].flatten(1)
        case "Reshape":
            return x[0].reshape(x[1].tolist())
        case "Gemm":
            return F.linear(*x)
    raise ValueError(f"{op}: nothing here says what PyTorch calls it; add a case")


def gradients(path: Path) -> dict[str, Any]:
    model = onnx.load(path)
    values: dict[str, Any] = {t.name: torch.tensor(numpy_helper.to_array(t).copy()) for t in model.graph.initializer}
    # In f64, independently of the network's dtype.
    values = {name: v.double().requires_grad_() if v.is_floating_point() else v for name, v in values.items()}
    weights = {name: v for name, v in values.items() if v.is_floating_point()}
    arrays = {name: torch.tensor(a).double() for name, a in given(model).items()}
    values |= arrays
    for node in model.graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        values[node.output[0]] = computed(node.op_type, [values[name] for name in node.input], attributes)
    output = model.graph.output[0].name
    (values[output] * arrays[f"cotangent:{output}"]).sum().backward()
    return {name: w.grad.numpy() for name, w in weights.items()}


if __name__ == "__main__":
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for net, make in NETS.items():
            for name, gradient in gradients(make(Path(folder) / "net.onnx")).items():
                found[f"{net}/{name}"] = summary(name, gradient)
    np.savez_compressed(RECORDED, **found)
