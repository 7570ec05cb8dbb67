"""Explorations as JSON that is small, and back: texts and origins are written once, however many steps have them."""

from __future__ import annotations

import base64
import gzip
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import repeat
from types import UnionType
from typing import Any, cast, get_args, get_origin, get_type_hints

from dlc.explore.data import Exploration, Pair
from dlc.instrument.recording import Listing

# A page is read more often than it is made, but for one reader it is made once.
_LEVEL = 6
# What a page unpacks to is no larger than this.
_MOST = 1 << 30


def encoded(pages: Sequence[Exploration], labels: Sequence[str] = (), pairs: Sequence[Pair] = ()) -> str:
    """The JSON of what a page shows, compressed, in base64."""
    text = json.dumps(as_data(pages, labels, pairs), separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), _LEVEL, mtime=0)).decode()


def as_data(pages: Sequence[Exploration], labels: Sequence[str] = (), pairs: Sequence[Pair] = ()) -> dict[str, Any]:
    """One program, or two and which kernel of the one is which of the other, as JSON's values.

    A listing becomes its number in `texts`, the number of each line's set of origins in `sets`, and its lines; a set is
    numbers in `names`. All pages share these; `labels` are theirs.
    """
    tables = _Tables()
    data = {"pages": list(map(tables.plain, pages)), "labels": [*labels], "pairs": tables.plain(tuple(pairs))}
    return data | {"texts": list(tables.texts), "sets": list(tables.sets), "names": list(tables.names)}


def decoded(page: str) -> Exploration:
    """The program that a page shows, or the first of two.

    Raises ValueError, KeyError or TypeError for a text that is none of this version's.
    """
    found = re.search(r'<script type="text/plain" id="data">([^<]*)</script>', page)
    if found is None:
        raise ValueError("it has no data in it")
    unpacked = zlib.decompressobj(wbits=31).decompress(base64.b64decode(found[1], validate=True), _MOST)
    data = json.loads(unpacked)
    return cast("Exploration", _Reading(data).value(Exploration, data["pages"][0]))


class _Reading:
    """Values out of JSON's, by the types that fields have."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.texts: list[str] = data["texts"]
        self.sets = [tuple(data["names"][k] for k in names) for names in data["sets"]]

    def value(self, hint: Any, plain: Any) -> Any:
        if hint is Listing:
            return self.listing(plain)
        if is_dataclass(hint):
            types = get_type_hints(hint)
            return cast("type[Any]", hint)(**{f.name: self.value(types[f.name], plain[f.name]) for f in fields(hint)})
        inner = get_args(hint)
        if get_origin(hint) is tuple:
            hints = repeat(inner[0]) if inner[-1] is Ellipsis else inner
            return tuple(self.value(h, p) for h, p in zip(hints, plain, strict=False))
        if get_origin(hint) is UnionType:
            return None if plain is None else self.value(inner[0], plain)
        return plain

    def listing(self, plain: Mapping[str, Any]) -> Listing:
        text: int = plain["text"]
        sets: list[int] = plain["sets"]
        lines: list[int] = plain["lines"]
        return Listing(self.texts[text], tuple(self.sets[k] for k in sets), tuple(lines))


class _Tables:
    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.sets: dict[tuple[int, ...], int] = {}
        self.names: dict[str, int] = {}
        self.known: dict[tuple[str, ...], int] = {}

    def plain(self, value: Any) -> Any:
        if isinstance(value, Listing):
            return self.listing(value)
        if is_dataclass(value):
            return {f.name: self.plain(getattr(value, f.name)) for f in fields(value)}
        if isinstance(value, tuple):
            return [self.plain(v) for v in cast("tuple[Any, ...]", value)]
        return value

    def listing(self, listing: Listing) -> dict[str, Any]:
        text = self.texts.setdefault(listing.text, len(self.texts))
        sets = [self.set_of(names) for names in listing.origins]
        return {"text": text, "sets": sets, "lines": list(listing.lines)}

    def set_of(self, names: tuple[str, ...]) -> int:
        if (known := self.known.get(names)) is None:
            key = tuple(self.names.setdefault(name, len(self.names)) for name in names)
            known = self.known[names] = self.sets.setdefault(key, len(self.sets))
        return known
