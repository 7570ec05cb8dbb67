"""Passes of plug-ins: frozen dataclasses derived from one of the base classes, placed by `dlc.extend.PassPlacement`.

In the stages `dl` and `fusion` a pass rewrites the ops of a module; from `linalg` on, a `KernelPass` rewrites each kernel.
"""

from __future__ import annotations

from dlc.dialects.dl.build import DlBuilder
from dlc.ir import Block, Context, ModuleOp, ModulePass, Operation, SSAValue, func, ops_of, walk_ops
from dlc.passes.base import KernelPass, TargetPass, kernels_of
from dlc.passes.dl.rewriting import defining_op, erase_unused, program_blocks, replace, rewrite_forward, splat, users
from dlc.target import Target

__all__ = [
    "Block",
    "Context",
    "DlBuilder",
    "KernelPass",
    "ModuleOp",
    "ModulePass",
    "Operation",
    "SSAValue",
    "Target",
    "TargetPass",
    "defining_op",
    "erase_unused",
    "func",
    "kernels_of",
    "ops_of",
    "program_blocks",
    "replace",
    "rewrite_forward",
    "splat",
    "users",
    "walk_ops",
]
