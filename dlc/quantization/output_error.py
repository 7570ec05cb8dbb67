"""The output error of a model relative to another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass
class OutputError:
    """The relative output error ‖actual - expected‖ / ‖expected‖, accumulated over sets of inputs."""

    squares: dict[str, tuple[float, float]]

    @staticmethod
    def empty() -> OutputError:
        """Return the error of no outputs yet."""
        return OutputError({})

    def add(self, expected: Mapping[str, NDArray[Any]], got: Mapping[str, NDArray[Any]]) -> None:
        """Add the float outputs of one set of inputs."""
        for name, array in expected.items():
            if array.dtype.kind != "f":
                continue
            reference = array.astype(np.float64)
            noise, signal = self.squares.get(name, (0.0, 0.0))
            noise += float(((np.asarray(got[name]) - reference) ** 2).sum())
            self.squares[name] = noise, signal + float((reference**2).sum())

    @property
    def error(self) -> float:
        """The error of the output with the largest error."""
        return max((_relative_norm(noise, signal) for noise, signal in self.squares.values()), default=0.0)


def _relative_norm(noise: float, signal: float) -> float:
    return float(np.sqrt(noise / signal)) if signal else float(noise > 0)
