"""Train GHAR: launch/train.py, whose default system it is.

python launch/train_ghar.py +experiment=mimic4_los

To read what it does from raw tables to the last equation, begin with trainers/plain.py: the same training in one slow
file, which trainer.method=plain runs. trainers/recipe.py is the fast one.
"""

import runpy
from pathlib import Path

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).with_name("train.py")), run_name="__main__")
