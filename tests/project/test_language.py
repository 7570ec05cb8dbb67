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
def texts() -> dict[str, str]:
    """Return the text of every tracked file, except this one."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return {name: (ROOT / name).read_text() for name in names if Path(name).suffix in _TEXT_SUFFIXES and name != _THIS_FILE}


@cache
def lowercase_texts() -> dict[str, str]:
    return {name: text.lower() for name, text in texts().items()}


def matches_in(texts: dict[str, str], expression: re.Pattern[str], suffix: str = "") -> Iterator[tuple[str, re.Match[str]]]:
    """Yield the file and each match in the files whose names end with `suffix`."""
    return ((name, match) for name, text in texts.items() if name.endswith(suffix) for match in expression.finditer(text))


def location(name: str, match: re.Match[str]) -> str:
    return f"{name}:{match.string.count(chr(10), 0, match.start()) + 1}: {match[0]}"


@pytest.mark.parametrize("pattern", RETIRED)
def test_retired_words_are_absent(pattern: str) -> None:
    # Without a look-behind, which is slow, and in lowercase: the engine then skips to the first letters of the pattern.
    expression = re.compile(rf"(?:{pattern.lower()})(?![\w-])")
    matches = [
        location(name, match)
        for name, match in matches_in(lowercase_texts(), expression)
        if not re.fullmatch(r"[\w-]", match.string[max(match.start() - 1, 0) : match.start()])
    ]
    assert not matches, f"use: {RETIRED[pattern] or 'the new name'}"


def test_docstrings_begin_with_a_statement() -> None:
    expression = re.compile(rf'^ *r?"""(?:{"|".join(_CLAUSE_WORDS)})\b.*', re.MULTILINE)
    assert not [location(name, match) for name, match in matches_in(texts(), expression, ".py")]


def test_class_names_mean_one_thing() -> None:
    """A public class name is defined in one module of dlc, and a private one in at most two."""
    definitions: dict[str, list[str]] = defaultdict(list)
    for name, match in matches_in(texts(), re.compile(r"^ *class (\w+)", re.MULTILINE), ".py"):
        if name.startswith("dlc/"):
            definitions[match[1]].append(name)
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
    "AXES",
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
    "LAYERS",
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
    "QUOTIENTS",
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
    "TOKENS",
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
    offenders = []
    for name, match in matches_in(texts(), re.compile(r"^([A-Z_\d]+)(?:: [^=\n]+)? = ([^#\n]+)", re.MULTILINE), ".py"):
        words = match[1].strip("_").split("_")
        has_unit = len(words) > 1 and {*words} & {*_UNITS}
        if name.startswith("dlc/") and not has_unit and match[1].strip("_") not in _CODES and _is_number(match[2]):
            offenders.append(f"{name}: {match[1]}")
    assert not offenders


def _is_number(text: str) -> bool:
    """Return whether the text of an expression is complete and consists of numeric literals and arithmetic."""
    try:
        return _is_numeric(ast.parse(text, mode="eval").body)
    except SyntaxError:  # The first line of a longer value.
        return False


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
