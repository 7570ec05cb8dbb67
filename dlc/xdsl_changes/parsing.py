"""What xDSL's parser reads wrongly, or slowly.

A float inside a dense constant may be written as its bits, as infinities are, and is no number then; a string that nothing ends
takes time exponential in the length of its line.
"""

from __future__ import annotations

import re
from typing import Any, cast

from xdsl.dialects.builtin import AnyFloat
from xdsl.parser import AttrParser
from xdsl.utils.mlir_lexer import MLIRLexer


def _literal_to_type(self: Any, parser: AttrParser, type: Any) -> Any:
    """One element of a dense literal: `0x7f800000` of a float type is an infinity, not 2139095040."""
    if isinstance(type, AnyFloat) and self.span.text[:2].lower() == "0x":
        return next(type.iter_unpack(self.value.to_bytes(type.compile_time_size, "little")))
    return _decimal_to_type(self, parser, type)


# What is between quotes, with no way of matching it but one.
_STRING = re.compile(r'"(?:[^"\\\n\v\f]|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')
_literal: Any = AttrParser._TensorLiteralElement  # pyright: ignore[reportPrivateUsage]
_decimal_to_type = _literal.to_type


def change_parsing() -> None:
    """Bits of floats are read as floats, and strings in time linear in their length."""
    _literal.to_type = _literal_to_type
    cast(Any, MLIRLexer)._unescaped_characters_regex = _STRING
