"""Generate the pages that list functions: dlc.numpy, and layers, optimizers and random numbers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from types import ModuleType

import dlc.numpy as dnp
from dlc import nn, special
from dlc.numpy import fft, linalg
from dlc.numpy.unsupported_names import UNSUPPORTED_NAMES
from dlc.optim import optimizers, schedules
from dlc.random import choices, distributions, keys


def numpy_page() -> str:
    """Return the text of docs/numpy.md."""
    sections = _sections({family: "" for family in dnp.FAMILIES} | {linalg: "linalg.", fft: "fft.", special: "special."})
    values = {
        "functions": sections,
        "count": str(sections.count("\n- `")),
        "speed": (Path(__file__).parent / "numpy.speed.md").read_text().strip(),
        "absent": "\n".join(_reasons(UNSUPPORTED_NAMES)),
    }
    return _fill_template("numpy.template.md", values)


def training_page() -> str:
    """Return the text of docs/training.md."""
    return _fill_template(
        "training.template.md",
        {
            "random": _sections({keys: "random.", distributions: "random.", choices: "random."}, "###"),
            "nn": _sections({family: "nn." for family in nn.FAMILIES} | {nn.init: "nn.init."}, "###"),
            "optim": _sections({optimizers: "optim.", schedules: "optim."}, "###"),
        },
    )


def _fill_template(template: str, values: Mapping[str, str]) -> str:
    text = (Path(__file__).parent / template).read_text()
    return re.sub(r"\{\{(\w+)\}\}", lambda m: values[m[1]], text)


def _sections(modules: Mapping[ModuleType, str], level: str = "##") -> str:
    return "\n\n".join(_section(module, prefix, level) for module, prefix in modules.items())


def _section(module: ModuleType, prefix: str, level: str) -> str:
    title, _, rest = inspect.cleandoc(module.__doc__ or "").partition("\n\n")
    functions = {n: f for n, f in vars(module).items() if inspect.isfunction(f) and n in _public(module)}
    lines = [
        f"- `{prefix}{n}{_signature(f)}`{_aliases_text(n, prefix)}: {_first_paragraph(f)}" for n, f in sorted(functions.items())
    ]
    if not lines:
        lines = [f"- `{n}`" for n in sorted(module.__all__)]
    heading, _, more = title.rstrip(".").partition(": ")
    text = [more[:1].upper() + more[1:] + "." if more else "", *rest.split("\n\n")]
    return "\n\n".join([f"{level} {_escaped(heading)}", *(_escaped(t) for t in text if t), "\n".join(lines)])


def _public(module: ModuleType) -> set[str]:
    defined_names = {n for n, f in vars(module).items() if n[0] != "_" and getattr(f, "__module__", None) == module.__name__}
    return set(getattr(module, "__all__", defined_names))


def _signature(function: object) -> str:
    """Return the parameter names and defaults; annotations are left out."""
    assert callable(function)
    signature = inspect.signature(function)
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    text = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return re.sub(r"<class '(?:numpy\.)?(\w+)'>", r"\1", text).replace(", /", "")


def _aliases_text(name: str, prefix: str) -> str:
    function = getattr(dnp, name, None)
    aliases = [] if prefix else [n for n in dnp.__all__ if n != name and getattr(dnp, n) is function]
    return f" (also {', '.join(f'`{n}`' for n in sorted(aliases))})" if aliases else ""


def _first_paragraph(function: object) -> str:
    return _escaped(inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0])


def _escaped(text: str) -> str:
    parts = text.split("`")
    parts[::2] = [re.sub(r"([*<|])", r"\\\1", part) for part in parts[::2]]
    return " ".join("`".join(parts).split())


def _reasons(table: Mapping[str, str]) -> list[str]:
    groups = groupby(sorted(table, key=lambda n: (table[n], n)), lambda n: table[n])
    return [f"- {', '.join(f'`{n}`' for n in names)}: {_escaped(reason)}" for reason, names in groups]
