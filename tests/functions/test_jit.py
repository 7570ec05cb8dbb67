"""`@dlc.jit`: models as Python functions, with arguments and results of all kinds."""

from __future__ import annotations

import copy
import pickle
import sys
from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import nn
from tests.targets import TARGETS

draw = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return draw.standard_normal(shape).astype(np.float32)


# Models


def mlp(params: list[dict[str, Any]], x: Any) -> Any:
    for layer in params[:-1]:
        x = nn.relu(x @ layer["w"] + layer["b"])
    return nn.softmax(x @ params[-1]["w"] + params[-1]["b"])


def test_a_perceptron() -> None:
    params = [{"w": normal(m, n) / m**0.5, "b": normal(n)} for m, n in ((20, 33), (33, 16), (16, 5))]
    x = normal(7, 20)
    got = dlc.jit(mlp)(params, x)
    assert isinstance(got, np.ndarray)
    np.testing.assert_allclose(got, mlp(params, x), atol=1e-6)
    np.testing.assert_allclose(got.sum(1), np.ones(7), atol=1e-6)


@dataclass
class Convolution:
    w: Any
    b: Any

    def __call__(self, x: Any) -> Any:
        return nn.relu(nn.conv(x, self.w, padding="same") + self.b)


@dataclass(frozen=True)
class Network:
    stages: tuple[Convolution, ...]
    head: dict[str, Any]
    temperature: float = 1.0


def convolutional(network: Network, images: Any) -> dict[str, Any]:
    x = images
    for stage in network.stages:
        x = nn.max_pool(stage(x), (2, 2))
    features = x.mean((1, 2))
    return {"features": features, "scores": nn.log_softmax(features @ network.head["w"] / network.temperature)}


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_small_convolutional_network(target: str) -> None:
    stages = tuple(Convolution(normal(3, 3, c, o) / (9 * c) ** 0.5, normal(o)) for c, o in ((3, 8), (8, 16)))
    network, images = Network(stages, {"w": normal(16, 10)}, 0.7), normal(2, 12, 12, 3)
    got, expected = dlc.jit(target=target)(convolutional)(network, images), convolutional(network, images)
    assert list(got) == ["features", "scores"]
    for name, array in expected.items():
        np.testing.assert_allclose(got[name], array, atol=1e-5)


# Trees


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class State:
    mean: Any
    history: list[Any]
    count: Any = field(default=0, init=False)


def test_trees_come_back_as_they_are() -> None:
    @dlc.jit
    def step(state: State, pair: Pair, extra: dict[str, Any] | None) -> Any:
        new = State(state.mean + pair.left, [h * 2 for h in state.history])
        new.count = state.count + 1
        return new, Pair(pair.right, (extra, [pair.left])), {"none": None, 3: state.mean}

    state = State(normal(3), [normal(2), normal(2, 2)])
    state.count = np.int32(4)
    pair = Pair(normal(3), normal(1))
    new, back, others = step(state, pair, None)
    assert isinstance(new, State) and isinstance(new.history, list) and isinstance(back, Pair)
    np.testing.assert_array_equal(new.mean, state.mean + pair.left)
    np.testing.assert_array_equal(new.history[1], state.history[1] * 2)
    assert new.count == 5 and new.count.dtype == np.int32
    np.testing.assert_array_equal(back.left, pair.right)
    assert back.right[0] is None and isinstance(back.right[1], list)
    np.testing.assert_array_equal(others[3], state.mean)
    assert others["none"] is None


def test_python_calling_conventions() -> None:
    @dlc.jit
    def combine(a: Any, /, b: Any, *rest: Any, scale: Any = 2.0, **more: Any) -> Any:
        return (a + b + sum(rest)) * scale + sum(more.values())

    x = normal(3)
    np.testing.assert_allclose(combine(x, x), 4 * x, rtol=1e-6)
    np.testing.assert_allclose(combine(x, b=x, scale=3.0), 6 * x, rtol=1e-6)
    np.testing.assert_allclose(combine(x, x, x, x, scale=np.float32(1)), 4 * x, rtol=1e-6)
    np.testing.assert_allclose(combine(x, x, more=x), 5 * x, rtol=1e-6)
    with pytest.raises(TypeError, match="argument"):
        combine()


