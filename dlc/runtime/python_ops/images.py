"""Image decoding with Pillow."""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.errors import DlcError, UnsupportedError

Array: TypeAlias = "NDArray[Any]"

# The formats of ONNX's ImageDecoder. Pillow supports more, some of them by running other programs.
_FORMATS = ("BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")


def decode_image(data: Array, *, gray: bool = False) -> tuple[Array, ...]:
    """`dl.decode_image`. Raises UnsupportedError if Pillow is not installed, DlcError for bytes that are not an image."""
    try:
        # Pillow is an optional dependency, and slow to import.
        pillow = import_module("PIL.Image")
    except ImportError:
        raise UnsupportedError("decoding images needs Pillow, which is not installed: pip install 'dlc[images]'") from None
    try:
        with pillow.open(BytesIO(data.tobytes()), formats=_FORMATS) as image:
            if image.mode in ("I", "F"):
                raise ValueError("its pixels have 32 bits, and the value of white is unknown")
            if image.mode.startswith("I;16"):
                # Pillow would clip 16-bit grayscale; for 16-bit colors it takes the upper 8 bits.
                image = pillow.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            pixels = np.asarray(image.convert("L" if gray else "RGB"))
    except pillow.UnidentifiedImageError:
        raise DlcError(f"an image that cannot be decoded: expected the bytes of one in {', '.join(_FORMATS)}") from None
    except Exception as error:
        # Pillow raises all kinds of errors for invalid, damaged and excessively large images.
        raise DlcError(f"an image that cannot be decoded: {error}") from error
    return (pixels[..., None] if gray else pixels,)
