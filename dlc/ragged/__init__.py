"""Ragged batches: sequences of different lengths without padding.

    @dlc.jit(dynamic={"x.values": {0: "L"}, "x.lengths": {0: "B"}})
    def encode(x, w):
        y = ragged.map(lambda rows: dnp.tanh(rows @ w), x)
        return ragged.mean(y)

    encode(ragged.of([np.ones((3, 8)), np.ones((5, 8))]), w)

A `Ragged` has the concatenated rows of all sequences, and the number of rows of each. Functions of rows apply to all rows at
once; reductions, attention and recurrences apply to each sequence. docs/ragged.md lists them.
"""

from dlc.argument_validation.validate import validate_arguments
from dlc.ragged import attention as attention_kernels
from dlc.ragged import conversions, recurrence, reductions, rows
from dlc.ragged.attention import *  # noqa: F403
from dlc.ragged.conversions import *  # noqa: F403
from dlc.ragged.ragged_array import Ragged
from dlc.ragged.recurrence import *  # noqa: F403
from dlc.ragged.reductions import *  # noqa: F403
from dlc.ragged.rows import *  # noqa: F403

__all__ = ["Ragged"]
__all__ += attention_kernels.__all__
__all__ += conversions.__all__
__all__ += recurrence.__all__
__all__ += reductions.__all__
__all__ += rows.__all__

validate_arguments(globals())
