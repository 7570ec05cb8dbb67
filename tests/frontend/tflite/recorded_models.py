"""TFLite files with inputs and results of LiteRT, as recorded by record.py."""

from __future__ import annotations

import io
import lzma
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Recorded:
    file: bytes
    inputs: list[Any]
    outputs: list[Any]


@cache
def recorded() -> dict[str, Recorded]:
    arrays = dict(np.load(io.BytesIO(lzma.decompress((Path(__file__).parent / "recorded.npz.xz").read_bytes()))))

    def listed(name: str, side: str) -> list[Any]:
        return [arrays[f"{name}/{side}/{k}"] for k in range(sum(key.startswith(f"{name}/{side}/") for key in arrays))]

    names = [key.removesuffix("/file") for key in arrays if key.endswith("/file")]
    return {n: Recorded(arrays[f"{n}/file"].tobytes(), listed(n, "in"), listed(n, "out")) for n in names}
