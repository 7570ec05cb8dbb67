"""The cache of compiled models: entries are artifacts under the keys of keys.py.

Model files are looked up before they are parsed: a hit needs neither onnx, xDSL nor LLVM.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.caching.cache import Cache, CacheEntry
from dlc.caching.keys import KEY_FIELDS, CacheKey, file_key, with_external
from dlc.caching.source_digest import sources_changed
from dlc.errors import ModelError
from dlc.instrument.report import KernelReport, Report
from dlc.options import Options
from dlc.plugins.registry import plugin_without_sources
from dlc.runtime.load import program_in
from dlc.runtime.saving.container import Saveable, save
from dlc.shapes.shape_specs import ShapeSpecs
from dlc.target import Target

if TYPE_CHECKING:
    from dlc.runtime.compiled_program import CompiledProgram
    from dlc.runtime.opencl.build import Builder

T = TypeVar("T")

# Kinds of entries: artifacts, and the names of a model file's external data files.
MODEL_KIND, EXTERNAL_DATA_KIND = "model", "external"
# File suffixes: dumped or StableHLO modules, torch.export programs, TFLite models.
MLIR_SUFFIX = ".mlir"
TORCH_EXPORT_SUFFIX = ".pt2"
TFLITE_SUFFIX = ".tflite"


def reason_not_cached(target: Target, options: Options, file: Path | bytes | None = None) -> str | None:
    """Return the reason why a compilation does not use the cache, or None."""
    if not options.cache:
        return "the cache is disabled"
    if target.version is None:
        return f"models for {target.name} are not cached"
    if options.replaced_kernels or options.plan is not None or options.write_plan is not None:
        return "its kernels or tile plans come from files, or are written to one"
    if options.dump_ir is not None or options.verify or options.check_each_pass:
        return "its passes have to run (dump_ir, check_each_pass or DLC_VERIFY=1)"
    if (plugin := plugin_without_sources()) is not None:
        return f"the sources of plug-in {plugin} are not in a file"
    if isinstance(file, Path) and file.suffix == MLIR_SUFFIX:
        return "a dumped module is cached under the key of its program, not of its file"
    return None


def fetch(
    key: CacheKey,
    name: str,
    inputs: Sequence[TensorInfo],
    read: Callable[[Path], CompiledProgram],
    make: Callable[[], CompiledProgram],
    report: Report,
    origin: Path | None = None,
) -> CompiledProgram:
    """Return the artifact of a key, called `name`: from the cache, or created and stored there."""
    metadata = {
        "model": name,
        "inputs": [str(info) for info in inputs],
        "file": str(origin.resolve()) if origin is not None else None,
        "fields": dict(key.fields),
    }
    artifact, is_hit = load_or_make(key, metadata, read, make, lambda artifact: artifact)
    return _report_hit(artifact, name, report) if is_hit else artifact


def load_or_make(
    key: CacheKey,
    metadata: Mapping[str, Any],
    read: Callable[[Path], T],
    make: Callable[[], T],
    saved: Callable[[T], Saveable],
) -> tuple[T, bool]:
    """Return the model of a key, as `read` returns it, and True; or the result of `make` and False.

    What `saved` returns for a new model is stored, unless dlc's sources changed meanwhile.
    """
    cache = Cache.standard()
    model = cache.read(MODEL_KIND, key.digest, read)
    if model is not None:
        return model, True
    if sources_changed():
        return make(), False
    return cache.fetch(MODEL_KIND, key.digest, read, make, lambda made, path: save(path, saved(made)), metadata)


def _report_hit(artifact: CompiledProgram, name: str, report: Report) -> CompiledProgram:
    runs = artifact.host.runs
    report.from_cache = True
    report.kernels += [KernelReport(k.name, runs[k.name], k.size, 0.0) for k in artifact.kernels]
    # Models that differ only in their name share an entry.
    return replace(artifact, name=name)


@dataclass(frozen=True)
class CachedFile:
    """A model file and its key; `base` is the key without external data."""

    path: Path
    base: CacheKey
    key: CacheKey
    stat_at_start: os.stat_result

    @staticmethod
    def identify(
        path: Path,
        shapes: ShapeSpecs,
        target: Target,
        options: Options,
        values: Mapping[str, NDArray[Any]] = MappingProxyType({}),
    ) -> CachedFile:
        """Compute the key of a model file. Raises OSError if the file cannot be read."""
        stat_at_start = path.stat()
        base = key = file_key(path, shapes, target, options, values)
        names = Cache.standard().read(EXTERNAL_DATA_KIND, base.digest, _read_names)
        if names is not None:
            with suppress(OSError):  # The importer reports missing files.
                key = with_external(base, path.parent, names)
        return CachedFile(path, base, key, stat_at_start)

    def find(self, report: Report, builder: Builder | None = None) -> CompiledProgram | None:
        """Return the cached artifact of this file; `builder` builds the kernels of one for an OpenCL device."""
        artifact = Cache.standard().read(MODEL_KIND, self.key.digest, lambda path: program_in(path, builder))
        return _report_hit(artifact, self.path.stem, report) if artifact is not None else None

    def after_import(self, external: Iterable[Path]) -> CachedFile | None:
        """Return this file with the external data that the import read; None if the file changed meanwhile."""
        current = self.path.stat()
        if (current.st_size, current.st_mtime_ns, current.st_ino) != (
            self.stat_at_start.st_size,
            self.stat_at_start.st_mtime_ns,
            self.stat_at_start.st_ino,
        ):
            return None
        folder = self.path.parent.resolve()
        names = sorted(str(path.relative_to(folder)) for path in external)
        if not names:
            return replace(self, key=self.base)
        Cache.standard().store(
            EXTERNAL_DATA_KIND, self.base.digest, lambda p: p.write_text(json.dumps(names)), {"model": self.path.stem}
        )
        return replace(self, key=with_external(self.base, folder, names))


def _read_names(path: Path) -> list[str]:
    try:
        return [str(name) for name in json.loads(path.read_text())]
    except ValueError as error:
        raise ModelError(f"{path}: damaged: {error}") from error


@dataclass(frozen=True)
class Explanation:
    """The cache status of a model file: its entry, or the most similar one and the differences of its key.

    `call_entries` are specializations of a model of this name, which were compiled at run time.
    """

    key: CacheKey
    hit: bool
    nearest: CacheEntry | None
    reasons: tuple[str, ...]
    call_entries: tuple[CacheEntry, ...]


def explain(file: CachedFile) -> Explanation:
    """Compare the key of a model file with the entries of the cache."""
    path, fields = str(file.path.resolve()), file.key.fields
    compiler = ("target", "dlc", "packages")
    related: list[tuple[CacheEntry, dict[str, str]]] = []
    call_entries: list[CacheEntry] = []
    for entry in Cache.standard().entries(MODEL_KIND):
        metadata = entry.metadata
        entry_fields: dict[str, str] = metadata.get("fields", {})
        if "file" in entry_fields and (metadata["file"] == path or entry_fields["file"] == fields["file"]):
            related.append((entry, entry_fields))
        elif (
            "module" in entry_fields
            and metadata["model"] == file.path.stem
            and all(entry_fields[name] == fields[name] for name in compiler)
        ):
            call_entries.append(entry)
    if not related:
        return Explanation(file.key, False, None, ("no entry of the cache belongs to this file",), tuple(call_entries))
    nearest, entry_fields = min(related, key=lambda pair: (len(file.key.differences(pair[1])), -pair[0].used))
    reasons = tuple(_difference(name, entry_fields.get(name), fields.get(name)) for name in file.key.differences(entry_fields))
    return Explanation(file.key, not reasons, nearest, reasons, tuple(call_entries))


def _difference(field: str, before: str | None, after: str | None) -> str:
    if field in ("file", "external"):
        return f"{KEY_FIELDS[field]} changed"
    return f"{KEY_FIELDS[field]} changed: {before or 'none'} before, {after or 'none'} now"
