"""Tile plans in files: TOML tables of kernels and their loop nests, which users edit and pass to `--plan`.

[matmul_relu.0]            # the first loop nest of the kernel
kind = "BlockedTiles"
grid = {d0 = 28, d1 = 64}  # extents by dimension
order = [1, 0]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import Field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from dlc.errors import UnsupportedError
from dlc.passes.tiling.loop_nests import SizedLoopNest
from dlc.passes.tiling.plan_kinds import Plan

# The types of the fields that a file can set, and how messages describe them.
_EDITABLE_TYPES = {
    "Mapping[int, int]": "sizes by dimension, such as {d0 = 8}",
    "tuple[int, ...]": "a list of integers",
    "int": "an integer",
    "int | None": "an integer",
    "bool": "true or false",
}


def plan_text(kernel: str, nest: int, plan: Plan) -> str:
    """Return the table of a plan; entries without a value are omitted."""
    values = {f.name: getattr(plan, f.name) for f in _editable_fields(plan)}
    entries = [f"{name} = {_value_text(value)}" for name, value in values.items() if value is not None]
    return "\n".join([f"[{_key(kernel)}.{nest}]", f'kind = "{type(plan).__name__}"', *entries]) + "\n"


def _editable_fields(plan: Plan) -> list[Field[Any]]:
    return [f for f in fields(plan) if f.type in _EDITABLE_TYPES]


def _key(name: str) -> str:
    return name if name.replace("_", "a").isalnum() and name.isascii() else f'"{name}"'


def _value_text(value: Any) -> str:
    """Return a value in TOML."""
    match value:
        case Mapping():
            entries = cast("Mapping[int, int]", value)
            return "{" + ", ".join(f"d{d} = {size}" for d, size in entries.items()) + "}"
        case tuple():
            return str(list(cast("tuple[int, ...]", value)))
        case _:
            return str(value).lower()


class PlanFile:
    """A file of plans. Errors name the file, the line and the reason."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._text = path.read_text("utf-8")
        try:
            self._kernels: dict[str, Any] = tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            raise UnsupportedError(f"{path}: {error}") from None
        for name, nests in self._kernels.items():
            if not isinstance(nests, dict) or not all(isinstance(n, dict) for n in cast("dict[str, Any]", nests).values()):
                raise self._error(name, None, None, "expected tables of loop nests, such as [matmul.0]")

    def require_kernels(self, names: Sequence[str]) -> None:
        """Raise UnsupportedError for a kernel that the program lacks."""
        for name in self._kernels:
            if name not in names:
                raise self._error(name, None, None, f"the program has no kernel {name}; it has {', '.join(names)}")

    @property
    def kernels(self) -> Sequence[str]:
        return list(self._kernels)

    def require_nests(self, kernel: str, count: int) -> None:
        """Raise UnsupportedError for a loop nest that the kernel lacks."""
        for nest in self._kernels.get(kernel, {}):
            if nest not in map(str, range(count)):
                raise self._error(kernel, nest, None, f"kernel {kernel} has {count} loop nests, from 0")

    def edited(self, kernel: str, nest: int, plan: Plan, loops: SizedLoopNest) -> Plan:
        """Return a plan with the entries of the file; those that the file omits are unchanged."""
        entries = dict(self._kernels.get(kernel, {}).get(str(nest), {}))
        if not entries:
            return plan
        kind, name = entries.pop("kind", type(plan).__name__), str(nest)
        if kind != type(plan).__name__:
            raise self._error(kernel, name, "kind", f"kind {kind}; this loop nest has a plan of kind {type(plan).__name__}")
        editable = {f.name: f for f in _editable_fields(plan)}
        values: dict[str, Any] = {}
        for entry, value in entries.items():
            if entry not in editable:
                raise self._error(kernel, name, entry, f"{entry}: {kind} has no such entry; it has {', '.join(editable)}")
            values[entry] = _parsed(value, str(editable[entry].type))
            if values[entry] is None:
                expected = _EDITABLE_TYPES[str(editable[entry].type)]
                raise self._error(kernel, name, entry, f"{entry} = {value!r:.60}: expected {expected}")
        try:
            edited = replace(plan, **values)
            edited.check(loops)
        except ValueError as error:
            entry = next((e for e in entries if str(error).startswith(e)), None)
            raise self._error(kernel, name, entry, str(error)) from None
        return edited

    def _error(self, kernel: str, nest: str | None, entry: str | None, problem: str) -> UnsupportedError:
        """Return an error at the line of a table, or of an entry in it."""
        lines = self._text.splitlines()
        headers = [f"[{_key(kernel)}"] if nest is None else [f"[{_key(kernel)}.{nest}]", f'[{_key(kernel)}."{nest}"]']
        start = next((k for k, line in enumerate(lines) if any(line.strip().startswith(h) for h in headers)), 0)
        line = start
        if entry is not None:
            matches = (k for k in range(start + 1, len(lines)) if lines[k].split("=")[0].strip() == entry)
            line = next(matches, start)
        place = "" if nest is None else f"kernel {kernel}, loop nest {nest}: "
        return UnsupportedError(f"{self.path}:{line + 1}: {place}{problem}")


def _parsed(value: Any, type: str) -> Any:
    """Return a value of a file as the value of a field; None if it is not of the field's type."""
    if type == "bool":
        return value if isinstance(value, bool) else None
    if type == "tuple[int, ...]":
        items = cast("list[Any]", value)
        return tuple(items) if isinstance(value, list) and all(map(_is_integer, items)) else None
    if type == "Mapping[int, int]":
        sizes = cast("dict[str, Any]", value)
        is_valid = isinstance(value, dict) and all(d[:1] == "d" and d[1:].isdecimal() for d in sizes)
        return {int(d[1:]): n for d, n in sizes.items()} if is_valid and all(map(_is_integer, sizes.values())) else None
    return value if _is_integer(value) else None


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@lru_cache(maxsize=8)
def plan_file(path: str, modified_ns: int) -> PlanFile:
    """Return the plans of a file, read once until it is modified."""
    return PlanFile(Path(path))
