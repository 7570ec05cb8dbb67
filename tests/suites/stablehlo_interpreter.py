"""The programs of StableHLO's interpreter, from a clone of openxla/stablehlo: `stablehlo/testdata`, `stablehlo/tests/interpret`.

Such a program computes from constants and compares the results with constants. Here its inputs are arguments, so that the
target computes with them, and `@main` returns the compared values. Inputs are the results of `@inputs`, or the constants that
are neither scalars nor operands of ops with dynamic shapes.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlc.backends.reference import evaluate
from dlc.compiler import Program, compile
from dlc.options import Options
from dlc.stablehlo.parser import parse
from dlc.stablehlo.reader import read_functions
from dlc.stablehlo.syntax import Argument, FunctionSyntax, Op, Region, Type
from tests.suites.comparison import check_equal
from tests.suites.suite import Suite

_OPTIONS = Options(num_threads=1, workers=1, cache=False)
_CHECK = "check.expect_"
_CHECK_OF_CONSTANT = re.compile(
    rf'^ *"?{_CHECK}(\w+)_const"?[ (](%[\w#]+)(?:,\s*|\) <{{value = )(dense<[^>]*>) :\s*(tensor<(?:[^<>]|<[^>]*>)*>)'
    r"(?: {tolerance = ([\d.]+) : f64})?.*$",
    re.M,
)
_CHECK_OF_VALUES = re.compile(rf"^ *{_CHECK}(\w+) (%[\w#]+), (%[\w#]+).* : (tensor<.*>)$", re.M)
_SEPARATOR = re.compile(r"^// (?:// )?-----$", re.M)
# The tolerance of each check; None for that of the dtype.
_TOLERANCES = {"eq": 0.0, "almost_eq": 1e-3, "close": None}
_DYNAMIC_SHAPES = re.compile(r"dynamic_(?!slice|update_slice)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, help="a clone of openxla/stablehlo")
    parser.add_argument("--target", default="cpu", help="target of the compiler (default: cpu)")


def suite(arguments: argparse.Namespace) -> Suite:
    texts = _texts(arguments.path / "stablehlo")
    excluded = {name: reason for name, text in texts.items() if (reason := _reason_to_exclude(text))}
    conditions = f"stablehlo {_version(arguments.path)}, target {arguments.target}"
    return Suite(conditions, list(texts), lambda name: _run(texts[name], arguments.target), excluded)


def _texts(folder: Path) -> dict[str, str]:
    """Return the text of each program, by the file's path and the number of the program in it."""
    texts: dict[str, str] = {}
    for path in sorted([*(folder / "testdata").rglob("*.mlir"), *(folder / "tests" / "interpret").rglob("*.mlir")]):
        parts = _SEPARATOR.split(path.read_text())
        for number, part in enumerate(parts):
            name = path.relative_to(folder).with_suffix("").as_posix()
            texts[f"{name}#{number}" if len(parts) > 1 else name] = part
    return texts


def _version(path: Path) -> str:
    """Return the version of StableHLO that the clone defines."""
    header = (path / "stablehlo" / "dialect" / "Version.h").read_text()
    found = re.search(r"getCurrentVersion\(\) \{ return Version\((\d+), (\d+), (\d+)\)", header)
    return ".".join(found.groups()) if found else "of unknown version"


def _reason_to_exclude(text: str) -> str:
    if "expected-error" in text or "not stablehlo-translate" in text:
        return "expects an error of the interpreter"
    if "expect_serialized_eq" in text:
        return "compares with files that the interpreter writes"
    return "" if _CHECK in text else "compares no results"


