"""The page: one HTML file with everything in it."""

from __future__ import annotations

import html
from dataclasses import dataclass
from importlib.resources import files
from os import PathLike
from pathlib import Path

from jinja2 import Environment

from dlc.explore.data import Exploration
from dlc.explore.encode import encoded
from dlc.whole_files import written_whole

_FOLDER = files("dlc.explore") / "assets"
# In the order in which they build on one another.
_SCRIPTS = ("base", "text", "diff", "graph", "pipeline", "kernels", "memory", "time", "main")
# How high a page is in a notebook, in pixels.
_HEIGHT = 820


@dataclass(frozen=True)
class Page:
    """A page as HTML; a notebook shows it."""

    html: str

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the page to a file."""
        with written_whole(Path(path)) as file:
            file.write(self.html.encode())

    def __repr__(self) -> str:
        return f"<a page of {len(self.html) / 1e6:.1f} MB; .save('page.html') writes it>"

    def _repr_html_(self) -> str:
        # In a frame, whose names and styles are its own.
        content = html.escape(self.html, quote=True)
        return f'<iframe srcdoc="{content}" title="dlc explorer" style="width:100%;height:{_HEIGHT}px;border:0"></iframe>'


def page_of(exploration: Exploration) -> Page:
    """The page that shows an exploration."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((_FOLDER / "page.html").read_text())
    scripts = "\n".join((_FOLDER / f"{name}.js").read_text() for name in _SCRIPTS)
    return Page(
        template.render(
            name=exploration.name,
            target=exploration.target,
            style=(_FOLDER / "style.css").read_text(),
            script=scripts,
            data=encoded(exploration),
        )
    )
