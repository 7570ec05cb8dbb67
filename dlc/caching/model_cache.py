"""Compiled models in the cache: an entry is an artifact, of what a key (keys.py) names.

A model file is looked for before it is parsed: a hit needs neither onnx, xDSL nor LLVM.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.caching.cache import Cache, Entry
from dlc.caching.keys import PARTS, Key, file_key, sources_changed, with_external
from dlc.errors import ModelError
from dlc.given_shapes import GivenShapes
from dlc.instrument.report import KernelReport, Report
from dlc.options import Options
from dlc.runtime.load import CompiledProgram, program_in
from dlc.runtime.opencl.build import Builder
from dlc.runtime.saving.container import save
from dlc.target import Target

# Kinds of entries: artifacts, and for a model file that has them, the names of its files of external data.
MODEL, EXTERNAL = "model", "external"
# How the names of dumped modules end.
DUMPED = ".mlir"
# And those of what torch.export.save writes.
EXPORTED = ".pt2"
# And TFLite's.
TFLITE = ".tflite"


def reason_not_cached(target: Target, options: Options, file: Path | bytes | None = None) -> str | None:
    """Why a compilation does not go through the cache; None if it does."""
    if not options.cache:
        return "it was asked to be compiled anew"
    if target.version is None:
        return f"models for {target.name} are not kept whole"
    if options.dump_ir is not None or options.verify or options.check_each_pass:
        return "its passes are to be watched (a dump, a check of each pass, DLC_VERIFY=1)"
    if isinstance(file, Path) and file.suffix == DUMPED:
        return "a dumped module is known by what it and the weights beside it hold"
    return None


def fetch(
    key: Key,
    name: str,
    inputs: Sequence[TensorInfo],
    read: Callable[[Path], CompiledProgram],
    make: Callable[[], CompiledProgram],
    report: Report,
    origin: Path | None = None,
) -> CompiledProgram:
    """The artifact of a key, called `name`: out of the cache, or made and kept there."""
    about = {
        "model": name,
        "inputs": [str(info) for info in inputs],
        "file": str(origin.resolve()) if origin is not None else None,
        "parts": dict(key.parts),
    }
    cache = Cache.standard()
    artifact, found = cache.read(MODEL, key.digest, read), True
    if artifact is None and sources_changed():
        return make()
    if artifact is None:
        artifact, found = cache.fetch(MODEL, key.digest, read, make, _write, about)
    return _reported(artifact, name, report) if found else artifact


def _write(artifact: CompiledProgram, path: Path) -> None:
    save(path, artifact)


def _reported(artifact: CompiledProgram, name: str, report: Report) -> CompiledProgram:
    runs = artifact.host.runs
    report.from_cache = True
    report.kernels += [KernelReport(k.name, runs[k.name], k.size, 0.0) for k in artifact.kernels]
    # Models that are alike in all but the name are one entry.
    return replace(artifact, name=name)


@dataclass(frozen=True)
class CachedFile:
    """A model file and the key that it had when it was looked at; `known` are the names of its external data, if any."""

    path: Path
    base: Key
    key: Key
    seen: os.stat_result

    @staticmethod
    def look(
        path: Path,
        shapes: GivenShapes,
        target: Target,
        options: Options,
        values: Mapping[str, NDArray[Any]] = MappingProxyType({}),
    ) -> CachedFile:
        """Raises OSError when the file cannot be read."""
        seen = path.stat()
        base = key = file_key(path, shapes, target, options, values)
        names = Cache.standard().read(EXTERNAL, base.digest, _read_names)
        if names is not None:
            with suppress(OSError):  # the importer says which is missing
                key = with_external(base, path.parent, names)
        return CachedFile(path, base, key, seen)

    def find(self, report: Report, builder: Builder | None = None) -> CompiledProgram | None:
        """What was compiled of this file before; `builder` makes code of its kernels if it is for an OpenCL device."""
        artifact = Cache.standard().read(MODEL, self.key.digest, lambda path: program_in(path, builder))
        return _reported(artifact, self.path.stem, report) if artifact is not None else None

    def imported(self, external: Iterable[Path]) -> CachedFile | None:
        """This file, of which an import has read these files of external data; None if it changed meanwhile."""
        now = self.path.stat()
        if (now.st_size, now.st_mtime_ns, now.st_ino) != (self.seen.st_size, self.seen.st_mtime_ns, self.seen.st_ino):
            return None
        folder = self.path.parent.resolve()
        names = sorted(str(path.relative_to(folder)) for path in external)
        if not names:
            return replace(self, key=self.base)
        Cache.standard().store(EXTERNAL, self.base.digest, lambda p: p.write_text(json.dumps(names)), {"model": self.path.stem})
        return replace(self, key=with_external(self.base, folder, names))


def _read_names(path: Path) -> list[str]:
    try:
        return [str(name) for name in json.loads(path.read_text())]
    except ValueError as error:
        raise ModelError(f"{path}: damaged: {error}") from error


@dataclass(frozen=True)
class Explanation:
    """Whether a model file is in the cache: the entry, or the one that comes nearest and what of its key differs.

    `at_calls` are entries of a model of this name whose sizes were open: they were made when it was called.
    """

    key: Key
    hit: bool
    nearest: Entry | None
    reasons: tuple[str, ...]
    at_calls: tuple[Entry, ...]


def explain(file: CachedFile) -> Explanation:
    """Compares the key of a model file with what is in the cache."""
    path, parts = str(file.path.resolve()), file.key.parts
    compiler = ("target", "dlc", "packages")
    related: list[tuple[Entry, dict[str, str]]] = []
    at_calls: list[Entry] = []
    for entry in Cache.standard().entries(MODEL):
        about = entry.about
        its: dict[str, str] = about.get("parts", {})
        if "file" in its and (about["file"] == path or its["file"] == parts["file"]):
            related.append((entry, its))
        elif "module" in its and about["model"] == file.path.stem and all(its[name] == parts[name] for name in compiler):
            at_calls.append(entry)
    if not related:
        return Explanation(file.key, False, None, ("nothing in the cache was compiled of this file alone",), tuple(at_calls))
    nearest, its = min(related, key=lambda pair: (len(file.key.differences(pair[1])), -pair[0].used))
    reasons = tuple(_difference(name, its.get(name), parts.get(name)) for name in file.key.differences(its))
    return Explanation(file.key, not reasons, nearest, reasons, tuple(at_calls))


def _difference(part: str, before: str | None, now: str | None) -> str:
    if part in ("file", "external"):
        return f"{PARTS[part]} changed"
    return f"{PARTS[part]} changed: {before or 'none'} before, {now or 'none'} now"
