"""What a user notices before anything runs: quick imports, packages complete, dependencies declared."""

import ast
import configparser
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("ghar", "envs", "rewards", "trainers", "launch")


def settings() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def names(requirements: str) -> set[str]:
    """Distribution names of a list of requirements, normalised."""
    lines = [line.strip() for line in requirements.splitlines() if line.strip() and not line.startswith("#")]
    return {re.split(r"[\[<>=!~; ]", line)[0].lower().replace("_", "-") for line in lines}


def test_importing_ghar_is_quick_and_loads_no_model_library() -> None:
    code = (
        "import time, sys; start = time.process_time(); import ghar, ghar.config, ghar.configure, ghar.episode;"
        "took = time.process_time() - start;"
        "print(took, *[m for m in ('torch', 'vllm', 'transformers', 'hydra', 'wandb') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    took, *heavy = out.split()
    assert float(took) < 1 and not heavy


def test_every_folder_with_code_is_a_package() -> None:
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            assert (file.parent / "__init__.py").exists(), f"{file.parent} has no __init__.py and is not installed"


def test_every_data_file_is_installed() -> None:
    data = settings()["options.package_data"]
    folders = {name: ROOT / ("conf" if name == "launch.conf" else name) for name in data}  # as setup.py has it
    installed = {file for name in data for pattern in data[name].split() for file in folders[name].glob(pattern)}
    asked = ["git", "ls-files", *PACKAGES, "conf"]
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
    third = imported - set(sys.stdlib_module_names) - {*PACKAGES, "__future__"}
    declared = names(settings()["options"]["install_requires"])
    for extra in ("vllm", "vllm-cpu", "gpu", "deepspeed", "ray", "service"):
        declared |= names(settings()["options.extras_require"][extra])
    owners = packages_distributions()
    unknown = {m for m in third if not {d.lower().replace("_", "-") for d in owners.get(m, [m])} & declared}
    assert not unknown, f"imported but not declared in setup.cfg: {unknown}"


def test_what_make_demo_installs_is_enough_to_import_every_system() -> None:
    """Libraries of the extras alone are hidden: a user of `pip install .` has none of them."""
    base = names(settings()["options"]["install_requires"])
    extras = settings()["options.extras_require"]
    hidden = set().union(*(names(extras[extra]) for extra in extras)) - base - {"ghar"}
    owners = packages_distributions()
    modules = [m for m, of in owners.items() if {d.lower().replace("_", "-") for d in of} & hidden]
    rooms = sorted(f"envs.{path.parent.name}.system" for path in (ROOT / "envs").glob("*/system.py"))
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({sorted(modules)!r}));"
        f"import trainers.recipe, trainers.evaluate, trainers.compare, {', '.join(rooms)}"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr.strip().splitlines()[-1]


def test_every_base_dependency_is_pinned_without_a_local_label() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    assert not [name for name, version in pins.items() if "+" in version]
    wanted = names(settings()["options"]["install_requires"])
    for extra in ("test", "dev", "service"):
        wanted |= names(settings()["options.extras_require"][extra]) - {"ghar"}
    assert wanted <= set(pins), wanted - set(pins)


def test_ci_runs_the_tests() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111 and "make test" in script.read_text()
