"""The reference evaluator as a backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dlc.backends.base import ModuleBackend
from dlc.backends.reference import evaluate
from dlc.ir import ModuleOp
from dlc.passes.transformations.expand_transformations import expand_for_evaluation
from dlc.target import REFERENCE, Target


@dataclass(frozen=True)
class EvaluatedModule:
    """A module that is evaluated on each call."""

    module: ModuleOp
    weights: Mapping[str, NDArray[Any]]

    def run(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        return evaluate(self.module, inputs, self.weights)


class Reference(ModuleBackend):
    """The NumPy backend; it executes modules at any stage."""

    accepts_symbolic_sizes = True

    @property
    def target(self) -> Target:
        return REFERENCE

    def execute(self, module: ModuleOp, weights: Mapping[str, NDArray[Any]]) -> EvaluatedModule:
        return EvaluatedModule(expand_for_evaluation(module), weights)
