"""Graphs as torch has them, made plain: names of operators, NumPy's dtypes and arrays, lines of the user's."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np

from dlc.arrays import TensorInfo
from dlc.dialects.dl.base import Array
from dlc.dims import Dim, Range, Size, parse
from dlc.errors import DTypeError, UnsupportedError
from dlc.pytorch.graph import Graph, Node, Operator, Ref
from dlc.pytorch.library import torch
from dlc.pytorch.rules import DRAWN, RULES
from dlc.pytorch.rules.matrices import OF_LAYOUT
from dlc.pytorch.rules.sizes import CHECKS, OF_COUNT
from dlc.pytorch.rules.table import Dtype

_TORCH = str(Path(torch.__file__).parent)
_FRAME = re.compile(r'File "(.+)", line (\d+), in')
_DTYPES: dict[Any, np.dtype[Any]] = {
    getattr(torch, name): np.dtype(name)
    for name in (
        "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
    )
} | {torch.bfloat16: np.dtype(ml_dtypes.bfloat16)}  # fmt: skip
# Those that arrays have between inputs and outputs alone.
_COMPLEX = {torch.complex64: np.dtype(np.complex64), torch.complex128: np.dtype(np.complex128)}
_TORCH_DTYPES = {dtype: of_torch for of_torch, dtype in _DTYPES.items()}
# What says where and how an array lies, of which nothing is left in a program.
_DROPPED = ("layout", "device", "pin_memory", "memory_format", "non_blocking", "generator")


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """NumPy's dtype for one of torch's. Raises DTypeError for one that dlc has not."""
    if dtype not in _DTYPES:
        raise DTypeError(f"{dtype}: dlc has no such dtype; it has {', '.join(str(d) for d in _DTYPES)}")
    return _DTYPES[dtype]


def array_of(tensor: Any) -> Array:
    """A tensor on the CPU as an array in the same memory."""
    tensor = tensor.detach()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def tensor_of(array: Array) -> Any:
    """An array as a tensor, in the same memory if its elements lie in the order of its axes."""
    plain = np.ascontiguousarray(array).reshape(array.shape)
    if plain.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(plain.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(plain)


def size_of(size: Any) -> Size:
    """A size, open where torch has a symbol for it."""
    return int(size) if isinstance(size, int) else parse(str(size))


def info_of(name: str, value: Any) -> TensorInfo:
    """What is known of a tensor that stands for one."""
    return TensorInfo(name, tuple(map(size_of, value.shape)), numpy_dtype(value.dtype))


def ranges_of(values: Sequence[Any], constraints: Mapping[Any, Any]) -> dict[str, Range]:
    """The ranges of the symbols among the sizes of tensors."""
    names = {name for v in values for s in v.shape for d in [size_of(s)] if isinstance(d, Dim) for name in d.symbols()}
    found: dict[str, Range] = {}
    for symbol, bounds in constraints.items():
        if str(symbol) in names:
            high = int(bounds.upper) if bounds.upper.is_Integer and int(bounds.upper) < 2**31 else None
            found[str(symbol)] = Range(max(0, int(bounds.lower)), high)
    return found


def nodes_of(graph: Any) -> Iterator[Node]:
    """The nodes of a graph that compute something, as plain data; those that have no rule without their arguments."""
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        file, line = line_of(node.meta.get("stack_trace") or "")
        name = operator_name(node.target)
        # What calls another operator is read if that is.
        name = next((inner for a in node.args if _is_operator(a) and not is_ruled(inner := operator_name(a))), name)
        ruled = is_ruled(name)
        arguments = [argument_of(a) for a in node.args] if ruled else []
        keywords = {k: argument_of(a) for k, a in node.kwargs.items() if k not in _DROPPED} if ruled else {}
        if name in OF_LAYOUT:
            keywords["contiguous"] = node.args[0].meta["val"].is_contiguous()
        if name in OF_COUNT:
            keywords["counts"] = _is_count(node.meta.get("val"))
        yield Node(node.name, name, arguments, keywords, file, line, module_of(node), _dtypes(node.meta.get("val")))


def _is_count(number: Any) -> bool:
    """Whether it is an integer that PyTorch knows not to be below 0."""
    return isinstance(number, torch.SymInt) and bool(number.node.shape_env.bound_sympy(number.node.expr).lower >= 0)


def _dtypes(value: Any) -> list[Dtype | None]:
    """What arrays a result is, as PyTorch has it."""
    if value is None:
        return []
    ends = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else [value]
    return [_DTYPES.get(end.dtype) if isinstance(end, torch.Tensor) else None for end in ends]


@lru_cache
def decompositions() -> dict[Any, Any]:
    """Torch's decompositions of operators into others, of those that have no rule."""
    table = torch.export.default_decompositions()
    return {op: rule for op, rule in table.items() if not is_ruled(operator_name(op))}


