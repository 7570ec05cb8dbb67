"""Conversion of FX graphs to plain data: operator names, NumPy dtypes and arrays, and the user's lines."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np

from dlc.arrays import TensorInfo, to_numpy
from dlc.dialects.dl.base import Array
from dlc.errors import UnsupportedError
from dlc.pytorch.fx_graph import FxGraph, FxNode, FxOperator, ValueRef
from dlc.pytorch.rules import RANDOM_RULES, RULES
from dlc.pytorch.rules.linear_algebra import LAYOUT_DEPENDENT_OPS
from dlc.pytorch.rules.rule_table import Dtype
from dlc.pytorch.rules.shape_manipulation import STRIDED_READS, STRIDED_UPDATES
from dlc.pytorch.rules.symbolic_sizes import ASSERTION_OPS, SCALAR_READ_OPS
from dlc.pytorch.tensor_views import view_chain
from dlc.pytorch.torch_import import torch
from dlc.shapes.dims import Dim, Size
from dlc.shapes.parsing import parse_size
from dlc.shapes.ranges import SizeRange

_TORCH = str(Path(torch.__file__).parent)
_FRAME = re.compile(r'File "(.+)", line (\d+), in')
# Dtypes that NumPy itself does not have: their bits are converted.
_EXTENSION_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
_DTYPES: dict[Any, np.dtype[Any]] = {
    getattr(torch, name): np.dtype(name)
    for name in (
        "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
    )
} | {
    getattr(torch, name): np.dtype(getattr(ml_dtypes, name)) for name in _EXTENSION_DTYPES
} | {
    torch.complex64: np.dtype(np.complex64),
    torch.complex128: np.dtype(np.complex128),
}  # fmt: skip
# Arguments about memory layout and placement, which have no meaning in a program.
IGNORED_ARGUMENTS = ("layout", "device", "pin_memory", "memory_format", "non_blocking", "generator", "requires_grad")


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the NumPy dtype of a torch dtype. Raises UnsupportedError for an unsupported one."""
    if dtype not in _DTYPES:
        raise UnsupportedError(f"{dtype} is not supported; the supported dtypes are {', '.join(str(d) for d in _DTYPES)}")
    return _DTYPES[dtype]


def tensor_to_array(tensor: Any) -> Array:
    """Return a CPU tensor as an array, which shares its memory unless it is a lazy conjugate or negation."""
    return to_numpy(tensor.detach().resolve_conj().resolve_neg())


def constant_arrays(attributes: Mapping[str, Any]) -> dict[str, Array]:
    """Return those attributes that are CPU tensors as arrays that share their memory.

    The arrays are read-only, so that tracing need not copy large ones.
    """
    arrays = {name: tensor_to_array(value) for name, value in attributes.items() if isinstance(value, torch.Tensor)}
    for array in arrays.values():
        array.flags.writeable = False
        if isinstance(base := cast("Any", array.base), np.ndarray):
            base.flags.writeable = False  # the integers of bfloat16 elements
    return arrays


def array_to_tensor(array: Array) -> Any:
    """Return an array as a tensor, which shares its memory if the array is contiguous."""
    contiguous = np.ascontiguousarray(array).reshape(array.shape)
    if contiguous.dtype.name in _EXTENSION_DTYPES:
        bits = torch.from_numpy(contiguous.view(f"u{contiguous.itemsize}"))
        tensor = bits.view(getattr(torch, contiguous.dtype.name))
    else:
        tensor = torch.from_numpy(contiguous)
    # The strides of an array without elements are not those of a contiguous tensor.
    return tensor if contiguous.size else tensor.new_empty(contiguous.shape)


def convert_size(size: Any) -> Size:
    """Convert a size; a torch.SymInt becomes a symbolic size."""
    return int(size) if isinstance(size, int) else parse_size(str(size))


