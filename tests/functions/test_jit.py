"""`@dlc.jit`: models as Python functions, pytree arguments, the cache, and errors at the user's line."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import sys
import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import nn
from dlc.dialects.registry import make_context
from dlc.errors import DlcError, DTypeError, ShapeError, UnsupportedError
from dlc.ir import parse_module

draw = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return draw.standard_normal(shape).astype(np.float32)


class Counted:
    """A function that counts how often Python runs it, that is, how often it is traced."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.count = 0
        self.__signature__ = inspect.signature(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        return self.function(*args, **kwargs)


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


# The cache


def test_one_trace_per_shapes_dtypes_and_structure() -> None:
    function = Counted(lambda x, n=1: x * n)
    compiled = dlc.jit(function)
    x = normal(3, 4)

    def traces(*args: Any, **kwargs: Any) -> int:
        np.testing.assert_allclose(compiled(*args, **kwargs), function.function(*args, **kwargs), rtol=1e-6)
        return function.count

    assert traces(x) == 1
    assert traces(x + 1) == 1
    assert traces(x[:2]) == 2
    assert traces(x.astype(np.float64)) == 3
    assert traces(x) == 3
    assert traces(compiled(x)) == 3
    # A scalar is an input: its value is not part of the cache key, its weak type is.
    assert traces(x, 2.0) == 4
    assert traces(x, 3.0) == 4
    assert traces(x, 3) == 5
    assert traces(x, np.float64(3)) == 6
    assert traces(x, n=3.0) == 7
    assert traces(x, 5.0) == 7


def test_static_arguments() -> None:
    function = Counted(lambda x, axis, mode="sum": x.sum(axis) if mode == "sum" else x.max(axis))
    compiled = dlc.jit(static_argnames=("axis", "mode"))(function)
    x = normal(3, 4)
    np.testing.assert_allclose(compiled(x, 0), x.sum(0), rtol=1e-5)
    np.testing.assert_allclose(compiled(x, axis=0), x.sum(0), rtol=1e-5)
    assert function.count == 1
    np.testing.assert_allclose(compiled(x, 1), x.sum(1), rtol=1e-5)
    np.testing.assert_allclose(compiled(x, (0, 1), "max"), x.max(), rtol=1e-5)
    assert function.count == 3
    with pytest.raises(DTypeError, match=r"static argument axis is a list, which cannot be hashed"):
        compiled(x, [0])
    with pytest.raises(DTypeError, match=r"static_argnames.*'axes'.*no parameters"):
        dlc.jit(static_argnames=("axes",))(lambda x: x)


def test_equal_static_values_of_different_types() -> None:
    compiled = dlc.jit(static_argnames=("n",))(lambda x, n: x * 2 if n is True else x * 3)
    x = normal(3)
    np.testing.assert_allclose(compiled(x, 1), 3 * x)
    np.testing.assert_allclose(compiled(x, True), 2 * x)
    np.testing.assert_allclose(compiled(x, 1.0), 3 * x)


@dataclass(frozen=True)
class Setting:
    factor: float


@pytest.mark.parametrize(
    ("settings", "factor"),
    [
        (((2,), (2.0,), (True,)), lambda n: n[0]),
        (((1, (0.0,)), (1, (-0.0,))), lambda n: 1 / np.float64(n[1][0])),
        ((0.0, -0.0), lambda n: np.copysign(2.0, n)),
        ((frozenset({2}), frozenset({2.0})), lambda n: sum(n)),
        ((Setting(2), Setting(2.0)), lambda n: n.factor),
    ],
    ids=["tuple", "nested", "zero", "set", "dataclass"],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_equal_static_objects_of_different_meaning(settings: Any, factor: Callable[[Any], Any]) -> None:
    compiled = dlc.jit(target="reference", static_argnames=("n",))(lambda x, n: x * factor(n))
    for setting in settings:
        found, expected = compiled(np.arange(1, 4), setting), np.arange(1, 4) * factor(setting)
        assert np.array_equal(found, expected) and found.dtype == expected.dtype


def test_failed_trace_is_not_cached() -> None:
    function = Counted(lambda x: x @ x)
    compiled = dlc.jit(function)
    for _ in range(2):
        with pytest.raises(ShapeError):
            compiled(normal(2, 3))
    np.testing.assert_allclose(compiled(np.eye(2, dtype=np.float32)), np.eye(2))
    assert function.count == 3


def test_calls_from_several_threads() -> None:
    function = Counted(lambda x: dnp.tanh(x) * 2)
    compiled = dlc.jit(function)
    arrays = [normal(50, 3) for _ in range(8)]
    results: dict[int, Any] = {}
    threads = [threading.Thread(target=lambda k=k: results.update({k: compiled(arrays[k])})) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert function.count == 1
    for k, array in enumerate(arrays):
        np.testing.assert_allclose(results[k], 2 * np.tanh(array), atol=1e-6)


def test_compiled_functions_call_one_another() -> None:
    """A compiled function called during tracing is inlined."""
    inner = dlc.jit(static_argnames=("n",))(lambda x, n: {"y": x**n})
    outer = dlc.jit(lambda x: inner(x + 1, n=2)["y"] - inner(2.0 * x, 1)["y"])
    x = normal(4)
    np.testing.assert_allclose(outer(x), (x + 1) ** 2 - 2 * x, rtol=1e-5, atol=1e-6)


# Looking inside


@pytest.mark.parametrize("stage", ["dl", "fusion", "linalg", "tiling", "loops", "host"])
def test_ir_at_every_stage(stage: str) -> None:
    params = {"w": normal(4, 3), "b": normal(3)}
    text = dlc.jit(lambda p, x: dnp.tanh(x @ p["w"] + p["b"])).lower(params, normal(2, 4)).as_text(stage)
    parse_module(make_context(), text).verify()
    telling = {"dl": "dl.tanh", "fusion": "dl.dispatch", "linalg": "linalg.generic", "tiling": "scf.parallel"}
    assert telling.get(stage, {"loops": "vector.", "host": "host.launch"}.get(stage, "")) in text
    assert "params" in text or "p['w']" in text


def test_code() -> None:
    lowered = dlc.jit(lambda x: x * 2 + 1).lower(normal(8))
    assert "define" in lowered.as_text("llvm") and "target-cpu" in lowered.as_text("llvm")
    assert "ret" in lowered.as_text("asm") and ".globl" in lowered.as_text("asm")
    with pytest.raises(UnsupportedError, match=r"cpu:\w+ has no listing format 'opencl'; available: llvm, asm"):
        lowered.as_text("opencl")
    assert "__kernel" in dlc.jit(lambda x: x * 2, target="opencl:cpu256").lower(normal(8)).as_text("opencl")
    with pytest.raises(UnsupportedError, match=r"linalgg.*dl, fusion, linalg, tiling, loops"):
        lowered.as_text("linalgg")


def test_locations_are_user_lines() -> None:
    def function(x: Any) -> Any:
        y = dnp.exp(x)
        return y + 1

    line = inspect.getsourcelines(function)[1]
    text = dlc.jit(function).lower(normal(2)).as_text("dl")
    assert f'test_jit.py":{line + 1}:' in text and f'test_jit.py":{line + 2}:' in text


def test_a_lowered_function_is_a_model() -> None:
    model = dlc.jit(lambda p, x: {"y": x + p["b"]}).lower({"b": normal(3)}, normal(2, 3)).compile()
    assert [str(i) for i in model.inputs] == ["p['b']: float32[3]", "x: float32[2, 3]"]
    assert [str(o) for o in model.outputs] == ["result['y']: float32[2, 3]"]


def test_the_ir_of_the_first_compilation_is_dumped(tmp_path: Path) -> None:
    function = dlc.jit(dump_ir=tmp_path / "ir")(lambda x: x + 1)
    function(normal(3))
    written = {p: p.read_bytes() for p in (tmp_path / "ir").rglob("*.*")}
    assert any(p.name == "index.md" for p in written)
    function(normal(4))
    assert {p: p.read_bytes() for p in (tmp_path / "ir").rglob("*.*")} == written


def test_a_pipeline_of_ones_own() -> None:
    doubled = dlc.jit(target="reference", pipeline="cse,dce")(lambda x: x + x)
    x = normal(3)
    np.testing.assert_allclose(doubled(x), 2 * x)
    with pytest.raises(UnsupportedError, match="did you mean cse"):
        dlc.jit(pipeline="csee")(lambda x: x)(x)


# Errors


def raised_in(
    function: Callable[..., Any], kind: type[DlcError], message: str, *arguments: Any, line: int = 1, **options: Any
) -> None:
    """Assert that a call raises `kind` with the line at this offset from the function's first line."""
    with pytest.raises(kind, match=message) as caught:
        dlc.jit(**options)(function)(*arguments)
    place = f"test_jit.py:{inspect.getsourcelines(function)[1] + line}: "
    assert str(caught.value).startswith(place), f"{caught.value} does not start with {place}"


def test_errors_of_shape_name_the_users_line() -> None:
    def product(x: Any) -> Any:
        y = dnp.exp(x)
        return y @ y

    def total(x: Any) -> Any:
        return x + dnp.zeros(7)

    def helper(x: Any) -> Any:
        return product(x)

    def picked(x: Any) -> Any:
        return x[5]

    def reshaped(x: Any) -> Any:
        return x.reshape(4, -1)

    def too_many(x: Any) -> Any:
        return x[0, 0, 0]

    def joined(x: Any) -> Any:
        return dnp.concat([x, x.T])

    def convolved(x: Any) -> Any:
        return nn.conv(x[None, :, :, None], dnp.zeros((1, 1, 1, 1)), padding="full")

    x = normal(2, 3)
    raised_in(product, ShapeError, "matmul.*(2, 3)", x, line=2)
    raised_in(total, ShapeError, "(2, 3).*7", x)
    raised_in(picked, ShapeError, "index 5 .* axis 0", x)
    raised_in(reshaped, ShapeError, "6 elements", x)
    raised_in(too_many, ShapeError, "3 indices", x)
    raised_in(joined, ShapeError, "concat", x)
    raised_in(convolved, ShapeError, "'full'", x)
    with pytest.raises(ShapeError, match=rf"test_jit.py:{inspect.getsourcelines(product)[1] + 2}: "):
        dlc.jit(helper)(x)


def test_elements_are_not_known_while_tracing() -> None:
    def branches(x: Any) -> Any:
        if x > 0:
            return x
        return -x

    def converts(x: Any) -> Any:
        return float(x)

    def counts(x: Any) -> Any:
        return sum(x for _ in range(int(x)))

    def numpys(x: Any) -> Any:
        return np.asarray(x)

    def assigns(x: Any) -> Any:
        x[...] = 1
        return x

    x = np.float32(1)
    raised_in(assigns, DlcError, r"in place.*x\.at\[index\]\.set.*dlc\.numpy\.where", x)
    raised_in(branches, DTypeError, "condition.*dlc.numpy.where.*static_argnames", x)
    raised_in(converts, DTypeError, r"float\(\)", x)
    raised_in(counts, DTypeError, r"int\(\)", x)
    raised_in(numpys, DTypeError, "NumPy function.*dlc.numpy", x)


def test_errors_of_dtype_name_the_users_line() -> None:
    def shifted(x: Any) -> Any:
        return dnp.where(x, 1.0, 2.0) + dnp.take(x, dnp.zeros(2), axis=0)

    def complex_numbers(x: Any) -> Any:
        return dnp.maximum(x, 1j)

    def too_large(x: Any) -> Any:
        return x.astype(np.uint8) + 300

    raised_in(shifted, DTypeError, "gather.*integers", normal(3))
    raised_in(complex_numbers, DTypeError, "complex128", normal(3))
    raised_in(too_large, DTypeError, "300 out of bounds for uint8", normal(3))


def test_non_array_arguments() -> None:
    function = dlc.jit(lambda x, mode: x)
    with pytest.raises(DTypeError, match=r"argument mode.*got str.*static_argnames"):
        function(normal(3), "fast")
    with pytest.raises(DTypeError, match=r"argument x\['a'\]\[1\].*got object"):
        function({"a": [normal(1), object()]}, 1)
    with pytest.raises(DTypeError, match=r"argument x: dtype str"):
        function(np.array(["a"]), 1)
    with pytest.raises(DTypeError, match="returned a str"):
        dlc.jit(lambda x: "y")(normal(3))


def test_errors_of_the_function_pass_through() -> None:
    def broken(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        dlc.jit(broken)(normal(3))


def test_values_must_not_outlive_their_trace() -> None:
    kept: list[Any] = []
    dlc.jit(lambda x: kept.append(x) or x)(normal(3))
    with pytest.raises(DlcError, match="traced"):
        dlc.jit(lambda x: x + kept[0])(normal(3))
    with pytest.raises(DlcError, match="traced"):
        kept[0] + 1
    with pytest.raises(DlcError, match="traced"):
        dlc.jit(lambda x: kept[0])(normal(3))


@pytest.mark.skipif(sys.flags.optimize > 1, reason="python -OO takes docstrings away")
def test_name_and_docstring_are_kept() -> None:
    def documented(x: Any) -> Any:
        """Words."""
        return x

    compiled = dlc.jit(documented)
    assert (compiled.__name__, compiled.__doc__) == ("documented", "Words.")


def test_public_names_stay_what_they_are() -> None:
    """Importing a submodule of the package must not hide a function of the same name."""
    for name in dlc._PUBLIC:
        importlib.import_module(dlc._PUBLIC[name])
        assert getattr(dlc, name).__name__ == name


def test_masked_arrays_are_refused() -> None:
    hidden = np.ma.masked_array([1.0, 2.0], [False, True], dtype=np.float32)
    with pytest.raises(dlc.DTypeError, match=r"f: an argument is a masked array; .*\.filled"):

        @dlc.jit
        def f(x: Any) -> Any:
            return x + 1

        f(hidden)
    model = dlc.jit(lambda x: x + 1).lower(np.ones(2, np.float32)).compile()
    with pytest.raises(dlc.DTypeError, match=r"masked array"):
        model(hidden)
    np.testing.assert_array_equal(next(iter(model(np.ma.masked_array(np.ones(2, np.float32))).values())), [2, 2])


def test_decorator_arguments_are_validated() -> None:
    for wrong in ("N", ("N",), {"N": 0}):
        with pytest.raises(DTypeError, match=r"dynamic: x: .*\{0: 'N'\}"):
            dlc.jit(lambda x: x, dynamic=cast(Any, {"x": wrong}))
    with pytest.raises(DTypeError, match=r"dlc\.jit: function = 3; expected a function"):
        dlc.jit(cast(Any, 3))


def test_static_arguments_by_position() -> None:
    @dlc.jit(static_argnums=1)
    def scale(x: Any, n: int) -> Any:
        return x * len(range(n))

    np.testing.assert_array_equal(scale(np.ones(2), 3), [3, 3])
    np.testing.assert_array_equal(dlc.jit(static_argnums=(-1,))(lambda x, n: x * len(range(n)))(np.ones(2), 2), [2, 2])
    with pytest.raises(DTypeError, match=r"static_argnums \[3\]"):
        dlc.jit(static_argnums=3)(lambda x: x)


def test_lowering_for_a_shape_and_dtype() -> None:
    lowered = dlc.jit(lambda x: x @ x.T).lower(dlc.ShapeDtype((3, 4), np.float32))
    assert "tensor<3x4xf32>" in lowered.as_text()
    assert lowered.compile()(np.ones((3, 4), np.float32))["result"][0, 0] == 4
    with pytest.raises(DTypeError, match=r"has no elements; pass it to \.lower only"):
        dlc.jit(lambda x: x)(dlc.ShapeDtype((3, 4), np.float32))


@pytest.mark.parametrize(("shape", "dtype"), [(3, "f4"), ((2.5,), "f4"), ((2,), "no dtype"), ((-2,), "f4")])
def test_invalid_shape_and_dtype(shape: Any, dtype: Any) -> None:
    with pytest.raises((DTypeError, ShapeError), match="ShapeDtype"):
        dlc.ShapeDtype(shape, dtype)


@dlc.jit(target="reference")
def doubled(x: Any) -> Any:
    return x + x


def test_a_function_is_pickled_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(doubled)) is doubled and copy.deepcopy(doubled) is doubled


@pytest.mark.parametrize("use", [lambda x: {x: 1}, lambda x: x in {1, 2}])
def test_traced_value_is_not_hashable(use: Any) -> None:
    with pytest.raises(DTypeError, match=r"test_jit.py:\d+: Tracer.* is a traced array, which cannot be a dict key"):
        dlc.jit(use)(np.ones(2))


def test_results_in_dicts_of_every_kind() -> None:
    x = np.ones(2)
    lists: Any = defaultdict(list)
    lists["a"] = x
    for given in (OrderedDict(b=x, a=x), lists, Counter(a=x)):
        got = dlc.jit(target="reference")(lambda d: d)(given)
        assert type(got) is type(given) and list(got) == list(given)


def test_a_number_beyond_64_bits_is_an_error_that_says_so() -> None:
    with pytest.raises(DTypeError, match=f"argument k: Python integer {1 << 70} out of bounds for 64 bits"):
        dlc.jit(lambda x, k: x + k)(normal(2), 1 << 70)


def test_numbers_share_the_program_of_their_dtype() -> None:
    """NumPy's scalars are arrays of rank 0; a Python number takes the dtype of the arrays, and must fit."""
    scale = dlc.jit(lambda x, s: x * s, target="reference")
    x = np.ones(3, np.int8)
    for _ in range(2):
        assert scale(x, np.float64(1.5)).dtype == scale(x, np.asarray(1.5)).dtype == np.float64
        assert scale(x, np.int16(300))[0] == 300
        assert scale(x, 2).dtype == np.int8
        assert scale(np.float32([1.0]), 0.5).dtype == np.float32
        with pytest.raises(DTypeError, match="300"):
            scale(x, 300)
