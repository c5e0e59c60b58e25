"""The README and docs/: Python blocks run from top to bottom, shell blocks name what exists, links lead to files.

A page's ```python blocks share one module, as if they were one file. Of ```sh blocks nothing is started: scripts, make
targets, benchmarks and every key and choice are checked as a launcher checks them. So are the commands of indented
blocks; of their Python the imports are made, and what needs a run is run after the command that makes it.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import shlex
import sys
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from transformers import Qwen2Config

from benchmarks.run import WHAT, parser_of_words
from benchmarks.sealed import PLACE
from ghar.configure import leaf_keys
from ghar.envs.system import settings_of
from ghar.launch.cli import COMMANDS
from ghar.launch.compare import LISTS
from ghar.launch.entry import check, groups, load
from ghar.launch.help import short
from ghar.launch.keys import page as keys_page
from ghar.launch.study import workshop
from tests.running import run_python

ROOT = Path(__file__).resolve().parents[2]
README, EXAMPLES = ROOT / "README.md", ROOT / "docs" / "examples"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
REAL = {"mimic-iv-demo-2.2"}  # folders of shared_data that a page may name, relative to the working folder
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PACKAGES = ("ghar", "envs", "rewards", "trainers", "launch", "benchmarks")
JARGON = re.compile(r"\b(told|said|shall|nobody|anybody|hitherto|thereof)\b", re.IGNORECASE)
TRAINERS = {"train.py", "train_ghar.py", "train_kare.py", "train_exprag.py", "train_ray.py"}
INDENTED = re.compile(r"(?:^|\n)\n((?:    [^\n]*\n(?:\n(?=    ))?)+)")
OURS = ("ghar", "make", "python", "torchrun", "ray", "wandb", "srun")  # first words of commands that are checked
WITH_INDENTED = [*PAGES, *sorted((ROOT / "envs").glob("*/README.md")), ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]


def indented(page: Path) -> list[str]:
    """Indented blocks of a page, without their indentation."""
    return [textwrap.dedent(text) for text in INDENTED.findall(BLOCK.sub("", page.read_text()))]


def python_of(page: Path) -> list[str]:
    """Indented blocks that are Python with imports."""
    found = []
    for text in indented(page):
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        if any(isinstance(node, ast.Import | ast.ImportFrom) for node in tree.body):
            found.append(text)
    return found


def commands_of(page: Path) -> list[tuple[Path, list[str]]]:
    """Commands of ours in a page's indented blocks."""
    texts = [text for text in indented(page) if text not in python_of(page)]
    lines = "\n".join(texts).replace("\\\n", " ").splitlines()
    ours = [line.removeprefix("srun ") for line in lines if line.split()[:1] and line.split()[0] in OURS]
    return [command for line in ours for command in commands(line)]


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind == language]


def named(pages: list[Path]) -> Callable[..., pytest.MarkDecorator]:
    return functools.partial(pytest.mark.parametrize, argvalues=pages, ids=[page.stem for page in pages])


def shared(request: pytest.FixtureRequest, page: Path) -> Iterator[Path]:
    """Real tables that the page's Python names; skips, and says so, where they are absent."""
    for name in REAL:
        if any(name in text for text in blocks(page, "python")):
            folder: Path = request.getfixturevalue("shared_data") / name
            if not folder.is_dir():
                pytest.skip(f"{page.name} reads {name}, which is not in {folder.parent}")
            yield folder


@pytest.mark.slow
@named([page for page in PAGES if blocks(page, "python")])("page")
def test_python_blocks_run(
    page: Path, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in shared(request, page):
        (tmp_path / folder.name).symlink_to(folder)
    module = types.ModuleType(f"page_{page.stem.replace('-', '_')}")  # dataclasses look their module up by its name
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(tmp_path)
    for text in blocks(page, "python"):
        place = page.read_text().split(text)[0].count("\n")
        exec(compile("\n" * place + text, str(page), "exec", dont_inherit=True), module.__dict__)


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """From MEDS to an explained prediction, cell by cell as Jupyter runs them; nothing of a run is kept in it."""
    book = json.loads((EXAMPLES / "meds_to_prediction.ipynb").read_text())
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert not [cell for cell in cells if cell["outputs"] or cell["execution_count"]]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GHAR_CACHE", str(tmp_path / "cache"))
    names: dict[str, object] = {}
    for number, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"cell {number}", "exec", dont_inherit=True), names)
    told = capsys.readouterr().out
    assert "Report: runs/notebook/report.html" in told and (tmp_path / "runs" / "notebook" / "report.html").is_file()
    assert f"Answer: {names['found'].label}" in told and told.count("predict ") >= 2  # pyright: ignore