def tensor_info(name: str, value: Any) -> TensorInfo:
    """Return the name, shape and dtype of a (fake) tensor, or of the integers and conditions of a loop."""
    if not isinstance(value, torch.Tensor):
        return TensorInfo(name, (), np.dtype(np.bool_ if isinstance(value, bool | torch.SymBool) else np.int64))
    return TensorInfo(name, tuple(map(convert_size, value.shape)), numpy_dtype(value.dtype))


def symbol_ranges(values: Sequence[Any], constraints: Mapping[Any, Any]) -> dict[str, SizeRange]:
    """Return the ranges of the symbols in the shapes of tensors."""
    names = {name for v in values for s in v.shape for d in [convert_size(s)] if isinstance(d, Dim) for name in d.symbols()}
    ranges: dict[str, SizeRange] = {}
    for symbol, bounds in constraints.items():
        if str(symbol) in names:
            high = int(bounds.upper) if bounds.upper.is_Integer and int(bounds.upper) < 2**31 else None
            ranges[str(symbol)] = SizeRange(max(0, int(bounds.lower)), high)
    return ranges


def convert_nodes(graph: Any) -> Iterator[FxNode]:
    """Convert the call nodes of a graph, omitting the arguments of operators that have no rule."""
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        file, line = find_user_line(node.meta.get("stack_trace") or "")
        name = operator_name(node.target)
        # A higher-order operator needs rules for the operators it calls.
        name = next((inner for a in node.args if _is_operator(a) and not has_rule(inner := operator_name(a))), name)
        is_supported = has_rule(name)
        arguments = [convert_argument(a) for a in node.args] if is_supported else []
        keywords = (
            {k: convert_argument(a) for k, a in node.kwargs.items() if k not in IGNORED_ARGUMENTS} if is_supported else {}
        )
        if name in LAYOUT_DEPENDENT_OPS:
            keywords["contiguous"] = node.args[0].meta["val"].is_contiguous()
        if name in (*STRIDED_READS, *STRIDED_UPDATES):
            stored = _storage_owner(node.args[0]) if name in STRIDED_READS else node.args[0]
            arguments[0], keywords["layout"] = ValueRef(stored.name), _layout(stored)
            _, keywords["default_offset"] = _layout(node.args[0])
        if name in SCALAR_READ_OPS:
            keywords["counts"] = _is_count(node.meta.get("val"))
        yield FxNode(node.name, name, arguments, keywords, file, line, module_path(node), _dtypes(node.meta.get("val")))


def _storage_owner(node: Any) -> Any:
    """Return the node whose tensor has all elements of the storage that a node's tensor is a view of, in its dtype."""
    owner, _ = view_chain(node)
    return owner if owner.meta["val"].dtype == node.meta["val"].dtype else node


def _layout(node: Any) -> tuple[Sequence[Size], Size]:
    """Return the strides and the storage offset of a node's tensor."""
    value = node.meta["val"]
    return tuple(map(convert_size, value.stride())), convert_size(value.storage_offset())


def _is_count(number: Any) -> bool:
    """Return whether a value is a symbolic integer that PyTorch knows to be non-negative."""
    return isinstance(number, torch.SymInt) and bool(number.node.shape_env.bound_sympy(number.node.expr).lower >= 0)


def _dtypes(value: Any) -> list[Dtype | None]:
    """Return PyTorch's dtypes of the result arrays."""
    if value is None:
        return []
    values = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else [value]
    return [_DTYPES.get(tensor.dtype) if isinstance(tensor, torch.Tensor) else None for tensor in values]


@lru_cache
def decompositions() -> dict[Any, Any]:
    """Return torch's decompositions of the operators that have no rule."""
    table = torch.export.default_decompositions()
    return {op: rule for op, rule in table.items() if not has_rule(operator_name(op))}


def _is_operator(argument: Any) -> bool:
    return isinstance(argument, torch._ops.OpOverload)


def has_rule(op: str) -> bool:
    """Return whether an operator has a rule."""
    return op in RULES or op in RANDOM_RULES


