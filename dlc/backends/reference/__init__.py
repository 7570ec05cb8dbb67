"""The reference evaluator: NumPy executes every stage of the IR, so that any two stages can be compared.

`values.py` defines the run-time representation of SSA values, `evaluation_context.py` runs blocks; the other files hold the
evaluation rules, one per op class, by dialect: `scalars` (arith, math), `tensors`, `structured` (linalg), `buffers` (memref),
`vectors`, `control` (scf), `matrices` (gpu), `program` (dl, kernels) and `host`.
"""

from dlc.backends.reference import buffers, control, host, loop_bodies, matrices, scalars, structured, tensors, vectors
from dlc.backends.reference.program import call, evaluate, evaluate_data_dependent_sizes, evaluate_function
from dlc.backends.reference.values import EvaluationError

# Importing a file registers its rules.
RULES = (buffers, control, host, loop_bodies, matrices, scalars, structured, tensors, vectors)

__all__ = ["RULES", "EvaluationError", "call", "evaluate", "evaluate_data_dependent_sizes", "evaluate_function"]
