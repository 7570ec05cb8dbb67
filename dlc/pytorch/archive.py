"""Validation of files of torch.export.save before torch reads them.

Such a file is a zip of JSON and raw tensors, but may also contain pickles, expressions and function names, which
torch.export.load unpickles, evaluates and calls without checks. A model of tensors needs no pickles and only a few functions,
so any other file is rejected, and torch reads a copy of the validated entries.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, cast

from dlc.errors import ModelError
from dlc.pytorch.rules import RULES

# Allowed functions: ATen ops, ops of other libraries that have a rule, and Python arithmetic on sizes.
_OPERATOR = re.compile(r"torch\.ops\.(\w+)\.(\w+)(\.\w+)?")
_ARITHMETIC = re.compile(r"(_operator|math|torch)\.(\w+)")
# Sizes are SymPy expressions of symbols: Add(Integer(1), Symbol('s7', positive=True, integer=True)).
_SYMPY_NAMES = "Add|Mul|Pow|Integer|Symbol|Rational|FloorDiv|Mod|Max|Min|positive|integer|True|False"
_EXPRESSION = re.compile(rf"[\s\d(),=*+/-]|'\w+'|\b({_SYMPY_NAMES}|s\d+|u\d+)\b")
_TENSORS = re.compile(r"(weight|tensor)_\d+")


def checked_archive(path: Path) -> io.BytesIO:
    """Return a copy of an archive that contains only tensors, a graph, and example inputs.

    The example inputs must be read with `weights_only`.

    Raises ModelError for a file that is not such an archive, and for one with content that torch would execute.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            # torch.export.save does not compress entries, so larger contents indicate a zip bomb.
            if sum(info.file_size for info in archive.infolist()) > path.stat().st_size:
                raise ModelError(f"{path}: its entries are larger than the file; torch.export.save does not compress entries")
            entries = {info.filename: archive.read(info) for info in archive.infolist()}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError) as error:
        raise ModelError(f"{path}: not an archive of torch.export.save: {error}") from error
    for name, content in entries.items():
        if problem := _problem(_inner(name), content):
            raise ModelError(f"{path}: {name}: {problem}; the file is rejected, since torch would execute the code it names")
    copy = io.BytesIO()
    with zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    copy.seek(0)
    return copy


def example_inputs(archive: io.BytesIO) -> Iterator[bytes]:
    """Yield the pickled example inputs of an archive."""
    with zipfile.ZipFile(archive) as opened:
        yield from (opened.read(name) for name in opened.namelist() if str(_inner(name).parent) == "data/sample_inputs")
    archive.seek(0)


def _inner(name: str) -> PurePosixPath:
    """Return the name of an entry without the top-level folder."""
    return PurePosixPath(*PurePosixPath(name).parts[1:])


def _problem(name: PurePosixPath, content: bytes) -> str | None:
    """Return the reason to reject an entry; None if it is allowed."""
    folder = str(name.parent)
    if folder in ("data/weights", "data/constants") and name.suffix != ".json":
        return None if _TENSORS.fullmatch(name.name) else "an entry that is not a plain tensor"
    if folder == "models" or name.suffix == ".json":
        try:
            return next(_problems(json.loads(content)), None)
        except (ValueError, TypeError, RecursionError) as error:
            return f"not JSON: {error}"
    is_data_folder = folder in (".", ".data", "extra", "data/sample_inputs")
    return None if is_data_folder else "an entry that is neither a graph nor a tensor"


def _problems(value: Any) -> Iterator[str]:
    """Yield the values in JSON that torch would execute or unpickle."""
    if isinstance(value, list):
        for element in cast("list[Any]", value):
            yield from _problems(element)
    if not isinstance(value, dict):
        return
    for key, element in cast("dict[str, Any]", value).items():
        if key == "use_pickle" and element:
            yield "a pickled tensor"
        elif key == "path_name" and not _TENSORS.fullmatch(str(element)):
            yield f"an object {element!r} that is not a tensor"
        elif key == "expr_str" and _EXPRESSION.sub("", str(element)):
            yield f"a size {element!r}"
        elif key == "range_constraints" and _EXPRESSION.sub("", "".join(cast("dict[str, Any]", element))):
            yield f"ranges of {', '.join(cast('dict[str, Any]', element))}"
        elif key == "target" and isinstance(element, str) and not _is_allowed(element):
            yield f"a function {element!r}"
        else:
            yield from _problems(element)


def _is_allowed(target: str) -> bool:
    if operator := _OPERATOR.fullmatch(target):
        return operator[1] in ("aten", "higher_order") or f"{operator[1]}::{operator[2]}" in RULES
    arithmetic = _ARITHMETIC.fullmatch(target)
    return arithmetic is not None and f"operator.{arithmetic[2]}" in RULES
