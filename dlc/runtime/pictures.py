"""Pictures out of the formats of files, by Pillow."""

from __future__ import annotations

from io import BytesIO
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.errors import DlcError, UnsupportedError

Array: TypeAlias = "NDArray[Any]"


def decode_picture(data: Array, *, gray: bool = False) -> tuple[Array, ...]:
    """`dl.decode_picture`. Raises UnsupportedError where Pillow is not installed, DlcError for bytes that are no picture."""
    try:
        # Pillow is an optional dependency.
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise UnsupportedError("pictures are decoded by Pillow, which is not installed: pip install 'dlc[pictures]'") from None
    try:
        with Image.open(BytesIO(data.tobytes())) as picture:
            pixels = np.asarray(picture.convert("L" if gray else "RGB"))
    except UnidentifiedImageError:
        raise DlcError(f"{data.size} bytes that are no picture in a format that Pillow knows (PNG, JPEG, WebP, …)") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        # What Pillow says of a file that ends too early, is damaged, or is far larger than pictures are.
        raise DlcError(f"a picture that cannot be decoded: {error}") from error
    return (pixels[..., None] if gray else pixels,)
