"""Nodes of the domain `ai.onnx.ml`: linear models, tree ensembles and feature transformations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.dialects.dl.base import Array
from tests.fuzz.attribute_nodes import AttributeNode, Draw, NodeDraw

_DOMAIN, _OPSET = "ai.onnx.ml", 18
# ONNX does not infer their result types.
_FLOAT_RESULTS = ("Imputer", "LinearRegressor", "Normalizer", "Scaler")
_POST_TRANSFORMS = (None, "NONE", "SOFTMAX", "LOGISTIC")


def _node(
    op: str, attributes: dict[str, Any], inputs: Sequence[Array], outputs: int = 1, tolerance: float = 1e-5
) -> AttributeNode:
    dtype = np.float32 if op in _FLOAT_RESULTS else None
    return AttributeNode(op, attributes, inputs, _OPSET, outputs, (), tolerance, domain=_DOMAIN, result_dtype=dtype)


def _linear(d: Draw) -> AttributeNode:
    rows, features = d.shape(2)
    if d.flag():
        targets = d.size(1, 3)
        attributes = {
            "coefficients": d.floats([targets * features]).tolist(),
            "intercepts": d.maybe(d.floats([targets]).tolist()),
            "targets": targets,
            # ONNX Runtime does not transform a single target.
            "post_transform": d.choice(*_POST_TRANSFORMS) if targets > 1 else None,
        }
        return _node("LinearRegressor", attributes, [d.floats([rows, features])])
    classes = d.size(2, 4)
    lines = d.choice(classes, 1) if classes == 2 else classes
    attributes = {
        "coefficients": d.floats([lines * features]).tolist(),
        "intercepts": d.floats([lines]).tolist(),
        "classlabels_ints": d.random.sample(range(-5, 20), classes),
        "multi_class": d.maybe(0),
        "post_transform": d.choice(*_POST_TRANSFORMS),
    }
    return _node("LinearClassifier", attributes, [d.floats([rows, features])], 2)


def _features(d: Draw) -> AttributeNode:
    op = d.choice("Scaler", "Normalizer", "Binarizer", "Imputer", "ArrayFeatureExtractor", "OneHotEncoder", "LabelEncoder")
    rows, features = d.shape(2)
    x = d.floats([rows, features])
    if op == "Scaler":
        size = d.choice(1, features)
        return _node(op, {"offset": d.floats([size]).tolist(), "scale": d.floats([size]).tolist()}, [x])
    if op == "Normalizer":
        return _node(op, {"norm": d.maybe(d.choice("MAX", "L1", "L2"))}, [x])
    if op == "Binarizer":
        return _node(op, {"threshold": d.maybe(d.choice(0.5, -0.5))}, [x])
    if op == "Imputer":
        missing = d.choice(float("nan"), 1.0)
        x = np.where(d.rng.random(x.shape) < 0.3, np.float32(missing), x)
        values = d.floats([d.choice(1, features)]).tolist()
        return _node(op, {"imputed_value_floats": values, "replaced_value_float": missing}, [x])
    if op == "ArrayFeatureExtractor":
        return _node(op, {}, [x, d.integers([d.size(1, 3)], 0, features - 1)])
    if op == "OneHotEncoder":
        return _node(op, {"cats_int64s": d.random.sample(range(6), 4), "zeros": 1}, [d.integers([rows, features], 0, 6)])
    keys = d.random.sample(range(8), 4)
    attributes = {"keys_int64s": keys, "values_floats": d.floats([4]).tolist(), "default_float": d.maybe(-3.5)}
    return _node(op, attributes, [d.integers([rows, features], 0, 8)])


def _tree_nodes(d: Draw, trees: int, features: int, depth: int) -> tuple[dict[str, list[Any]], list[tuple[int, int]]]:
    """Return the attributes of random trees, and (tree, node) of each leaf."""
    fields: dict[str, list[Any]] = {
        f"nodes_{name}": []
        for name in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids",
                     "missing_value_tracks_true")
    }  # fmt: skip
    leaves: list[tuple[int, int]] = []
    mode = d.choice("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
    for tree in range(trees):
        count, pending, links = 1, [(0, 0)], dict[int, tuple[int, int]]()
        order: list[tuple[int, bool]] = []
        while pending:
            node, level = pending.pop(0)
            is_leaf = level == depth or (level > 0 and d.random.random() < 0.3)
            order.append((node, is_leaf))
            if not is_leaf:
                links[node] = (count, count + 1)
                pending += [(count, level + 1), (count + 1, level + 1)]
                count += 2
        for node, is_leaf in order:
            yes, no = links.get(node, (0, 0))
            values = (tree, node, 0 if is_leaf else d.size(0, features - 1), "LEAF" if is_leaf else mode,
                      float(d.choice(-1, 0, 0.5, 1)), yes, no, d.flag())  # fmt: skip
            for name, value in zip(fields, values, strict=True):
                fields[name].append(value)
            leaves += [(tree, node)] if is_leaf else []
    return fields, leaves


def _trees(d: Draw) -> AttributeNode:
    rows, features, trees = d.size(1, 6), d.size(1, 4), d.size(1, 4)
    fields, leaves = _tree_nodes(d, trees, features, d.size(1, 3))
    x = d.array([rows, features], np.float32) if d.flag() else d.integers([rows, features], -1, 1, np.float32)
    x[d.rng.random(x.shape) < 0.1] = np.nan
    # With weights of both of two classes, ONNX Runtime does not compare their scores.
    targets = d.choice(1, 3, 4)
    # ONNX Runtime gives targets without a weight no base value.
    of_leaves = [(tree, node, target) for tree, node in leaves for target in range(targets)]
    ids = {name: [leaf[k] for leaf in of_leaves] for k, name in enumerate(("treeids", "nodeids", "ids"))}
    weights = d.floats([len(of_leaves)]).tolist()
    if d.flag():
        attributes = {
            **fields,
            **{f"target_{name}": values for name, values in ids.items()},
            "target_weights": weights,
            "n_targets": targets,
            "aggregate_function": d.maybe(d.choice("SUM", "AVERAGE", "MIN", "MAX")),
            "base_values": d.maybe(d.floats([targets]).tolist()),
            # ONNX Runtime does not transform a single target.
            "post_transform": d.choice(*_POST_TRANSFORMS) if targets > 1 else None,
        }
        return _node("TreeEnsembleRegressor", attributes, [x], tolerance=1e-4)
    classes = max(targets, 2)
    attributes = {
        **fields,
        **{f"class_{name}": values for name, values in ids.items()},
        "class_weights": weights,
        "classlabels_int64s": d.random.sample(range(-5, 20), classes),
        "base_values": d.maybe(d.floats([classes]).tolist()) if targets > 1 else None,
        "post_transform": d.choice(*_POST_TRANSFORMS),
    }
    return _node("TreeEnsembleClassifier", attributes, [x], 2, tolerance=1e-4)


MACHINE_LEARNING: tuple[NodeDraw, ...] = (_linear, _linear, _features, _features, _trees, _trees, _trees)
