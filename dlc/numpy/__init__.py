"""NumPy for traced functions: what an array function is written with under `@dlc.jit`.

    import dlc.numpy as dnp

    @dlc.jit
    def predict(params, x):
        return dnp.tanh(x @ params["w"] + params["b"])

The functions have NumPy's names and the Array API's, and do what NumPy's do. Arrays of a traced function also have the
operators and methods of NumPy's arrays, and NumPy's own functions on them (`np.tanh(x)`) are these. On plain arrays the
functions compute at once. They are in `functions/`, one file per family; `dlc.numpy.linalg` is linear algebra,
`dlc.numpy.fft` has Fourier transforms.
"""

import sys
from typing import Any

from dlc.misuse import explain_misuse
from dlc.numpy import dispatch, fft, linalg, namespace, operators
from dlc.numpy.absent import ABSENT, raise_absent
from dlc.numpy.functions import (
    comparing,
    complex_numbers,
    counting,
    creation,
    dtypes,
    einstein,
    elementwise,
    floats,
    indexing,
    joining,
    linear,
    reductions,
    running,
    sampled,
    shaping,
    sorting,
    updating,
)
from dlc.numpy.functions.comparing import *  # noqa: F403
from dlc.numpy.functions.complex_numbers import *  # noqa: F403
from dlc.numpy.functions.counting import *  # noqa: F403
from dlc.numpy.functions.creation import *  # noqa: F403
from dlc.numpy.functions.dtypes import *  # noqa: F403
from dlc.numpy.functions.einstein import *  # noqa: F403
from dlc.numpy.functions.elementwise import *  # noqa: F403
from dlc.numpy.functions.floats import *  # noqa: F403
from dlc.numpy.functions.indexing import *  # noqa: F403
from dlc.numpy.functions.joining import *  # noqa: F403
from dlc.numpy.functions.linear import *  # noqa: F403
from dlc.numpy.functions.reductions import *  # noqa: F403
from dlc.numpy.functions.running import *  # noqa: F403
from dlc.numpy.functions.sampled import *  # noqa: F403
from dlc.numpy.functions.shaping import *  # noqa: F403
from dlc.numpy.functions.sorting import *  # noqa: F403
from dlc.numpy.functions.updating import *  # noqa: F403

# The other names that NumPy and the Array API have for the same functions.
absolute = complex_numbers.abs
amax, amin = reductions.max, reductions.min
arccos, arccosh, arcsin, arcsinh = elementwise.acos, elementwise.acosh, elementwise.asin, elementwise.asinh
arctan, arctan2, arctanh = elementwise.atan, floats.atan2, elementwise.atanh
around = elementwise.round
bitwise_not = invert = comparing.bitwise_invert
concatenate = joining.concat
conjugate = complex_numbers.conj
degrees, radians = elementwise.rad2deg, elementwise.deg2rad
left_shift, right_shift = comparing.bitwise_left_shift, comparing.bitwise_right_shift
mod, pow, true_divide = elementwise.remainder, elementwise.power, elementwise.divide

pi = 3.141592653589793
e = 2.718281828459045
inf = float("inf")
nan = float("nan")
newaxis = None

# Where the public functions are defined, in the order of the documentation.
FAMILIES = (
    creation, dtypes, elementwise, complex_numbers, floats, comparing, reductions, running, sampled, sorting, counting, shaping,
    joining, indexing, updating, linear, einstein,
)  # fmt: skip

__all__ = [
    "absolute", "amax", "amin", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "around",
    "bitwise_not", "concatenate", "conjugate", "degrees", "e", "fft", "inf", "invert", "left_shift", "linalg", "mod", "nan",
    "newaxis", "pi", "pow", "radians", "right_shift", "true_divide",
]  # fmt: skip
__all__ += comparing.__all__
__all__ += complex_numbers.__all__
__all__ += counting.__all__
__all__ += creation.__all__
__all__ += dtypes.__all__
__all__ += einstein.__all__
__all__ += elementwise.__all__
__all__ += floats.__all__
__all__ += indexing.__all__
__all__ += joining.__all__
__all__ += linear.__all__
__all__ += reductions.__all__
__all__ += running.__all__
__all__ += sampled.__all__
__all__ += shaping.__all__
__all__ += sorting.__all__
__all__ += updating.__all__

__array_api_version__ = namespace.VERSION
__array_namespace_info__ = namespace.NamespaceInfo


def __getattr__(name: str) -> Any:
    raise_absent("dlc.numpy", name, ABSENT)


explain_misuse(globals())
operators.install()
dispatch.install(sys.modules[__name__])
