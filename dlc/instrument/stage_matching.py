"""Determine the stage of a module, and reject passes of another stage, which would silently change nothing."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.programs.program import KernelOp
from dlc.errors import ModelError
from dlc.instrument.manager import PassManager
from dlc.instrument.verify import illegal_ops
from dlc.ir import ModuleOp, TensorType, print_module
from dlc.passes.base import Stage, kernels_of


def check_and_run(manager: PassManager, module: ModuleOp, stage: Stage, stages: Sequence[Stage], file: str) -> None:
    """Run the passes of a stage; `stages` are all stages in order, from `dl` to the host's.

    Raises ModelError if the module of `file` is at a stage that the passes do not support.
    """
    names = [s.name for s in stages]
    stage_index, module_stages, original_text = names.index(stage.name), matching_stages(module, stages), print_module(module)
    # The host stage does not depend on the stage of the kernels.
    is_host = stage_index == len(stages) - 1 and bool(module_stages) and module_stages[-1] > 0
    if module_stages and not module_stages[0] <= stage_index <= module_stages[-1] + 1 and not is_host:
        raise _wrong_stage_error(file, stage, names, module_stages[-1])
    manager.run(module, (stage,))
    # Library kernels consist of loops from the start, so that a module may match several stages.
    if module_stages and stage_index < module_stages[-1] and print_module(module) == original_text:
        raise _wrong_stage_error(file, stage, names, module_stages[-1])


def matching_stages(module: ModuleOp, stages: Sequence[Stage]) -> list[int]:
    """Return the indices of the stages after which a module may look like this; empty if there is none."""
    functions = list(kernels_of(module))
    if not functions and not any(isinstance(op, KernelOp) or op.name.startswith("host.") for op in module.walk()):
        return [0] if any(isinstance(op, DlOp) for op in module.walk()) else []
    on_tensors = any(isinstance(a.type, TensorType) for kernel in functions for a in kernel.args)
    # Kernels operate on buffers from the next stage on.
    linalg_index = next(k for k, stage in enumerate(stages) if stage.name == "linalg")
    candidates = [linalg_index] if on_tensors else range(1, len(stages))
    return [k for k in candidates if not any(illegal_ops(module, stages[k]))]


def _wrong_stage_error(file: str, stage: Stage, names: Sequence[str], module_stage: int) -> ModelError:
    stage_index, pass_name = names.index(stage.name), str(stage.passes[0]).partition("{")[0]
    if stage_index > module_stage:
        hint = f"run the passes in between first, or take stage-{names[stage_index - 1]}.mlir of a dump"
    else:
        hint = "take an earlier file of a dump"
    return ModelError(f"{file}: {pass_name} is of stage {stage.name}, but the module is at stage {names[module_stage]}; {hint}")
