"""Operators of ai.onnx.ml against onnx's reference; tests/models compares classifiers with ONNX Runtime."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import dlc
from dlc.errors import DTypeError, ModelError, UnsupportedError
from tests.targets import NATIVE

X = np.array([[1.0, -2.0, 0.0], [np.nan, 4.0, 0.5], [3.0, 0.0, -1.0], [0.0, 0.0, 0.0]], np.float32)
WHOLE = np.nan_to_num(X)
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def node_model(
    op: str, inputs: Sequence[np.ndarray[Any, Any]], outputs: Sequence[int], version: int = 3, **attributes: Any
) -> Any:
    """Build a model of one node with outputs of these types."""

    def declared(name: str, array: np.ndarray[Any, Any]) -> Any:
        kind = TensorProto.STRING if array.dtype.kind in "UO" else helper.np_dtype_to_tensor_dtype(array.dtype)
        return helper.make_tensor_value_info(name, kind, [None, *array.shape[1:]])

    names = [f"x{k}" for k in range(len(inputs))], [f"y{k}" for k in range(len(outputs))]
    graph = helper.make_graph(
        [helper.make_node(op, *names, domain="ai.onnx.ml", **attributes)],
        op,
        [declared(name, array) for name, array in zip(names[0], inputs, strict=True)],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(names[1], outputs, strict=True)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", version)])


def results(model: Any, *inputs: Any, target: str = "reference") -> list[Any]:
    return list(dlc.compile_model(model, target=target, cache=False)(*inputs).values())


def check(op: str, *inputs: np.ndarray[Any, Any], outputs: Sequence[int] = (TensorProto.FLOAT,), **attributes: Any) -> None:
    """Compare a node with onnx's reference."""
    model = node_model(op, inputs, outputs, **attributes)
    expected = ReferenceEvaluator(model).run(None, {f"x{k}": x for k, x in enumerate(inputs)})
    for got, wanted in zip(results(model, *inputs), expected, strict=True):
        if np.asarray(wanted).dtype.kind in "UO":
            assert np.asarray(got).tolist() == np.asarray(wanted).tolist()
        else:
            np.testing.assert_allclose(got, wanted, 1e-5, 1e-6)


def test_features() -> None:
    check("Scaler", WHOLE, offset=[1.0, 2.0, 3.0], scale=[0.5, 2.0, -1.0])
    check("Scaler", WHOLE, offset=[1.0], scale=[0.5])
    for norm in ("L1", "L2"):
        check("Normalizer", WHOLE, norm=norm)
    check("Binarizer", WHOLE, threshold=0.4)
    check("Imputer", X, imputed_value_floats=[7.0, 8.0, 9.0], replaced_value_float=float("nan"))
    check("Imputer", WHOLE.astype(np.int64), imputed_value_int64s=[7], replaced_value_int64=3, outputs=[TensorProto.INT64])
    check("ArrayFeatureExtractor", WHOLE, np.array([2, 0], np.int64))
    check("FeatureVectorizer", WHOLE, WHOLE[:, 0], inputdimensions=[2, 1])


def test_labels() -> None:
    names, numbers = np.array(["cat", "owl", "", "cat"], object), np.array([3, 1, 7, -1], np.int64)
    text, whole, real = [TensorProto.STRING], [TensorProto.INT64], [TensorProto.FLOAT]
    check("LabelEncoder", names, keys_strings=["cat", "owl"], values_int64s=[4, 5], default_int64=-7, outputs=whole)
    check("LabelEncoder", numbers, keys_int64s=[7, 3], values_strings=["seven", "three"], default_string="?", outputs=text)
    check("LabelEncoder", names, keys_strings=["", "owl"], values_strings=["none", "cat"], default_string="new", outputs=text)
    check("LabelEncoder", X[:, 0], keys_floats=[3.0, 1.0], values_floats=[0.5, 0.25], default_float=-1.0, outputs=real)
    check("OneHotEncoder", numbers, cats_int64s=[1, 3], zeros=1)
    check("OneHotEncoder", names.reshape(2, 2), cats_strings=["owl", "cat"], zeros=1)


def test_a_key_may_be_nan() -> None:
    model = node_model("LabelEncoder", [X[:, 0]], [1], keys_floats=[1.0, float("nan")], values_floats=[5.0, 6.0])
    np.testing.assert_array_equal(results(model, X[:, 0])[0], [5, 6, 0, 0])