def test_methods() -> None:
    class Model:
        def __init__(self) -> None:
            self.w = normal(3, 2)

        @dlc.jit(static_argnames=("self",))
        def __call__(self, x: Any) -> Any:
            return x @ self.w

        @dlc.jit
        @staticmethod
        def double(x: Any) -> Any:
            return 2 * x

    model, x = Model(), normal(4, 3)
    np.testing.assert_allclose(model(x), x @ model.w, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(Model.double(x), 2 * x)


def test_closed_over_arrays_are_constants() -> None:
    w, table = normal(4, 3), np.arange(8)

    @dlc.jit
    def function(x: Any) -> Any:
        return dnp.take(x @ w, np.array([2, 0]), axis=1) + dnp.astype(table[:2], np.float32) + w.sum()

    x = normal(5, 4)
    np.testing.assert_allclose(function(x), (x @ w)[:, [2, 0]] + table[:2] + w.sum(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_returned_arrays_of_equal_elements_are_filled_by_a_kernel(target: str) -> None:
    expected = np.full((100, 50), -0.0, np.float32), np.full(5001, True), np.full((5, 1, 1001), 7, np.int8)

    @dlc.jit(target=target)
    def function(x: Any) -> Any:
        return x + 1, *(dnp.full(e.shape, e.flat[0], e.dtype) for e in expected)

    assert not function.lower(normal(3)).program.weights
    for got, array in zip(function(normal(3))[1:], expected, strict=True):
        np.testing.assert_array_equal(got, array, strict=True)
        np.testing.assert_array_equal(np.signbit(got.astype(np.float32)), np.signbit(array.astype(np.float32)))


def test_results_of_all_kinds() -> None:
    constant = normal(3)

    @dlc.jit
    def function(x: Any) -> Any:
        y = x + 1
        return x, y, y, constant, 3, 2.5, True, dnp.zeros((0, 4)), x[0, 0]

    x = normal(2, 3)
    results = function(x)
    for got, expected in zip(results, (x, x + 1, x + 1, constant, 3, 2.5, True, np.zeros((0, 4)), x[0, 0]), strict=True):
        np.testing.assert_array_equal(got, expected)
    assert [r.dtype for r in results[4:7]] == [np.int64, np.float64, np.bool_]
    # Results do not share memory with inputs or with one another.
    results[0][...] = 0
    results[1][...] = 0
    assert x.any() and results[2].any() and constant.any()
    assert function(x)[3] is not results[3]


def test_inputs_of_any_layout() -> None:
    double = dlc.jit(lambda x: 2 * x)
    x = normal(6, 8)
    for view in (x.T, x[::2, 1::3], x[::-1], np.broadcast_to(x[0], (6, 8)), np.asfortranarray(x), x.astype(">f4")):
        np.testing.assert_array_equal(double(view), 2 * view)
    unaligned = np.frombuffer(bytes(1) + x.tobytes(), np.uint8)[1:].view(np.float32)
    np.testing.assert_array_equal(double(unaligned), 2 * x.ravel())
    assert double(np.float32(3)) == 6 and double(np.zeros((0, 3), np.float32)).shape == (0, 3)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_means_of_nothing() -> None:
    x = np.zeros((0, 4), np.float32)
    for target in ("reference", "cpu"):
        assert np.isnan(dlc.jit(target=target)(lambda x: x.mean(0))(x)).all()


@dlc.jit(target="reference")
def doubled(x: Any) -> Any:
    return x + x


def test_a_function_is_pickled_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(doubled)) is doubled and copy.deepcopy(doubled) is doubled


def test_results_in_dicts_of_every_kind() -> None:
    x = np.ones(2)
    lists: Any = defaultdict(list)
    lists["a"] = x
    for given in (OrderedDict(b=x, a=x), lists, Counter(a=x)):
        got = dlc.jit(target="reference")(lambda d: d)(given)
        assert type(got) is type(given) and list(got) == list(given)


@pytest.mark.skipif(sys.flags.optimize > 1, reason="python -OO takes docstrings away")
def test_name_and_docstring_are_kept() -> None:
    def documented(x: Any) -> Any:
        """Words."""
        return x

    compiled = dlc.jit(documented)
    assert (compiled.__name__, compiled.__doc__) == ("documented", "Words.")
