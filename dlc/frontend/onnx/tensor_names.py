"""Names of tensors in a model file by role: inputs, outputs, initializers, and initializers that training does not update."""

from __future__ import annotations

from dlc.arrays import TensorInfo
from dlc.frontend.onnx.graph import ModelFile, all_nodes
from dlc.frontend.onnx.signature import signature, sizes_of
from dlc.frontend.onnx.tensors import dtype_of
from dlc.frontend.problems import NodeProblem

# Operands that are not learned: running mean and variance, quantization scales, image scales, bounds.
_NON_TRAINABLE_INPUTS = {
    "BatchNormalization": (3, 4), "QuantizeLinear": (1,), "DequantizeLinear": (1,), "Resize": (1, 2), "Upsample": (1,),
    "Clip": (1, 2), "Pad": (2,),
}  # fmt: skip


def initializers_of(file: ModelFile) -> tuple[TensorInfo, ...]:
    """Return the initializers of the graph that have a NumPy dtype."""
    infos: list[TensorInfo] = []
    for tensor in file.proto.graph.initializer:
        try:
            infos.append(TensorInfo(tensor.name, tuple(tensor.dims), dtype_of(tensor.data_type)))
        except NodeProblem:
            # The importer reports it as unsupported.
            continue
    return tuple(infos)


def inputs_of(file: ModelFile) -> tuple[TensorInfo, ...]:
    """Return the inputs that a caller passes, as the file declares them."""
    initializer_names = {tensor.name for tensor in file.proto.graph.initializer}
    return signature([i for i in file.proto.graph.input if i.name not in initializer_names], {}, lambda where, problem: None)


def outputs_of(file: ModelFile) -> tuple[str, ...]:
    """Return the names of the outputs."""
    return tuple(output.name for output in file.proto.graph.output)


def inner_tensors_of(file: ModelFile) -> frozenset[str]:
    """Return the names of the tensors that nodes of the graph compute."""
    return frozenset(name for node in file.proto.graph.node for name in node.output if name)


def logits_of(file: ModelFile) -> dict[str, str]:
    """Return the input of each softmax of the graph by the name of its output."""
    return {node.output[0]: node.input[0] for node in file.proto.graph.node if node.op_type == "Softmax"}


def non_trainable_of(file: ModelFile) -> frozenset[str]:
    """Return the names of operands that are measured or chosen, not learned."""
    return frozenset(
        node.input[k]
        for node in all_nodes(file.proto.graph)
        for k in _NON_TRAINABLE_INPUTS.get(node.op_type, ())
        if k < len(node.input)
    )


def class_count(file: ModelFile, output: str) -> int | None:
    """Return the number of classes of the logits of an output if the file declares it, else None."""
    declared = (o for o in (*file.proto.graph.output, *file.proto.graph.value_info) if o.name == output)
    sizes = next((list(sizes_of(o.name, o.type.tensor_type)) for o in declared), None)
    return sizes[-1] if sizes and isinstance(sizes[-1], int) else None
