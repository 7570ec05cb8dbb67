"""Public functions report invalid arguments by an error that names the function and the parameter."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dlc
import dlc.numpy as dnp
from dlc.argument_validation.annotation_parser import parse_annotation
from dlc.errors import DlcError, DTypeError
from dlc.frontend.trace import Trace, tracing

X = np.float32([[2, 0.5], [0.25, 1]])
WRONG: dict[str, Any] = {
    "None": None, "text": "abc", "fraction": 2.5, "object": object(), "list": [], "dict": {}, "negative": -1, "huge": 10**30,
    "large": 1 << 62, "ragged": [[1, 2], [3]], "function": lambda: 1, "text array": np.array(["a"]), "list of None": [None],
    "complex": 1j, "rank 3": np.ones((2, 3, 5)), "NaN": float("nan"),
}  # fmt: skip
# Their functions are called by the onnx package or inside of kernels, or print.
LEFT_OUT = {"onnx_backend", "kernels", "debug.print"}
# They pass further arguments on to a user function.
TAKE_ANYTHING = {"debug.first_nan", "debug.saved_residuals", "checkpoint", "jit", "vmap"}
# Valid calls that run forever, or whose function does not accept its arguments.
ENDLESS = {("lax.while_loop", "cond_fun"), ("lax.fori_loop", "upper"), ("lax.fori_loop", "lower")}


def walk(module: ModuleType, prefix: str = "") -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the public functions of a module, and of the modules in it."""
    for name in module.__all__:
        found = getattr(module, name)
        if inspect.ismodule(found):
            yield from walk(found, f"{prefix}{name}.")
        elif inspect.isfunction(found):
            yield f"{prefix}{name}", found


MODULES = [name for name in dlc._PUBLIC_MODULES if name not in LEFT_OUT]
FUNCTIONS = {name: dict(walk(getattr(dlc, name), f"{name}.")) for name in MODULES}


def right(p: inspect.Parameter) -> Any:
    """Return a valid argument for a parameter."""
    annotation = str(p.annotation)
    if p.name in ("key", "f", "fun", "body_fun", "cond_fun", "true_fun", "false_fun"):
        return dlc.random.key(0) if p.name == "key" else lambda *x: x[-1]
    if annotation.startswith("Sequence[Callable"):
        return [lambda *x: x, lambda *x: x]
    if annotation.startswith(("Sequence[ArrayLike", "Arrays")):
        return [X, X]
    if annotation.startswith(("int", "Axes", "bool")):
        return 1
    if annotation.startswith(("Shape", "tuple[int", "Sequence[int")):
        return (2, 2)
    return 0.5 if annotation.startswith("float") else np.float32 if p.name == "dtype" else X


