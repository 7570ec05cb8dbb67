"""PyTorch graphs as JSON, to test without PyTorch; written by record_with_torch."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from dlc.arrays import TensorInfo
from dlc.pytorch.fx_graph import FxGraph, FxNode, ValueRef

RECORDED = Path(__file__).parent / "recorded.json"
ARRAYS = Path(__file__).parent / "recorded.npz"


def plain(value: Any) -> Any:
    """Convert an argument of a node to JSON."""
    if isinstance(value, ValueRef):
        return {"ref": value.name}
    if isinstance(value, np.dtype):
        return {"dtype": value.name}
    if isinstance(value, FxGraph):
        return {"graph": graph_to_json(value)}
    if isinstance(value, float) and not np.isfinite(value):
        return {"float": str(value)}
    return [plain(v) for v in value] if isinstance(value, list | tuple) else value


def argument(value: Any) -> Any:
    """Convert an argument back from JSON."""
    if isinstance(value, list):
        return [argument(v) for v in value]
    if not isinstance(value, dict):
        return value
    ((kind, text),) = value.items()
    return {"ref": ValueRef, "dtype": np.dtype, "float": float, "graph": lambda g: graph_from_json(g, {})}[kind](text)


def graph_to_json(graph: FxGraph) -> dict[str, Any]:
    """Convert a graph of static sizes to JSON.

    Constants, which are arrays, machine-specific folders and dtypes, which the rules must infer, are omitted.
    """
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


def graph_from_json(fields: dict[str, Any], constants: dict[str, Any]) -> FxGraph:
    """Restore a graph from JSON, with its constants."""
    nodes = [FxNode(**n) for n in fields["nodes"]]
    nodes = [replace(n, args=argument(n.args), kwargs={k: argument(v) for k, v in n.kwargs.items()}) for n in nodes]
    infos = [[TensorInfo(n, tuple(s), np.dtype(d)) for n, s, d in fields[key]] for key in ("inputs", "outputs")]
    return FxGraph(infos[0], nodes, [ValueRef(name) for name in fields["values"]], infos[1], constants)
