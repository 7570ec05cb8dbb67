"""List the error messages of dlc from its sources: each template, with its exception and where it is raised."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "dlc"


def messages() -> Iterator[str]:
    """Yield one line per message: file, line, exception and template; `{…}` are values that the message contains."""
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _is_error(name := _name(node.func)):
                for template in filter(None, map(_template, node.args)):
                    yield f"{path.relative_to(SOURCES.parent)}:{node.lineno}: {name}: {template}"


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def _is_error(name: str) -> bool:
    return name.endswith(("Error", "Problem", "BadParameter", "UsageError", "ClickException")) and not name.startswith("_")


def _template(message: ast.expr) -> str:
    """Return the text of a literal, an f-string or a concatenation of them; "" for any other expression."""
    match message:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_template(v) or "{…}" for v in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return (_template(left) or "{…}") + (_template(right) or "{…}")
        case ast.IfExp(body=body, orelse=other):
            return " | ".join(filter(None, (_template(body), _template(other))))
        case _:
            return ""
