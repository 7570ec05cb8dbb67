"""Which stage a module is at, and whether passes of another one fit it: they would find nothing to do, and say nothing."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.programs.program import KernelOp
from dlc.errors import ModelError
from dlc.instrument.manager import PassManager
from dlc.instrument.verify import illegal_ops
from dlc.ir import ModuleOp, TensorType, print_module
from dlc.passes.base import Stage, kernels_of


def run_fitting(manager: PassManager, module: ModuleOp, stage: Stage, stages: Sequence[Stage], file: str) -> None:
    """Runs passes of a stage; `stages` are all there are, in order, from `dl` to the host's.

    Raises ModelError if the module of `file` is at a stage that they are not for.
    """
    names = [s.name for s in stages]
    wanted, at, before = names.index(stage.name), stages_at(module, stages), print_module(module)
    # What the kernels are by then does not matter to the host program.
    is_host = wanted == len(stages) - 1 and bool(at) and at[-1] > 0
    if at and not at[0] <= wanted <= at[-1] + 1 and not is_host:
        raise _of_another_stage(file, stage, names, at[-1])
    manager.run(module, (stage,))
    # What is written in loops from the beginning may be at any of some stages.
    if at and wanted < at[-1] and print_module(module) == before:
        raise _of_another_stage(file, stage, names, at[-1])


def stages_at(module: ModuleOp, stages: Sequence[Stage]) -> list[int]:
    """The numbers of the stages at whose ends there may be such a module; none if it is of no stage."""
    functions = list(kernels_of(module))
    if not functions and not any(isinstance(op, KernelOp) or op.name.startswith("host.") for op in module.walk()):
        return [0] if any(isinstance(op, DlOp) for op in module.walk()) else []
    on_tensors = any(isinstance(a.type, TensorType) for kernel in functions for a in kernel.args)
    # From the stage after it on kernels are on buffers.
    linalg = next(k for k, stage in enumerate(stages) if stage.name == "linalg")
    among = [linalg] if on_tensors else range(1, len(stages))
    return [k for k in among if not any(illegal_ops(module, stages[k]))]


def _of_another_stage(file: str, stage: Stage, names: Sequence[str], at: int) -> ModelError:
    wanted, first = names.index(stage.name), str(stage.passes[0]).partition("{")[0]
    if wanted > at:
        repair = f"run the passes in between first, or take stage-{names[wanted - 1]}.mlir of a dump"
    else:
        repair = "take an earlier file of a dump"
    return ModelError(f"{file}: {first} is of stage {stage.name}, but the module is at stage {names[at]}; {repair}")
