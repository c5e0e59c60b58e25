"""Serve the retriever of a configuration over HTTP, for runs with the same kg and retriever settings:

python launch/serve_retrieval.py +experiment=mimic4_los retriever.service=http://127.0.0.1:8077 retriever.workers=4
python launch/train.py +experiment=mimic4_los retriever.service=http://127.0.0.1:8077
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ghar.config import Config


def run(config: Config) -> None:
    from ghar.errors import BadInput
    from ghar.kg.primekg import graph_folder

    own = config.retriever
    if own.service is None:
        raise BadInput("retriever.service is null: give the address to serve at, like http://127.0.0.1:8077.")
    try:
        from ghar.retrieval.service import ServiceSettings, serve
    except ModuleNotFoundError as error:
        raise BadInput(f"{error.name} is missing: install it with pip install 'ghar[service]'.") from None
    cache = Path(config.data.cache)
    graph = graph_folder(_graph_path(config), cache / "graphs")
    indexes = str(cache / "indexes")
    serve(own.service, ServiceSettings(str(graph), own.kind, indexes, own.probes), own.workers)


def _graph_path(config: Config) -> Path:
    from ghar.envs.records import Records  # may generate the demo world

    return Records(config).graph_path


if __name__ == "__main__":
    # The repository root instead of launch/: found from any folder, and evaluate.py hides no library of that name.
    sys.path[0] = str(next(p for p in Path(__file__).resolve().parents if (p / "ghar" / "__init__.py").is_file()))
    from ghar.launch.entry import launch

    launch(run, sends=False)
