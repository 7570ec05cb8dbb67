"""The end-to-end programs of torch-mlir, from a clone of llvm/torch-mlir.

Each program is compiled three ways: exported by `torch.export` with static sizes, exported with the dynamic sizes that it
declares, and by `torch.compile` with dynamic sizes. The expected results are PyTorch's. Only torch-mlir's test programs are
used, so that its compiler need not be installed; programs that use torchvision are run if it is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.suites.suite import NotComparableError, Suite
from tests.suites.torch_programs import check_compiled, check_exported, start_torch

_PACKAGE = "torch_mlir_e2e_test"
_FOLDER = Path("projects", "pt1", "python")
WAYS = ("export", "export-dynamic", "compile")
_NOT_COMPARED = {
    "TimeOutModule_basic": "tests the time limit",
    **dict.fromkeys(
        (
            "PrimsSqueezeEmptyDimensionsModule_basic",
            "PrimsSqueezeModule_basic",
            "PrimsViewOfModule_basic",
            "PrimsViewOfZeroRankModule_basic",
            "SplitDimDynamicModule_basic",
            "SplitDimStaticModule_basic",
        ),
        "PyTorch cannot functionalize operators of torch.ops.prims that return views",
    ),
    "AtenLinalgSVDModule_basic": "factors are unique up to signs",
    "ThresholdBackward2dMixedModule_basic": "PyTorch's kernel returns another dtype than its shape inference",
    **dict.fromkeys(
        (
            "AtenEmbeddingBagLastBagBoundaryModule_basic",
            "AtenEmbeddingBagStaticModule_basic",
            "AtenEmbeddingBagSumExample_basic",
            "Aten_EmbeddingBagExample_basic",
        ),
        "PyTorch computes the sizes of bags for gradients only",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, help="a clone of llvm/torch-mlir")
    parser.add_argument("--target", default="cpu", help="target of the compiler (default: cpu)")
    parser.add_argument("--ways", default=",".join(WAYS), help=f"comma-separated ways to compile (default: {','.join(WAYS)})")


def suite(arguments: argparse.Namespace) -> Suite:
    torch, ways = start_torch(), arguments.ways.split(",")
    tests = _tests(arguments.path / _FOLDER)
    names = [f"{name}/{way}" for name, test in tests.items() for way in ways if way != "export-dynamic" or _is_dynamic(test)]
    conditions = f"torch {torch.__version__}, {', '.join(ways)}, target {arguments.target}"
    return Suite(conditions, names, lambda name: _run(arguments.path / _FOLDER, name, arguments.target))


@cache
def _tests(folder: Path) -> dict[str, Any]:
    """Return the tests by name."""
    sys.path.insert(0, str(folder))
    for name in (
        "multiprocess",
        "torch_mlir",
        "torch_mlir._version",
        "torch_mlir._torch_mlir_custom_op_example",
        "torchvision",
    ):
        if name == "torchvision" and _can_be_imported(name):
            continue
        _provide(name)
    for name in ("torchvision.models", "torchvision.ops") if "torchvision" in sys.modules else ():
        _provide(name)
    for path in sorted((folder / _PACKAGE / "test_suite").glob("*.py")):
        import_module(f"{_PACKAGE}.test_suite.{path.stem}")
    registry = import_module(f"{_PACKAGE}.registry").GLOBAL_TEST_REGISTRY
    return {test.unique_name: test for test in registry}


def _can_be_imported(name: str) -> bool:
    """Return whether a package is installed, and fits the installed version of PyTorch."""
    try:
        import_module(name)
    except (ImportError, RuntimeError):
        return False
    return True


class _StandIn(ModuleType):
    """A module that the test programs import and that is not installed."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "torch_version_for_comparison":
            parse = import_module("packaging.version").parse
            return lambda: parse(import_module("torch").__version__.partition("+")[0])
        if self.__name__ == "torch_mlir._version":
            return import_module("packaging.version")
        if self.__name__ == "multiprocess":
            return print
        raise NotComparableError(f"{self.__name__.partition('.')[0]} is not installed")


def _provide(name: str) -> None:
    sys.modules[name] = _StandIn(name)
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, sys.modules[name])


@dataclass(frozen=True)
class _Call:
    """A call of a program's method."""

    method: str
    inputs: Sequence[Any]


class _Recorder:
    """Stands for a program, whose calls it records."""

    def __init__(self, torch: Any, calls: list[_Call], path: str = "") -> None:
        self._torch, self._calls, self._path = torch, calls, path

    def __getattr__(self, name: str) -> _Recorder:
        return _Recorder(self._torch, self._calls, f"{self._path}.{name}".lstrip("."))

    def __call__(self, *inputs: Any) -> Any:
        self._calls.append(_Call(self._path, [x.clone() if isinstance(x, self._torch.Tensor) else x for x in inputs]))


def _run(folder: Path, name: str, target: str) -> str:
    name, _, way = name.rpartition("/")
    if name in _NOT_COMPARED:
        raise NotComparableError(_NOT_COMPARED[name])
    test, torch = _tests(folder)[name], import_module("torch")
    calls: list[_Call] = []
    utilities = import_module(f"{_PACKAGE}.framework").TestUtils()
    test.program_invoker(_Recorder(torch, calls), utilities)
    for call in calls:
        if call.method != "forward":
            raise NotComparableError("calls another method than forward")
        program = test.program_factory()
        if way == "compile":
            check_compiled(program, call.inputs, target, dynamic=True)
        else:
            check_exported(program, call.inputs, target, _dynamic_shapes(test, call) if way == "export-dynamic" else None)
    return ""


def _annotations(test: Any) -> Sequence[Any]:
    """Return (shape, dtype, has value semantics) for each argument of a program; -1 is a dynamic size."""
    try:
        forward = test.program_factory().forward
    except NotComparableError:
        return ()
    return getattr(forward, import_module(f"{_PACKAGE}.annotations").TORCH_MLIR_ARG_ANNOTATIONS_ATTR_NAME, (None,))[1:]


def _is_dynamic(test: Any) -> bool:
    return any(annotation is not None and -1 in (annotation[0] or ()) for annotation in _annotations(test))


def _dynamic_shapes(test: Any, call: _Call) -> tuple[Any, ...]:
    """Return the dynamic sizes of the arguments, which PyTorch specializes if the program requires it."""
    torch = import_module("torch")
    annotations = [*_annotations(test), *[None] * len(call.inputs)]
    return tuple(
        {axis: torch.export.Dim.AUTO for axis, size in enumerate(annotation[0]) if size == -1}
        if annotation is not None and isinstance(value, torch.Tensor)
        else None
        for value, annotation in zip(call.inputs, annotations, strict=False)
    )
