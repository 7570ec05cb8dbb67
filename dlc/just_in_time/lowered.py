"""Functions traced for some arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlc.backends.base import Backend
from dlc.compiler import Program, compile, emit
from dlc.compiler.sharding import ShardedProgram
from dlc.compiler.sharding_report import sharding_text
from dlc.distributed.mesh_model import compile_sharded
from dlc.errors import UnsupportedError
from dlc.frontend.pytree import Tree
from dlc.options import Options
from dlc.runtime.models.model import Model


@dataclass(frozen=True)
class Lowered:
    """A function traced for some arguments, for inspection: `predict.lower(x).as_text("linalg")`."""

    program: Program
    results: Tree
    target: str | Backend
    options: Options
    # By leaf index of a Python scalar: the integer dtypes that it is converted to.
    weak_argument_dtypes: Mapping[int, set[np.dtype[Any]]]
    # The program of each rank of a function on a mesh.
    sharded: ShardedProgram | None = None

    def as_text(self, stage: str = "dl") -> str:
        """Return the IR at the end of a stage (dl, fusion, linalg, tiling or loops), or the kernels as llvm or asm.

        The stage `sharding` of a function on a mesh is the program of each rank, after a summary of its collectives.
        """
        if stage == "sharding":
            if self.sharded is None:
                raise UnsupportedError(f"{self.program.name}: it runs on one process; pass a mesh to dlc.jit")
            return sharding_text(self.sharded)
        return emit(self.program, stage, self.target, self.options)

    def compile(self) -> Model:
        """Compile the program to a model; its inputs and outputs are named by their positions in the arguments and results."""
        if self.sharded is not None:
            return compile_sharded(self.program, self.sharded, self.target, self.options)
        return compile(self.program, self.target, self.options)