def operator_name(target: Any) -> str:
    """Return the name of an operator: `add.Tensor`, `relu`, `operator.getitem`, `torchvision::nms`."""
    if isinstance(target, torch._ops.OpOverload):
        name = target._schema.name.removeprefix("aten::")
        return name if target._overloadname == "default" else f"{name}.{target._overloadname}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target.name()}"
    module = getattr(target, "__module__", "")
    return (
        f"operator.{target.__name__}" if module in ("_operator", operator.__name__, "torch") else f"{module}.{target.__name__}"
    )


def convert_argument(argument: Any) -> Any:
    """Convert an argument of a node to plain data."""
    if isinstance(argument, torch.fx.Node):
        body = get_attribute(argument.graph.owning_module, argument.target) if argument.op == "get_attr" else None
        return convert_subgraph(body) if isinstance(body, torch.fx.GraphModule) else ValueRef(argument.name)
    if isinstance(argument, list | tuple):
        return [convert_argument(a) for a in cast("Sequence[Any]", argument)]
    if isinstance(argument, dict):
        return {k: convert_argument(a) for k, a in cast("Mapping[str, Any]", argument).items()}
    if _is_operator(argument):
        return FxOperator(operator_name(argument))
    if isinstance(argument, torch.dtype):
        return numpy_dtype(argument)
    if isinstance(argument, torch.SymInt):
        return convert_size(argument)
    if argument is None or isinstance(argument, bool | int | float | complex | str):
        return argument
    if isinstance(argument, torch.device | torch.layout | torch.memory_format):
        return None
    raise UnsupportedError(f"an argument of type {type(argument).__name__} is not supported: {argument!r}"[:200])


def erase_assertions(graph: Any) -> set[Any]:
    """Erase assertion nodes and the nodes that only they use.

    Returns the effect tokens that precede erased assertions, which replace the tokens after them.
    """
    tokens = set[Any]()
    for node in reversed(graph.nodes):
        called = operator_name(node.target) if node.op == "call_function" else ""
        has_token = called == "higher_order.with_effects"
        if (operator_name(node.args[1]) if has_token else called) not in ASSERTION_OPS:
            continue
        if has_token:
            tokens.add(node.args[0])
        for user in list(node.users) if has_token else ():
            user.replace_all_uses_with(node.args[0])
            graph.erase_node(user)
        if not node.users:
            tokens.discard(node)
            graph.erase_node(node)
    graph.eliminate_dead_code()
    return tokens


def get_attribute(module: Any, path: str) -> Any:
    """Return the attribute of a module at a dotted path."""
    for name in path.split("."):
        module = getattr(module, name)
    return module


def convert_subgraph(module: Any) -> FxGraph:
    """Convert the graph of a branch or loop body."""
    erase_assertions(module.graph)
    inputs = [tensor_info(n.name, n.meta["val"]) for n in module.graph.nodes if n.op == "placeholder"]
    attributes = {n.name: get_attribute(module, n.target) for n in module.graph.nodes if n.op == "get_attr"}
    returned: Any = module.graph.output_node().args[0]
    output_nodes = cast("Sequence[Any]", returned) if isinstance(returned, list | tuple) else [returned]
    outputs = [tensor_info(f"result{k}", node.meta["val"]) for k, node in enumerate(output_nodes)]
    references = [ValueRef(node.name) for node in output_nodes]
    return FxGraph(inputs, list(convert_nodes(module.graph)), references, outputs, constant_arrays(attributes))


def find_user_line(stack_trace: str) -> tuple[str, int]:
    """Return the innermost line of a stack trace outside of torch."""
    frames = [(file, int(line)) for file, line in _FRAME.findall(stack_trace)]
    return next((f for f in reversed(frames) if not f[0].startswith(_TORCH)), frames[-1] if frames else ("", 0))


def module_path(node: Any) -> str:
    """Return the path of the module that called a node: `layer1.0.conv2`."""
    stack = node.meta.get("nn_module_stack")
    return str(list(stack.values())[-1][0]) if stack else ""