def test_strings_outside_of_the_pool() -> None:
    """Equal strings compare equal, whether the model contains them or not, and are returned unchanged."""
    x = [np.array(["a", "b", "c"]), np.array(["a", "c", "c"])]
    kinds = [helper.make_tensor_value_info(name, TensorProto.STRING, [None]) for name in ("x", "z", "both")]
    nodes = [
        helper.make_node("Equal", ["x", "z"], ["same"]),
        helper.make_node("Constant", [], ["known"], value=helper.make_tensor("known", TensorProto.STRING, [1], [b"a"])),
        helper.make_node("Concat", ["known", "x"], ["both"], axis=0),
    ]
    same = helper.make_tensor_value_info("same", TensorProto.BOOL, None)
    model = helper.make_model(helper.make_graph(nodes, "text", kinds[:2], [same, kinds[2]]))
    compiled = dlc.compile_model(model, target="reference")
    got = compiled(*x)
    assert got["same"].tolist() == [True, False, True]
    assert got["both"].tolist() == ["a", "a", "b", "c"]
    assert [info.dtype for info in compiled.inputs] == [np.dtype(object)] * 2
    with pytest.raises(DTypeError, match=r"input x: .* expected an array of strings"):
        compiled(np.zeros(3), x[1])
    cast = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "c", kinds[:1], [helper.make_value_info("y", same.type)])
    with pytest.raises(UnsupportedError, match="is a string tensor, which is not supported here"):
        dlc.compile_model(helper.make_model(cast))


def trees(seed: int, inner: int = 7, count: int = 10) -> dict[str, Any]:
    """Return trees with all node modes: the children of node k are 2k + 1 and 2k + 2."""
    random = np.random.default_rng(seed)
    total = 2 * inner + 1
    modes = [*random.choice(MODES, count * total)]
    node = np.tile(np.arange(total), count)
    return {
        "nodes_treeids": np.repeat(np.arange(count), total).tolist(),
        "nodes_nodeids": node.tolist(),
        "nodes_featureids": random.integers(0, 3, count * total).tolist(),
        "nodes_values": random.choice([-2.0, 0.0, 0.5, 1.0, 3.0], count * total).tolist(),
        "nodes_modes": ["LEAF" if k >= inner else mode for k, mode in zip(node, modes, strict=True)],
        "nodes_truenodeids": [0 if k >= inner else 2 * k + 1 for k in node.tolist()],
        "nodes_falsenodeids": [0 if k >= inner else 2 * k + 2 for k in node.tolist()],
        "nodes_missing_value_tracks_true": random.integers(0, 2, count * total).tolist(),
    }


def leaves(prefix: str, outputs: int, inner: int = 7, count: int = 10) -> dict[str, Any]:
    random = np.random.default_rng(3)
    tree, node, output = np.meshgrid(np.arange(count), np.arange(inner, 2 * inner + 1), np.arange(outputs), indexing="ij")
    return {
        f"{prefix}_treeids": tree.reshape(-1).tolist(),
        f"{prefix}_nodeids": node.reshape(-1).tolist(),
        f"{prefix}_ids": output.reshape(-1).tolist(),
        f"{prefix}_weights": random.standard_normal(tree.size).astype(np.float32).tolist(),
    }


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_all_node_modes_of_trees(how: str) -> None:
    random = np.random.default_rng(1)
    x = random.choice([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0, np.nan, np.inf], (40, 3)).astype(np.float32)
    many = {**trees(2), **leaves("target", 2), "n_targets": 2, "aggregate_function": how}
    # onnx's reference does not compare NaN itself for NEQ.
    many["nodes_missing_value_tracks_true"] = [
        int(m or mode == "BRANCH_NEQ")
        for m, mode in zip(many["nodes_missing_value_tracks_true"], many["nodes_modes"], strict=True)
    ]
    check("TreeEnsembleRegressor", x, **many, post_transform="NONE")


