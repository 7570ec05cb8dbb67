"""What a compiled model depends on, part by part: equal keys mean equal code.

A key is of a *model file* (its bytes and those of its external data, the shapes and the values of inputs), so that nothing has
to be parsed to find what was compiled before; or of a *program* (the text of its module, the contents of its weights), as a
traced function or a model whose sizes came with a call. Both have the target, the passes if they were chosen, and what
dlc was: a digest of its own sources and the versions of the packages that it compiles with.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dlc.given_shapes import GivenShapes
from dlc.machine.cpus import usable_cpus
from dlc.machine.threads import Threads
from dlc.options import Options
from dlc.target import CPU_LEVELS, Target
from dlc.weights import WeightStore

# What each part is called when two keys are compared.
PARTS = {
    "file": "the model file",
    "external": "the external data of the model",
    "module": "the program",
    "weights": "the weights",
    "shapes": "the shapes",
    "values": "the values of inputs",
    "target": "the target",
    "pipeline": "the passes",
    "numerics": "the numerics",
    "precision": "the precision",
    "few_bits": "the bits of weights",
    "tuned": "whether tile plans are measured",
    "dlc": "dlc itself",
    "packages": "the packages that dlc compiles with",
}
# Files are digested in pieces, by all processors; then the digests are.
_PIECE_BYTES = 2 << 20
_COMPILES_WITH = ("xdsl", "llvmlite", "onnx", "numpy", "ml_dtypes")


@dataclass(frozen=True)
class Key:
    """The parts, by name; two keys with the same parts are the same."""

    parts: Mapping[str, str]

    @property
    def digest(self) -> str:
        """The key's name in the cache."""
        return _digest(json.dumps(self.parts, sort_keys=True).encode())

    def differences(self, other: Mapping[str, str]) -> list[str]:
        """The names of the parts that another key has otherwise."""
        return [name for name in PARTS if self.parts.get(name) != other.get(name)]


def file_key(
    path: Path,
    shapes: GivenShapes,
    target: Target,
    options: Options,
    values: Mapping[str, NDArray[Any]],
) -> Key:
    """The key of a model file with these input shapes, and these values of inputs, before its external data is known.

    Raises OSError when it cannot be read.
    """
    given = json.dumps(dict(shapes), sort_keys=True)
    known = {name: f"{v.dtype}{list(v.shape)} {_digest(v.tobytes())}" for name, v in sorted(values.items())}
    return Key({"file": file_digest(path), "shapes": given, "values": json.dumps(known), **_compilation(target, options)})


def with_external(key: Key, folder: Path, names: Iterable[str]) -> Key:
    """The key of a model file with the external data in these files of its folder."""
    files = {name: file_digest(folder / name) for name in sorted(names)}
    return Key({**key.parts, "external": json.dumps(files)}) if files else key


def program_key(text: str, weights: WeightStore, remaining: str | None, target: Target, options: Options) -> Key:
    """The key of a program: the text of its module, and the passes that are still to come if it says so."""
    contents = "".join(f"{name} {digest.hex()}\n" for name, digest in sorted(weights.digests().items()))
    parts = {"module": _digest(text.encode()), "weights": _digest(contents.encode()), **_compilation(target, options)}
    return Key(parts if options.pipeline is not None or remaining is None else {**parts, "pipeline": remaining})


def target_text(target: Target) -> str:
    """A target's name, and a digest of its record where dlc's sources, which are another part of a key, do not have it."""
    known = CPU_LEVELS.get(target.name) == target
    return target.name if known else f"{target.name} {_digest(repr(target).encode())[:12]}"


def sources_changed() -> bool:
    """Whether dlc was edited since this module was imported: what this process compiles is then neither the old nor the new."""
    return _sources() != _SOURCES


def file_digest(path: Path) -> str:
    """A digest of the bytes of a file: never of its times, which copies and archives set as they like."""
    with path.open("rb") as file, Threads(usable_cpus()) as workers:

        def piece(start: int) -> bytes:
            # Not mapped into memory: a file that someone cuts short meanwhile would end the process.
            return hashlib.blake2b(os.pread(file.fileno(), _PIECE_BYTES, start)).digest()

        return _digest(b"".join(workers.map(piece, range(0, os.fstat(file.fileno()).st_size, _PIECE_BYTES))))


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=20).hexdigest()


def _compilation(target: Target, options: Options) -> dict[str, str]:
    few_bits = options.weights if options.weights == "float" else f"{options.weights} in groups of {options.group}"
    chosen = {
        "pipeline": options.pipeline or "",
        "numerics": options.numerics,
        "precision": options.precision,
        "few_bits": few_bits,
        "tuned": str(options.tune > 0),
    }
    return {"target": target_text(target), **chosen, "dlc": DLC, "packages": PACKAGES}


def _sources() -> str:
    # Each import reads them all; with paths that are text, in two thirds of the time of `Path`.
    root = os.path.dirname(os.path.dirname(__file__))
    digest = hashlib.blake2b(digest_size=8)
    for folder, folders, names in os.walk(root):
        folders.sort()
        inside = folder[len(root) + 1 :]
        for name in sorted(names):
            if name.endswith((".py", ".ll")):
                with open(os.path.join(folder, name), "rb", buffering=0) as file:
                    content = hashlib.blake2b(file.read()).hexdigest()
                digest.update(f"{os.path.join(inside, name)} {content}\n".encode())
    return digest.hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of an unknown version"


_SOURCES = _sources()
DLC = f"{_version('dlc')}, sources {_SOURCES}"
PACKAGES = ", ".join(f"{name} {_version(name)}" for name in _COMPILES_WITH)
