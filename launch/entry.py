"""What every launcher shares: overrides and the configuration they lead to, checked; errors as sentences.

Exit codes: 0 done, 2 bad input (sentences on stderr, no traceback), 1 anything else (a bug; with its traceback).
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ghar.config import Config
from ghar.configure import build, leaf_keys, nearest, section_keys, unknown_key
from ghar.disk import explain_disk_error, user_cache
from ghar.envs.system import check_budgets, settings_of
from ghar.errors import BadInput, fate
from ghar.extensions import is_module
from ghar.interrupt import EXIT, stop_on_terminate
from ghar.launch import help as helping
from ghar.launch.renamed_keys import GONE, replaced
from ghar.privacy import ask_gate
from ghar.scratch import use_own_folder

# Beside launch/ in a clone, in it where it is installed (setup.py).
HERE = Path(__file__).resolve().parent
CONF = HERE.parent / "conf"
# group -> the choice whose other keys a module of the user's own takes, and the key that holds its name
OWN = {
    "data": ("meds", "data.name"), "task": ("read", "task.name"), "retriever": ("tfidf", "retriever.kind"),
    "engine": ("hf", "engine.kind"),
}  # fmt: skip
GOES_ON = "The same command goes on from what is saved."


def of_ghar(system: str, value: object) -> object:
    """`value` for GHAR and systems with its keys, null for others; conf/ writes ${of_ghar:NAME,VALUE}."""
    return value if issubclass(settings_of(system), settings_of("ghar")) else None


OmegaConf.register_new_resolver("user_cache", lambda: str(user_cache()), replace=True)
OmegaConf.register_new_resolver("of_ghar", of_ghar, replace=True)


def launch(job: Callable[[Config], None], sends: bool = True, plans: bool = False) -> None:
    """Read the command line and call `job` with the checked configuration, once or (--multirun) once a combination.

    sends: whether the configuration's addresses are asked; a service is one, and its own is where it listens. plans:
    whether `job` knows `plan`; others refuse it, or they would do what was only to be planned.
    """
    _find_own()
    _careful()
    sys.argv[1:] = helping.short(sys.argv[1:])
    try:
        if _answered(sys.modules["__main__"].__doc__ or ""):
            return
        arguments = get_args_parser().parse_args()
        if arguments.multirun and arguments.cfg:
            raise BadInput("--cfg shows one configuration: leave --multirun out.")
        if not (arguments.hydra_help or arguments.shell_completion):
            check(arguments.overrides, sweep=arguments.multirun)
        _hand_over(arguments.overrides)
    except BadInput as error:
        _stop(error)

    failed: list[str] = []

    # Hydra parses the command line again, and turns an exception of the task into exit code 1 and a traceback.
    @hydra.main(version_base=None, config_path=str(CONF), config_name="config")
    def task(values: DictConfig) -> None:
        with _explain_errors() if not arguments.multirun else _noted(failed):
            config = _in_sweep(_checked(_plain(values)))
            if config.plan and not plans:
                raise BadInput("plan=true plans a training, with its evaluation: run launch/train.py with these keys.")
            if sends:
                ask(config)
            job(config)

    task()
    if failed:
        _stop(BadInput(f"{len(failed)} jobs of this sweep failed: {', '.join(failed)}. The others are done."))


def plainly(job: Callable[[], None], usage: str) -> None:
    """Call `job`, whose command line is not Hydra's alone; `usage` is what --help prints."""
    _find_own()
    _careful()
    sys.argv[1:] = helping.short(sys.argv[1:])
    with _explain_errors():
        if not _answered(usage):
            job()


def ask(config: Config) -> None:
    """Ask the gate (ghar/privacy.py), first of all. BadInput where it is closed to these patients."""

    def credentialed() -> bool:
        from ghar.envs.records import of_credentialed  # reads tables, and only where something would leave

        return of_credentialed(config)

    ask_gate(config, credentialed)


def _careful() -> None:
    """What this process and its children write is the user's own, and what they write for a moment goes with them;
    SIGTERM stops them as Ctrl-C does."""
    os.umask(0o077)
    use_own_folder()
    stop_on_terminate()