@pytest.mark.parametrize("target", NATIVE)
def test_trees_are_compiled(target: str) -> None:
    x = np.random.default_rng(1).standard_normal((70, 3)).astype(np.float32)
    many = {**trees(4), **leaves("class", 3), "classlabels_int64s": [5, 6, 7], "post_transform": "SOFTMAX"}
    model = node_model("TreeEnsembleClassifier", [x], [TensorProto.INT64, TensorProto.FLOAT], **many)
    label, scores = ReferenceEvaluator(model).run(None, {"x0": x})
    got = results(model, x, target=target)
    np.testing.assert_array_equal(got[0], label)
    np.testing.assert_allclose(got[1], scores, 1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes_truenodeids": [1, 0, 0]}, None),
        ({"nodes_truenodeids": [0, 0, 0]}, "form a cycle"),
        ({"nodes_falsenodeids": [9, 0, 0]}, "tree 0 has no node 9"),
        ({"nodes_featureids": [3, 0, 0]}, "feature index 3 is out of range for 3"),
        ({"nodes_modes": ["BRANCH_SOON", "LEAF", "LEAF"]}, "node mode 'BRANCH_SOON'"),
        ({"target_ids": [0, 1]}, "output 1 of 1"),
        ({"nodes_values": [0.0]}, "different lengths"),
    ],
)
def test_invalid_trees_are_refused(change: dict[str, Any], message: str | None) -> None:
    one = {
        "nodes_treeids": [0, 0, 0],
        "nodes_featureids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_values": [0.5, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
        "n_targets": 1,
    }
    model = node_model("TreeEnsembleRegressor", [WHOLE], [TensorProto.FLOAT], **{**one, **change})
    if message is None:
        np.testing.assert_array_equal(results(model, WHOLE)[0], [[2], [1], [2], [1]])
    else:
        with pytest.raises(ModelError, match=message):
            results(model, WHOLE)


def test_linear_models() -> None:
    matrix = [1.0, -2.0, 0.5, 0.25, 1.5, -1.0]
    check("LinearRegressor", WHOLE, coefficients=matrix, intercepts=[0.5, -0.5], targets=2, post_transform="NONE")
    for transform in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        classes = {"classlabels_ints": [3, 8], "post_transform": transform}
        both = [TensorProto.INT64, TensorProto.FLOAT]
        check("LinearClassifier", WHOLE, coefficients=matrix, intercepts=[0.1, 0.2], outputs=both, **classes)


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vectors(kernel: str) -> None:
    random = np.random.default_rng(5)
    vectors = {
        "support_vectors": random.standard_normal(15).tolist(),
        "kernel_type": kernel,
        "kernel_params": [0.3, 0.1, 3.0],
        "post_transform": "NONE",
    }
    check("SVMRegressor", WHOLE, coefficients=random.standard_normal(5).tolist(), rho=[0.2], n_supports=5, **vectors)
    classes = {"vectors_per_class": [2, 1, 2], "rho": [0.1, -0.2, 0.3], "classlabels_ints": [1, 2, 3]}
    both, of_pairs = [TensorProto.INT64, TensorProto.FLOAT], random.standard_normal(10).tolist()
    check("SVMClassifier", WHOLE, coefficients=of_pairs, outputs=both, **classes, **vectors)


def test_probabilities_of_support_vectors_match_onnx_runtime() -> None:
    """Recorded, because onnx's reference uses matrix products instead of elementwise ones."""
    x, both = np.array([[-0.3], [0.2], [0.7]], np.float32), [TensorProto.INT64, TensorProto.FLOAT]
    model = node_model(
        *("SVMClassifier", [x], both),
        support_vectors=[0.1, 0.5, -0.4, 0.9],
        vectors_per_class=[1, 2, 1],
        classlabels_ints=[10, 20, 30],
        coefficients=[1.0, -0.4, -0.6, 0.3, 0.5, 0.1, -0.2, -0.3],
        rho=[0.1, -0.2, 0.05],
        kernel_type="RBF",
        kernel_params=[0.7, 0.0, 3.0],
        prob_a=[-1.5, -1.0, -2.0],
        prob_b=[0.2, 0.1, 0.0],
    )
    expected = [[0.36647838, 0.29239047, 0.3411312], [0.40448514, 0.2722976, 0.32321748], [0.397606, 0.27387524, 0.32851893]]
    np.testing.assert_allclose(results(model, x)[1], expected, 1e-5)


def test_maps_are_saved(tmp_path: Any) -> None:
    """A ZipMap is a list of dicts, also after saving and loading."""
    graph = helper.make_graph(
        [helper.make_node("ZipMap", ["x"], ["z"], domain="ai.onnx.ml", classlabels_strings=["a", "b", "c"])],
        "maps",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])],
        [
            helper.make_value_info(
                "z", helper.make_sequence_type_proto(helper.make_map_type_proto(8, helper.make_tensor_type_proto(1, [])))
            )
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 1)])
    compiled = dlc.compile_model(model)
    compiled.save(tmp_path / "m.dlc")
    for m in (compiled, dlc.load(tmp_path / "m.dlc"), pickle.loads(pickle.dumps(compiled))):
        assert m(WHOLE)["z"][2] == {"a": 3.0, "b": 0.0, "c": -1.0}
        assert len(m(WHOLE)["z"]) == 4
