"""The differentiation rules of ops with bodies: loops, branches, custom rules and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dlc.dialects import dl
from dlc.dialects.dl.programs.control import Control
from dlc.passes.autodiff.bodies import ForwardModeContext, ReverseModeContext
from dlc.passes.autodiff.branches import if_forward, if_reverse
from dlc.passes.autodiff.custom_rules import (
    checkpoint_forward,
    checkpoint_reverse,
    custom_jvp_forward,
    custom_jvp_reverse,
    custom_vjp_forward,
    custom_vjp_reverse,
    linear_call_forward,
    linear_call_reverse,
)
from dlc.passes.autodiff.scans import scan_forward, scan_reverse
from dlc.passes.autodiff.while_loops import while_forward, while_reverse

FORWARD: Mapping[type[Control], Callable[[Any, ForwardModeContext], None]] = {
    dl.IfOp: if_forward,
    dl.ScanOp: scan_forward,
    dl.WhileOp: while_forward,
    dl.CustomJvpOp: custom_jvp_forward,
    dl.CustomVjpOp: custom_vjp_forward,
    dl.CheckpointOp: checkpoint_forward,
    dl.LinearCallOp: linear_call_forward,
}
REVERSE: Mapping[type[Control], Callable[[Any, ReverseModeContext], None]] = {
    dl.IfOp: if_reverse,
    dl.ScanOp: scan_reverse,
    dl.WhileOp: while_reverse,
    dl.CustomJvpOp: custom_jvp_reverse,
    dl.CustomVjpOp: custom_vjp_reverse,
    dl.CheckpointOp: checkpoint_reverse,
    dl.LinearCallOp: linear_call_reverse,
}
