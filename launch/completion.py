"""Completion of `ghar` in a shell: eval "$(ghar completion bash)", or zsh, or fish.

Commands, groups and their choices, keys and their values, experiments. Read from conf/ and the schema, without Hydra.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

SCRIPTS = {
    "bash": """_ghar() {
    local IFS=$'\\n'
    COMPREPLY=($(ghar completion --words bash "${COMP_LINE:0:COMP_POINT}" 2> /dev/null))
    [[ ${#COMPREPLY[@]} -gt 0 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
}
complete -o default -F _ghar ghar""",
    "zsh": """_ghar() {
    local -a found
    found=("${(@f)$(ghar completion --words zsh "${BUFFER[1,CURSOR]}" 2> /dev/null)}")
    compadd -Q -S '' -- $found
}
(( $+functions[compdef] )) || { autoload -Uz compinit; compinit }
compdef _ghar ghar""",
    "fish": "complete -c ghar -f -a '(ghar completion --words fish (commandline -cp) 2> /dev/null)'",
}
USAGE = 'ghar completion bash|zsh|fish: print what completes ghar there, as in eval "$(ghar completion bash)".'
HYDRA = (  # commands that take keys
    "train", "evaluate", "compare", "plan", "data", "export-meds", "retrievals", "serve",
)  # fmt: skip
CONF = Path(__file__).resolve().parent.parent / "conf"


def main(arguments: list[str]) -> None:
    """Print a shell's script, or what may follow a line. Exit code 2 for an unknown shell."""
    if len(arguments) == 3 and arguments[0] == "--words" and arguments[1] in SCRIPTS:
        print("\n".join(follow(arguments[2], whole=arguments[1] != "bash")))
    elif len(arguments) == 1 and arguments[0] in SCRIPTS:
        print(SCRIPTS[arguments[0]])
    else:
        print(USAGE, file=sys.stdout if "--help" in arguments else sys.stderr)
        raise SystemExit(0 if "--help" in arguments else 2)


def follow(line: str, whole: bool = True) -> list[str]:
    """Words that may stand in place of the last word of a line that begins with ghar.

    whole: as whole words; otherwise what stands behind "=" alone, which is how bash splits words.
    """
    from ghar.launch.cli import COMMANDS

    words = line.split(" ")
    start, before = words[-1], [word for word in words[1:-1] if word]
    if not before:
        return _beginning(start, [*COMMANDS, "--help", "--version"])
    if before[0] == "completion":
        return _beginning(start, SCRIPTS)
    if before[0] not in HYDRA:
        return []
    if "=" not in start:
        return _beginning(start, _keys(before))
    key, _, value = start.partition("=")
    values = _beginning(value, _values(key, before))
    return [f"{key}={one}" for one in values] if whole else values


def _beginning(start: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(start)]


def _keys(before: list[str]) -> list[str]:
    """Groups, keys and options of a command."""
    options = ["--help", "--multirun", "--cfg", *(["--quick"] if before[0] == "train" else [])]
    groups = [f"{'+' if group == 'experiment' else ''}{group}=" for group in _groups()]
    return [*groups, *(f"{key}=" for key in _types(before)), *options]


def _values(key: str, before: list[str]) -> list[str]:
    """Choices of a group or of a key; none for a key that takes any text or number."""
    group = key.lstrip("+")
    if group in _groups():
        return _groups()[group]
    return _choices(_types(before).get(group))


def _choices(kind: object) -> list[str]:
    """Values that an annotation lists."""
    if kind is bool:
        return ["true", "false"]
    if get_origin(kind) is Literal:
        return [str(value) for value in get_args(kind)]
    parts = [part for part in get_args(kind) if part is not type(None)]
    values = [value for part in parts for value in _choices(part)]
    return [*values, "null"] if values and type(None) in get_args(kind) else values


def _groups() -> dict[str, list[str]]:
    """Group -> its choices, from the files of conf/."""
    folders = sorted(f for f in CONF.iterdir() if f.is_dir() and f.name not in ("sweeps", "study"))
    return {f.name: sorted(one.stem for one in f.glob("*.yaml") if one.stem[0] != "_") for f in folders}


def _types(before: list[str]) -> Mapping[str, Any]:
    """Key -> annotation, of the system that the line names."""
    from ghar.configure import key_types
    from ghar.envs.system import settings_of
    from ghar.errors import BadInput

    named = next((word.partition("=")[2] for word in before if word.startswith("system=")), "ghar")
    try:
        return key_types(settings_of(named.removesuffix("_released")))
    except BadInput:
        return key_types(settings_of("ghar"))


if __name__ == "__main__":
    main(sys.argv[1:])
