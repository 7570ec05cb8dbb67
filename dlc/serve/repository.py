"""The served models: files on the command line, and the files of a folder, which are reloaded when they are replaced."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlc.errors import DlcError, ModelError
from dlc.runtime.models.model import Model
from dlc.runtime.requests.batched_model import BatchedModel
from dlc.runtime.requests.submittable import Submittable
from dlc.serve.tensors import metadata

SUFFIXES = (".dlc", ".onnx", ".tflite")
_log = logging.getLogger("dlc.serve")

# Loads the model in a file, with dynamic batching if that is enabled.
LoadModel = Callable[[Path], Model | BatchedModel]
# Identifies the content of a file: a replaced file has another inode.
_Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class ServedModel:
    """A loaded model: its queue of requests, and its description in the protocol."""

    name: str
    version: str
    calls: Submittable
    description: Mapping[str, Any]
    stamp: _Stamp


class Repository:
    """Models by name, which is the file name without its suffix. `refresh` is called by one thread at a time."""

    def __init__(self, files: list[Path], folder: Path | None, load: LoadModel, on_load: Callable[[str, str], None]) -> None:
        self._files, self._folder, self._load = files, folder, load
        # Called with the name of a model, and "success" or "error".
        self._on_load = on_load
        self.models: dict[str, ServedModel] = {}
        self._failed: dict[Path, _Stamp] = {}
        # The names that several files have, which were logged.
        self._ambiguous: Set[str] = frozenset[str]()

    def open(self) -> None:
        """Load all models. Raises the error of a file on the command line; those of the folder are logged."""
        for path in self._files:
            self._add(path, _stamp(path))
        self.refresh()

    def refresh(self) -> None:
        """Load the files that are new or were replaced, and remove models whose files were removed from the folder.

        A file that cannot be loaded, or has the name of another one, is logged, once; the server keeps the previous model.
        Requests that have started finish on the model with which they started.
        """
        paths = self._paths()
        ambiguous = {name: files for name, files in paths.items() if len(files) > 1}
        for name in ambiguous.keys() - self._ambiguous:
            self._on_load(name, "error")
            _log.error("%s: not loaded: %s", ", ".join(map(str, ambiguous[name])), _same_name(name))
        self._ambiguous = ambiguous.keys()
        for name, (path, *_) in ((name, files) for name, files in paths.items() if name not in ambiguous):
            try:
                stamp = _stamp(path)
                current = self.models.get(name)
                if (current is None or current.stamp != stamp) and self._failed.get(path) != stamp:
                    self._failed[path] = stamp
                    self._add(path, stamp)
                    del self._failed[path]
            except (DlcError, OSError) as error:
                self._on_load(name, "error")
                _log.error("%s: not loaded: %s", path, error)
        for name in self.models.keys() - paths.keys():
            _log.info("%s: removed", name)
            self.models.pop(name)

    def _paths(self) -> dict[str, list[Path]]:
        """Return the files of each name. A file of the folder may also be on the command line."""
        found = [path for path in sorted(self._folder.iterdir()) if path.suffix in SUFFIXES] if self._folder else []
        paths: dict[str, list[Path]] = {}
        for path in {path.resolve(): path for path in (*found, *self._files)}.values():
            paths.setdefault(path.stem, []).append(path)
        return paths

    def _add(self, path: Path, stamp: _Stamp) -> None:
        loaded = self._load(path)
        model = loaded.model if isinstance(loaded, BatchedModel) else loaded
        previous = self.models.get(path.stem)
        version = "1" if previous is None else str(int(previous.version) + 1)
        description = {
            "name": path.stem,
            "versions": [version],
            "platform": "dlc",
            "inputs": [metadata(info) for info in model.inputs],
            "outputs": [metadata(info) for info in model.outputs],
        }
        self.models[path.stem] = ServedModel(path.stem, version, loaded, description, stamp)
        self._on_load(path.stem, "success")
        _log.info("%s: loaded, version %s", path, version)


def _stamp(path: Path) -> _Stamp:
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


def require_distinct_names(files: list[Path]) -> None:
    """Raise ModelError if two files have the same name without suffix."""
    names = [path.stem for path in files]
    for name in names:
        if names.count(name) > 1:
            raise ModelError(_same_name(name))


def _same_name(name: str) -> str:
    return f"two models are named {name!r}; rename one of the files"
