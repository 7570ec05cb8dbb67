"""What a model file says of its tensors, by name: which are weights, and which of these training leaves alone."""

from __future__ import annotations

from dlc.arrays import TensorInfo
from dlc.frontend.onnx.graph import ModelFile, all_nodes
from dlc.frontend.onnx.signature import signature, sizes_of
from dlc.frontend.onnx.tensors import dtype_of
from dlc.frontend.problems import NodeProblem

# Operands that were measured or chosen, not learned: a running mean and variance, scales of quantised numbers and of images.
_SETTINGS = {
    "BatchNormalization": (3, 4), "QuantizeLinear": (1,), "DequantizeLinear": (1,), "Resize": (1, 2), "Upsample": (1,),
    "Clip": (1, 2), "Pad": (2,),
}  # fmt: skip


def initialisers_of(file: ModelFile) -> tuple[TensorInfo, ...]:
    """The initialisers of the graph that have a dtype of NumPy's."""
    found: list[TensorInfo] = []
    for tensor in file.proto.graph.initializer:
        try:
            found.append(TensorInfo(tensor.name, tuple(tensor.dims), dtype_of(tensor.data_type)))
        except NodeProblem:
            # What the importer says is not supported.
            continue
    return tuple(found)


def inputs_of(file: ModelFile) -> tuple[TensorInfo, ...]:
    """The inputs that a caller gives, as the file declares them."""
    known = {tensor.name for tensor in file.proto.graph.initializer}
    return signature([i for i in file.proto.graph.input if i.name not in known], {}, lambda where, problem: None)


def outputs_of(file: ModelFile) -> tuple[str, ...]:
    """The names of the outputs."""
    return tuple(output.name for output in file.proto.graph.output)


def inner_tensors_of(file: ModelFile) -> frozenset[str]:
    """The names of what the nodes of the graph make."""
    return frozenset(name for node in file.proto.graph.node for name in node.output if name)


def logits_of(file: ModelFile) -> dict[str, str]:
    """What each softmax of the graph is of, by name."""
    return {node.output[0]: node.input[0] for node in file.proto.graph.node if node.op_type == "Softmax"}


def settings_of(file: ModelFile) -> frozenset[str]:
    """The names of operands that hold what was measured or chosen while the others were learned."""
    return frozenset(
        node.input[k] for node in all_nodes(file.proto.graph) for k in _SETTINGS.get(node.op_type, ()) if k < len(node.input)
    )


def classes_of(file: ModelFile, output: str) -> int | None:
    """How many classes the logits of a graph's output have, where the file says so."""
    declared = (o for o in (*file.proto.graph.output, *file.proto.graph.value_info) if o.name == output)
    sizes = next((list(sizes_of(o.name, o.type.tensor_type)) for o in declared), None)
    return sizes[-1] if sizes and isinstance(sizes[-1], int) else None
