"""Fixes of xDSL's parser: hexadecimal floats in dense constants, and unterminated strings.

Infinities in dense constants are written as their bits, which xDSL reads as an integer. Lexing an unterminated string takes
time exponential in the length of its line.
"""

from __future__ import annotations

import re
from typing import Any, cast

from xdsl.dialects.builtin import AnyFloat
from xdsl.parser import AttrParser
from xdsl.utils.mlir_lexer import MLIRLexer


def _literal_to_type(self: Any, parser: AttrParser, type: Any) -> Any:
    """Convert one element of a dense literal: `0x7f800000` of a float type is an infinity, not 2139095040."""
    if isinstance(type, AnyFloat) and self.span.text[:2].lower() == "0x":
        return next(type.iter_unpack(self.value.to_bytes(type.compile_time_size, "little")))
    return _xdsl_to_type(self, parser, type)


# A quoted string, by a possessive and unambiguous pattern, so that matching does not backtrack.
_STRING = re.compile(r'"(?:[^"\\\n\v\f]|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')
_literal: Any = AttrParser._TensorLiteralElement  # pyright: ignore[reportPrivateUsage]
_xdsl_to_type = _literal.to_type


def patch_parsing() -> None:
    """Parse hexadecimal floats as floats, and strings in linear time."""
    _literal.to_type = _literal_to_type
    cast(Any, MLIRLexer)._unescaped_characters_regex = _STRING
