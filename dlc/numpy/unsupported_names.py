"""Names of NumPy, SciPy and the Array API that dlc does not have, each with the reason and the alternative to use.

A test checks these tables against the Array API's list of functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from dlc.errors import AbsentError

_IN_PLACE = "it modifies an array in place; use x.at[…].set(value), or dlc.numpy.where"
_TEXT = "a compiled function does not read or write strings or files; call NumPy's outside of it"

UNSUPPORTED_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("put", "put_along_axis", "place", "putmask", "copyto", "fill_diagonal"), _IN_PLACE),
    **dict.fromkeys(
        (
            "save",
            "savez",
            "savez_compressed",
            "load",
            "loadtxt",
            "savetxt",
            "genfromtxt",
            "fromregex",
            "fromfile",
            "fromstring",
            "array2string",
            "array_str",
            "array_repr",
            "base_repr",
            "binary_repr",
            "format_float_positional",
            "format_float_scientific",
            "typename",
        ),
        _TEXT,
    ),
    **dict.fromkeys(
        (
            "get_printoptions",
            "set_printoptions",
            "printoptions",
            "getbufsize",
            "setbufsize",
            "geterr",
            "seterr",
            "geterrcall",
            "seterrcall",
            "get_include",
            "show_config",
            "show_runtime",
            "info",
            "test",
        ),
        "it configures or describes NumPy itself; call NumPy's",
    ),
    **dict.fromkeys(
        ("busday_count", "busday_offset", "is_busday", "datetime_as_string", "datetime_data", "isnat"),
        "datetime dtypes are not supported; call NumPy's before, and pass numbers",
    ),
    **dict.fromkeys(
        ("bartlett", "blackman", "hamming", "hanning", "kaiser", "einsum_path", "nested_iters", "iterable", "isscalar"),
        "it takes no array arguments; call NumPy's, which also works in a traced function",
    ),
    **dict.fromkeys(
        ("diag_indices", "diag_indices_from", "tril_indices_from", "triu_indices_from", "mask_indices"),
        "the indices depend on the shape only; call NumPy's with an array of that shape, and index with the result",
    ),
    **dict.fromkeys(
        ("may_share_memory", "shares_memory", "isfortran", "asfortranarray", "ascontiguousarray", "require", "frombuffer"),
        "a traced array has no memory of its own; call NumPy's outside of the traced function",
    ),
    **dict.fromkeys(("asanyarray", "asarray_chkfinite"), "use asarray"),
    **dict.fromkeys(("asmatrix", "bmat"), "use an array with two axes"),
    **dict.fromkeys(("common_type", "mintypecode", "min_scalar_type"), "use result_type"),
    "issubdtype": "use isdtype",
    "real_if_close": "the dtype of the result depends on the values; use x.real",
    "sort_complex": "sort indices by the real, then by the imaginary part: x[lexsort((x.imag, x.real))]",
    "row_stack": "use vstack",
    "i0": "use dlc.special.i0",
    "apply_over_axes": "reduce along several axes at once: axis takes a tuple",
    "random": "a compiled function is deterministic; dlc.random draws random numbers from an explicit key",
    "lib": "sliding_window_view is a function of dlc.numpy itself; call NumPy's other ones outside of the traced function",
    **dict.fromkeys(
        ("apply_along_axis", "vectorize", "frompyfunc"),
        "write the function for whole arrays, or use dlc.vmap, or dlc.lax.map for a loop over rows",
    ),
    "matrix": "use an array with two axes",
    "fromiter": "a traced array cannot be iterated element by element; build the array with NumPy before",
    "fromfunction": "call the function on dlc.numpy.indices(shape)",
}

_BY_NUMPY = "use dlc.numpy's"

UNSUPPORTED_SPECIAL_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("jv", "yv", "kv"), "real orders are not supported; use jn, yn or kn with an integer order"),
    "loggamma": "its result is complex; gammaln is its real part",
    **dict.fromkeys(("cbrt", "exp2", "expm1", "log1p", "sinc", "round"), _BY_NUMPY),
}


def raise_unsupported_name(module: str, name: str, reasons: Mapping[str, str]) -> NoReturn:
    """Raise AbsentError for a name that `module` does not have, with the reason from `reasons` if there is one."""
    reason = f": {reasons[name]}" if name in reasons else "; docs/numpy.md lists the available functions"
    raise AbsentError(f"{module} has no {name!r}{reason}")
