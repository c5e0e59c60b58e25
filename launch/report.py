"""Write the report of a run again, or one page of several runs: launch/report.py runs/a runs/b

One folder: its report.html, made anew. Several, seeds of one system or different systems: a page with every run beside
the others, its path printed (out=FILE.html names another than runs.html beside the first folder).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def main(arguments: Sequence[str]) -> None:
    """Read the command line and write. Raises BadInput."""
    from ghar.errors import BadInput

    outs = [text for text in arguments if text.startswith("out=") and not Path(text).is_dir()]
    folders = [Path(text) for text in arguments if text not in outs and not text.startswith("-")]
    out = outs[-1].partition("=")[2] if outs else None
    if not folders:
        raise BadInput("No run is named: write ghar report runs/NAME, as many folders as you like.")
    if absent := [str(folder) for folder in folders if not folder.is_dir()]:
        raise BadInput(f"{', '.join(absent)}: there is no such folder.")
    if len(folders) == 1 and out is None:
        from ghar.trainers.evaluation.report import report

        print(f"Report: {report(folders[0])}")
        return
    from ghar.metrics.run_comparison import write_several
    from ghar.trainers.runs.kept_config import kept_config

    def kept(folder: Path) -> dict[str, Any] | None:
        try:
            return kept_config(folder)
        except BadInput as error:  # of a version whose keys have no place today
            print(f"{folder}: the page shows no configuration of this run. {error}", file=sys.stderr)
            return None

    page = Path(out) if out else folders[0].parent / "runs.html"
    print(f"Report: {write_several(folders, page, kept)}")


if __name__ == "__main__":
    # The repository root instead of launch/: found from any folder, and no launcher hides a library of its name.
    sys.path[0] = str(next(p for p in Path(__file__).resolve().parents if (p / "ghar" / "__init__.py").is_file()))
    from ghar.launch.entry import plainly

    plainly(lambda: main(sys.argv[1:]), __doc__ or "")
