"""What every launcher shares: overrides and the configuration they lead to, checked; errors as sentences.

Exit codes: 0 done, 2 bad input (sentences on stderr, no traceback), 1 anything else (a bug; with its traceback).
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ghar.config import Config
from ghar.configure import build, leaf_keys, nearest, section_keys, unknown_key
from ghar.errors import BadInput

CONF = Path(__file__).resolve().parents[1] / "conf"


def launch(job: Callable[[Config], None]) -> None:
    """Read the command line and call `job` with the checked configuration, once or (--multirun) once a combination."""
    try:
        arguments = get_args_parser().parse_args()
        if not (arguments.help or arguments.hydra_help or arguments.shell_completion):
            check(arguments.overrides, sweep=arguments.multirun)
    except BadInput as error:
        _stop(error)

    # Hydra parses the command line again, and turns an exception of the task into exit code 1 and a traceback.
    @hydra.main(version_base=None, config_path=str(CONF), config_name="config")
    def task(values: DictConfig) -> None:
        try:
            job(_in_sweep(build(_plain(values))))
        except BadInput as error:
            _stop(error)

    task()


def load(overrides: Sequence[str] = ()) -> Config:
    """The checked configuration for these overrides, as a launcher would see it. Raises BadInput."""
    return check(overrides)[0]


def choices(group: str) -> list[str]:
    """Names a group can take: the files of conf/<group>, those with a leading underscore excepted."""
    return sorted(f.stem for f in (CONF / group).glob("*.yaml") if not f.stem.startswith("_"))


def groups() -> list[str]:
    """Names of all groups: the folders of conf/, but for W&B's sweeps, which name overrides of these."""
    return sorted(f.name for f in CONF.iterdir() if f.is_dir() and f.name != "sweeps")


def check(overrides: Sequence[str], sweep: bool = False) -> list[Config]:
    """The configurations these overrides lead to: one, or in a sweep (`a=1,2`) one a combination.

    Raises BadInput with all that is wrong with the overrides and with what the good ones among them lead to.
    """
    errors: list[str] = []
    good: list[Override] = []
    configs: list[Config] = []
    parser = OverridesParser.create()
    for text in overrides:
        try:
            override = parser.parse_override(text)
        except HydraException:
            errors.append(f"{text} cannot be read: write key=value, and quote a value with , {{ or [ in it.")
            continue
        wrong = _wrong(override)
        errors += wrong
        good += [] if wrong else [override]
    for combination in _combinations(good) if sweep else [[o.input_line or "" for o in good]]:
        try:
            configs.append(build(_compose(combination)))
        except BadInput as error:
            errors += [line for line in str(error).splitlines() if line not in errors]
    if errors:
        raise BadInput("\n".join(errors))
    return configs


def _wrong(override: Override) -> list[str]:
    """Sentences for an override that names nothing known."""
    key = override.key_or_group
    text = override.input_line or key
    if key.split(".")[0].split("/")[0] == "hydra":
        return []
    if override.is_delete():
        return [f"{text} removes what every run needs: leave it out."]
    if key in groups():
        errors = [_no_choice(key, str(v)) for v in _values(override) if str(v) not in choices(key)]
        if key == "experiment" and not override.is_add():
            errors.append(f"{text} must be added: write +{text}.")
        if key != "experiment" and override.is_add() and not override.is_force_add():
            errors.append(f"{text} is always set, so it cannot be added: write {text.lstrip('+')}.")
        return errors
    if key in leaf_keys():
        if override.is_add() and not override.is_force_add():
            return [f"{text} is always set, so it cannot be added: write {text.lstrip('+')}."]
        return []
    if key in section_keys():
        return [f"{text} sets a whole section: set its keys one by one ({key}.NAME=value)."]
    if "." not in key and _is_group_like(key):
        return [f"There is no group {key}: did you mean {nearest(key, groups())}?"]
    return [unknown_key(key)]


def _is_group_like(key: str) -> bool:
    """Whether an unknown undotted word is nearer to a group's name than to any key's."""
    return nearest(key, [*leaf_keys(), *groups()]) in groups()


def _values(override: Override) -> list[Any]:
    """The value, or for a sweep each of them."""
    if override.is_sweep_override():
        return list(override.sweep_iterator())
    return [override.value()]


def _no_choice(group: str, value: str) -> str:
    valid = choices(group)
    own = f" (any other sentence-transformers model: retriever.kind={value})" if group == "retriever" else ""
    others = f", of {', '.join(valid)}" if len(valid) > 1 else ""
    return f"{group}={value} does not exist: did you mean {nearest(value, valid)}{others}?{own}"


def _combinations(overrides: Sequence[Override]) -> list[list[str]]:
    """The overrides of each job of a sweep."""
    batches = BasicSweeper.split_arguments(list(overrides), max_batch_size=None)
    return [combination for batch in batches for combination in batch]


def _compose(overrides: Sequence[str]) -> dict[str, Any]:
    try:
        with hydra.initialize_config_dir(str(CONF), version_base=None):
            return _plain(hydra.compose("config", overrides=list(overrides)))
    except HydraException as error:
        raise BadInput(" ".join(str(error).split())) from error


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


def _stop(error: BadInput) -> NoReturn:
    """Say what is wrong (once, under torchrun) and leave."""
    if os.environ.get("RANK", "0") == "0":
        print(error, file=sys.stderr)
    # SystemExit is no Exception, so it passes through Hydra.
    raise SystemExit(2)