def _is_operator(argument: Any) -> bool:
    return isinstance(argument, torch._ops.OpOverload)


def is_ruled(op: str) -> bool:
    """Whether there is a rule for an operator."""
    return op in RULES or op in DRAWN


def operator_name(target: Any) -> str:
    """`add.Tensor`, `relu`, `operator.getitem`; an operator of another library with its name: `torchvision::nms`."""
    if isinstance(target, torch._ops.OpOverload):
        name = target._schema.name.removeprefix("aten::")
        return name if target._overloadname == "default" else f"{name}.{target._overloadname}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target.name()}"
    module = getattr(target, "__module__", "")
    return (
        f"operator.{target.__name__}" if module in ("_operator", operator.__name__, "torch") else f"{module}.{target.__name__}"
    )


def argument_of(argument: Any) -> Any:
    """An argument as plain data."""
    if isinstance(argument, torch.fx.Node):
        body = attribute(argument.graph.owning_module, argument.target) if argument.op == "get_attr" else None
        return body_of(body) if isinstance(body, torch.fx.GraphModule) else Ref(argument.name)
    if isinstance(argument, list | tuple):
        return [argument_of(a) for a in cast("Sequence[Any]", argument)]
    if isinstance(argument, dict):
        return {k: argument_of(a) for k, a in cast("Mapping[str, Any]", argument).items()}
    if _is_operator(argument):
        return Operator(operator_name(argument))
    if isinstance(argument, torch.dtype):
        return _COMPLEX[argument] if argument in _COMPLEX else numpy_dtype(argument)
    if isinstance(argument, torch.SymInt):
        return size_of(argument)
    if argument is None or isinstance(argument, bool | int | float | complex | str):
        return argument
    if isinstance(argument, torch.device | torch.layout | torch.memory_format):
        return None
    raise UnsupportedError(f"an argument that is a {type(argument).__name__}: {argument!r}"[:200])


def drop_checks(graph: Any) -> set[Any]:
    """Takes out what checks numbers and returns none, and what was computed for that alone.

    The tokens of the effects before those that are left out, which now stand for those after them.
    """
    tokens = set[Any]()
    for node in reversed(graph.nodes):
        called = operator_name(node.target) if node.op == "call_function" else ""
        has_token = called == "higher_order.with_effects"
        if (operator_name(node.args[1]) if has_token else called) not in CHECKS:
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


def attribute(module: Any, path: str) -> Any:
    """What a module holds at a path."""
    for name in path.split("."):
        module = getattr(module, name)
    return module


def body_of(module: Any) -> Graph:
    """The graph of a branch or of the body of a loop."""
    drop_checks(module.graph)
    inputs = [info_of(n.name, n.meta["val"]) for n in module.graph.nodes if n.op == "placeholder"]
    held = [(n.name, attribute(module, n.target)) for n in module.graph.nodes if n.op == "get_attr"]
    given: Any = module.graph.output_node().args[0]
    ends = cast("Sequence[Any]", given) if isinstance(given, list | tuple) else [given]
    outputs = [info_of(f"result{k}", end.meta["val"]) for k, end in enumerate(ends)]
    constants = {name: array_of(value) for name, value in held if isinstance(value, torch.Tensor)}
    return Graph(inputs, list(nodes_of(module.graph)), [Ref(end.name) for end in ends], outputs, constants)


def line_of(stack_trace: str) -> tuple[str, int]:
    """The innermost line outside of torch."""
    frames = [(file, int(line)) for file, line in _FRAME.findall(stack_trace)]
    return next((f for f in reversed(frames) if not f[0].startswith(_TORCH)), frames[-1] if frames else ("", 0))


def module_of(node: Any) -> str:
    """The path of the module that called a node: `layer1.0.conv2`."""
    stack = node.meta.get("nn_module_stack")
    return str(list(stack.values())[-1][0]) if stack else ""
