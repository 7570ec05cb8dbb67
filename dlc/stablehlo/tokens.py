"""Tokens of MLIR text, and the token stream that a parser reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from dlc.errors import ModelError

_TOKENS = re.compile(
    r"""
    (?P<space>[\s]+|//[^\n]*)
  | (?P<tensor>tensor<(?:"[^"]*"|[^<>"]|<[^<>]*>)*>)
  | (?P<dense>dense<(?:"[^"]*"|[^>"])*>|dense_resource<[^>]*>)
  | (?P<array>array<[^>]*>)
  | (?P<hash>[#!][\w.$]+(?:<(?:->|"[^"]*"|[^<>"]|<(?:->|[^<>])*>)*>)?)
  | (?P<value>%[\w.$-]+(?:\#\d+)?)
  | (?P<symbol>@(?:"[^"]*"|[\w.$-]+))
  | (?P<block>\^[\w.$-]+)
  | (?P<string>"(?:\\.|[^"\\])*")
  | (?P<number>-?(?:0x[0-9a-fA-F]+|\d+(?:\.\d*(?:[eE][+-]?\d+)?)?))
  | (?P<word>[A-Za-z_][\w.$]*)
  | (?P<mark>->|::|[(){}\[\]<>,:=*+?-])
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    line: int


def _tokens(text: str, name: str) -> list[_Token]:
    tokens, position, line = list[_Token](), 0, 1
    while position < len(text):
        match = _TOKENS.match(text, position)
        if match is None or match.lastgroup is None:
            raise ModelError(f"{name}:{line}: not MLIR: {text[position : position + 20]!r}")
        if match.lastgroup != "space":
            tokens.append(_Token(match.lastgroup, match[0], line))
        line += match[0].count("\n")
        position = match.end()
    return [*tokens, _Token("end", "the end of the text", line)]


class Tokens:
    """A token stream; `next` is the next token. Raises ModelError, with the line, for unexpected tokens."""

    def __init__(self, text: str, name: str) -> None:
        self.tokens, self.name, self.position = _tokens(text, name), name, 0

    @property
    def next(self) -> _Token:
        return self.tokens[self.position]

    @property
    def last_line(self) -> int:
        """The line of the last token that was taken."""
        return self.tokens[max(self.position - 1, 0)].line

    def take(self) -> _Token:
        """Return the next token and advance; the end of the text is an error, so that every loop over tokens ends."""
        token = self.next
        if token.kind == "end":
            self.fail("more text")
        self.position += 1
        return token

    def fail(self, expected: str) -> NoReturn:
        raise ModelError(f"{self.name}:{self.next.line}: expected {expected}, got {self.next.text[:40]!r}")

    def sees(self, *texts: str) -> bool:
        return self.next.text in texts

    def accept(self, text: str) -> bool:
        is_next = self.next.text == text
        self.position += is_next
        return is_next

    def expect(self, *texts: str) -> None:
        for text in texts:
            if not self.accept(text):
                self.fail(f"{text!r}")

    def expect_kind(self, kind: str) -> str:
        if self.next.kind != kind:
            self.fail(f"a {kind}")
        return self.take().text

    def separated(self, end: str, item: Callable[[], Any]) -> list[Any]:
        """Parse comma-separated items up to the token `end`, which is consumed."""
        items: list[Any] = []
        while not self.accept(end):
            items.append(item())
            if not self.accept(",") and not self.sees(end):
                self.fail(f"',' or {end!r}")
        return items

    def skip_location(self) -> None:
        if self.accept("loc"):
            self.expect("(")
            self.skip_balanced("(", ")")

    def skip_balanced(self, opening: str, closing: str) -> str:
        """Skip up to the bracket that closes one already consumed; return the tokens, separated by spaces."""
        depth, first = 1, self.position
        while depth:
            token = self.take()
            depth += (token.text == opening) - (token.text == closing)
        return " ".join(token.text for token in self.tokens[first : self.position - 1])
