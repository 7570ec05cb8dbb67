"""Measure the compilation of large graphs: python benchmarks/large_graphs.py [--nodes N …] [--only KIND …] [--profile].

For each kind of graph, with about N nodes, compiles in a new process without the cache; prints processor time (all its
processes) and peak memory in MB. --profile prints the time per Python function; --write FOLDER saves the models there, and
reuses those that exist.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

_COMPILE = """
import sys
import dlc
if len(sys.argv) > 2:
    import cProfile, pstats
    profile = cProfile.Profile()
    profile.enable()
dlc.compile_model(sys.argv[1], cache=False)
if len(sys.argv) > 2:
    profile.disable()
    pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(60)
print(int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024)
"""

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


class Graph:
    """Builder of an ONNX graph with random weights and generated names."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(0)
        self._names = 0

    def name(self) -> str:
        self._names += 1
        return f"v{self._names}"

    def add(self, kind: str, *inputs: str, results: int = 1, **attributes: Any) -> Any:
        """Add a node and return the name of its result, or a list of names if there are several."""
        names = [self.name() for _ in range(results)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if results == 1 else names

    def weight(self, *shape: int) -> str:
        return self.constant((self.random.standard_normal(shape) * 0.1).astype(np.float32))

    def constant(self, array: Any) -> str:
        name = self.name()
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def model(self, inputs: dict[str, Sequence[int]], outputs: Sequence[str]) -> onnx.ModelProto:
        input_infos = [helper.make_tensor_value_info(n, FLOAT, s) for n, s in inputs.items()]
        output_infos = [helper.make_tensor_value_info(n, FLOAT, None) for n in outputs]
        graph = helper.make_graph(self.nodes, "large", input_infos, output_infos, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def chain(n: int) -> onnx.ModelProto:
    g, x = Graph(), "x"
    for k in range(n):
        x = g.add(("Relu", "Neg")[k % 2], x)
    return g.model({"x": (16, 64)}, [x])


def elementwise(n: int) -> onnx.ModelProto:
    """Elementwise operators on the last value and a random one of the last ten."""
    g = Graph()
    values = ["x"]
    for _ in range(n):
        a, b = values[-1], values[-1 - int(g.random.integers(min(len(values), 10)))]
        kind = ("Add", "Mul", "Sub", "Max", "Sigmoid", "Tanh", "Abs", "Neg")[int(g.random.integers(8))]
        values.append(g.add(kind, a, b) if kind in ("Add", "Mul", "Sub", "Max") else g.add(kind, a))
    return g.model({"x": (16, 64)}, values[-1:])


def products(n: int) -> onnx.ModelProto:
    g, x = Graph(), "x"
    for _ in range(n):
        x = g.add("MatMul", x, g.weight(8, 8))
    return g.model({"x": (4, 8)}, [x])


def uneven_products(n: int) -> onnx.ModelProto:
    """Matrix products of varying sizes."""
    g, x, width = Graph(), "x", 8
    for _ in range(n):
        next_width = int(g.random.integers(4, 40))
        x, width = g.add("MatMul", x, g.weight(width, next_width)), next_width
    return g.model({"x": (4, 8)}, [x])


def convolutions(n: int) -> onnx.ModelProto:
    g, x, c = Graph(), "x", 8
    for _ in range(n // 2):
        x = g.add("Conv", x, g.weight(c, c, 1, 1), g.weight(c))
        x = g.add("BatchNormalization", x, g.weight(c), g.weight(c), g.weight(c), g.constant(np.ones(c, np.float32)))
    return g.model({"x": (1, c, 8, 8)}, [x])


def residual(n: int) -> onnx.ModelProto:
    g, x, c = Graph(), "x", 8
    for _ in range(n // 5):
        y = g.add("Relu", g.add("Conv", x, g.weight(c, c, 3, 3), g.weight(c), pads=[1, 1, 1, 1]))
        y = g.add("Conv", y, g.weight(c, c, 3, 3), g.weight(c), pads=[1, 1, 1, 1])
        x = g.add("Relu", g.add("Add", x, y))
    return g.model({"x": (1, c, 8, 8)}, [x])


def transformer(n: int) -> onnx.ModelProto:
    g, x, w = Graph(), "x", 16
    heads = g.constant(np.array([1, 4, 2, w // 2]))
    flat = g.constant(np.array([1, 4, w]))
    scale = g.constant(np.float32(0.35))
    for _ in range(n // 21):
        h = g.add("LayerNormalization", x, g.weight(w), g.weight(w))
        q, k, v = (
            g.add("Transpose", g.add("Reshape", g.add("MatMul", h, g.weight(w, w)), heads), perm=perm)
            for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        a = g.add("MatMul", g.add("Softmax", g.add("Mul", g.add("MatMul", q, k), scale)), v)
        a = g.add("Reshape", g.add("Transpose", a, perm=[0, 2, 1, 3]), flat)
        x = g.add("Add", x, g.add("Add", g.add("MatMul", a, g.weight(w, w)), g.weight(w)))
        x = g.add("Add", x, g.add("MatMul", g.add("Relu", g.add("MatMul", x, g.weight(w, w))), g.weight(w, w)))
    return g.model({"x": (1, 4, w)}, [x])


def data_movement(n: int) -> onnx.ModelProto:
    """A chain of slices, concatenations, transposes and row gathers."""
    g, x = Graph(), "x"
    one, zero, end = g.constant(np.array([1])), g.constant(np.array([0])), g.constant(np.array([100]))
    rows = g.constant(np.array([3, 1, 0, 2, 7, 5, 6, 4]))
    while len(g.nodes) < n:
        x = g.add("Transpose", x, perm=[1, 0])
        y = g.add("Slice", x, one, end, zero)
        z = g.add("Slice", x, zero, one, zero)
        x = g.add("Concat", y, z, axis=0)
        x = g.add("Gather", x, rows, axis=0)
    return g.model({"x": (8, 8)}, [x])


def rows(n: int) -> onnx.ModelProto:
    """Softmax, normalizations and reductions along rows."""
    g, x, w = Graph(), "x", 16
    axes = g.constant(np.array([-1]))
    while len(g.nodes) < n:
        x = g.add("LayerNormalization", g.add("Softmax", x), g.weight(w), g.weight(w))
        x = g.add("Sub", x, g.add("ReduceMean", x, axes))
        x = g.add("Mul", x, g.add("ReduceMax", x, axes))
    return g.model({"x": (4, w)}, [x])


def many_uses(n: int) -> onnx.ModelProto:
    """One value with n/2 uses, whose results are concatenated."""
    g = Graph()
    values = [g.add("MatMul", "x", g.weight(8, 4)) for _ in range(n // 2)]
    values = [g.add("Tanh", y) for y in values]
    return g.model({"x": (4, 8)}, [g.add("Concat", *values, axis=1)])


def many_inputs(n: int) -> onnx.ModelProto:
    """A graph with n/2 inputs and n/2 outputs."""
    g = Graph()
    inputs = {f"x{k}": (4, 8) for k in range(n // 2)}
    values = [g.add("Relu", x) for x in inputs]
    values = [g.add("Add", a, b) for a, b in zip(values, values[1:] + values[:1], strict=True)]
    return g.model(inputs, values)


def shared_weight(n: int) -> onnx.ModelProto:
    """Matrix products that all read one weight."""
    g, x = Graph(), "x"
    w = g.weight(8, 8)
    for k in range(n):
        x = g.add("MatMul", x, w) if k % 2 else g.add("Tanh", x)
    return g.model({"x": (4, 8)}, [x])


def shapes(n: int) -> onnx.ModelProto:
    """Shape computations as exporters write them: Constant, Shape, Gather, Concat and Reshape."""
    g, x = Graph(), "x"
    while len(g.nodes) < n:
        shape = g.add("Shape", x)
        zero = g.add("Constant", value=numpy_helper.from_array(np.array(0)))
        rows = g.add("Unsqueeze", g.add("Gather", shape, zero), g.add("Constant", value=numpy_helper.from_array(np.array([0]))))
        inner_sizes = g.add("Constant", value=numpy_helper.from_array(np.array([-1, 4])))
        x = g.add("Relu", g.add("Reshape", x, g.add("Concat", rows, inner_sizes, axis=0)))
        x = g.add("Mul", g.add("Reshape", x, g.add("Constant", value=numpy_helper.from_array(np.array([4, 8])))), g.weight(8))
    return g.model({"x": (4, 8)}, [x])


def branches(n: int) -> onnx.ModelProto:
    g, x = Graph(), "x"
    for k in range(n // 10):
        x = g.add("Tanh", x)
        total = g.add("ReduceSum", x, keepdims=0)
        above = g.add("Greater", total, g.constant(np.float32(k)))

        def body(kind: str, x: str = x) -> onnx.GraphProto:
            nodes, y = [], x
            for _ in range(3):
                nodes.append(helper.make_node(kind, [y], [z := g.name()]))
                y = z
            return helper.make_graph(nodes, "body", [], [helper.make_tensor_value_info(y, FLOAT, (4, 8))])

        x = g.add("If", above, then_branch=body("Relu"), else_branch=body("Neg"))
    return g.model({"x": (4, 8)}, [x])


def loops(n: int) -> onnx.ModelProto:
    g, x = Graph(), "x"
    count = g.constant(np.array(20))
    for _ in range(n // 10):
        i, c, s, d, *y = (g.name() for _ in range(12))
        nodes = [helper.make_node("Identity", [c], [d])]
        for k, kind in enumerate(("Tanh", "Relu", "Neg", "Abs", "Sigmoid", "Exp", "Neg", "Tanh")):
            nodes.append(helper.make_node(kind, [y[k - 1] if k else s], [y[k]]))
        inputs = [
            helper.make_tensor_value_info(i, INT64, ()),
            helper.make_tensor_value_info(c, BOOL, ()),
            helper.make_tensor_value_info(s, FLOAT, (4, 8)),
        ]
        outputs = [helper.make_tensor_value_info(d, BOOL, ()), helper.make_tensor_value_info(y[7], FLOAT, (4, 8))]
        x = g.add("Loop", count, "", x, body=helper.make_graph(nodes, "body", inputs, outputs))
    return g.model({"x": (4, 8)}, [x])


def functions(n: int) -> onnx.ModelProto:
    """A chain of calls of a model function that calls another one with ten nodes."""
    g, x = Graph(), "x"
    for _ in range(n // 20):
        g.nodes.append(helper.make_node("Outer", [x], [x := g.name()], domain="own"))
    model = g.model({"x": (4, 8)}, [x])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]

    def function(name: str, kinds: Sequence[str], domain: str) -> onnx.FunctionProto:
        values = ["a", *(f"b{k}" for k in range(len(kinds)))]
        nodes = [helper.make_node(t, [values[k]], [values[k + 1]], domain=domain) for k, t in enumerate(kinds)]
        return helper.make_function("own", name, ["a"], [values[-1]], nodes, opsets)

    model.functions.extend([function("Inner", ["Relu", "Neg"] * 5, ""), function("Outer", ["Inner", "Inner"], "own")])
    model.opset_import.append(opsets[1])
    return model


KINDS: dict[str, Callable[[int], onnx.ModelProto]] = {
    f.__name__: f
    for f in (
        chain,
        elementwise,
        products,
        uneven_products,
        convolutions,
        residual,
        transformer,
        data_movement,
        rows,
        many_uses,
        many_inputs,
        shared_weight,
        shapes,
        branches,
        loops,
        functions,
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[10_000])
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="save the models in this folder, and reuse existing ones")
    parser.add_argument("--profile", action="store_true", help="print the time per Python function")
    arguments = parser.parse_args()
    table = Table("graph", "nodes", "processor s", "MB")
    with tempfile.TemporaryDirectory() as folder:
        for kind in arguments.only:
            for nodes in arguments.nodes:
                file = (arguments.write or Path(folder)) / f"{kind}_{nodes}.onnx"
                if not file.exists():
                    onnx.save(KINDS[kind](nodes), file)
                usage_before = resource.getrusage(resource.RUSAGE_CHILDREN)
                command = [sys.executable, "-c", _COMPILE, str(file), *(["profile"] if arguments.profile else [])]
                process = subprocess.run(command, stdout=subprocess.PIPE, text=True)
                usage_after = resource.getrusage(resource.RUSAGE_CHILDREN)
                seconds = usage_after.ru_utime - usage_before.ru_utime + usage_after.ru_stime - usage_before.ru_stime
                memory = f"{float(process.stdout):.0f}" if process.returncode == 0 else "failed"
                table.add_row(kind, f"{nodes:,}", f"{seconds:.1f}", memory)
                print(kind, nodes, f"{seconds:.1f}", memory, flush=True)
    Console().print(table)


if __name__ == "__main__":
    main()
