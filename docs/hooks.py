"""MkDocs hooks: pages link to files of the repository, so each file that is linked becomes a page of the site too.

Pages of docs/ keep their places; any other file PATH becomes repository/PATH, Markdown as it is and the rest as code.
A link to a folder, of which a site shows nothing, becomes plain text.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, relpath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
FENCED = re.compile(r"^(```|~~~~).*?^\1", re.MULTILINE | re.DOTALL)
AWAY = ("http:", "https:", "mailto:")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every file of the repository that a page leads to, those that it leads to over other pages included."""
    from mkdocs.structure.files import File

    waiting, seen = [*sorted(DOCS.glob("*.md"))], set[Path]()
    while waiting:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        if file.parent != DOCS or file.suffix != ".md":
            files.append(File.generated(config, place(file), content=text_of(file)))
        waiting += [target for target in targets(file) if target.is_file()]
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The same with links that lead to where things are on the site."""
    uri = page.file.src_uri
    path = uri.removeprefix("repository/")
    file = DOCS / uri if path == uri else ROOT / path
    return relinked(markdown, file, uri) if file.suffix == ".md" and file.is_file() else markdown


def relinked(markdown: str, file: Path, uri: str) -> str:
    """The text of a file, which is at `uri` on the site, with the links of the site. Blocks of code stay."""

    def one(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        if not target or target.startswith(AWAY):
            return match[0]
        found = (file.parent / target).resolve()
        return words if found.is_dir() else f"[{words}]({relpath(place(found), dirname(uri) or '.')}{anchor})"

    parts, end = [], 0
    for block in FENCED.finditer(markdown):
        parts += [LINK.sub(one, markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, LINK.sub(one, markdown[end:])])


def targets(file: Path) -> list[Path]:
    """What a Markdown file links to, of files and folders here."""
    if file.suffix != ".md":
        return []
    links = LINK.findall(FENCED.sub("", file.read_text()))
    return [(file.parent / target).resolve() for _, target, _ in links if target and not target.startswith(AWAY)]


def place(file: Path) -> str:
    """Where a file of the repository is on the site, as the path of its source."""
    if file.parent == DOCS and file.suffix == ".md":
        return file.name
    path = file.relative_to(ROOT).as_posix()
    return f"repository/{path}" if file.suffix in (".md", ".ipynb") else f"repository/{path}.md"


def text_of(file: Path) -> str:
    """A Markdown file and a notebook as they are, other files as one block of code that the search leaves out."""
    text = file.read_text()
    if file.suffix in (".md", ".ipynb"):
        return text
    name = file.relative_to(ROOT).as_posix()
    language = {".py": "python", ".yaml": "yaml"}.get(file.suffix, "text")
    return f"---\nsearch: {{exclude: true}}\n---\n\n# {name}\n\n~~~~{language}\n{text}~~~~\n"
