"""Bring a model: any causal language model in a folder of transformers plays the same episodes.

python docs/tutorials/3_training.py && python docs/tutorials/5_model.py

The folder here is the one that tutorial 3 left after SFT. `model=smollm2 scale=laptop` is SmolLM2-135M-Instruct, and
`model=pretrained model.path=FOLDER_OR_HUB_NAME` any other (docs/your-model.md).
"""

from pathlib import Path

from ghar.envs import system as systems
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.launch.entry import load
from ghar.llm.hf import HFEngine
from ghar.llm.model_facts import facts_of
from ghar.llm.models import load_configured
from ghar.llm.policy import EnginePolicy
from ghar.trainers.base import reader_of

FOLDER = Path("runs/tutorial/checkpoints/sft").resolve()
config = load(["+experiment=quick", "model=pretrained", f"model.path={FOLDER}", "model.dtype=float32"])

# 1. What the model's own files say of it: which tokens end a reply, whether prompts begin with one, its chat template.
model, tokenizer = load_configured(config)
print(f"{sum(weight.numel() for weight in model.parameters()):,} weights;", facts_of(tokenizer))

# 2. Records are cut to what the model's context holds, counted by its own tokenizer.
system = systems.build(Records(config)).read_by(reader_of(tokenizer, model))

# 3. An engine samples; a policy answers acts. `decisions="chosen"` makes the decisions of any model readable.
policy = EnginePolicy(HFEngine(model, tokenizer), temperature=0.0, decisions="chosen")
cases = system.cases.test[:4]
for case, done in zip(cases, play(stage_of(system, system.variants[system.main], config), cases, policy, seed=0,
                                  title="Playing"), strict=True):  # fmt: skip
    said = ", ".join(f"{turn.role} {turn.completion.text.strip()!r}" for turn in done.turns)
    print(f"{case.sample_id}: {said}; answer {system.in_words(case, done.prediction.label)}, right "
          f"{system.in_words(case, case.label)}")  # fmt: skip
