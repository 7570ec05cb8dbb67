"""What is compiled for one thread alone shares no work: it has fewer tasks, and computes the same."""

from __future__ import annotations

import numpy as np

import dlc
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.models.model import Model


def test_one_thread_copies_nothing_twice() -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((512, 128), dtype=np.float32) for _ in range(2))
    # Blocks of both operands are copied by each task.
    one, several = (dlc.jit(lambda x, y: x.T @ y, num_threads=threads, cache=False).lower(x, y).compile() for threads in (1, 2))
    assert _tasks(one) < _tasks(several)
    ((of_one,), (of_several,)) = (model.run_unchecked([x, y]) for model in (one, several))
    np.testing.assert_array_equal(of_one, of_several)
    np.testing.assert_allclose(of_one, x.T @ y, rtol=1e-4, atol=1e-4)


def _tasks(model: Model) -> int:
    assert isinstance(model.artifact, Artifact)
    (kernel,) = model.artifact.kernels
    return sum(int(tasks) for tasks in kernel.tasks)
