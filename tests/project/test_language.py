"""The language of the project: retired words, first lines of docstrings, shared class names, units of constants."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_THIS_FILE = Path(__file__).relative_to(ROOT).as_posix()
_TEXT_SUFFIXES = {".py", ".md", ".h", ".ll", ".js", ".html", ".css", ".toml", ".yml", ".c", ".cpp", ".rs", ".go", ".java"}

# Retired words and identifiers, as regular expressions, with the terms that replace them.
RETIRED = {
    r"open (?:size|dim|dimension|axis|axes|shape)s?": "symbolic size or dimension, dynamic shape",
    r"known sizes?": "static size",
    r"data (?:decides?|has decided)|decided by data": "data-dependent",
    r"comes? with (?:a|the) calls?": "argument, runtime value",
    r"hangs? on": "depends on",
    r"numbers? of (?:8|16|few) bits|narrow[ _-]numbers?|few[ _-]bits?": "low precision, half precision, weight-only",
    r"truth[ _]values?": "boolean",
    r"one by one|one behind (?:the )?other": "sequentially, one at a time",
    r"for all that is known": "conservatively",
    r"whoever|somebody": "the caller, the user",
    r"(?:pictures?|films?)(?!\.)": "image, video",
    r"misuse": "argument validation",
    r"besides": "in addition to",
    r"BySizes|OpenProgram|OpenLaunch|OpenNest|SweepChooser|FewBitWeightsPass|PackWordsPass|MatmulWordsOp|MatmulDotsOp": "",
    r"masks-by-places|few-bit-weights|pack-words|crop-padding|block-sums|compute-early|select-ranks|prepare-weighted-sums": "",
    r"dl\.(?:decide|places|numbers|words|matmul_words|matmul_dots|bisect|extreme_place|of_ranks|after|text_concat)": "",
    r"open_sizes|by_sizes|queries_along_lanes|masks_by_places|running_sums|weighted_sums|given_shapes|argument_kinds": "",
}
# A docstring's first line is a statement, not a noun clause.
_CLAUSE_WORDS = {"What", "Where", "Whether", "Which", "Who", "How", "Why", "That", "So"}
# Class names that may be defined in several modules.
_SHARED_CLASS_NAMES: set[str] = set()


@cache
def tracked_files() -> tuple[Path, ...]:
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return tuple(ROOT / name for name in names if Path(name).suffix in _TEXT_SUFFIXES and name != _THIS_FILE)


def modules(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


@pytest.mark.parametrize("pattern", RETIRED)
def test_retired_words_are_absent(pattern: str) -> None:
    expression = re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.IGNORECASE)
    matches = [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
        for path in tracked_files()
        for text in [path.read_text()]
        for match in expression.finditer(text)
    ]
    assert not matches, f"use: {RETIRED[pattern] or 'the new name'}"


def test_docstrings_begin_with_a_statement() -> None:
    offenders = [
        f"{name}:{node.body[0].lineno}: {doc.splitlines()[0]}"
        for name, module in modules("dlc", "tests", "docs", "benchmarks", "examples")
        for node in ast.walk(module)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (doc := ast.get_docstring(node))
        and re.split(r"\W", doc, maxsplit=1)[0] in _CLAUSE_WORDS
    ]
    assert not offenders


def test_class_names_mean_one_thing() -> None:
    """A public class name is defined in one module of dlc, and a private one in at most two."""
    definitions: dict[str, list[str]] = defaultdict(list)
    for name, module in modules("dlc"):
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                definitions[node.name].append(name)
    limit = {name: 2 if name.startswith("_") or name.endswith("Op") else 1 for name in definitions}
    assert not {n: files for n, files in definitions.items() if len(files) > limit[n] and n not in _SHARED_CLASS_NAMES}


# Words in the name of a numeric constant that state a unit, a counted object or a kind of number.
_UNITS = [
    "ACCUMULATORS",
    "ADDRESS",
    "ADDS",
    "ALIGN",
    "ALIGNMENT",
    "ARGUMENT",
    "ARITY",
    "ATTRIBUTES",
    "BASE",
    "BINS",
    "BITS",
    "BYTES",
    "CALLS",
    "CANDIDATES",
    "CHARACTERS",
    "CHARS",
    "CHECKS",
    "CHUNK",
    "COEFFICIENT",
    "COLUMNS",
    "DECAY",
    "DECIMALS",
    "DEFAULTS",
    "DENOMINATOR",
    "DEPTH",
    "DIGITS",
    "DIVISOR",
    "ELEMENTS",
    "END",
    "ENTRIES",
    "FACTOR",
    "FAN",
    "FILES",
    "FRACTION",
    "GAP",
    "GROUPS",
    "GUARDS",
    "HISTOGRAMS",
    "INDEX",
    "INPUTS",
    "INT8",
    "ITEMS",
    "ITERATIONS",
    "ITERATOR",
    "KERNELS",
    "KEYS",
    "LANES",
    "LENGTH",
    "LEVEL",
    "LEVELS",
    "LINES",
    "LISTED",
    "LOADS",
    "MODELS",
    "MULTIPLE",
    "NAMES",
    "NODES",
    "OBJECTS",
    "OFFSET",
    "OPERANDS",
    "OPERATORS",
    "OPS",
    "OPSET",
    "ORIGINS",
    "PARITY",
    "PARTS",
    "PERCENT",
    "POINTS",
    "POSITIONS",
    "POWER",
    "PRODUCTS",
    "PROGRAMS",
    "PX",
    "QUERIES",
    "RANK",
    "RANKS",
    "RATIO",
    "READS",
    "RECOMPILATIONS",
    "REGISTERS",
    "RESULTS",
    "REWRITES",
    "ROUNDS",
    "ROWS",
    "RUNS",
    "SCALE",
    "SCORE",
    "SECONDS",
    "SECTIONS",
    "SETS",
    "SHARE",
    "SIZE",
    "SIZES",
    "SPECIALIZATIONS",
    "SPEEDUP",
    "SPLIT",
    "STATES",
    "STATUS",
    "STD",
    "STEP",
    "STEPS",
    "SUMS",
    "SWEEPS",
    "TAPS",
    "TASKS",
    "TERMS",
    "TEXTS",
    "THREADS",
    "TICKETS",
    "TILES",
    "TREES",
    "UNIT",
    "UPDATES",
    "VALUES",
    "VARIANTS",
    "VECTOR",
    "VECTORS",
    "VERSION",
    "WEIGHT",
    "WIDTH",
    "WORD",
    "WORDS",
]
# Values of an encoding or format, and mathematical constants.
_CODES = {
    *("DYNAMIC", "NOT_BATCHED", "NO_POOL", "IN_ARENA", "EQUAL", "ULT", "F16_INF", "PAGE_BIT", "VERSION"),
    *("GLOBAL_FUNCTION", "ALLOCATED", "UNDEFINED", "FUNCTION", "METH_FASTCALL", "PR_SET_PDEATHSIG"),
    *("CUBIC_A", "LOG2E", "LOG10E"),
}


def test_numeric_constants_state_their_unit() -> None:
    offenders = [
        f"{name}: {target.id}"
        for name, module in modules("dlc")
        for statement in module.body
        for target, value in _assigned(statement)
        if target.id.isupper() and _is_numeric(value) and target.id.strip("_") not in _CODES
        if not {*target.id.strip("_").split("_")} & {*_UNITS} or "_" not in target.id.strip("_")
    ]
    assert not offenders


def _assigned(statement: ast.stmt) -> Iterator[tuple[ast.Name, ast.expr]]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    value = getattr(statement, "value", None)
    yield from ((t, value) for t in targets if isinstance(t, ast.Name) and isinstance(value, ast.expr))


def _is_numeric(value: ast.expr) -> bool:
    """Return whether an expression consists of numeric literals and arithmetic."""
    match value:
        case ast.Constant(value=number):
            return isinstance(number, int | float) and not isinstance(number, bool)
        case ast.BinOp(left=left, right=right):
            return _is_numeric(left) and _is_numeric(right)
        case ast.UnaryOp(operand=operand):
            return _is_numeric(operand)
        case _:
            return False
