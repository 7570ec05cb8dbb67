"""The page: one self-contained HTML file."""

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
from dlc.explore.encode import decode_page, encode_pages
from dlc.explore.json_summary import summarize
from dlc.explore.kernel_matching import match_kernels
from dlc.files.atomic_writes import atomic_write, to_path
from dlc.machine.garbage_collection import infrequent_collection

_FOLDER = files("dlc.explore") / "assets"
# In dependency order.
_SCRIPTS = ("base", "text", "diff", "graph", "pipeline", "kernels", "memory", "time", "compare", "main")
# The height of a page in a notebook.
_NOTEBOOK_HEIGHT_PX = 820


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string((_FOLDER / "page.html").read_text("utf-8"))


@dataclass(frozen=True)
class Page:
    """A program, or a comparison of two, as HTML; notebooks display it.

    `label` is the name of the page in a comparison.
    """

    program: Exploration
    other_program: Exploration | None = None
    label: str = ""
    other_label: str = ""

    @cached_property
    def html(self) -> str:
        """The page as one HTML file that needs no network access."""
        labels, programs = zip(*self._labelled_programs(), strict=True)
        pairs = match_kernels(self.program, self.other_program) if self.other_program is not None else ()
        with infrequent_collection():
            data = encode_pages(programs, labels, pairs)
        return _template().render(
            name=self.program.name,
            target=self.program.target,
            labels=labels if self.other_program is not None else [],
            views=["compare"] if self.other_program is not None else [],
            style=(_FOLDER / "style.css").read_text("utf-8"),
            script="\n".join((_FOLDER / f"{name}.js").read_text("utf-8") for name in _SCRIPTS),
            data=data,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the content without IR as JSON values: of one program, or of two by label."""
        if self.other_program is None:
            return summarize(self.program)
        return {label: summarize(program) for label, program in self._labelled_programs()}

    def against(self, other: Page) -> Page:
        """Return a comparison of this page with another: another target, an earlier version, a derivative and its function.

        Raises UnsupportedError if `other` is not a page.
        """
        if not isinstance(cast(object, other), Page):
            raise UnsupportedError(
                f"{self.program.name}: against: expected a page from explore or Page.read, got {type(other).__name__}"
            )
        return Page(self.program, other.program, self.label, other.label)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the page to a file. Raises DlcError if it cannot be written."""
        with atomic_write(to_path(path)) as file:
            # The page shows file names, which can contain any bytes on Linux.
            file.write(self.html.encode(errors="replace"))

    @staticmethod
    def read(path: str | PathLike[str]) -> Page:
        """Read a page from a file; for a comparison, the first of the two.

        Raises ModelError if it cannot be read or was not written by this version of dlc.
        """
        path = to_path(path)
        try:
            return Page(decode_page(path.read_text("utf-8")), label=path.name)
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, IndexError, zlib.error) as error:
            raise ModelError(f"{path}: not a page written by this version of dlc explore; create it again: {error}") from error

    def _labelled_programs(self) -> list[tuple[str, Exploration]]:
        """Return the program, or both programs, with their labels."""
        if self.other_program is None:
            return [(self.label, self.program)]
        first, second = self.program, self.other_program
        # For a device, its index is enough.
        targets = first.target.partition(" (")[0], second.target.partition(" (")[0]
        distinct_names = (first.name, second.name) if first.name != second.name else targets
        labels = [self.label or distinct_names[0], self.other_label or distinct_names[1]]
        if labels[0] == labels[1]:
            labels = ["first", "second"]
        return [*zip(labels, (first, second), strict=True)]

    def __repr__(self) -> str:
        return f"<dlc page, {len(self.html) / 1e6:.1f} MB; write it with .save('page.html')>"

    def _repr_html_(self) -> str:
        # An iframe isolates the page's scripts and styles from the notebook.
        content = html.escape(self.html, quote=True)
        style = f"width:100%;height:{_NOTEBOOK_HEIGHT_PX}px;border:0"
        return f'<iframe srcdoc="{content}" title="dlc explorer" style="{style}"></iframe>'
