"""Integer programs over choices: each choice takes one option, with a cost for options and for pairs of options."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.errors import UnsupportedError

_INSTALL = "pip install 'dlc[dist]'"


class OneHotProgram:
    """Choices with costs; `solve` returns options of the least total cost.

    A pair of choices with costs gets a variable per pair of options, whose sums over one choice are the options of the other.
    HiGHS solves the program, whose linear relaxation is mostly integral (Zheng et al., Alpa, 2022).
    """

    def __init__(self) -> None:
        self._costs: list[NDArray[np.float64]] = []
        self._pairs: list[tuple[int, int, NDArray[np.float64]]] = []

    def choice(self, costs: Sequence[float]) -> int:
        """Add a choice with the cost of each option; return its number."""
        self._costs.append(np.array(costs, np.float64))
        return len(self._costs) - 1

    def add_costs(self, choice: int, costs: Sequence[float]) -> None:
        """Add to the costs of the options of a choice."""
        self._costs[choice] += costs

    def add_pair(self, first: int, second: int, costs: NDArray[np.float64]) -> None:
        """Add a cost for each pair of options of two choices."""
        if len(costs) == 1 or first == second:
            self._costs[second] += costs[0] if first != second else costs.diagonal()
        elif costs.shape[1] == 1:
            self._costs[first] += costs[:, 0]
        elif costs.any():
            self._pairs.append((first, second, costs))

    @property
    def variable_count(self) -> int:
        return sum(map(len, self._costs)) + sum(costs.size for _, _, costs in self._pairs)

    def solve(self, time_limit_seconds: float) -> list[int] | None:
        """Return the option of each choice; None if the best ones are not found within the time.

        A worse solution is not returned, since it depends on the speed of the machine, and each rank solves the program. Raises
        UnsupportedError without scipy.
        """
        try:
            # Imported here because it is an optional dependency.
            optimize: Any = import_module("scipy.optimize")
            sparse: Any = import_module("scipy.sparse")
        except ImportError as error:
            raise UnsupportedError(f"auto=True needs scipy: {_INSTALL}") from error
        if not self._costs:
            return []
        starts = np.cumsum([0, *map(len, self._costs)])
        rows: list[NDArray[np.int64]] = []
        columns: list[NDArray[np.int64]] = []
        signs: list[NDArray[np.float64]] = []
        totals: list[float] = []

        def require(plus: NDArray[np.int64], minus: Sequence[int], total: float) -> None:
            """Require that the sum of some variables less the sum of others is `total`."""
            indices = np.concatenate([plus, np.array(minus, np.int64)])
            rows.append(np.full(len(indices), len(totals)))
            columns.append(indices)
            signs.append(np.concatenate([np.ones(len(plus)), -np.ones(len(minus))]))
            totals.append(total)

        for k, costs in enumerate(self._costs):
            require(np.arange(len(costs), dtype=np.int64) + starts[k], (), 1)
        end = int(starts[-1])
        for first, second, costs in self._pairs:
            variables: NDArray[np.int64] = np.arange(end, end + costs.size).reshape(costs.shape)
            end += costs.size
            for i in range(len(variables)):
                require(variables[i], [int(starts[first]) + i], 0)
            for j in range(variables.shape[1]):
                require(variables[:, j], [int(starts[second]) + j], 0)
        objective = np.concatenate([*self._costs, *(costs.reshape(-1) for _, _, costs in self._pairs)])
        matrix: Any = sparse.csr_array(
            (np.concatenate(signs), (np.concatenate(rows), np.concatenate(columns))), shape=(len(totals), end)
        )
        integrality = np.zeros(end)
        integrality[: starts[-1]] = 1
        scale = 1 / max(float(objective.max()), 1e-30)
        result: Any = optimize.milp(
            objective * scale,
            integrality=integrality,
            bounds=optimize.Bounds(0, 1),
            constraints=optimize.LinearConstraint(matrix, totals, totals),
            options={"time_limit": time_limit_seconds, "mip_rel_gap": 1e-4},
        )
        if result.status != 0:
            return None
        return [int(np.argmax(result.x[a:b])) for a, b in pairwise(starts)]
