"""A dialect of C as data: its words for types, memory, arithmetic and parallelism.

Everything is a template for `str.format`. An expression's template may use

    {0} {1} …   the operands
    {T} {t}     type of the result, and of one of its elements
    {S} {s}     the same of the first operand
    {U} {u}     unsigned integers of the result's width, and one of them
    {V}         unsigned integers of the first operand's width
    {W}         unsigned integers in which sums and products of the result's width cannot overflow
    {M}         integers of the result's width: what a vector's comparison of such elements gives
    {n}         lanes of the result

`addf.vector` and `addf.scalar` go before `addf`. An entry of `definitions` under the name of an expression is a function
that its expression calls; it is written once per program and type, and may use the same words.

The emitter's types are f32 f64 f16 bf16 i1 i8 i16 i32 i64 and u8…u64; a truth value (i1) is an int: 1 or 0, in the lanes
of a vector -1 or 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Syntax:
    """How a dialect of C says what kernels need."""

    name: str
    types: Mapping[str, str]
    """C's name of each scalar type; an element type that is missing is not supported."""
    expressions: Mapping[str, str]
    header: str = ""
    """The first lines of a program."""
    extensions: Mapping[str, str] = field(default_factory=dict[str, str])
    """What a program says first that computes with a type."""
    vector: str = "{t}{n}"
    """The type of n elements."""
    vector_definition: str = ""
    """What defines such a type, if it is not built in."""
    definitions: Mapping[str, str] = field(default_factory=dict[str, str])
    function: str = "void {name}({parameters})"
    """The head of a kernel's function."""
    group: str = ""
    """The number of the grid's point; if there is no expression for it, the function has a parameter of this name."""
    item: str = ""
    """The number of the item in its group, likewise."""
    barrier: str = ""
    """Where the items of a group meet; `{fences}`: behind it they see what others have written before it to these memories."""
    fences: Mapping[str, str] = field(default_factory=dict[str, str])
    """How these are called, where there is something to say; joined by `|`."""
    spaces: Mapping[str, str] = field(default_factory=lambda: {"global": "", "local": "", "private": ""})
    """How a pointer's type begins that points to a buffer, to the memory of a group, or to that of an item."""
    starts: bool = False
    """Whether an array may begin inside of a buffer: a function has, behind each buffer, at which of its bytes that is."""
    unrolled: str = ""
    """What stands before a loop whose iterations are to be written one by one."""
    rolled: str = ""
    """And before one that is to stay a loop."""
    restrict: str = "restrict "
    aligned: str = "__attribute__((aligned({bytes})))"
    words: str = ""
    """Further names that variables must not take."""

    @cached_property
    def reserved(self) -> frozenset[str]:
        """The names that variables must not take."""
        texts = (_KEYWORDS, self.words, *self.types.values(), *self.expressions.values(), *self.definitions)
        return frozenset(name for text in texts for name in re.findall(r"[A-Za-z_]\w*", re.sub(r"\{\w+\}", "", text)))


_KEYWORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool true false "
    "main and or not xor"
)

_ORDERED = {"eq": "==", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}
# What is C's own, and what is the same for vectors where they have C's operators.
OPERATORS: Mapping[str, str] = {
    **{f"{op}{kind}": f"{{0}} {sign} {{1}}" for kind in "fi" for op, sign in (("add", "+"), ("sub", "-"), ("mul", "*"))},
    # Sums of signed integers may not overflow in C; those of unsigned ones wrap.
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