def calls(function: Callable[..., Any], wrong: list[Any]) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """Yield calls with one invalid argument each: every invalid value for every parameter."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    for k, p in enumerate(parameters):
        # Of a function each second value, another half for each parameter.
        for value in wrong[k % 2 :: 2]:
            args, settings = list[Any](), dict[str, Any]()
            for q in parameters:
                given = value if p is q else right(q) if q.default is q.empty else q.default
                if q.kind in (q.POSITIONAL_ONLY, q.VAR_POSITIONAL):
                    args.append(given)
                elif p is q or q.default is q.empty:
                    settings[q.name] = given
            yield p.name, args, settings


def explained(name: str, function: Callable[..., Any], args: Any, settings: Any) -> str | None:
    """Return a problem with how a call ends: it must succeed, or raise a DlcError that names the function."""
    try:
        function(*args, **settings)
    except DlcError as error:
        # Errors about the test's own functions are not checked.
        is_told = any(own in str(error) for own in (function.__name__, name.rpartition(".")[2])) or any(
            map(inspect.isfunction, args)
        )
        return None if is_told else f"{error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def of_users(problem: str) -> bool:
    """Return whether an error comes from a callback of the test."""
    return bool(re.search(r"<lambda>\(\) (takes|got)", problem))


@pytest.mark.parametrize("is_traced", [False, True], ids=["plain", "traced"])
@pytest.mark.parametrize("module", MODULES)
def test_every_parameter_of_every_function(module: str, is_traced: bool) -> None:
    found: list[str] = []
    trace = Trace()

    def prepared(value: Any) -> Any:
        """Return the argument as a traced array."""
        if isinstance(value, list):
            return [prepared(v) for v in value]
        is_own = is_traced and isinstance(value, np.ndarray) and value.dtype.kind in "fu"
        return trace.constant(value) if is_own else value

    wrong = list(WRONG.values())[:: 2 if is_traced else 1]
    functions = {id(function): (name, function) for name, function in FUNCTIONS[module].items() if name not in LEFT_OUT}
    with tracing(trace) if is_traced else warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, function in functions.values():
            for parameter, args, settings in calls(function, wrong):
                if (name, parameter) in ENDLESS:
                    continue
                given = [prepared(a) for a in args], {n: prepared(a) for n, a in settings.items()}
                problem = explained(name, function, *given)
                if problem and not of_users(problem):
                    found.append(f"{name}: {parameter} of {given}: {problem}")
    assert not found, "\n".join(found[:20])


@pytest.mark.parametrize("module", MODULES)
def test_unexpected_keyword_arguments(module: str) -> None:
    for name, function in FUNCTIONS[module].items():
        if name in LEFT_OUT | TAKE_ANYTHING:
            continue
        required = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
        args = [right(p) for p in required if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        settings = {p.name: right(p) for p in required if p.kind is p.KEYWORD_ONLY}
        declared = re.escape(f"; it is {function.__name__}(")
        with pytest.raises(
            DTypeError, match=rf"test_argument_validation\.py:\d+: dlc\.{module}.*unexpected keyword.*'nonsense'{declared}"
        ):
            function(*args, **settings, nonsense=1)
        if all(p.kind is not p.VAR_POSITIONAL for p in required):
            with pytest.raises(DTypeError, match=rf"dlc\.{module}.*too many positional arguments{declared}"):
                function(*[X] * 40)


def loss(p: Any, x: Any) -> Any:
    return (p * x).sum()


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 2]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    path = tmp_path_factory.mktemp("arguments") / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


@pytest.mark.parametrize("name", [n for n in dlc._PUBLIC if inspect.isfunction(getattr(dlc, n))])
def test_every_parameter_of_compiling_functions(
    name: str, model_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also when the compiled function is called."""
    monkeypatch.chdir(tmp_path)
    function, found = getattr(dlc, name), list[str]()
    given: dict[str, Any] = {
        "model": model_path,
        "fun": loss,
        "f": loss,
        "primals": (X, X),
        "tangents": (X, X),
        "x": X,
        "array": X,
    }
    if name in ("compile_model", "jit"):
        given["target"] = "reference"
    parameters = inspect.signature(function).parameters.values()
    for p in parameters:
        for value in WRONG.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) else ():
            used = {q.name: given[q.name] for q in parameters if q.name in given} | {p.name: value}

            is_curried = name == "jit" or used.get("fun", X) is None

            def call(*args: Any, curried: bool = is_curried, **settings: Any) -> None:
                made = function(*args, **settings)
                for of in (loss, X) if callable(made) and name != "compile_model" else ():
                    made = made(of) if of is loss and curried else made(X, X) if of is X and callable(made) else made

            args = [used.pop(q.name) for q in parameters if q.kind is q.POSITIONAL_ONLY and q.name in used]
            call.__name__ = ""
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                problem = explained(name, call, args, used)
            if problem and not of_users(problem):
                found.append(f"{p.name} = {value!r}: {problem}")
    assert not found, "\n".join(found[:20])
    if name not in TAKE_ANYTHING:
        with pytest.raises(DTypeError, match=rf"test_argument_validation\.py:\d+: dlc\.{name}: "):
            function(*[None] * 40)
        with pytest.raises(DTypeError, match=rf"test_argument_validation\.py:\d+: dlc\.{name}: .*; it is {name}\("):
            function(nonsense=1)


