"""mkdocs hooks: add the repository files that pages link to, and an explorer page of a real model, to the site.

mkdocs calls these functions (`hooks` in mkdocs.yml). A link out of docs/ opens the file in a view of the repository, and a page
with its content on the site.
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
# The folder of the pages of repository files.
_REPOSITORY = "repository"
_NAMED = re.compile(r"\[([\w./]+\.md)\]\(([^)#\s]+\.md)")
_LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)#\s]+)")
# A page named in a docstring.
_DOCUMENT = re.compile(r"\bdocs/(\w+)\.md\b")
_LANGUAGES = {".py": "python", ".h": "c", ".c": "c", ".cpp": "cpp", ".rs": "rust", ".go": "go", ".java": "java"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of linked files, and the explorer page."""
    pages = {file.src_uri: file.content_string for file in files.documentation_pages()}
    pending = [(uri, text) for uri, text in pages.items()] + [(f"{_REPOSITORY}/x", "](CONTRIBUTING.md)")]
    visited: set[str] = set()
    while pending:
        uri, text = pending.pop()
        for target in _linked_files(uri, text) - visited:
            visited.add(target)
            content = _as_page(target)
            files.append(File.generated(config, _site_page(target), content=content))
            pending.append((_site_page(target), content))
    page = dlc.compile_model(MODEL).explore(np.zeros((1, 128, 128, 3), np.float32))
    files.append(File.generated(config, EXPLORED, content=page.html))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Redirect links out of docs/ to the pages of the files, and embed the explorer in its page."""
    uri = page.file.src_uri
    markdown = _LINK.sub(lambda link: _site_link(uri, link[1]), markdown)
    markdown = _NAMED.sub(lambda link: f"[{_title(uri, link[2], files)}]({link[2]}", markdown)
    if uri == "explorer.md":
        title, _, body = markdown.partition("\n")
        iframe = f'<iframe src="{EXPLORED}" title="Explorer page of a face detector" loading="lazy"></iframe>'
        markdown = f"{title}\n\n[The explorer page of BlazeFace, a face detector]({EXPLORED}):\n\n{iframe}\n{body}"
    return markdown


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Link the pages that docstrings of the reference name: (docs/caching.md)."""
    if page.file.src_uri != "reference.md":
        return html
    return _DOCUMENT.sub(lambda link: f'<a href="{link[1]}.html">{_title("reference.md", f"{link[1]}.md", files)}</a>', html)


def _title(uri: str, target: str, files: Files) -> str:
    """Return the title of a page by the file name in a link."""
    file = files.get_file_from_path(normpath(str(PurePosixPath(uri).parent / target)))
    return file.content_string.lstrip("\n").partition("# ")[2].partition("\n")[0] if file is not None else target


def _repository_path(uri: str, target: str) -> str:
    """Return the target of a link, relative to the root of the repository."""
    if uri.startswith(f"{_REPOSITORY}/"):
        folder = PurePosixPath(uri).relative_to(_REPOSITORY).parent
    else:
        folder = PurePosixPath("docs") / PurePosixPath(uri).parent
    return normpath(str(folder / target))


def _linked_files(uri: str, text: str) -> set[str]:
    """Return the files outside docs/ that a page links to."""
    paths = {_repository_path(uri, target) for target in _LINK.findall(text)}
    return {path for path in paths if not path.startswith("docs/") and (ROOT / path).exists()}


def _site_link(uri: str, target: str) -> str:
    path = _repository_path(uri, target)
    if path.startswith("docs/"):
        return relpath(path.removeprefix("docs/"), str(PurePosixPath(uri).parent))
    return relpath(_site_page(path), str(PurePosixPath(uri).parent)) if (ROOT / path).exists() else target


def _site_page(path: str) -> str:
    """Return the site page of a repository file; Markdown files are pages themselves."""
    return f"{_REPOSITORY}/{path}" if path.endswith(".md") else f"{_REPOSITORY}/{path}.md"


def _as_page(name: str) -> str:
    """Return a repository file, or the files of a folder, as a Markdown page."""
    path = ROOT / name
    if path.suffix == ".md":
        return path.read_text()
    files = sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else [path]
    return f"# {name}\n\n" + "\n\n".join(_listing(file, path.is_dir()) for file in files)


def _listing(file: Path, has_heading: bool) -> str:
    heading = f"## {file.name}\n\n" if has_heading else ""
    try:
        text = file.read_text()
    except UnicodeDecodeError:
        return f"{heading}{file.stat().st_size} bytes."
    return f"{heading}`````{_LANGUAGES.get(file.suffix, 'text')}\n{text}\n`````"
