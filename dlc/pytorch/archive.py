"""Files of torch.export.save, checked before torch reads them.

Such a file is a zip of JSON and raw tensors, and may hold more: pickles, expressions and names of functions, which
torch.export.load unpickles, evaluates and calls whatever they are. A model of tensors needs none of the first and few of the
others, so a file with more is refused, and torch is given a copy of what was checked.
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

# Names of functions are aten's, those of another library that there is a rule for, or Python's arithmetic on sizes.
_OPERATOR = re.compile(r"torch\.ops\.(\w+)\.(\w+)(\.\w+)?")
_ARITHMETIC = re.compile(r"(_operator|math|torch)\.(\w+)")
# Sizes are sums and products of symbols: Add(Integer(1), Symbol('s7', positive=True, integer=True)).
_WORDS = "Add|Mul|Pow|Integer|Symbol|Rational|FloorDiv|Mod|Max|Min|positive|integer|True|False"
_EXPRESSION = re.compile(rf"[\s\d(),=*+/-]|'\w+'|\b({_WORDS}|s\d+|u\d+)\b")
_TENSORS = re.compile(r"(weight|tensor)_\d+")


def checked_archive(path: Path) -> io.BytesIO:
    """The archive in a file, of nothing but tensors, a graph, and example inputs, which are to be read with `weights_only`.

    Raises ModelError for a file that is none, and for one with what torch would run.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            # torch stores its entries as they are.
            if sum(info.file_size for info in archive.infolist()) > path.stat().st_size:
                raise ModelError(f"{path}: its entries are said to be larger than the file; torch.export.save compresses none")
            entries = {info.filename: archive.read(info) for info in archive.infolist()}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError) as error:
        raise ModelError(f"{path}: no archive of torch.export.save: {error}") from error
    for name, content in entries.items():
        if problem := _problem(_inner(name), content):
            raise ModelError(f"{path}: {name}: {problem}; it is not read, since torch would run what such a file names")
    copy = io.BytesIO()
    with zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    copy.seek(0)
    return copy


def example_inputs(archive: io.BytesIO) -> Iterator[bytes]:
    """The pickles of an archive: example inputs."""
    with zipfile.ZipFile(archive) as opened:
        yield from (opened.read(name) for name in opened.namelist() if str(_inner(name).parent) == "data/sample_inputs")
    archive.seek(0)


def _inner(name: str) -> PurePosixPath:
    """The name of an entry without the folder that all of them are in."""
    return PurePosixPath(*PurePosixPath(name).parts[1:])


def _problem(name: PurePosixPath, content: bytes) -> str | None:
    """What is wrong with an entry of this inner name."""
    folder = str(name.parent)
    if folder in ("data/weights", "data/constants") and name.suffix != ".json":
        return None if _TENSORS.fullmatch(name.name) else "an entry that is no plain tensor"
    if folder == "models" or name.suffix == ".json":
        try:
            return next(_problems(json.loads(content)), None)
        except (ValueError, TypeError, RecursionError) as error:
            return f"not JSON: {error}"
    plain = folder in (".", ".data", "extra", "data/sample_inputs")
    return None if plain else "an entry that is neither a graph nor a tensor"


def _problems(value: Any) -> Iterator[str]:
    """What torch would run of a part of JSON."""
    if isinstance(value, list):
        for part in cast("list[Any]", value):
            yield from _problems(part)
    if not isinstance(value, dict):
        return
    for key, part in cast("dict[str, Any]", value).items():
        if key == "use_pickle" and part:
            yield "a pickled tensor"
        elif key == "path_name" and not _TENSORS.fullmatch(str(part)):
            yield f"an object {part!r} that is no tensor"
        elif key == "expr_str" and _EXPRESSION.sub("", str(part)):
            yield f"a size {part!r}"
        elif key == "range_constraints" and _EXPRESSION.sub("", "".join(cast("dict[str, Any]", part))):
            yield f"ranges of {', '.join(cast('dict[str, Any]', part))}"
        elif key == "target" and isinstance(part, str) and not _is_known(part):
            yield f"a function {part!r}"
        else:
            yield from _problems(part)


def _is_known(target: str) -> bool:
    if operator := _OPERATOR.fullmatch(target):
        return operator[1] in ("aten", "higher_order") or f"{operator[1]}::{operator[2]}" in RULES
    arithmetic = _ARITHMETIC.fullmatch(target)
    return arithmetic is not None and f"operator.{arithmetic[2]}" in RULES
