"""Push a run's export to a hub of models, or pull one into a new folder:

    ghar hub push RUN OWNER/NAME 'privacy.allow=[huggingface.co]'
    ghar hub pull OWNER/NAME FOLDER 'privacy.allow=[huggingface.co]' [revision=REVISION]

Without privacy.allow nothing is sent and nothing is asked for. HF_ENDPOINT names another hub. Log in with
`hf auth login`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str]) -> None:
    """Read the command line, then push or pull. Raises BadInput."""
    import yaml

    from ghar.errors import BadInput
    from ghar.yaml_text import parse_yaml

    given = dict(word.split("=", 1) for word in arguments if "=" in word)
    words = [word for word in arguments if "=" not in word]
    if unknown := given.keys() - {"privacy.allow", "revision"}:
        raise BadInput(f"ghar hub knows privacy.allow and revision, not {', '.join(sorted(unknown))}.")
    try:
        allow = parse_yaml(given.get("privacy.allow", "[]"))
    except yaml.YAMLError:
        allow = None
    if not isinstance(allow, list):
        raise BadInput("privacy.allow is a list: write 'privacy.allow=[huggingface.co]'.")
    if len(words) != 3 or words[0] not in ("push", "pull"):
        raise BadInput("Write ghar hub push RUN OWNER/NAME, or ghar hub pull OWNER/NAME FOLDER.")
    from ghar.trainers.hub import pull, push

    if words[0] == "push":
        push(Path(words[1]), words[2], list(map(str, allow)))
    else:
        pull(words[1], Path(words[2]), list(map(str, allow)), given.get("revision"))


if __name__ == "__main__":
    # The repository root instead of launch/: found from any folder, and no launcher hides a library of its name.
    sys.path[0] = str(next(p for p in Path(__file__).resolve().parents if (p / "ghar" / "__init__.py").is_file()))
    from ghar.launch.entry import plainly

    plainly(lambda: main(sys.argv[1:]), __doc__ or "")
