"""A dialect of C as data: its types, memory accesses, arithmetic and parallelism.

All values are templates for `str.format`. The template of an expression may use

    {0} {1} …   the operands
    {T} {t}     type of the result, and of one of its elements
    {S} {s}     the same for the first operand
    {U} {u}     unsigned integers of the result's width, and one of them
    {V}         unsigned integers of the first operand's width
    {W}         unsigned integers in which sums and products of the result's width cannot overflow
    {M}         integers of the result's width: the result of a vector comparison of such elements
    {n}         lanes of the result

`addf.vector` and `addf.scalar` take precedence over `addf`. If `definitions` has an entry with the name of an expression, the
expression calls that function; it is emitted once per program and type, and may use the same fields.

The kinds of the emitter are f32 f64 f16 bf16 i1 i8 i16 i32 i64 and u8…u64. A boolean (i1) is an int: 1 or 0, and -1 or 0 in
the lanes of a vector.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Syntax:
    """The syntax of one dialect of C."""

    name: str
    types: Mapping[str, str]
    """C type of each scalar kind; other kinds are not supported."""
    expressions: Mapping[str, str]
    header: str = ""
    """The first lines of a program."""
    extensions: Mapping[str, str] = field(default_factory=dict[str, str])
    """Pragma that a program needs before it can compute with a kind."""
    vector: str = "{t}{n}"
    """The vector type of n elements."""
    vector_definition: str = ""
    """Definition of a vector type that is not built in."""
    definitions: Mapping[str, str] = field(default_factory=dict[str, str])
    function: str = "void {name}({parameters})"
    """Signature of a kernel function."""
    group: str = ""
    """Expression of the work-group index; if it is empty, the function has a parameter of this name."""
    item: str = ""
    """Expression of the work-item index in its group, likewise."""
    barrier: str = ""
    """Barrier of a work-group; after it, writes to the memories in `{fences}` are visible to all work-items of the group."""
    fences: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name of the fence flag for each address space; the flags are joined by `|`."""
    spaces: Mapping[str, str] = field(default_factory=lambda: {"global": "", "local": "", "private": ""})
    """Address-space qualifier of pointers to a buffer, to local memory and to private memory."""
    passes_buffer_offsets: bool = False
    """True if an array may begin inside a buffer: each buffer parameter is followed by the byte offset of the array."""
    unrolled: str = ""
    """Pragma before a loop that should be unrolled."""
    rolled: str = ""
    """Pragma before a loop that must not be unrolled."""
    restrict: str = "restrict "
    aligned: str = "__attribute__((aligned({bytes})))"
    reserved_words: str = ""
    """Additional reserved identifiers."""

    @cached_property
    def reserved(self) -> frozenset[str]:
        """The identifiers that variables must not use."""
        texts = (_KEYWORDS, self.reserved_words, *self.types.values(), *self.expressions.values(), *self.definitions)
        return frozenset(name for text in texts for name in re.findall(r"[A-Za-z_]\w*", re.sub(r"\{\w+\}", "", text)))


_KEYWORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool true false "
    "main and or not xor"
)

_ORDERED = {"eq": "==", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}
# C's operators; they also apply to vectors in dialects whose vectors support them.
OPERATORS: Mapping[str, str] = {
    **{f"{op}{kind}": f"{{0}} {sign} {{1}}" for kind in "fi" for op, sign in (("add", "+"), ("sub", "-"), ("mul", "*"))},
    # Signed integer overflow is undefined in C; unsigned arithmetic wraps.
    **{
        f"{op}i.scalar": f"({{T}})(({{W}}){{0}} {sign} ({{W}}){{1}})" for op, sign in (("add", "+"), ("sub", "-"), ("mul", "*"))
    },
    "divf": "{0} / {1}",
    "divsi": "({T})({0} / {1})",
    "divui": "({T})(({U}){0} / ({U}){1})",
    "remui": "({T})(({U}){0} % ({U}){1})",
    "negf": "-({0})",
    "andi": "{0} & {1}",
    "ori": "{0} | {1}",
    "xori": "{0} ^ {1}",
    **{f"cmpf.o{name}": f"{{0}} {sign} {{1}}" for name, sign in _ORDERED.items()},
    "cmpf.one": "({0} < {1}) | ({0} > {1})",
    "cmpf.ord": "({0} == {0}) & ({1} == {1})",
    "cmpf.uno": "({0} != {0}) | ({1} != {1})",
    "cmpf.une": "{0} != {1}",
    "cmpf.ueq": "({0} == {1}) | ({0} != {0}) | ({1} != {1})",
    **{
        f"cmpf.u{name}": f"({{0}} {_ORDERED[name]} {{1}}) | ({{0}} != {{0}}) | ({{1}} != {{1}})"
        for name in ("gt", "ge", "lt", "le")
    },
    "cmpi.eq": "{0} == {1}",
    "cmpi.ne": "{0} != {1}",
    **{f"cmpi.s{name}": f"{{0}} {sign} {{1}}" for name, sign in _ORDERED.items() if name != "eq"},
    **{f"cmpi.u{name}": f"({{V}}){{0}} {sign} ({{V}}){{1}}" for name, sign in _ORDERED.items() if name != "eq"},
    "select": "{0} ? {1} : {2}",
    "shli.constant": "{0} << {1}",
    "shrsi.constant": "{0} >> {1}",
    "shrui.constant": "({T})(({U}){0} >> {1})",
    "literal.f32": "{0}f",
    "literal.f64": "{0}",
    "literal.i8": "({T}){0}",
    "literal.i16": "({T}){0}",
    "literal.i32": "{0}",
    "literal.i64": "{0}L",
    "load.scalar": "{p}[{i}]",
    "store.scalar": "{p}[{i}] = {0}",
    "from_memory.i1.scalar": "({0} != 0)",
    "to_memory.i1.scalar": "{0}",
    "convert.scalar": "({T}){0}",
}
