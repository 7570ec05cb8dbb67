"""The page: one HTML file with everything in it."""

from __future__ import annotations

import html
import zlib
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from os import PathLike
from pathlib import Path

from jinja2 import Environment

from dlc.errors import ModelError, UnsupportedError
from dlc.explore.data import Exploration, Parts
from dlc.explore.encode import decoded, encoded
from dlc.explore.matching import matched
from dlc.files.whole_files import written_whole

_FOLDER = files("dlc.explore") / "assets"
# In the order in which they build on one another.
_SCRIPTS = ("base", "text", "diff", "graph", "pipeline", "kernels", "memory", "time", "compare", "parts", "main")
# How high a page is in a notebook, in pixels.
_HEIGHT = 820


@dataclass(frozen=True)
class Page:
    """An exploration as HTML, or two beside each other; a notebook shows it. `label` is what it is called beside another.

    Of a program in `parts`, `shown` is the one that takes longest.
    """

    shown: Exploration
    beside: Exploration | None = None
    label: str = ""
    label_beside: str = ""
    parts: Parts | None = None

    @staticmethod
    def of_parts(parts: Parts) -> Page:
        """The page of a program in parts. Raises UnsupportedError where no part ran."""
        ran = [turn for turn in parts.turns if turn.page is not None]
        if not ran:
            raise UnsupportedError(f"{parts.name}: the host computes all of it, op by op: there is no kernel to see")
        longest = max(ran, key=lambda turn: turn.seconds or 0.0)
        return Page(parts.pages[longest.page or 0], parts=parts)

    @cached_property
    def html(self) -> str:
        """The page: one file that needs no network."""
        environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        template = environment.from_string((_FOLDER / "page.html").read_text())
        pages = (self.shown,) if self.beside is None else (self.shown, self.beside)
        pairs = matched(self.shown, self.beside) if self.beside is not None else ()
        labels = self._labels() if self.beside is not None else ()
        if self.parts is not None:
            pages, labels = self.parts.pages, tuple(page.name for page in self.parts.pages)
        return template.render(
            name=self.shown.name if self.parts is None else self.parts.name,
            target=self.shown.target,
            labels=labels,
            first="parts" if self.parts is not None else "compare",
            style=(_FOLDER / "style.css").read_text(),
            script="\n".join((_FOLDER / f"{name}.js").read_text() for name in _SCRIPTS),
            data=encoded(pages, labels, pairs, self.parts),
        )

    def against(self, other: Page) -> Page:
        """This page beside another: another target, from before a change, a derivative beside its function.

        Raises UnsupportedError for one of a program in parts.
        """
        for page in (self, other):
            if page.parts is not None:
                raise UnsupportedError(f"{page.parts.name}: it is compiled in parts, which are not shown beside another's")
        return Page(self.shown, other.shown, self.label, other.label)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the page to a file."""
        with written_whole(Path(path)) as file:
            file.write(self.html.encode())

    @staticmethod
    def read(path: Path) -> Page:
        """The page in a file. Raises ModelError for one that this version of dlc did not write."""
        try:
            return Page(decoded(path.read_text()), label=path.name)
        except (ValueError, KeyError, TypeError, IndexError, zlib.error) as error:
            raise ModelError(f"{path}: no page that this version of dlc explore wrote; make it again: {error}") from error

    def _labels(self) -> tuple[str, str]:
        """What tells the two apart."""
        one, other = self.shown, self.beside or self.shown
        # Of a device its place is enough.
        targets = one.target.partition(" (")[0], other.target.partition(" (")[0]
        apart = (one.name, other.name) if one.name != other.name else targets
        if apart[0] == apart[1]:
            apart = "this one", "the other"
        return self.label or apart[0], self.label_beside or apart[1]

    def __repr__(self) -> str:
        return f"<a page of {len(self.html) / 1e6:.1f} MB; .save('page.html') writes it>"

    def _repr_html_(self) -> str:
        # In a frame, whose names and styles are its own.
        content = html.escape(self.html, quote=True)
        return f'<iframe srcdoc="{content}" title="dlc explorer" style="width:100%;height:{_HEIGHT}px;border:0"></iframe>'