SGD = dlc.optim.sgd(0.1)
CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "a size": (lambda: dnp.linspace(0, 1, 2.5), r"dlc\.numpy\.linspace: num = 2\.5; expected an integer$"),
    "many bits": (lambda: dlc.jit(num_threads=10**30), r"num_threads = 1000.*\(of 100 bits\); expected an integer or None"),
    "swapped": (lambda: dlc.nn.group_norm(X, 2, X[0], X[0]), r"group_norm: groups = float32\[2\]; expected an integer"),
    "in a list": (lambda: dnp.concat([X, None]), r"concat: arrays\[1\] = None; expected an array, a number or lists of them"),
    "a step inside": (lambda: dnp.diagonal(X, axis1=1), r"dlc\.numpy\.diagonal: moveaxis: .* repeats an axis of shape \(2, 2\)"),
    "too large": (lambda: dnp.repeat(X, 1 << 62), "repeat: .* does not fit in memory"),
    "a method": (lambda: dlc.jit(lambda x: x.sum(colour=1))(X), r"array\.sum: got an unexpected keyword argument 'colour'; it is sum\(x"),
    "another name": (lambda: dnp.absolute(X, X, X), r"dlc\.numpy\.abs: too many positional arguments; it is abs\(x, /\)"),
    "in a loop": (lambda: dlc.lax.map(lambda r: dnp.roll(r, "a"), X), r"dlc\.numpy\.roll: shift = 'a'; expected"),
    "a function": (lambda: dlc.grad(3), "dlc.grad: fun = 3; expected a function"),
    "argnums": (lambda: dlc.grad(loss, argnums=1.5), r"dlc\.grad: argnums = 1\.5; expected an integer or a list of integers"),
    "a choice": (lambda: dlc.TrainStep("sdg", "mse"), r"dlc\.TrainStep: optimizer = 'sdg'; expected one of 'sgd', 'adam', 'adamw'"),
    "of a class": (lambda: dlc.TrainStep(), r"dlc\.TrainStep: missing a required argument: 'optimizer'; it is TrainStep\(optimizer, l"),
    "a rule": (lambda: dlc.custom_jvp(loss).defjvp(None), r"dlc\.custom_jvp\.defjvp: rule = None; expected a function"),
    "a target": (lambda: dlc.jit(target=3), r"dlc\.jit: target = 3; expected a string or a target"),
    "jitted, too few": (lambda: dlc.jit(loss)(X), r"loss: missing a required argument: 'x'; it is loss\(p, x\)"),
    "jitted, settings": (lambda: dlc.jit(loss, static_argnames="p")(1, X, z=1), "loss: got an unexpected keyword argument 'z'"),
    "a gradient": (lambda: dlc.grad(loss)(X, X, X), "loss: too many positional arguments"),
    "a batch": (lambda: dlc.vmap(loss)(X), "loss: missing a required argument: 'x'"),
    "a state": (lambda: SGD.update(X, None, X), r"dlc\.optim\.sgd: update: the state is a NoneType; expected the result of init\(params\)"),
    "a tree": (lambda: dlc.tree.unflatten([], X), r"dlc\.tree\.unflatten: shape = \[\]; expected a Tree"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "message"), CASES.values(), ids=CASES)
def test_message(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(DlcError, match=message) as caught:
        call()
    line = inspect.getsourcelines(call)[1]
    assert str(caught.value).startswith(f"test_argument_validation.py:{line}: ")


def test_other_errors_are_not_changed() -> None:
    """If all arguments match the signature, the error is a bug and is raised unchanged."""

    def broken(x: Any) -> Any:
        return x + None.colour  # pyright: ignore[reportOptionalMemberAccess]

    with pytest.raises(AttributeError, match="colour"):
        dlc.lax.map(broken, X)
    with pytest.raises(AttributeError, match="colour"):
        dlc.grad(broken)(X)


@pytest.mark.parametrize(
    ("annotation", "fit", "others"),
    [
        ("int", (0, True, np.int8(3), np.array(3), 1 << 62), (0.5, "a", None, np.ones(1, int), 1 << 63)),
        ("int | None", (None, 3), ("a",)),
        ("float", (0, 0.5, np.float32(1), np.array(2.0)), ("a", 1j, [1.0], X)),
        ("bool", (True, 0, np.True_), (2, "a", None)),
        ("str | Sequence[str]", ("a", ["a"], {"a": 1}.keys(), ()), (1, ["a", 1], None)),
        ("Shape", (3, (3, 4), [3], np.array([3, 4])), (-1, 2.5, "34", (3, -1), 1 << 60)),
        ("Axes", (None, -1, (0, -1)), ("a", 0.5, (0.5,))),
        ("ArrayLike", (X, 1, 1.5, [[1, 2], [3, 4]], [X, X]), (None, "a", [[1, 2], [3]], {}, [None], object(), 10**30)),
        ("AnyDType", ("int8", np.float32, X.dtype, dnp.bfloat16), ("abc", 3, [], object(), "U3")),
        ("Callable[..., Any]", (len, lambda: 1), (None, 3)),
        ("Mapping[str, int]", ({}, {"a": 1}), (None, [], 3)),
        ("tuple[float, float]", ((1, 2.5), [1, 2]), ((1,), 3, (1, "a"))),
        ("Any", (None, object()), ()),
        ("Tree", (dlc.tree.flatten(X)[1],), (None, X)),
    ],
)
def test_kinds(annotation: str, fit: tuple[Any, ...], others: tuple[Any, ...]) -> None:
    kind = parse_annotation(annotation, vars(dlc.tree))
    for value in fit:
        assert kind is None or kind.accepts(value), value
    for value in others:
        assert kind is not None and not kind.accepts(value), value
