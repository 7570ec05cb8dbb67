"""How far two models are from one another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass
class Difference:
    """How far outputs are from what they should be: the norm of the difference as a share of theirs, over sets of inputs."""

    squares: dict[str, tuple[float, float]]

    @staticmethod
    def none() -> Difference:
        """Of no outputs yet."""
        return Difference({})

    def add(self, expected: Mapping[str, NDArray[Any]], got: Mapping[str, NDArray[Any]]) -> None:
        """Counts the outputs of floats for one set of inputs."""
        for name, array in expected.items():
            if array.dtype.kind != "f":
                continue
            wanted = array.astype(np.float64)
            noise, signal = self.squares.get(name, (0.0, 0.0))
            noise += float(((np.asarray(got[name]) - wanted) ** 2).sum())
            self.squares[name] = noise, signal + float((wanted**2).sum())

    @property
    def error(self) -> float:
        """That of the output that is farthest off."""
        return max((_share(noise, signal) for noise, signal in self.squares.values()), default=0.0)


def _share(noise: float, signal: float) -> float:
    return float(np.sqrt(noise / signal)) if signal else float(noise > 0)
