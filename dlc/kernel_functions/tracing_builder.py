"""A builder of kernels that gives every op the location of the current user line."""

from __future__ import annotations

from dlc.frontend.trace import user_location
from dlc.passes.kernel_builder import KernelBuilder
from dlc.passes.structured import OpBuilder


class TracingBuilder(KernelBuilder):
    """Insert ops at the end of the innermost open block, with the innermost location outside of dlc."""

    @property
    def op_builder(self) -> OpBuilder:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._insertion_point.with_location(user_location())

    @op_builder.setter
    def op_builder(self, op_builder: OpBuilder) -> None:
        self._insertion_point = op_builder
