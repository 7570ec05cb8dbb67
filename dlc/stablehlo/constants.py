"""The elements of constants, from their text."""

from __future__ import annotations

import re

import numpy as np

from dlc.dialects.dl.base import Array
from dlc.errors import ModelError
from dlc.stablehlo.syntax import Dense


def complex_components(value: Dense) -> tuple[Dense, Dense]:
    """Split a complex constant into its real and imaginary parts."""
    component = value.type.component
    assert component is not None
    if value.text.startswith('"0x'):
        width = 8 if component.element == "f64" else 4
        hex_components = re.findall(rf".{{{2 * width}}}", value.text[3:-1])
        real, imag = (f'"0x{"".join(hex_components[k::2])}"' for k in range(2))
    else:
        # Match pairs such as (1.0,2.0); other text is brackets and commas.
        pairs = re.findall(r"\(([^,()]+),([^,()]+)\)", value.text)
        real, imag = (", ".join(pair[k].strip() for pair in pairs) for k in range(2))
    return Dense(real, component), Dense(imag, component)


def dense_elements(value: Dense, dtype: np.dtype[np.generic], where: str) -> Array:
    """Return the elements of a constant. Raises ModelError if their number does not match the shape."""
    shape, text = value.type.shape, value.text
    count = int(np.prod(shape, dtype=np.int64))
    if text.startswith('"0x'):
        flat = np.frombuffer(bytes.fromhex(text[3:-1]), dtype)
    elif text.startswith('"') or "__elided__" in text or (not text and count):
        raise ModelError(f"{where}: its elements are elided; print the module with large constants")
    else:
        flat = np.asarray([_number(element_text, dtype) for element_text in re.findall(r"[^\s,\[\]]+", text)], dtype)
    if flat.size not in (1, count):
        raise ModelError(f"{where}: {flat.size} elements for the shape {list(shape)}")
    return np.broadcast_to(flat.reshape(()) if flat.size == 1 else flat.reshape(shape), shape)


def _number(text: str, dtype: np.dtype[np.generic]) -> object:
    if text in ("true", "false"):
        return text == "true"
    # The kind of ml_dtypes is not that of NumPy's integers and floats.
    is_integer = dtype.name.startswith(("int", "uint", "bool"))
    if text.startswith("0x") and not is_integer:
        return np.asarray(int(text, 16), f"u{dtype.itemsize}").view(dtype)[()]
    return int(text, 0) if is_integer else float(text)
