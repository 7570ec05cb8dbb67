"""The page: one HTML file with everything in it."""

from __future__ import annotations

import html
import zlib
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from os import PathLike
from typing import Any, cast

from jinja2 import Environment, Template

from dlc.errors import ModelError, UnsupportedError
from dlc.explore.data import Exploration
from dlc.explore.encode import decoded, encoded
from dlc.explore.facts import facts_of
from dlc.explore.matching import matched
from dlc.files.whole_files import path_of, written_whole
from dlc.machine.garbage import collected_rarely

_FOLDER = files("dlc.explore") / "assets"
# In the order in which they build on one another.
_SCRIPTS = ("base", "text", "diff", "graph", "pipeline", "kernels", "memory", "time", "compare", "main")
# How high a page is in a notebook, in pixels.
_HEIGHT = 820


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string((_FOLDER / "page.html").read_text("utf-8"))


@dataclass(frozen=True)
class Page:
    """What is known of a program as HTML, or two beside each other; a notebook shows it.

    `label` is what it is called beside another.
    """

    program: Exploration
    beside: Exploration | None = None
    label: str = ""
    label_beside: str = ""

    @cached_property
    def html(self) -> str:
        """The page: one file that needs no network."""
        labels, programs = zip(*self._sides(), strict=True)
        pairs = matched(self.program, self.beside) if self.beside is not None else ()
        with collected_rarely():
            data = encoded(programs, labels, pairs)
        return _template().render(
            name=self.program.name,
            target=self.program.target,
            labels=labels if self.beside is not None else [],
            views=["compare"] if self.beside is not None else [],
            style=(_FOLDER / "style.css").read_text("utf-8"),
            script="\n".join((_FOLDER / f"{name}.js").read_text("utf-8") for name in _SCRIPTS),
            data=data,
        )

    def as_dict(self) -> dict[str, Any]:
        """What the page says, without its texts, as plain values: of one program, or of two by what they are called."""
        if self.beside is None:
            return facts_of(self.program)
        return {label: facts_of(side) for label, side in self._sides()}

    def against(self, other: Page) -> Page:
        """This page beside another: another target, from before a change, a derivative beside its function.

        Raises UnsupportedError for what is no page.
        """
        if not isinstance(cast(object, other), Page):
            raise UnsupportedError(
                f"{self.program.name}: against: expected another page, as explore makes one or Page.read reads it from a file; "
                f"got {type(other).__name__}"
            )
        return Page(self.program, other.program, self.label, other.label)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the page to a file. Raises DlcError where it cannot be written."""
        with written_whole(path_of(path)) as file:
            # A file's name, which it shows, is any bytes on Linux.
            file.write(self.html.encode(errors="replace"))

    @staticmethod
    def read(path: str | PathLike[str]) -> Page:
        """The page in a file, the first of two.

        Raises ModelError for one that cannot be read, or that this version of dlc did not write.
        """
        path = path_of(path)
        try:
            return Page(decoded(path.read_text("utf-8")), label=path.name)
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, IndexError, zlib.error) as error:
            raise ModelError(f"{path}: no page that this version of dlc explore wrote; make it again: {error}") from error

    def _sides(self) -> list[tuple[str, Exploration]]:
        """The program, or both, and what they are called."""
        if self.beside is None:
            return [(self.label, self.program)]
        one, other = self.program, self.beside
        # Of a device its place is enough.
        targets = one.target.partition(" (")[0], other.target.partition(" (")[0]
        apart = (one.name, other.name) if one.name != other.name else targets
        labels = [self.label or apart[0], self.label_beside or apart[1]]
        if labels[0] == labels[1]:
            labels = ["this one", "the other"]
        return [*zip(labels, (one, other), strict=True)]

    def __repr__(self) -> str:
        return f"<a page of {len(self.html) / 1e6:.1f} MB; .save('page.html') writes it>"

    def _repr_html_(self) -> str:
        # In a frame, whose names and styles are its own.
        content = html.escape(self.html, quote=True)
        return f'<iframe srcdoc="{content}" title="dlc explorer" style="width:100%;height:{_HEIGHT}px;border:0"></iframe>'
