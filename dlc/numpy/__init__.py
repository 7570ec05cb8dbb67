"""NumPy API for traced functions: the array functions to call under `@dlc.jit`.

    import dlc.numpy as dnp

    @dlc.jit
    def predict(params, x):
        return dnp.tanh(x @ params["w"] + params["b"])

Names and semantics are those of NumPy and of the Array API standard. Traced arrays also have the operators and methods of
NumPy arrays, and NumPy's own functions dispatch to this module when called on them (`np.tanh(x)`). On plain arrays the
functions are computed immediately. They are defined in `functions/`, one file per family; `dlc.numpy.linalg` is linear
algebra, `dlc.numpy.fft` is Fourier transforms.
"""

import inspect
import sys
from typing import Any

import numpy as np

from dlc.argument_validation.validate import validate_arguments
from dlc.numpy import dispatch, fft, linalg, namespace, operators, ufunc_methods
from dlc.numpy.calling_convention import numpy_converters
from dlc.numpy.functions import (
    comparison,
    complex_numbers,
    creation,
    cumulative,
    data_dependent_shapes,
    dtypes,
    einstein_summation,
    elementwise,
    floats,
    indexed_updates,
    indexing,
    integers,
    joining,
    matrix_products,
    padding,
    polynomials,
    quantiles,
    reductions,
    sampled_data,
    shape_manipulation,
    sorting,
)
from dlc.numpy.functions.comparison import *  # noqa: F403
from dlc.numpy.functions.complex_numbers import *  # noqa: F403
from dlc.numpy.functions.creation import *  # noqa: F403
from dlc.numpy.functions.cumulative import *  # noqa: F403
from dlc.numpy.functions.data_dependent_shapes import *  # noqa: F403
from dlc.numpy.functions.dtypes import *  # noqa: F403
from dlc.numpy.functions.einstein_summation import *  # noqa: F403
from dlc.numpy.functions.elementwise import *  # noqa: F403
from dlc.numpy.functions.floats import *  # noqa: F403
from dlc.numpy.functions.indexed_updates import *  # noqa: F403
from dlc.numpy.functions.indexing import *  # noqa: F403
from dlc.numpy.functions.integers import *  # noqa: F403
from dlc.numpy.functions.joining import *  # noqa: F403
from dlc.numpy.functions.matrix_products import *  # noqa: F403
from dlc.numpy.functions.padding import *  # noqa: F403
from dlc.numpy.functions.polynomials import *  # noqa: F403
from dlc.numpy.functions.quantiles import *  # noqa: F403
from dlc.numpy.functions.reductions import *  # noqa: F403
from dlc.numpy.functions.sampled_data import *  # noqa: F403
from dlc.numpy.functions.shape_manipulation import *  # noqa: F403
from dlc.numpy.functions.sorting import *  # noqa: F403
from dlc.numpy.unsupported_names import UNSUPPORTED_NAMES, raise_unsupported_name

# Aliases that NumPy and the Array API define for the same functions.
absolute = complex_numbers.abs
amax, amin = reductions.max, reductions.min
arccos, arccosh, arcsin, arcsinh = elementwise.acos, elementwise.acosh, elementwise.asin, elementwise.asinh
arctan, arctan2, arctanh = elementwise.atan, floats.atan2, elementwise.atanh
around = elementwise.round
bitwise_not = invert = comparison.bitwise_invert
concatenate = joining.concat
conjugate = complex_numbers.conj
degrees, radians = elementwise.rad2deg, elementwise.deg2rad
left_shift, right_shift = comparison.bitwise_left_shift, comparison.bitwise_right_shift
mod, pow, true_divide = elementwise.remainder, elementwise.power, elementwise.divide

pi = 3.141592653589793
e = 2.718281828459045
inf = float("inf")
nan = float("nan")
newaxis = None

# The modules that define the public functions, in documentation order.
FAMILIES = (
    creation, dtypes, elementwise, complex_numbers, floats, integers, comparison, reductions, cumulative, sampled_data, sorting,
    quantiles, data_dependent_shapes, shape_manipulation, joining, padding, indexing, indexed_updates, matrix_products,
    einstein_summation, polynomials,
)  # fmt: skip

__all__ = [
    "absolute", "amax", "amin", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "around",
    "bitwise_not", "concatenate", "conjugate", "degrees", "e", "fft", "inf", "invert", "left_shift", "linalg", "mod", "nan",
    "newaxis", "pi", "pow", "radians", "right_shift", "true_divide",
]  # fmt: skip
__all__ += comparison.__all__
__all__ += complex_numbers.__all__
__all__ += data_dependent_shapes.__all__
__all__ += creation.__all__
__all__ += dtypes.__all__
__all__ += einstein_summation.__all__
__all__ += elementwise.__all__
__all__ += floats.__all__
__all__ += indexing.__all__
__all__ += integers.__all__
__all__ += joining.__all__
__all__ += matrix_products.__all__
__all__ += padding.__all__
__all__ += polynomials.__all__
__all__ += quantiles.__all__
__all__ += reductions.__all__
__all__ += cumulative.__all__
__all__ += sampled_data.__all__
__all__ += shape_manipulation.__all__
__all__ += sorting.__all__
__all__ += indexed_updates.__all__

__array_api_version__ = namespace.VERSION
__array_namespace_info__ = namespace.NamespaceInfo


def __getattr__(name: str) -> Any:
    raise_unsupported_name("dlc.numpy", name, UNSUPPORTED_NAMES)


for _name in __all__:
    if inspect.isfunction(globals()[_name]):
        globals()[_name] = complex_numbers.with_complex_rule(globals()[_name])
validate_arguments(globals(), converters=numpy_converters(np, __all__))
ufunc_methods.add_methods(sys.modules[__name__])
operators.install()
dispatch.install(sys.modules[__name__])
