"""Parse the text that JAX prints, in MLIR's generic form or StableHLO's pretty form, into records (`syntax.py`).

    %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0] : (tensor<4x5xf32>, tensor<5x8xf32>) -> tensor<4x8xf32>

Most ops share one syntax: operands, keywords, `name = value` pairs, attributes in braces, types after a colon. Constants,
calls, reductions, loops and functions have their own.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from dlc.errors import ModelError, UnsupportedError
from dlc.stablehlo.shardings import mesh_axes, require_known_mesh
from dlc.stablehlo.syntax import DYNAMIC, Argument, Dense, FunctionSyntax, Op, Region, Type
from dlc.stablehlo.tokens import Tokens

_MESH = "sdy.mesh"
_WITHOUT_RESULTS = ("return", "func.return", "stablehlo.return", "sdy.return")


def parse(text: str, name: str) -> dict[str, FunctionSyntax]:
    """Return the functions of a module by name. Raises ModelError, with the line, for malformed text."""
    parser = _ModuleParser(text, name)
    try:
        return parser.module()
    except (LookupError, TypeError, ValueError) as error:
        raise ModelError(f"{name}:{parser.last_line}: malformed text: {error}") from error


class _ModuleParser(Tokens):
    def __init__(self, text: str, name: str) -> None:
        super().__init__(text, name)
        # The names and sizes of the axes of each mesh.
        self.meshes: dict[str, dict[str, str]] = {}

    # Modules and functions

    def module(self) -> dict[str, FunctionSyntax]:
        functions: dict[str, FunctionSyntax] = {}
        while self.next.kind == "hash":
            self.take()
            self.expect("=")
            self.skip_location() if self.sees("loc") else self.attribute()
        if self.next.kind == "string":
            module = self.operation()
            ops = [op for region in module.regions for op in region.ops if op.name != _MESH]
            return {op.attributes["sym_name"]: _function_of(op) for op in ops}
        end = ""
        if self.accept("module") or self.accept("builtin.module"):
            if self.next.kind == "symbol":
                self.take()
            if self.accept("attributes"):
                self.dictionary()
            self.expect("{")
            end = "}"
        # Functions without a module end with the text or with aliases of locations.
        while not (self.accept(end) if end else self.next.kind in ("end", "hash")):
            if self.accept("sdy.mesh"):
                self.mesh()
                continue
            function = self.function()
            functions[function.name] = function
        return functions

    def mesh(self) -> None:
        """Parse a mesh: the axes that shardings name. The mesh for which a module is compiled has the same names."""
        name = self.expect_kind("symbol")
        self.expect("=", "<")
        self.meshes[name] = mesh_axes(self.skip_balanced("<", ">"))
        if self.sees("{"):
            self.dictionary()
        self.skip_location()

    def function(self) -> FunctionSyntax:
        self.expect("func.func")
        while self.sees("public", "private", "nested"):
            self.take()
        name = _symbol(self.expect_kind("symbol"))
        self.expect("(")
        arguments = self.separated(")", self.argument)
        results: list[tuple[Type, dict[str, Any]]] = []
        if self.accept("->"):
            results = self.separated(")", self.result) if self.accept("(") else [(self.type(), {})]
        if self.accept("attributes"):
            self.dictionary()
        region = Region(tuple(arguments), self.block())
        self.skip_location()
        return FunctionSyntax(name, region, tuple(t for t, _ in results), tuple(a for _, a in results))

    def argument(self) -> Argument:
        name = self.expect_kind("value")
        self.expect(":")
        type = self.type()
        attributes = self.dictionary() if self.sees("{") else {}
        self.skip_location()
        return Argument(name, type, attributes)

    def result(self) -> tuple[Type, dict[str, Any]]:
        return self.type(), self.dictionary() if self.sees("{") else {}

    def block(self) -> tuple[Op, ...]:
        """Parse ops in braces."""
        self.expect("{")
        ops: list[Op] = []
        while not self.accept("}"):
            ops.append(self.operation())
        return tuple(ops)

    # Ops

    def operation(self) -> Op:
        line, results = self.next.line, list[str]()
        while self.next.kind == "value":
            name = self.take().text
            count = int(self.expect_kind("number")) if self.accept(":") else 0
            results += [f"{name}#{k}" for k in range(count)] if count > 1 else [name]
            if not self.accept(","):
                self.expect("=")
        token = self.take()
        if token.kind == "string":
            parsed = self.generic(token.text[1:-1])
        elif token.kind == "word":
            parsed = self.pretty(token.text)
        else:
            self.position -= 1
            self.fail("an op")
        self.skip_location()
        name, operands, attributes, regions, types = parsed
        if name == _MESH:
            self.meshes[f"@{attributes['sym_name']}"] = mesh_axes(attributes["mesh"])
        if name in _WITHOUT_RESULTS:
            types = []
        if len(types) != len(results):
            raise ModelError(f"{self.name}:{line}: {name} has {len(types)} result types for {len(results)} results")
        return Op(name, tuple(operands), attributes, tuple(regions), tuple(results), tuple(types), line)

    def generic(self, name: str) -> tuple[str, list[str], dict[str, Any], list[Region], list[Type]]:
        self.expect("(")
        operands = self.separated(")", lambda: self.expect_kind("value"))
        attributes: dict[str, Any] = {}
        if self.accept("<"):
            attributes |= self.dictionary()
            self.expect(">")
        regions = self.separated(")", self.region) if self.accept("(") else []
        if self.sees("{"):
            attributes |= self.dictionary()
        self.expect(":")
        return name, operands, attributes, regions, self.function_type()[1]

    def region(self) -> Region:
        """Parse a region in braces with a single block."""
        self.expect("{")
        arguments: list[Argument] = []
        if self.next.kind == "block":
            self.take()
            arguments = self.separated(")", self.argument) if self.accept("(") else []
            self.expect(":")
        ops: list[Op] = []
        while not self.accept("}"):
            ops.append(self.operation())
        return Region(tuple(arguments), tuple(ops))

    def pretty(self, name: str) -> tuple[str, list[str], dict[str, Any], list[Region], list[Type]]:
        if name == "stablehlo.while":
            return self.loop(name)
        if name == "stablehlo.reduce":
            return self.reduction(name)
        if name == "sdy.manual_computation":
            return self.manual_computation(name)
        operands, attributes = list[str](), dict[str, Any]()
        while not self.sees(":", "}", "loc") and self.next.kind != "end":
            self.item(operands, attributes)
            if isinstance(value := attributes.get("value"), Dense):
                # The value of a constant includes its type.
                return name, operands, attributes, [], [value.type]
            self.accept(",")
        return (
            name,
            operands,
            attributes,
            [],
            self.types(all_types=name == "stablehlo.optimization_barrier") if self.accept(":") else [],
        )

    def item(self, operands: list[str], attributes: dict[str, Any]) -> None:
        """Parse an operand, operands in parentheses, a keyword, a named value, attributes, or ranges."""
        token = self.next
        if token.kind == "value":
            operands.append(self.take().text)
        elif self.accept("("):
            while not self.accept(")"):
                self.item(operands, attributes)
                self.accept(",")
        elif token.kind == "word":
            self.take()
            if self.accept("="):
                attributes[token.text] = self.value()
            else:
                attributes.setdefault("words", []).append(token.text)
        elif self.sees("{"):
            attributes |= self.dictionary()
        elif self.accept("<"):
            # In `sdy` ops; others ignore it.
            attributes["sharding"] = self.of_known_mesh(self.skip_balanced("<", ">"))
        elif self.accept("["):
            attributes["ranges"] = self.separated("]", self.range)
        elif token.kind == "string":
            attributes["name"] = self.attribute()
        elif token.kind in ("dense", "symbol"):
            attributes["callee" if token.kind == "symbol" else "value"] = self.attribute(typed=False)
        else:
            self.fail("an operand or an attribute")

    def value(self) -> Any:
        """Parse a value after `=`: a value, a pair `a x b`, or settings in braces; settings in `<…>` are skipped."""
        if self.accept("<"):
            self.skip_balanced("<", ">")
            return True
        if self.sees("{"):
            self.expect("{")
            entries: dict[str, Any] = {}
            while not self.accept("}"):
                key = self.expect_kind("word")
                self.expect("=")
                entries[key] = self.attribute()
                self.accept(",")
            return entries
        first = self.attribute(typed=False)
        if not self.sees("x") and not self.next.text.startswith("x["):
            return first
        self.take()
        second = self.attribute(typed=False)
        return [first, second, self.attribute(typed=False)] if self.accept("->") else [first, second]

    def range(self) -> tuple[int, int, int]:
        numbers = [int(self.expect_kind("number"))]
        while self.accept(":"):
            numbers.append(int(self.expect_kind("number")))
        return numbers[0], numbers[1], (*numbers, 1)[2]

    def loop(self, name: str) -> tuple[str, list[str], dict[str, Any], list[Region], list[Type]]:
        self.expect("(")
        pairs = self.separated(")", self.carried)
        types = self.types() if self.accept(":") else []
        attributes = self.dictionary() if self.accept("attributes") else {}
        arguments = tuple(Argument(inner, t) for (inner, _), t in zip(pairs, types, strict=True))
        self.expect("cond")
        condition = Region(arguments, self.block())
        self.expect("do")
        return name, [outer for _, outer in pairs], attributes, [condition, Region(arguments, self.block())], types

    def manual_computation(self, name: str) -> tuple[str, list[str], dict[str, Any], list[Region], list[Type]]:
        self.expect("(")
        operands = self.separated(")", lambda: self.expect_kind("value"))
        attributes: dict[str, Any] = {}
        for key in ("in_shardings", "out_shardings"):
            self.expect(key, "=", "[")
            attributes[key] = self.separated("]", self.sharding)
        self.expect("manual_axes", "=", "{")
        attributes["manual_axes"] = self.separated("}", self.attribute)
        meshes = {re.findall(r"@[\w.$-]+", text)[0] for key in ("in_shardings", "out_shardings") for text in attributes[key]}
        if len(meshes) != 1 or not meshes <= self.meshes.keys():
            self.fail("shardings of one mesh of the module")
        attributes["mesh"] = self.meshes[meshes.pop()]
        self.expect("(")
        region = Region(tuple(self.separated(")", self.argument)), self.block())
        self.expect(":")
        return name, operands, attributes, [region], self.function_type()[1]

    def sharding(self) -> str:
        self.expect("<")
        return self.of_known_mesh(self.skip_balanced("<", ">"))

    def of_known_mesh(self, sharding: str) -> str:
        """Return a sharding. Raises ModelError if it names an unknown mesh, or an unknown axis of its mesh."""
        require_known_mesh(sharding, self.meshes, f"{self.name}:{self.next.line}")
        return sharding

    def carried(self) -> tuple[str, str]:
        inner = self.expect_kind("value")
        self.expect("=")
        return inner, self.expect_kind("value")

    def reduction(self, name: str) -> tuple[str, list[str], dict[str, Any], list[Region], list[Type]]:
        xs, inits, attributes = list[str](), list[str](), dict[str, Any]()
        while self.accept("("):
            xs.append(self.expect_kind("value"))
            self.expect("init", ":")
            inits.append(self.expect_kind("value"))
            self.expect(")")
            self.accept(",")
        applied, line = self.expect_kind("word") if self.accept("applies") else "", self.next.line
        self.expect("across", "dimensions", "=")
        attributes["dimensions"] = self.attribute(typed=False)
        if self.sees("{"):
            attributes |= self.dictionary()
        self.expect(":")
        operand_types, types = self.function_type()
        if not operand_types:
            self.fail("operands")
        regions = [_applied_body(applied, operand_types[0].element, line)] if applied else []
        if self.accept("reducer"):
            pairs: list[list[Argument]] = []
            while self.accept("("):
                pairs.append(self.separated(")", self.argument))
            arguments = [pair[k] for k in range(2) for pair in pairs]
            regions = [Region(tuple(arguments), self.block())]
        return name, [*xs, *inits], attributes, regions, types

    # Types and attributes

    def types(self, *, all_types: bool = False) -> list[Type]:
        """Parse the result types of an op: those after the arrow, else the last one, or all with `all_types`."""
        if self.sees("("):
            return self.function_type()[1]
        types = [self.type()]
        while self.accept(","):
            types.append(self.type())
        if self.accept("->"):
            return self.separated(")", self.type) if self.accept("(") else [self.type()]
        return types if all_types or self.sees("cond", "attributes") else types[-1:]

    def function_type(self) -> tuple[list[Type], list[Type]]:
        self.expect("(")
        operand_types = self.separated(")", self.type)
        self.expect("->")
        return operand_types, self.separated(")", self.type) if self.accept("(") else [self.type()]

    def type(self) -> Type:
        if self.next.text.startswith("!") or self.sees("tuple"):
            raise UnsupportedError(f"{self.name}:{self.next.line}: values of type {self.next.text} are not supported")
        if self.next.kind != "tensor":
            self.fail("a type, tensor<…>")
        token = self.take()
        # Split only after a size, because `index` and `complex` contain an x.
        *sizes, element = re.split(r"(?<=[\d?])x", token.text[7:-1].partition(",")[0])
        return Type(tuple(DYNAMIC if size == "?" else int(size) for size in sizes), element.strip())

    def dictionary(self) -> dict[str, Any]:
        self.expect("{")
        entries: dict[str, Any] = {}
        while not self.accept("}"):
            key = self.take().text.strip('"')
            entries[key] = self.attribute() if self.accept("=") else True
            self.accept(",")
        return entries

    def attribute(self, *, typed: bool = True) -> Any:
        """Parse an attribute to a Python value; with `typed`, skip the type after a number."""
        token = self.take()
        match token.kind:
            case "string":
                return token.text[1:-1]
            case "symbol":
                return _symbol(token.text)
            case "number":
                if typed and self.accept(":"):
                    self.take()
                return float(token.text) if "." in token.text else int(token.text, 0)
            case "dense":
                self.expect(":")
                return Dense(token.text[token.text.index("<") + 1 : -1], self.type())
            case "array":
                return [_number(part) for part in token.text[:-1].partition(":")[2].split(",") if part.strip()]
            case "tensor":
                self.position -= 1
                return self.type()
            case "hash" if token.text.startswith("#sdy.sharding<"):
                return self.of_known_mesh(token.text)
            case "hash" | "word":
                return {"true": True, "false": False}.get(token.text, token.text)
            case _:
                pass
        self.position -= 1
        if self.accept("["):
            return self.separated("]", self.attribute)
        if self.sees("("):
            return self.function_type()
        return self.dictionary()


def _symbol(text: str) -> str:
    return text[1:].strip('"')


def _applied_body(name: str, element: str, line: int) -> Region:
    """Return the body of a reduction that applies one op to scalars."""
    scalar = Type((), element)
    applied = Op(name, ("%lhs", "%rhs"), {}, (), ("%result",), (scalar,), line)
    arguments = (Argument("%lhs", scalar), Argument("%rhs", scalar))
    return Region(arguments, (applied, Op("stablehlo.return", ("%result",), {}, (), (), (), line)))


def _number(text: str) -> int | bool:
    text = text.strip()
    return text == "true" if text in ("true", "false") else int(text)


def _function_of(op: Op) -> FunctionSyntax:
    """Convert a function in generic form."""
    _, results = op.attributes["function_type"]
    attributes: list[dict[str, Any]] = op.attributes.get("res_attrs") or [{}] * len(results)
    region = op.regions[0]
    argument_attributes: list[dict[str, Any]] = op.attributes.get("arg_attrs") or [{}] * len(region.arguments)
    named = zip(region.arguments, argument_attributes, strict=True)
    region = replace(region, arguments=tuple(replace(argument, attributes=own) for argument, own in named))
    return FunctionSyntax(op.attributes["sym_name"], region, tuple(results), tuple(attributes))
