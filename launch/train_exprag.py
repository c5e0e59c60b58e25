"""An earlier name of launch/train.py system=exprag."""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    if not any(text.startswith(("system=", "+experiment=")) for text in sys.argv[1:]):
        sys.argv.insert(1, "system=exprag")
    runpy.run_path(str(Path(__file__).with_name("train.py")), run_name="__main__")
