"""The evaluator as a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dlc.backends.base import ModuleBackend
from dlc.backends.reference import evaluate
from dlc.ir import ModuleOp
from dlc.passes.transformations.expand_transformations import expanded
from dlc.target import REFERENCE, Target


@dataclass(frozen=True)
class Evaluated:
    """A module that is evaluated anew in each call."""

    module: ModuleOp
    weights: Mapping[str, NDArray[Any]]

    def run(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        return evaluate(self.module, inputs, self.weights)


class Reference(ModuleBackend):
    """NumPy, for any stage."""

    @property
    def target(self) -> Target:
        return REFERENCE

    def execute(self, module: ModuleOp, weights: Mapping[str, NDArray[Any]]) -> Evaluated:
        return Evaluated(expanded(module), weights)