def definitions(text: str) -> dict[str, str]:
    """Classes and functions of a module, as Python reads them."""
    return {n.name: ast.dump(n) for n in ast.parse(text).body if isinstance(n, ast.ClassDef | ast.FunctionDef)}


def test_the_tutorial_shows_the_whole_example_as_it_is() -> None:
    page = "\n".join(blocks(ROOT / "docs" / "your-system.md", "python"))
    assert definitions(page) == definitions((EXAMPLES / "mine" / "searcher.py").read_text())


def commands(text: str) -> Iterator[tuple[Path, list[str]]]:
    """(folder it is started in, words) of every command of a shell block."""
    folder = ROOT
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words:
            end = words.index("&&") if "&&" in words else len(words)
            one, words = words[:end], words[end + 1 :]
            if one[0] == "cd":
                folder = folder / one[1]
                assert folder.is_dir(), folder
            else:
                yield folder, one


def composes(overrides: Iterable[str], sweep: bool = False) -> None:
    """BadInput for a key, choice or value that does not exist."""
    checked(tuple(text for text in overrides if not text.startswith("run_dir=")), sweep)  # any folder will do


@functools.cache
def checked(overrides: tuple[str, ...], sweep: bool) -> None:
    check(overrides, sweep=sweep)


def check_command(folder: Path, words: list[str]) -> None:
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), f"no target {words[1]}"
    elif words[0] == "ghar":
        module, before, _ = COMMANDS[words[1]]
        check_launch(f"{module}.py", [*before, *words[2:]])
    elif words[:2] == ["wandb", "sweep"]:
        assert (folder / words[2]).is_file(), words[2]
    else:
        assert words[0] in ("python", "torchrun", "ray"), f"a command that this test cannot read: {words}"
        place = next(i for i, word in enumerate(words) if word.endswith(".py"))
        script = (folder / words[place]).resolve()
        if script.parent == ROOT / "docs" / "tutorials":  # tests/docs/test_tutorials.py runs them
            assert script.is_file() and not words[place + 1 :], script
            return
        assert script.is_file() and script.parent in (ROOT / "launch", ROOT / "benchmarks"), script
        check_launch(script.name, words[place + 1 :])


def check_launch(script: str, arguments: list[str]) -> None:
    if script == "run.py":
        try:
            words = parser_of_words().parse_intermixed_args(arguments)
        except SystemExit:
            pytest.fail(f"benchmarks/run.py refuses {arguments}")  # its sentence is among what was printed
        if words.what == "sealed":
            (name,) = words.overrides
            assert (ROOT / PLACE / f"{name}.yaml").is_file(), arguments
            return
        composes(words.overrides)
    elif script == "compare.py":
        lists = {key: value.strip("[]").split(",") for key, _, value in (a.partition("=") for a in arguments)}
        others = [word for word in arguments if word.partition("=")[0] not in LISTS]
        assert any(word.startswith("task=") for word in others), arguments
        composes([f"system={lists['systems'][0]}", *others])
        for name in lists["systems"][1:]:  # the other keys are the same for all
            composes([f"system={name}", "task=read"])
    elif script == "study.py":
        if arguments[0] != "verify":
            workshop([word for word in arguments if not word.startswith("cohorts=")])
    elif script == "report.py":
        assert arguments and not any(word.startswith("-") for word in arguments), arguments
    elif script == "hub.py":
        assert arguments[0] in ("push", "pull") and len([word for word in arguments if "=" not in word]) == 3, arguments
    elif script == "convert_graph.py":
        assert len([word for word in arguments if not word.startswith("-")]) == 2, arguments
    elif "--help" in arguments:
        helped = arguments.index("--help")
        settings = settings_of(load(arguments[:helped]).system.name)
        assert set(arguments[helped + 1 :]) <= {*leaf_keys(settings=settings), *groups()}, arguments
    else:
        sweep = "--multirun" in arguments
        composes(short([word for word in arguments if word != "--multirun"]), sweep)


