"""Cache keys: all inputs of a compilation. Equal keys imply equal code.

The key of a *model file* has the hashes of the file and its external data, and the shapes and values of inputs, so that a
lookup does not parse the model. The key of a *program* has the hashes of its module's text and of its weights; it is used for
traced functions and for specializations at run time. Both contain the target, the custom passes, the plug-ins, and the version
of dlc: a hash of its sources, and the versions of the packages that it compiles with.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dlc.caching.digests import digest, file_digest
from dlc.caching.source_digest import source_digest
from dlc.options import Options
from dlc.plugins.registry import key_text as plugin_key
from dlc.shapes.shape_specs import ShapeSpecs
from dlc.target import CPU_LEVELS, Target
from dlc.weights import WeightStore

# The fields of keys, with their names in messages.
KEY_FIELDS = {
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
    "weight_format": "the storage format of weights",
    "tuned": "whether tile plans are tuned",
    "dlc": "dlc itself",
    "plugins": "the plug-ins",
    "packages": "the packages that dlc compiles with",
}
_COMPILER_PACKAGES = ("xdsl", "llvmlite", "onnx", "numpy", "ml_dtypes")


@dataclass(frozen=True)
class CacheKey:
    """The fields of a key, by name."""

    fields: Mapping[str, str]

    @property
    def digest(self) -> str:
        """The name of the entry in the cache."""
        return digest(json.dumps(self.fields, sort_keys=True).encode())

    def differences(self, other: Mapping[str, str]) -> list[str]:
        """Return the names of the fields in which another key differs."""
        return [name for name in KEY_FIELDS if self.fields.get(name) != other.get(name)]


def file_key(
    path: Path,
    shapes: ShapeSpecs,
    target: Target,
    options: Options,
    values: Mapping[str, NDArray[Any]],
) -> CacheKey:
    """Return the key of a model file with these input shapes and values, without its external data.

    Raises OSError if the file cannot be read.
    """
    shapes_text = json.dumps(dict(shapes), sort_keys=True)
    value_digests = {
        name: f"{array.dtype}{list(array.shape)} {digest(array.tobytes())}" for name, array in sorted(values.items())
    }
    return CacheKey(
        {
            "file": file_digest(path),
            "shapes": shapes_text,
            "values": json.dumps(value_digests),
            **compilation_fields(target, options),
        }
    )


def with_external(key: CacheKey, folder: Path, names: Iterable[str]) -> CacheKey:
    """Return the key of a model file with external data in these files of its folder."""
    files = {name: file_digest(folder / name) for name in sorted(names)}
    return CacheKey({**key.fields, "external": json.dumps(files)}) if files else key


def program_key(text: str, weights: WeightStore, remaining: str | None, target: Target, options: Options) -> CacheKey:
    """Return the key of a program from the text of its module, its weights and its remaining passes, if it names them."""
    contents = "".join(f"{name} {digest.hex()}\n" for name, digest in sorted(weights.digests().items()))
    fields = {"module": digest(text.encode()), "weights": digest(contents.encode()), **compilation_fields(target, options)}
    return CacheKey(fields if options.pipeline is not None or remaining is None else {**fields, "pipeline": remaining})


def target_text(target: Target) -> str:
    """Return a target's name, with a hash of its properties unless it is a built-in target."""
    is_builtin = CPU_LEVELS.get(target.name) == target
    return target.name if is_builtin else f"{target.name} {digest(repr(target).encode())[:12]}"


def compilation_fields(target: Target, options: Options) -> dict[str, str]:
    weight_format = options.weights if options.weights == "float" else f"{options.weights} in groups of {options.group}"
    option_fields = {
        "pipeline": options.pipeline or "",
        "numerics": options.numerics,
        "precision": options.precision,
        "weight_format": weight_format,
        "tuned": str(options.tune > 0),
        "inter_op": options.inter_op,
    }
    return {
        "target": target_text(target),
        **option_fields,
        "dlc": dlc_version(),
        "plugins": plugin_key(),
        "packages": package_versions(),
    }


def dlc_version() -> str:
    """Return the version of dlc, with a hash of its sources."""
    return f"{_version('dlc')}, sources {source_digest()[:16]}"


def package_versions() -> str:
    """Return the versions of the packages that dlc compiles with."""
    return ", ".join(f"{name} {_version(name)}" for name in _COMPILER_PACKAGES)


@lru_cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown version"
