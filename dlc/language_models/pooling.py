"""Pooling settings, as sentence-transformers stores them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from dlc.errors import ArgumentError, ModelError, UnsupportedError
from dlc.files.json_files import read_json, read_json_value

POOLINGS = ("mean", "cls", "last", "max")
# The pooling that each option of a sentence-transformers module enables.
_POOLING_BY_OPTION = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
    "pooling_mode_max_tokens": "max",
}


@dataclass(frozen=True)
class Pooling:
    """A reduction of the token vectors of a text to one vector.

    Attributes:
        kind: The name of the reduction.
        normalize: Divide the result by its Euclidean norm.
        max_tokens: The maximum number of tokens of a text, if the folder sets one.
    """

    kind: str = "mean"
    normalize: bool = False
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in POOLINGS:
            raise ArgumentError(f"pooling = {self.kind!r}; expected one of {', '.join(POOLINGS)}")

    @staticmethod
    def of_folder(folder: Path) -> Pooling:
        """Read `modules.json` and the files that it refers to; without them, the mean.

        Raises UnsupportedError for an unknown module or pooling, and ModelError for a malformed file.
        """
        path = folder / "modules.json"
        if not path.exists():
            return Pooling()
        settings = {"kind": "mean", "normalize": False}
        for kind, directory in _modules(path):
            match kind:
                case "Transformer":
                    pass
                case "Pooling":
                    settings["kind"] = _kind(folder / directory / "config.json")
                case "Normalize":
                    settings["normalize"] = True
                case _:
                    raise UnsupportedError(f"{path}: module {kind!r}; expected Transformer, Pooling or Normalize")
        limits = read_json(p) if (p := folder / "sentence_bert_config.json").exists() else {}
        limit = limits.get("max_seq_length")
        return Pooling(**cast("dict[str, Any]", settings), max_tokens=limit if isinstance(limit, int) and limit > 0 else None)


def _modules(path: Path) -> list[tuple[str, str]]:
    """Return the kind and the directory of each module."""
    modules, result = read_json_value(path), list[tuple[str, str]]()
    if not isinstance(modules, list):
        raise ModelError(f"{path}: expected a list of modules")
    for module in cast("list[object]", modules):
        fields = cast("dict[str, Any]", module) if isinstance(module, dict) else {}
        kind, directory = fields.get("type"), fields.get("path")
        if not isinstance(kind, str) or not isinstance(directory, str) or Path(directory).name != directory:
            raise ModelError(f"{path}: module {module!r:.80}; expected a type and the name of a folder")
        result.append((kind.rpartition(".")[2], directory))
    return result


def _kind(path: Path) -> str:
    options = read_json(path)
    enabled = sorted(name for name, value in options.items() if name.startswith("pooling_mode_") and value is True)
    if len(enabled) != 1 or enabled[0] not in _POOLING_BY_OPTION:
        listed = ", ".join(enabled) or "none"
        raise UnsupportedError(f"{path}: enabled poolings: {listed}; expected exactly one of {', '.join(_POOLING_BY_OPTION)}")
    return _POOLING_BY_OPTION[enabled[0]]
