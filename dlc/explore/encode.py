"""Encode explorations as compressed JSON and decode them; texts and origins are stored once and shared by all steps."""

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

from dlc.explore.data import Exploration, KernelPair
from dlc.instrument.compilation_record import Listing

# A medium level: a page is mostly read once, so compression time matters as much as size.
_GZIP_LEVEL = 5
# A larger page is rejected, since it may be a decompression bomb.
_MAX_UNPACKED_BYTES = 1 << 30


def encode_pages(pages: Sequence[Exploration], labels: Sequence[str] = (), pairs: Sequence[KernelPair] = ()) -> str:
    """Return the data of a page as base64 of gzipped JSON."""
    text = json.dumps(to_plain_data(pages, labels, pairs), separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), _GZIP_LEVEL, mtime=0)).decode()


def to_plain_data(pages: Sequence[Exploration], labels: Sequence[str] = (), pairs: Sequence[KernelPair] = ()) -> dict[str, Any]:
    """Return one program, or two programs and their kernel pairs, as JSON values.

    A listing becomes its index in `texts`, the index of each line's set of origins in `sets`, and its lines; a set holds
    indices into `names`. All pages share these tables. `labels` are the names of the pages.
    """
    tables = _Encoder()
    data = {"pages": list(map(tables.plain, pages)), "labels": [*labels], "pairs": tables.plain(tuple(pairs))}
    return data | {"texts": list(tables.texts), "sets": list(tables.sets), "names": list(tables.names)}


def decode_page(page: str) -> Exploration:
    """Return the program that a page shows, or the first of two.

    Raises ValueError, KeyError or TypeError for a text that this version did not write.
    """
    match = re.search(r'<script type="text/plain" id="data">([^<]*)</script>', page)
    if match is None:
        raise ValueError("it contains no page data")
    unpacked = zlib.decompressobj(wbits=31).decompress(base64.b64decode(match[1], validate=True), _MAX_UNPACKED_BYTES)
    data = json.loads(unpacked)
    return cast("Exploration", _Decoder(data).value(Exploration, data["pages"][0]))


class _Decoder:
    """Reconstructs dataclasses from JSON values by their field types."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.texts: list[str] = data["texts"]
        self.sets = [tuple(data["names"][k] for k in names) for names in data["sets"]]

    def value(self, type_hint: Any, data: Any) -> Any:
        if type_hint is Listing:
            return self.listing(data)
        if is_dataclass(type_hint):
            types = get_type_hints(type_hint)
            return cast("type[Any]", type_hint)(**{f.name: self.value(types[f.name], data[f.name]) for f in fields(type_hint)})
        type_arguments = get_args(type_hint)
        if get_origin(type_hint) is tuple:
            item_hints = repeat(type_arguments[0]) if type_arguments[-1] is Ellipsis else type_arguments
            return tuple(self.value(h, p) for h, p in zip(item_hints, data, strict=False))
        if get_origin(type_hint) is UnionType:
            return None if data is None else self.value(type_arguments[0], data)
        return data

    def listing(self, data: Mapping[str, Any]) -> Listing:
        text: int = data["text"]
        sets: list[int] = data["sets"]
        lines: list[int] = data["lines"]
        return Listing(self.texts[text], tuple(self.sets[k] for k in sets), tuple(lines))


class _Encoder:
    """Converts dataclasses to JSON values and collects the shared tables."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.sets: dict[tuple[int, ...], int] = {}
        self.names: dict[str, int] = {}
        self.indices: dict[tuple[str, ...], int] = {}

    def plain(self, value: Any) -> Any:
        if value is None or isinstance(value, str | int | float):
            return value
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
        if (index := self.indices.get(names)) is None:
            key = tuple(self.names.setdefault(name, len(self.names)) for name in names)
            index = self.indices[names] = self.sets.setdefault(key, len(self.sets))
        return index
