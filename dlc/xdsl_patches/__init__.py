"""Monkey patches of xDSL 0.74: missing features, and faster versions of its hot paths.

xDSL's classes are patched in place, since every tool that reads the IR uses them. The performance patches keep the behaviour.
"""

from __future__ import annotations

from functools import cache

from dlc.xdsl_patches.arith import patch_arith
from dlc.xdsl_patches.attributes import patch_attributes
from dlc.xdsl_patches.op_cloning import patch_op_cloning
from dlc.xdsl_patches.op_construction import patch_op_construction
from dlc.xdsl_patches.op_counts import patch_op_counts
from dlc.xdsl_patches.op_iteration import patch_op_iteration
from dlc.xdsl_patches.parsing import patch_parsing
from dlc.xdsl_patches.type_checks import patch_type_checks
from dlc.xdsl_patches.verification import patch_verification


def patch_performance() -> None:
    """Install the performance patches; call it once, before other modules define ops."""
    patch_type_checks()
    patch_attributes()
    patch_verification()
    patch_op_construction()
    patch_op_cloning()
    patch_op_iteration()
    patch_op_counts()


@cache
def patch_xdsl() -> None:
    """Install all patches, once per process."""
    patch_performance()
    patch_parsing()
    patch_arith()
