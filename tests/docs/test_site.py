"""The site of docs/ (mkdocs.yml, docs/hooks.py): every page is in its menu, every link leads somewhere on it, and no
page loads anything from elsewhere."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, join, normpath
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LOADED = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)[^>]*>")


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_hooks", DOCS / "hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pages(hooks: ModuleType) -> Iterator[Path]:
    """Every Markdown file of the site, from docs/ by links."""
    waiting, seen = sorted(DOCS.glob("*.md")), set[Path]()
    while waiting:
        page = waiting.pop()
        if page not in seen and page.suffix == ".md" and page.is_file():
            seen.add(page)
            waiting += hooks.targets(page)
    yield from sorted(seen)


def test_every_page_is_in_the_menu_once() -> None:
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    listed = [page for part in menu for pages in part.values() for page in pages]
    assert sorted(listed) == sorted(page.name for page in DOCS.glob("*.md"))


def test_every_link_leads_to_a_place_on_the_site(hooks: ModuleType) -> None:
    found = list(pages(hooks))
    places = {hooks.place(file) for page in found for file in (page, *hooks.targets(page)) if file.is_file()}
    links = 0
    for page in found:
        uri = hooks.place(page)
        text = hooks.FENCED.sub("", hooks.relinked(page.read_text(), page, uri))
        for _, target, _ in hooks.LINK.findall(text):
            if target and not target.startswith(hooks.AWAY):
                links += 1
                assert normpath(join(dirname(uri), target)) in places, f"{page}: {target}"
    assert links > 200 and "repository/ghar/config.py.md" in places and "repository/envs/kare/README.md" in places


def test_links_of_code_and_to_folders_stay_text(hooks: ModuleType) -> None:
    text = "[conf](../conf) [kare](../envs/kare/README.md#keys) [a](https://a.org)\n```sh\n[b](../c)\n```\n[data](data.md)\n"
    assert hooks.relinked(text, DOCS / "index.md", "index.md") == (
        "conf [kare](repository/envs/kare/README.md#keys) [a](https://a.org)\n```sh\n[b](../c)\n```\n[data](data.md)\n"
    )


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="the extra docs is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    written = list((tmp_path / "site").rglob("*.html"))
    assert len(written) > 80
    for page in written:
        text = page.read_text()
        assert not (loaded := LOADED.findall(text)), f"{page.name} loads {loaded}"
        assert 'class="mermaid"' not in text, "the theme loads what draws these from a server"
    index = (tmp_path / "site" / "search" / "search_index.json").read_text()
    assert "first-run.html" in index and "repository/ghar/config.py.html" not in index  # code is not searched


@pytest.mark.slow
def test_the_site_of_a_release_stands_on_a_branch(tmp_path: Path) -> None:
    pytest.importorskip("mike", reason="the extra docs is not installed")
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(clone)], check=True)
    git = {f"GIT_{role}_{what}": "tests@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # mike starts mkdocs
    environment = os.environ | git | {"NO_MKDOCS_2_WARNING": "1", "PATH": path}
    command = ["mike", "deploy", "--update-aliases", "0.1", "latest"]
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    def stored(path: str) -> str:
        command = ["git", "show", f"gh-pages:{path}"]
        return subprocess.run(command, cwd=clone, check=True, capture_output=True, text=True).stdout

    assert [(one["version"], one["aliases"]) for one in json.loads(stored("versions.json"))] == [("0.1", ["latest"])]
    assert "first-run.html" in stored("0.1/index.html") and stored("latest") == "0.1"