@contextmanager
def _explain_errors() -> Iterator[None]:
    """Leave with a sentence for bad input, for a fault of disks, memory or engines, and when asked to stop."""
    try:
        yield
    except BadInput as error:
        _stop(error)
    except KeyboardInterrupt as error:
        if os.environ.get("RANK", "0") == "0":
            print(f"Stopped. {error.args[0] if error.args else GOES_ON}", file=sys.stderr)
        raise SystemExit(EXIT) from None
    except Exception as error:
        sentence = explain_disk_error(error) or fate(error)
        if sentence is None:
            raise
        _stop(BadInput(sentence), alone=True)


@contextmanager
def _noted(failed: list[str]) -> Iterator[None]:
    """As `_explain_errors`, for a job of a sweep: what is wrong with it is printed at once, and the next job begins."""
    try:
        with _explain_errors():
            yield
    except SystemExit as error:
        if error.code != 2:  # asked to stop
            raise
        job = HydraConfig.get().job
        failed.append(f"job {job.num} ({job.override_dirname})" if job.override_dirname else f"job {job.num}")


def _answered(usage: str) -> bool:
    """Print what --help or --version asks for; False where neither stands there. BadInput for other dashes."""
    arguments = sys.argv[1:]
    if "--version" in arguments:
        _show(helping.version())
        return True
    wanted = helping.wish(arguments)
    if wanted is None:
        if wrong := helping.misplaced(arguments, [*leaf_keys(), *groups()]):
            raise BadInput("\n".join(wrong))
        return False
    own = [text for text in arguments if "=" in text and not text.startswith("-")]
    overrides, settings = _own_system(own)
    if settings is None:
        settings = settings_of(_system_of(own))
    taken = {group: choices(group) for group in groups()}
    if wanted:
        _show(helping.about(wanted, taken, settings, lambda: _compose(overrides)))
    else:
        _show(helping.overview(usage, taken, settings))
    return True


def _show(text: str) -> None:
    """Print it; `--help | head`, which stops reading, is no error.

    The signal of a broken pipe stays ignored, as Python has it: a training whose connection to a server breaks would
    die of it without a word.
    """
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes at the end


def _system_of(overrides: Sequence[str]) -> str:
    """The name of the system that these overrides lead to."""
    if not any(text.lstrip("+").startswith(("system=", "experiment=")) for text in overrides):
        return "ghar"  # conf/config.yaml's; composing takes longer
    return str(_compose(_own_system(overrides)[0])["system"]["name"])


def _hand_over(overrides: Sequence[str]) -> None:
    """Leave the command line as Hydra takes it (see `_own_system`)."""
    kept = [text for text in sys.argv[1:] if text not in overrides]
    sys.argv[1:] = [*_own_system(overrides)[0], *kept]


def _find_own() -> None:
    """Let system=PACKAGE.MODULE name modules below the folder that a command is started in."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def load(overrides: Sequence[str] = ()) -> Config:
    """The checked configuration for these overrides, as a launcher would see it. Raises BadInput."""
    return check(overrides)[0]


def choices(group: str) -> list[str]:
    """Names a group can take: the files of conf/<group>, those with a leading underscore excepted."""
    return sorted(f.stem for f in (CONF / group).glob("*.yaml") if not f.stem.startswith("_"))


def check_system(name: str) -> None:
    """BadInput for the name of a system that there is not, with the nearest one; a name with a dot is a module."""
    if "." not in name and name not in choices("system"):
        raise BadInput(_no_choice("system", name))


def check_names(overrides: Sequence[str]) -> None:
    """BadInput for overrides that cannot be read, and for keys, groups and choices that there are not. Nothing is
    composed: keys of systems (system.KEY) and values are left to `load`."""
    errors: list[str] = []
    for text in _own_system(overrides)[0]:
        try:
            errors += _wrong(_parsed(text), None)
        except HydraException:
            errors.append(_unreadable(text))
    if errors:
        raise BadInput("\n".join(errors))


def groups() -> list[str]:
    """Names of all groups: the folders of conf/, but for W&B's sweeps and studies, which name overrides of these."""
    return sorted(f.name for f in CONF.iterdir() if f.is_dir() and f.name not in ("sweeps", "study"))


