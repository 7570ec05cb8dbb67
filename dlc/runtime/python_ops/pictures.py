"""Pictures out of the formats of files, by Pillow."""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.errors import DlcError, UnsupportedError

Array: TypeAlias = "NDArray[Any]"

# Those that ONNX names. Pillow knows more, and runs other programs for some of them.
_FORMATS = ("BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")


def decode_picture(data: Array, *, gray: bool = False) -> tuple[Array, ...]:
    """`dl.decode_picture`. Raises UnsupportedError where Pillow is not installed, DlcError for bytes that are no picture."""
    try:
        # Pillow is an optional dependency, and takes a while to import.
        pillow = import_module("PIL.Image")
    except ImportError:
        raise UnsupportedError("pictures are decoded by Pillow, which is not installed: pip install 'dlc[pictures]'") from None
    try:
        with pillow.open(BytesIO(data.tobytes()), formats=_FORMATS) as picture:
            if picture.mode in ("I", "F"):
                raise ValueError("its pixels have 32 bits, of which nothing says what is white")
            if picture.mode.startswith("I;16"):
                # Pillow would clip them; of colours with 16 bits it takes the upper 8.
                picture = pillow.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
            pixels = np.asarray(picture.convert("L" if gray else "RGB"))
    except pillow.UnidentifiedImageError:
        raise DlcError(f"a picture that cannot be decoded: expected the bytes of one in {', '.join(_FORMATS)}") from None
    except Exception as error:
        # Of bytes that are no picture, or a damaged one, or one that is far larger than pictures are, Pillow raises all kinds
        # of errors.
        raise DlcError(f"a picture that cannot be decoded: {error}") from error
    return (pixels[..., None] if gray else pixels,)
