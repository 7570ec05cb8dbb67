"""What the site has beside the pages in docs/: files of the repository that they link to, and the explorer of a real model.

mkdocs calls these functions (`hooks` in mkdocs.yml). A link out of docs/ leads to the file in a view of the repository, and to
a page that shows it on the site.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

import numpy as np
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import dlc

ROOT = Path(__file__).parents[1]
MODEL, EXPLORED = ROOT / "examples" / "models" / "blazeface_front.onnx", "explored.html"
# Where the pages of the repository's own files are.
_REPOSITORY = "repository"
_NAMED = re.compile(r"\[([\w./]+\.md)\]\(([^)#\s]+\.md)")
_LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)#\s]+)")
# A page that a docstring names.
_TOLD = re.compile(r"\bdocs/(\w+)\.md\b")
_LANGUAGES = {".py": "python", ".h": "c", ".c": "c", ".cpp": "cpp", ".rs": "rust", ".go": "go", ".java": "java"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of files that are linked to, and the explorer's."""
    pages = {file.src_uri: file.content_string for file in files.documentation_pages()}
    pending = [(uri, text) for uri, text in pages.items()] + [(f"{_REPOSITORY}/x", "](CONTRIBUTING.md)")]
    seen: set[str] = set()
    while pending:
        uri, text = pending.pop()
        for target in _outside(uri, text) - seen:
            seen.add(target)
            content = _shown(target)
            files.append(File.generated(config, _page_of(target), content=content))
            pending.append((_page_of(target), content))
    page = dlc.compile_model(MODEL).explore(np.zeros((1, 128, 128, 3), np.float32))
    files.append(File.generated(config, EXPLORED, content=page.html))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads links out of docs/ to the pages of the files, and shows the explorer where it is described."""
    uri = page.file.src_uri
    markdown = _LINK.sub(lambda link: _led(uri, link[1]), markdown)
    markdown = _NAMED.sub(lambda link: f"[{_title(uri, link[2], files)}]({link[2]}", markdown)
    if uri == "explorer.md":
        title, _, rest = markdown.partition("\n")
        shown = f'<iframe src="{EXPLORED}" title="The page of a model that finds faces" loading="lazy"></iframe>'
        markdown = f"{title}\n\n[The page of BlazeFace, a model that finds faces]({EXPLORED}), to try:\n\n{shown}\n{rest}"
    return markdown


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads the reference's docstrings to the pages that they name: (docs/caching.md)."""
    if page.file.src_uri != "reference.md":
        return html
    return _TOLD.sub(lambda told: f'<a href="{told[1]}.html">{_title("reference.md", f"{told[1]}.md", files)}</a>', html)


def _title(uri: str, target: str, files: Files) -> str:
    """The title of a page that a link names by its file."""
    file = files.get_file_from_path(normpath(str(PurePosixPath(uri).parent / target)))
    return file.content_string.lstrip("\n").partition("# ")[2].partition("\n")[0] if file is not None else target


def _place(uri: str, target: str) -> str:
    """Where a link of a page leads, from the root of the repository."""
    if uri.startswith(f"{_REPOSITORY}/"):
        folder = PurePosixPath(uri).relative_to(_REPOSITORY).parent
    else:
        folder = PurePosixPath("docs") / PurePosixPath(uri).parent
    return normpath(str(folder / target))


def _outside(uri: str, text: str) -> set[str]:
    """The files outside of docs/ that a page links to."""
    places = {_place(uri, target) for target in _LINK.findall(text)}
    return {place for place in places if not place.startswith("docs/") and (ROOT / place).exists()}


def _led(uri: str, target: str) -> str:
    place = _place(uri, target)
    if place.startswith("docs/"):
        return relpath(place.removeprefix("docs/"), str(PurePosixPath(uri).parent))
    return relpath(_page_of(place), str(PurePosixPath(uri).parent)) if (ROOT / place).exists() else target


def _page_of(place: str) -> str:
    """The page of a file; Markdown is one."""
    return f"{_REPOSITORY}/{place}" if place.endswith(".md") else f"{_REPOSITORY}/{place}.md"


def _shown(place: str) -> str:
    """A file of the repository, or those of a folder, as a page."""
    path = ROOT / place
    if path.suffix == ".md":
        return path.read_text()
    files = sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else [path]
    return f"# {place}\n\n" + "\n\n".join(_listing(file, path.is_dir()) for file in files)


def _listing(file: Path, is_part: bool) -> str:
    heading = f"## {file.name}\n\n" if is_part else ""
    try:
        text = file.read_text()
    except UnicodeDecodeError:
        return f"{heading}{file.stat().st_size} bytes."
    return f"{heading}`````{_LANGUAGES.get(file.suffix, 'text')}\n{text}\n`````"