def check(overrides: Sequence[str], sweep: bool = False) -> list[Config]:
    """The configurations these overrides lead to: one, or in a sweep (`a=1,2`) one a combination.

    Raises BadInput with all that is wrong with the overrides and with what the good ones among them lead to.
    """
    errors: list[str] = []
    good: list[Override] = []
    configs: list[Config] = []
    overrides, settings = _own_system(overrides)
    for text in overrides:
        try:
            override = _parsed(text)
        except HydraException:
            errors.append(_unreadable(text))
            continue
        wrong = _wrong(override, settings)
        errors += wrong
        good += [] if wrong else [override]
    for combination in _combinations(good) if sweep else [[o.input_line or "" for o in good]]:
        try:
            configs.append(_checked(_compose(combination)))
        except BadInput as error:
            errors += [line for line in str(error).splitlines() if line not in errors]
    if errors:
        raise BadInput("\n".join(errors))
    return configs


def _unreadable(text: str) -> str:
    return f"{text} cannot be read: write key=value, and quote a value with , {{ or [ in it."


def _own_system(overrides: Sequence[str]) -> tuple[list[str], type | None]:
    """The overrides as Hydra takes them, and the keys of their system, None where only the composition tells.

    A system's keys stand in its Settings and not in conf/, so Hydra is told to add them. A system of the user's own,
    system=PACKAGE.MODULE, has no file in conf/system either.
    """
    own = [f"++{text}" if text.startswith("system.") else text for text in overrides]
    own = [part for text in own for part in _own_choice(text)]
    named = next((text.partition("=")[2] for text in reversed(overrides) if text.startswith("system=")), "")
    if "." not in named or "," in named:
        return own, None
    others = [text for text in own if text != f"system={named}"]
    return ["system=_own", f"++system.name={named}", *others], settings_of(named)


def _own_choice(override: str) -> list[str]:
    """The override of a group that names a module of the user's own, as Hydra takes it; another as it is."""
    group, _, name = override.partition("=")
    if group not in OWN or not is_module(name):
        return [override]
    choice, key = OWN[group]
    return [f"{group}={choice}", f"++{key}={name}"]


def _checked(values: Mapping[str, Any]) -> Config:
    """The configuration of composed values. BadInput with all that is wrong with them."""
    name = str((values.get("system") or {}).get("name"))
    settings = settings_of(name)
    config = build(values, settings, getattr(sys.modules[settings.__module__], "contradictions", None))
    check_budgets(config)
    return config


def _wrong(override: Override, settings: type | None) -> list[str]:
    """Sentences for an override that names nothing known. settings: see `_own_system`."""
    key = override.key_or_group
    text = override.input_line or key
    if isinstance(override.value(), Glob):
        return [f"{text} cannot be read: name the values one by one, {key}=a,b with --multirun."]
    if now := replaced(key):
        return [f"There is no key {key} any more: write {now}=... instead."]
    if key in GONE:
        return [f"There is no key {key} any more: {GONE[key]}; leave it out."]
    if key.split(".")[0].split("/")[0] == "hydra":
        return []
    if override.is_delete():
        return [f"{text} removes what every run needs: leave it out."]
    if key in groups() and not (key == "system" and str(override.value()) == "_own"):
        errors = [_no_choice(key, str(v)) for v in _values(override) if str(v) not in choices(key)]
        if key == "experiment" and not override.is_add():
            errors.append(f"{text} must be added: write +{text}.")
        if key != "experiment" and override.is_add() and not override.is_force_add():
            errors.append(f"{text} is always set, so it cannot be added: write {text.lstrip('+')}.")
        return errors
    if key in groups():
        return []  # system=_own, which `_own_system` puts there
    if key.startswith("system.") and settings is None:
        return []  # its keys are those of the system that the composed configuration names
    if key in leaf_keys(settings=settings):
        if override.is_add() and not override.is_force_add():
            return [f"{text} is always set, so it cannot be added: write {text.lstrip('+')}."]
        return []
    if key in section_keys():
        return [f"{text} sets a whole section: set its keys one by one ({key}.NAME=value)."]
    if "." not in key and (near := nearest(key, [*leaf_keys(), *groups()])) in groups():
        return [f"There is no group {key}: did you mean {near}?"]
    return [unknown_key(key, settings)]