@pytest.mark.slow
@named([page for page in PAGES if blocks(page, "sh")])("page")
def test_shell_blocks_name_what_exists(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))  # where pages start commands with system=mine.searcher
    found = [command for text in blocks(page, "sh") for command in commands(text)]
    assert found
    for folder, words in found:
        check_command(folder, words)


@pytest.mark.slow
def test_every_training_command_of_the_docs_fits_into_what_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many processes as the command starts: each has a GPU of 80 GB where scale=full, else a share of 24 GB. A model
    that is not here is taken for one of 3 billion weights."""
    from ghar.device import GIB, Device
    from ghar.trainers import memory

    monkeypatch.syspath_prepend(str(EXAMPLES))
    large = memory.shaped(Qwen2Config(
        vocab_size=151_936, hidden_size=2048, intermediate_size=11_008, num_hidden_layers=36, num_attention_heads=16,
        num_key_value_heads=2, max_position_embeddings=32_768, tie_word_embeddings=True,
    ))  # fmt: skip
    planned = set()
    for page in PAGES:
        for _, words in (command for text in blocks(page, "sh") for command in commands(text)):
            trained = training(words)
            if trained is None or trained in planned:
                continue
            planned.add(trained)
            processes, overrides = trained
            config = load(list(overrides))
            full = config.scale.name == "full"
            on = Device("cuda", 80 * GIB) if full else Device("cpu", 24 * GIB)
            shape = memory.shape_of(config) or large
            config = memory.fitted(config, processes, on)
            free = 80 * GIB if full else 24 * GIB // processes
            memory.check_memory(config, shape, processes, free, on)
    assert len(planned) > 10 and max(processes for processes, _ in planned) == 16


def training(words: list[str]) -> tuple[int, tuple[str, ...]] | None:
    """Processes and overrides of a command that trains, None for another one."""
    place = next((i for i, word in enumerate(words) if Path(word).name in TRAINERS), None)
    if words[:2] in (["ghar", "train"], ["ghar", "plan"]):
        given = words[2:]
    elif place is not None and Path(words[place]).parent.name == "launch":
        given = words[place + 1 :]
    else:
        return None
    if "--help" in given or "--multirun" in given:
        return None
    counts = {words[i]: int(words[i + 1]) for i in range(len(words)) if words[i] in ("--nproc-per-node", "--nnodes")}
    kept = tuple(word for word in short(given) if not word.startswith("run_dir=") and "=" in word)
    return counts.get("--nproc-per-node", 1) * counts.get("--nnodes", 1), kept


@pytest.mark.slow
@named([page for page in WITH_INDENTED if commands_of(page)])("page")
def test_commands_of_indented_blocks_name_what_exists(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for folder, words in commands_of(page):
        check_command(folder, words)


def test_indented_commands_and_python_are_seen() -> None:
    assert sum(len(commands_of(page)) for page in WITH_INDENTED) >= 30
    assert {page.stem for page in WITH_INDENTED if python_of(page)} >= {"README", "first-run", "comparing", "systems"}


@named([page for page in WITH_INDENTED if python_of(page)])("page")
def test_imports_of_indented_python_exist(page: Path) -> None:
    for text in python_of(page):
        for node in ast.parse(text).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                exec(compile(ast.Module([node], []), str(page), "exec", dont_inherit=True), {})


@pytest.mark.slow
def test_python_lines_run_after_the_commands_that_they_follow(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """README and first-run: after `ghar train --quick`, in the folder it was started in."""
    real = shared_data / "mimic-iv-demo-2.2"
    if not real.is_dir():
        pytest.skip(f"README reads MIMIC-IV, and {real} is not there")
    env = {"GHAR_CACHE": str(tmp_path / "cache")}
    done = run_python(ROOT / "launch" / "train.py", "--quick", cwd=tmp_path, env=env)
    done.check_returncode()
    assert "Base model of the package" in done.stdout, "its recipe has changed: python benchmarks/run.py base_model"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GHAR_CACHE", env["GHAR_CACHE"])
    for page in (README, ROOT / "docs" / "first-run.md"):
        for text in python_of(page):
            exec(compile(text.replace("/path/to/mimic-iv", str(real)), str(page), "exec", dont_inherit=True), {})
    labels = capsys.readouterr().out.splitlines()
    assert labels and labels[0].isdigit()  # a length of stay


def test_a_wrong_command_is_found() -> None:
    for line in (
        "python launch/train.py policy=ghar", "python launch/trian.py", "make dmo", "ghar trian", "ghar train sed=1",
        "python benchmarks/run.py sped", "python benchmarks/run.py sealed no-such-test",
        "python launch/compare.py systems=[ghar,kar] task=read", "python launch/train.py trainer.rl.updtes=1",
        "python launch/study.py study=gharr",
        "python benchmarks/run.py sync --sedes 3",
    ):  # fmt: skip
        with pytest.raises((Exception, pytest.fail.Exception), match=r"."):
            for folder, words in commands(line):
                check_command(folder, words)


@named([*PAGES, *sorted((ROOT / "envs").glob("*/README.md"))])("page")
def test_links_lead_to_files(page: Path) -> None:
    text = BLOCK.sub("", page.read_text())
    targets = [target.partition("#")[0] for target in LINK.findall(text) if not target.startswith(("http", "mailto:"))]
    missing = [target for target in targets if target and not (page.parent / target).exists()]
    assert not missing, f"{page.relative_to(ROOT)} links to {missing}"


def test_the_page_of_keys_is_what_the_dataclasses_say() -> None:
    assert (ROOT / "docs" / "keys.md").read_text() == keys_page(), "python launch/keys.py > docs/keys.md"


def test_every_page_is_on_the_map() -> None:
    linked = set(LINK.findall(README.read_text()))
    assert {f"docs/{page.name}" for page in PAGES[1:]} <= linked


def test_the_readme_is_short_and_has_room_for_results() -> None:
    text = README.read_text()
    assert len(text.splitlines()) <= 150 and len(text.split()) <= 1500
    assert text.count("<!-- results -->") == text.count("<!-- /results -->") == 1


def test_every_benchmark_is_listed() -> None:
    listed = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "benchmarks.md").read_text(), re.MULTILINE))
    assert listed == set(WHAT)


@named([*PAGES, *sorted(ROOT.glob("*.md")), *sorted((ROOT / "envs").glob("*/README.md"))])("page")
def test_words_are_plain(page: Path) -> None:
    found = sorted({word.lower() for word in JARGON.findall(page.read_text())})
    assert not found, f"{page.name}: write it in plainer words than {found}"


def sentences(tree: ast.Module) -> Iterator[str]:
    """Texts of a module that a user may see: strings of several words that are no docstrings and no expressions."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    own = {id(node.body[0].value) for node in ast.walk(tree)
           if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in own:
            if " " in node.value and "\\b" not in node.value:
                yield node.value


@pytest.mark.slow
def test_messages_are_plain() -> None:
    """What a command prints. A question to a patient may ask what she was told."""
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    files.remove(ROOT / "envs" / "exprag" / "dischargeqa.py")
    asked = re.compile(r"\b(told|said|shall|nobody)\b", re.IGNORECASE)
    texts = ((file, text) for file in files for text in sentences(ast.parse(file.read_text())))
    found = {f"{file.relative_to(ROOT)}: {text[:60]}" for file, text in texts if asked.search(text)}
    assert not found, f"write them in plainer words: {sorted(found)}"


@pytest.mark.slow
def test_the_page_of_the_papers_is_that_of_the_studies() -> None:
    from benchmarks.papers import PAGE, page

    assert PAGE.read_text() == page(), "write it again: python benchmarks/run.py papers"
