"""Graphs of PyTorch as JSON, so that they are tested without it; `record` writes them."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from dlc.arrays import TensorInfo
from dlc.pytorch.graph import Graph, Node, Ref

RECORDED = Path(__file__).parent / "recorded.json"
ARRAYS = Path(__file__).parent / "recorded.npz"


def plain(value: Any) -> Any:
    """An argument of a node as JSON."""
    if isinstance(value, Ref):
        return {"ref": value.name}
    if isinstance(value, np.dtype):
        return {"dtype": value.name}
    if isinstance(value, Graph):
        return {"graph": graph_to_json(value)}
    if isinstance(value, float) and not np.isfinite(value):
        return {"float": str(value)}
    return [plain(v) for v in value] if isinstance(value, list | tuple) else value


def argument(value: Any) -> Any:
    """What `plain` made of an argument."""
    if isinstance(value, list):
        return [argument(v) for v in value]
    if not isinstance(value, dict):
        return value
    ((kind, text),) = value.items()
    return {"ref": Ref, "dtype": np.dtype, "float": float, "graph": lambda g: graph_from_json(g, {})}[kind](text)


def graph_to_json(graph: Graph) -> dict[str, Any]:
    """A graph of known sizes, without its constants, which are arrays, without folders that only one machine has, and without
    dtypes, which rules have to find by themselves."""
    nodes = [
        {
            **{field: value for field, value in asdict(node).items() if field != "dtypes"},
            "args": plain(node.args),
            "kwargs": {k: plain(v) for k, v in node.kwargs.items()},
            "file": Path(node.file).name,
        }
        for node in graph.nodes
    ]
    infos = [[[i.name, list(i.shape), i.dtype.name] for i in infos] for infos in (graph.inputs, graph.outputs)]
    return {"inputs": infos[0], "nodes": nodes, "values": [v.name for v in graph.values], "outputs": infos[1]}


def graph_from_json(fields: dict[str, Any], constants: dict[str, Any]) -> Graph:
    """The graph that `graph_to_json` wrote, with its constants."""
    nodes = [Node(**n) for n in fields["nodes"]]
    nodes = [replace(n, args=argument(n.args), kwargs={k: argument(v) for k, v in n.kwargs.items()}) for n in nodes]
    infos = [[TensorInfo(n, tuple(s), np.dtype(d)) for n, s, d in fields[key]] for key in ("inputs", "outputs")]
    return Graph(infos[0], nodes, [Ref(name) for name in fields["values"]], infos[1], constants)