def _values(override: Override) -> list[Any]:
    """The value, or for a sweep each of them."""
    if override.is_sweep_override():
        return list(override.sweep_iterator())
    return [override.value()]


def _no_choice(group: str, value: str) -> str:
    valid = choices(group)
    own = f" (any other sentence-transformers model: retriever.kind={value})" if group == "retriever" else ""
    if group in ("system", *OWN) and group != "retriever":
        own = f" (one of your own: {group}=PACKAGE.MODULE)"
    near = nearest(value, valid)
    guess = f" Did you mean {near}?" if near else ""
    return f"There is no {group}={value}. Choices: {', '.join(valid)}.{guess}{own}"


def _combinations(overrides: Sequence[Override]) -> list[list[str]]:
    """The overrides of each job of a sweep."""
    batches = BasicSweeper.split_arguments(list(overrides), max_batch_size=None)
    return [combination for batch in batches for combination in batch]


def _compose(overrides: Sequence[str]) -> dict[str, Any]:
    """The values of conf/ as these overrides choose and set them. Raises BadInput."""
    try:
        parsed = [_parsed(text) for text in overrides]
        set_keys = [override for override in parsed if not _chooses(override)]
        chosen = _chosen(CONF, tuple(override.input_line or "" for override in parsed if _chooses(override)))
        values: DictConfig = pickle.loads(chosen)  # in a third of the time that deepcopy takes
        ConfigLoaderImpl._apply_overrides_to_config(set_keys, values)
        return _plain(values)
    except HydraException as error:
        raise BadInput(" ".join(str(error).split())) from error


def _chooses(override: Override) -> bool:
    """Whether only Hydra can take it: it names a file of conf/, several values, or a key of Hydra's own.

    `_wrong` has refused by now what names a group elsewhere, as one that hydra.searchpath would lead to.
    """
    group = (CONF / override.key_or_group).is_dir() and not isinstance(override.value(), dict)
    return group or override.is_sweep_override() or override.key_or_group.split(".")[0].split("/")[0] == "hydra"


@cache
def _parsed(text: str) -> Override:
    """An override as Hydra reads it. Raises HydraException."""
    return OverridesParser.create().parse_override(text)


@cache
def _chosen(conf: Path, choices: tuple[str, ...]) -> bytes:
    """The files that these choices name, put together and pickled: nearly all of the time that composing takes."""
    with hydra.initialize_config_dir(str(conf), version_base=None):
        return pickle.dumps(hydra.compose("config", overrides=list(choices)))


def _plain(values: DictConfig) -> dict[str, Any]:
    """Plain Python values. Raises BadInput for an interpolation that leads nowhere."""
    try:
        plain = OmegaConf.to_container(values, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise BadInput(" ".join(str(error).split())) from error
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _in_sweep(config: Config) -> Config:
    """In a sweep each job works in a numbered folder below run_dir."""
    if HydraConfig.get().mode != RunMode.MULTIRUN:
        return config
    return dataclasses.replace(config, run_dir=str(Path(config.run_dir) / str(HydraConfig.get().job.num)))


def _stop(error: BadInput, alone: bool = False) -> NoReturn:
    """Say what is wrong and leave. alone: it may be wrong in this process only; else process 0 of torchrun says it."""
    if alone or os.environ.get("RANK", "0") == "0":
        print(error, file=sys.stderr)
    # SystemExit is no Exception, so it passes through Hydra.
    raise SystemExit(2)
