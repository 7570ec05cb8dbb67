"""Cases of ONNX Runtime's operators for transformers: `python -m tests.frontend.onnx.transformers` records its results.

They are in `transformers.npz`, one array for each output of each case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper

from dlc.frontend.onnx.operators.microsoft import DOMAIN
from tests.frontend.onnx.build import model

RECORDED = Path(__file__).with_name("transformers.npz")
BATCH, LENGTH, HEADS, DEPTH, PAST = 2, 5, 4, 16, 3
WIDTH = HEADS * DEPTH


@dataclass(frozen=True)
class Case:
    """An operator, its attributes, its inputs (shapes or integers), and its number of outputs."""

    op: str
    inputs: Mapping[str, Any]
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    outputs: str = "y"

    def feeds(self) -> dict[str, np.ndarray]:
        """Return the inputs, which are random values that depend on the shapes only."""
        rng = np.random.default_rng(7)
        return {
            name: np.asarray(given) if hasattr(given, "dtype") else rng.standard_normal(given).astype(np.float32)
            for name, given in self.inputs.items()
            if name and not isinstance(given, str)
        }

    def model(self) -> ModelProto:
        """Build a model of one node; the total length of the keys is a constant."""
        feeds, outputs = self.feeds(), self.outputs.split()
        names = [name if name in feeds else "" for name in self.inputs]
        node = helper.make_node(self.op, names, [o.strip("_") for o in outputs], domain=DOMAIN, **self.attributes)
        dtypes = {name: helper.np_dtype_to_tensor_dtype(x.dtype) for name, x in feeds.items()}
        weights = {name: x for name, x in feeds.items() if name == "total"}
        proto = model(
            [node],
            {name: x.shape for name, x in feeds.items() if name not in weights},
            [o for o in node.output if o],
            weights=weights,
            dtypes={**dtypes, "counts": TensorProto.INT32},
        )
        proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))
        return proto


def _mask() -> np.ndarray:
    return np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], np.int32)


def _table(rows: int) -> dict[str, Any]:
    angles = np.outer(np.arange(rows), 0.3 ** np.arange(DEPTH // 2)).astype(np.float32)
    return {"cos": np.cos(angles), "sin": np.sin(angles)}


X, QKV = (BATCH, LENGTH, WIDTH), (BATCH, HEADS, LENGTH, DEPTH)
CACHE, KEYS = (BATCH, HEADS, PAST, DEPTH), (BATCH, 2, PAST, DEPTH)
NONE = ""
GROUPS = {"num_heads": HEADS, "kv_num_heads": 2}
GROUPED = {"q": X, "k": (BATCH, LENGTH, 2 * DEPTH), "v": (BATCH, LENGTH, 2 * DEPTH), "pk": NONE, "pv": NONE}
PROMPT = {**GROUPED, "last": np.array([4, 2], np.int32), "total": np.int32(LENGTH)}
NEXT = {
    "q": (BATCH, 1, WIDTH),
    "k": (BATCH, 1, 2 * DEPTH),
    "v": (BATCH, 1, 2 * DEPTH),
    "pk": KEYS,
    "pv": KEYS,
    "last": np.array([PAST, PAST], np.int32),
    "total": np.int32(PAST + 1),
}
PROJECTED = {"x": X, "w": (WIDTH, 3 * WIDTH), "b": (3 * WIDTH,)}
IDS = {
    "ids": np.array([[1, 4, 2, 0, 3], [2, 2, 5, 1, 0]], np.int32),
    "segments": np.array([[0, 0, 1, 1, 1], [0, 1, 1, 1, 1]], np.int32),
}
TABLES = {"words": (6, WIDTH), "places": (LENGTH + 1, WIDTH)}
CASES: dict[str, Case] = {
    "fused product": Case("FusedMatMul", {"x": X, "w": (BATCH, LENGTH, 3)}, {"transA": 1, "alpha": 0.5}),
    "fused product of transposed weights": Case("FusedMatMul", {"x": X, "w": (3, WIDTH)}, {"transB": 1}),
    "fast gelu": Case("FastGelu", {"x": X}),
    "fast gelu with bias": Case("FastGelu", {"x": X, "b": (WIDTH,)}),
    "bias gelu": Case("BiasGelu", {"x": X, "b": (WIDTH,)}),
    "gelu": Case("Gelu", {"x": X}),
    "quick gelu": Case("QuickGelu", {"x": X}, {"alpha": 1.5}),
    "skip": Case("SkipLayerNormalization", {"x": X, "s": X, "g": (WIDTH,), "b": (WIDTH,)}, {"epsilon": 1e-5}),
    "skip with bias and sum": Case(
        "SkipLayerNormalization", {"x": X, "s": X, "g": (WIDTH,), "b": (WIDTH,), "c": (WIDTH,)}, {}, "y _ _ sum"
    ),
    "skip without beta": Case("SkipLayerNormalization", {"x": X, "s": (1, LENGTH, WIDTH), "g": (WIDTH,)}),
    "simplified skip": Case("SkipSimplifiedLayerNormalization", {"x": X, "s": X, "g": (WIDTH,)}, {}, "y _ _ sum"),
    "embeddings": Case(
        "EmbedLayerNormalization",
        {**IDS, **TABLES, "kinds": (2, WIDTH), "g": (WIDTH,), "b": (WIDTH,), "mask": _mask()},
        {},
        "y counts",
    ),
    "embeddings with position ids, no segments": Case(
        "EmbedLayerNormalization",
        {
            "ids": IDS["ids"],
            "segments": NONE,
            **TABLES,
            "kinds": NONE,
            "g": (WIDTH,),
            "b": (WIDTH,),
            "mask": NONE,
            "at": np.array([[1, 2, 3, 4, 5], [0, 1, 2, 3, 4]], np.int32),
        },
        {},
        "y counts sum",
    ),
    "rotary": Case("RotaryEmbedding", {"x": X, "at": np.array([[0, 1, 2, 3, 4], [2, 3, 4, 5, 6]], np.int64), **_table(8)}, {}),
    "rotary with offset, interleaved": Case(
        "RotaryEmbedding", {"x": QKV, "at": np.array([2], np.int64), **_table(8)}, {"interleaved": 1}
    ),
    "attention": Case("Attention", PROJECTED, {"num_heads": HEADS}),
    "attention, masked": Case("Attention", {**PROJECTED, "mask": _mask()}, {"num_heads": HEADS}),
    "attention, lengths": Case("Attention", {**PROJECTED, "mask": np.array([5, 3], np.int32)}, {"num_heads": HEADS}),
    "attention, causal with a past": Case(
        "Attention",
        {**PROJECTED, "mask": NONE, "past": (2, *CACHE)},
        {"num_heads": HEADS, "unidirectional": 1, "scale": 0.5},
        "y present",
    ),
    "multi-head": Case("MultiHeadAttention", {"q": X, "k": X, "v": X}, {"num_heads": HEADS}),
    "multi-head with bias and mask": Case(
        "MultiHeadAttention",
        {"q": X, "k": X, "v": X, "bias": (3 * WIDTH,), "mask": _mask()},
        {"num_heads": HEADS, "mask_filter_value": -100.0},
    ),
    "multi-head with additive mask": Case(
        "MultiHeadAttention",
        {"q": X, "k": X, "v": X, "b": NONE, "m": NONE, "scores": (1, HEADS, LENGTH, LENGTH)},
        {"num_heads": HEADS, "scale": 0.3},
    ),
    "multi-head with past, causal": Case(
        "MultiHeadAttention",
        {"q": X, "k": X, "v": X, "b": NONE, "m": NONE, "s": NONE, "pk": CACHE, "pv": CACHE},
        {"num_heads": HEADS, "unidirectional": 1},
        "y keys values",
    ),
    "cross-attention": Case("MultiHeadAttention", {"q": X, "k": QKV, "v": QKV}, {"num_heads": HEADS}),
    "grouped prompt": Case("GroupQueryAttention", PROMPT, GROUPS, "y keys values"),
    "grouped prompt, packed, rotary": Case(
        "GroupQueryAttention",
        {**PROMPT, "q": (BATCH, LENGTH, 2 * WIDTH), "k": NONE, "v": NONE, **_table(8)},
        {**GROUPS, "do_rotary": 1},
        "y keys values",
    ),
    "grouped, next": Case("GroupQueryAttention", {**NEXT, **_table(8)}, {**GROUPS, "do_rotary": 1}, "y keys values"),
    "grouped, window and cap": Case(
        "GroupQueryAttention", NEXT, {**GROUPS, "local_window_size": 2, "softcap": 2.0, "scale": 0.4}, "y keys values"
    ),
}


def main() -> None:
    """Record the results of ONNX Runtime."""
    import onnxruntime

    recorded: dict[str, np.ndarray] = {}
    for name, case in CASES.items():
        session = onnxruntime.InferenceSession(case.model().SerializeToString(), providers=["CPUExecutionProvider"])
        feeds = {k: v for k, v in case.feeds().items() if k != "total"}
        outputs = session.run(None, feeds)
        recorded |= {f"{name}/{o.name}": y for o, y in zip(session.get_outputs(), outputs, strict=True)}
    np.savez_compressed(RECORDED, allow_pickle=False, **recorded)


if __name__ == "__main__":
    main()
