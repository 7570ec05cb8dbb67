"""Poolings: the vector of a text from those of its tokens, and the settings that sentence-transformers stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import dlc.numpy as dnp
from dlc import ragged
from dlc.errors import ArgumentError, ModelError, UnsupportedError
from dlc.files.json_files import read_json, read_json_value
from dlc.ragged import Ragged

POOLINGS: Mapping[str, Callable[[Ragged], Any]] = {
    "mean": ragged.mean,
    "cls": ragged.first,
    "last": ragged.last,
    "max": ragged.max,
}
# The options of a pooling module by pooling.
_OPTION_NAMES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
    "pooling_mode_max_tokens": "max",
}


@dataclass(frozen=True)
class Pooling:
    """The reduction of the vectors of the tokens of a text.

    Attributes:
        kind: The name of the reduction.
        normalize: Divide the result by its Euclidean norm.
        max_tokens: A limit of the number of tokens of a text, if the folder has one.
    """

    kind: str = "mean"
    normalize: bool = False
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in POOLINGS:
            raise ArgumentError(f"pooling = {self.kind!r}; expected one of {', '.join(POOLINGS)}")

    def __call__(self, x: Ragged) -> Any:
        """Return the vectors of texts, [B, D]."""
        y = POOLINGS[self.kind](x)
        # 1e-12 as in torch.nn.functional.normalize: a vector of zeros stays one.
        return y / dnp.maximum(dnp.sqrt(dnp.sum(y * y, -1, keepdims=True)), 1e-12) if self.normalize else y

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
                    raise UnsupportedError(f"{path}: the module {kind!r} is not supported")
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
    if len(enabled) != 1 or enabled[0] not in _OPTION_NAMES:
        listed = ", ".join(enabled) or "none"
        raise UnsupportedError(f"{path}: poolings {listed}; expected one of {', '.join(_OPTION_NAMES)}")
    return _OPTION_NAMES[enabled[0]]
