"""Train GHAR from Python: SFT on a teacher's right episodes, one update of reinforcement learning, evaluation, report.

python docs/tutorials/3_training.py

It is `ghar train --quick` with still fewer samples: it shows the way, and its numbers mean nothing.
"""

import json
from pathlib import Path

from ghar.launch.entry import load
from ghar.launch.train import run as train

RUN = Path("runs/tutorial")

# What a command line has behind `ghar train`. Generated patients, a tiny model that comes with the package, two cores.
config = load([
    "+experiment=quick", f"run_dir={RUN}", "trainer.warmup.samples=60", "trainer.rl.updates=1", "trainer.rl.episodes=8",
    "trainer.rl.eval_samples=8", "task.max_test=24", "eval.variants=[scripted,ghar_sft,ghar_rl]", "eval.bootstrap=50",
])  # fmt: skip
train(config)  # the same call again goes on where it was killed, and returns at once where it is finished

# One row a step: the loss curve of SFT, then updates with their reward, KL and entropy.
rows = [json.loads(line) for line in (RUN / "metrics.jsonl").read_text().splitlines()]
for row in rows:
    shown = {key: row[key] for key in ("train/loss", "train/accuracy", "train/entropy", "eval/reward") if key in row}
    print(row["phase"], row["step"], {key: round(value, 3) for key, value in shown.items()})
print("What the update does, line by line: trainers/plain.py. The page of the run:", RUN / "report.html")