def _run(text: str, target: str) -> str:
    program = _checked_program(parse(_with_calls(text), "program.mlir"))
    made = read_functions({**program.functions, "main": program.arguments}, "arguments.mlir")
    imported = read_functions({**program.functions, "main": program.main}, "program.mlir")
    model = compile(Program(imported.module, imported.weights, "main"), target, _OPTIONS)
    results = iter(model.run_unchecked(evaluate(made.module, [], made.weights)))
    for k, (tolerance, type) in enumerate(program.checks):
        # A complex value is two results.
        count = 1 if type.component is None else 2
        compared = [next(results) for _ in range(2 * count)]
        for got, expected in zip(compared[:count], compared[count:], strict=True):
            check_equal(got, expected, f"check {k}", tolerance=tolerance)
    return ""


def _with_calls(text: str) -> str:
    """Write the checks of a program as custom calls, which the parser reads."""

    def call(match: re.Match[str]) -> str:
        relation, got, expected, type = match.groups()[:4]
        tolerance = match[5] if match.re is _CHECK_OF_CONSTANT else None
        constant = f"%expected_{match.start()}"
        definition = f"{constant} = stablehlo.constant {expected} : {type}\n" if expected.startswith("dense") else ""
        return (
            f"{definition}stablehlo.custom_call @{_CHECK}{relation}({got}, {constant if definition else expected}) "
            f"{f'{{tolerance = {tolerance}}} ' if tolerance else ''}: "
            f"({type}, {type}) -> ()"
        )

    return _CHECK_OF_VALUES.sub(call, _CHECK_OF_CONSTANT.sub(call, text))


@dataclass(frozen=True)
class _CheckedProgram:
    """The functions of a program; `arguments` returns the arguments of `main`, which returns a pair of values per check.

    `checks` has the tolerance and the type of each check.
    """

    functions: Mapping[str, FunctionSyntax]
    arguments: FunctionSyntax
    main: FunctionSyntax
    checks: Sequence[tuple[float | None, Type]]


def _checked_program(functions: Mapping[str, FunctionSyntax]) -> _CheckedProgram:
    checked = [f for f in functions.values() if any(_relation(op) for op in f.body.ops)]
    assert len(checked) == 1, f"{len(checked)} functions have checks"
    ops = checked[0].body.ops
    types = {name: type for op in ops for name, type in zip(op.results, op.types, strict=True)}
    calls_inputs = any(op.attributes.get("callee") == "inputs" for op in ops)
    inputs = [op for op in ops if _is_input(op, calls_inputs, ops)]
    checks = [op for op in ops if _relation(op)]
    arguments = [name for op in inputs for name in op.results]
    others = [op for op in ops if op not in inputs and op not in checks and op.called not in ("return", "func.return")]

    def function(taken: Sequence[str], body: Sequence[Op], returned: Sequence[str]) -> FunctionSyntax:
        end = Op("return", tuple(returned), {}, (), (), (), ops[-1].line)
        region = Region(tuple(Argument(name, types[name]) for name in taken), (*body, end))
        return FunctionSyntax(
            "main", region, tuple(types[name] for name in returned), tuple(dict[str, Any]() for _ in returned)
        )

    return _CheckedProgram(
        {name: f for name, f in functions.items() if f is not checked[0]},
        function([], inputs, arguments),
        function(arguments, others, [name for op in checks for name in op.operands]),
        [(op.attributes.get("tolerance", _TOLERANCES[_relation(op)]), types[op.operands[0]]) for op in checks],
    )


def _relation(op: Op) -> str:
    """Return how an op compares two values, "" for other ops."""
    callee = str(op.attributes.get("callee", ""))
    return callee.removeprefix(_CHECK) if callee.startswith(_CHECK) else ""


def _is_input(op: Op, calls_inputs: bool, ops: Sequence[Op]) -> bool:
    if calls_inputs:
        return op.attributes.get("callee") == "inputs"
    if op.name != "stablehlo.constant" or not op.types[0].shape:
        return False
    uses = [use for use in ops if set(op.results) & set(use.operands)]
    return not any(_DYNAMIC_SHAPES.search(use.name) or _relation(use) for use in uses)
