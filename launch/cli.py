"""The command `ghar`: every launcher under one name.

    ghar train --quick                                       # a report in minutes, on made-up data
    ghar train system=ehr_rag task=read run_dir=runs/ehr_rag # any system, by the same recipe
    ghar evaluate system=exprag task=read                    # a run again, or rules and no model
    ghar report runs/ehr_rag runs/exprag                     # several runs in one page

COMMAND --help says what a command takes. In a clone, `python launch/COMMAND.py` is the same.
"""

from __future__ import annotations

import difflib
import importlib.util
import runpy
import sys

# name -> module of launch/, words put before the user's own, what it does
COMMANDS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "train": ("train", (), "train a system from raw tables to an evaluated policy and a report"),
    "evaluate": ("evaluate", (), "evaluate a run again, or a system that was never trained"),
    "compare": ("compare", (), "put several systems to one task of one cohort, side by side"),
    "study": ("study", (), "one question, several seeds, one table"),
    "plan": ("train", ("plan=true",), "what a training would take: calls, tokens, hours, memory, disk"),
    "report": ("report", (), "write the report of a run again, or one page of several runs"),
    "export": ("export", (), "adapters, merged weights and a model card of a trained run"),
    "hub": ("hub", (), "push an export to a hub of models, or pull one"),
    "data": ("prepare_data", (), "patients, visits, codes and labels of your tables"),
    "export-meds": ("export_meds", (), "write a cohort, labels and split as a MEDS folder"),
    "graph": ("convert_graph", (), "write any graph as one table in PrimeKG's format"),
    "retrievals": ("record_retrievals", (), "what a trained agent retrieves for, to prune SFT data by"),
    "serve": ("serve_retrieval", (), "serve retrieval over HTTP"),
    "completion": ("completion", (), "completion of commands and keys in bash, zsh or fish"),
}


def main() -> None:
    """Start the command that the command line names; exit code 2 for one that does not exist."""
    commands = {name: about for name, about in COMMANDS.items() if _there(about[0])}
    words = sys.argv[1:]
    if not words or words[0] in ("--help", "-h", "help"):
        print(usage(commands))
        return
    if words[0] == "--version":
        from ghar import __version__

        print(f"ghar {__version__}")
        return
    if words[0] not in commands:
        near = difflib.get_close_matches(words[0], commands, n=1)
        guess = f" Did you mean {near[0]}?" if near else ""
        print(f"There is no command {words[0]}. Commands: {', '.join(commands)}.{guess}", file=sys.stderr)
        raise SystemExit(2)
    module, before, _ = commands[words[0]]
    sys.argv = [f"ghar {words[0]}", *before, *words[1:]]
    runpy.run_module(f"ghar.launch.{module}", run_name="__main__", alter_sys=True)


def usage(commands: dict[str, tuple[str, tuple[str, ...], str]]) -> str:
    """What `ghar --help` prints."""
    lines = [f"  {name:12} {about}" for name, (_, _, about) in commands.items()]
    return "\n".join([(__doc__ or "").strip(), "", "Commands:", "", *lines])


def _there(module: str) -> bool:
    return importlib.util.find_spec(f"ghar.launch.{module}") is not None


if __name__ == "__main__":
    main()
