"""An exploration as JSON that is small: texts and origins are written once, however many steps have them."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import fields, is_dataclass
from typing import Any, cast

from dlc.explore.data import Exploration
from dlc.instrument.recording import Listing

# A page is read more often than it is made, but for one reader it is made once.
_LEVEL = 6


def encoded(exploration: Exploration) -> str:
    """The JSON of an exploration, compressed, in base64."""
    text = json.dumps(as_data(exploration), separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), _LEVEL, mtime=0)).decode()


def as_data(exploration: Exploration) -> dict[str, Any]:
    """An exploration as JSON's values.

    A listing becomes its number in `texts`, the number of each line's set of origins in `sets`, and its lines; a set is
    numbers in `names`.
    """
    tables = _Tables()
    data: dict[str, Any] = tables.plain(exploration)
    return data | {"texts": list(tables.texts), "sets": list(tables.sets), "names": list(tables.names)}


class _Tables:
    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.sets: dict[tuple[int, ...], int] = {}
        self.names: dict[str, int] = {}

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
        key = tuple(self.names.setdefault(name, len(self.names)) for name in names)
        return self.sets.setdefault(key, len(self.sets))
