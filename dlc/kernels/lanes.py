"""The lanes of vectorized loops, and the test that the iterations of a vectorized sequential loop are independent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from dlc.ir import Block, SSAValue
from dlc.kernels.index_ranges import LinearForm


@dataclass(frozen=True)
class LaneAccess:
    """A load or store in the body of a vectorized loop; `indices` are those of the first element."""

    array_name: str
    indices: Sequence[LinearForm]
    is_store: bool


@dataclass(frozen=True, eq=False)
class LoopLanes:
    """The lanes of a vectorized loop: lane l of a strip has the index `width · strip + l`, plus a constant.

    Attributes:
        strip: The variable of the generated loop.
        width: The number of lanes.
        function: The function that emits the loop, `k.grid` or `k.range`.
        accesses: The loads and stores of its body, by the array's memory.
    """

    strip: SSAValue
    width: int
    function: str
    accesses: dict[SSAValue, list[LaneAccess]] = field(default_factory=lambda: defaultdict(list))

    def __str__(self) -> str:
        return f"{self.function}(…, vectorize={self.width})"

    def stride(self, form: LinearForm) -> int:
        """Return the difference of an index in consecutive lanes."""
        return form.coefficients.get(self.strip, 0) // self.width

    def dependent_array(self) -> str | None:
        """Return the name of an array of which an iteration may access an element that another iteration stores, or None."""
        for accesses in self.accesses.values():
            if any(a.is_store for a in accesses) and not self._accesses_own_elements(accesses):
                return accesses[0].array_name
        return None

    def _accesses_own_elements(self, accesses: Sequence[LaneAccess]) -> bool:
        """Return whether iterations access disjoint elements: all accesses have the same lane-dependent index of one axis."""
        lane_indices = {
            (axis, form.constant, form.terms) for a in accesses for axis, form in enumerate(a.indices) if self.stride(form)
        }
        is_in_every_access = all(any(map(self.stride, a.indices)) for a in accesses)
        return (
            is_in_every_access
            and len(lane_indices) == 1
            and not any(
                variable is not self.strip and self._is_inside(variable)
                for _, _, terms in lane_indices
                for variable, _ in terms
            )
        )

    def _is_inside(self, variable: SSAValue) -> bool:
        """Return whether a variable is defined in the body of the loop."""
        body = self.strip.owner
        assert isinstance(body, Block)
        return body.is_ancestor(variable.owner)
