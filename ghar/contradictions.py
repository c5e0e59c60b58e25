"""What a configuration's values say against each other, though each is allowed by itself: one sentence each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from ghar.config import Config
from ghar.privacy import plain_values, secret_in

STAY_TASKS = (
    "los", "read", "dec", "kare_mortality", "kare_readmission", "los_24h", "mortality_24h", "series_mortality",
    "series_readmission", "series_los", "series_dec",
)  # fmt: skip

TEXTS = {"medqa": "a file of MedQA (jsonl or jsonl.gz)", "summary": "a csv file of ACI-BENCH or MIMIC-IV-Ext-BHC"}


def contradictions(c: Config) -> Iterator[str]:
    """Sentences for values that are allowed one by one but not together."""
    yield from _data_contradictions(c)
    yield from _model_contradictions(c)
    yield from _engine_contradictions(c)
    yield from _deepspeed_contradictions(c)
    yield from _secrets(c)
    if c.trainer.rl.minibatches > c.trainer.rl.episodes:
        yield (
            f"trainer.rl.minibatches={c.trainer.rl.minibatches} is more than trainer.rl.episodes="
            f"{c.trainer.rl.episodes}: every minibatch needs an episode, so lower the first or raise the second."
        )
    rl = c.trainer.rl
    grouped = c.trainer.method != "rft" and rl.estimator in ("grpo", "rloo", "turn_group")
    if grouped and rl.attempts < 2:
        yield f"trainer.rl.estimator={rl.estimator} compares a patient's attempts: set trainer.rl.attempts above 1."
    if rl.estimator == "turn_group" and c.env.decisions == "chosen":
        yield (
            "trainer.rl.estimator=turn_group compares turns of equal place, and env.decisions=chosen samples some "
            "turns in parts: set trainer.rl.estimator=rloo or env.decisions=free."
        )
    if rl.dynamic and rl.attempts < 2:
        yield "trainer.rl.dynamic=true compares a patient's attempts: set trainer.rl.attempts above 1."
    if rl.kl_target is not None and rl.kl == 0:
        yield "trainer.rl.kl_target steers the weight trainer.rl.kl, which is 0: set it above 0, or kl_target=null."
    if rl.attempts > rl.episodes:
        yield f"trainer.rl.attempts={rl.attempts} is more than trainer.rl.episodes={rl.episodes}: lower the first."
    if c.trainer.method == "plain" and c.task.name == "summary" and rl.select == "accuracy":
        yield "trainer.method=plain measures no likeness of texts, which have one label: set trainer.rl.select=reward."
    yield from _rft_contradictions(c)
    if c.plan and c.trainer.method == "plain":
        yield "A plan is of the fast trainer: choose trainer.method=mappo, whose updates are those of plain."
    named = c.eval.variants
    if named is not None and (not named or len(set(named)) < len(named)):
        yield "eval.variants must name at least one variant and each only once: correct the list."


def _rft_contradictions(c: Config) -> Iterator[str]:
    rl, rft = c.trainer.rl, c.trainer.rft
    if c.trainer.method == "rft" and rft.keep >= rl.attempts and rft.min_reward is None:
        yield (
            f"trainer.method=rft would imitate every episode, good or bad: set trainer.rl.attempts={rl.attempts} above "
            f"trainer.rft.keep={rft.keep}, or set trainer.rft.min_reward."
        )


def _has_critic(c: Config) -> bool:
    rl = c.trainer.rl
    return c.model.critic == "own" and rl.estimator == "gae" and rl.updates > 0 and c.trainer.method != "rft"


def _secrets(c: Config) -> Iterator[str]:
    """Keys that hold a secret, which no file of a run may keep; the secret itself is not repeated."""
    for key in dict.fromkeys(k for k, value in plain_values(asdict(c)) if isinstance(value, str) and secret_in(value)):
        yield (
            f"{key} holds a password, a key or parameters, and config.yaml and other files would keep it: write the "
            "address without them, and put the key into the environment variable GHAR_API_KEY."
        )


def _deepspeed_contradictions(c: Config) -> Iterator[str]:
    deepspeed = c.deepspeed
    if deepspeed.stage == 3 and c.model.finetune == "lora" and _has_critic(c):
        yield (
            f"model.critic=own with LoRA reads the base's weights, of which deepspeed={deepspeed.zero} leaves a "
            "process only a share: choose deepspeed=zero2 or set model.critic=head."
        )


def _data_contradictions(c: Config) -> Iterator[str]:
    if c.data.root is not None and "://" in c.data.root:
        yield (
            "data.root is an address, which may hold a password: name a folder, a DuckDB file or a service of "
            "PostgreSQL (postgresql:NAME)."
        )
        return  # the other sentences repeat it
    if c.data.name.startswith("demo") and c.data.root is not None:
        yield (
            f"data={c.data.name} generates its patients, so it cannot read data.root={c.data.root}: "
            "choose data=mimic4 (or an experiment) or set data.root=null."
        )
    if c.data.take is not None and c.data.root is None:
        yield "data.take takes some patients of real tables: generated ones are as many as data.patients says."
    if c.task.stays and c.task.name not in STAY_TASKS:
        yield f"task.stays={list(c.task.stays)} chooses stays, but task={c.task.name} has none: leave it out."
    own_world = c.data.name.startswith("demo_")
    if own_world and c.task.name != "labels":
        yield f"data={c.data.name} asks one question, its own: choose task=labels, not task={c.task.name}."
    for name, file in TEXTS.items():
        if (c.task.name == name) != (c.data.name == name):
            yield f"task={c.task.name} is not asked of data={c.data.name}: task={name} and data={name} go together."
        elif c.data.name == name and c.data.root is None:
            yield f"task={name} reads texts: set data.root to {file}, or to a folder of its parts."
    own = {"labels": c.task.labels, "question": c.task.question, "bins": c.task.bins}
    if c.task.name in TEXTS and c.data.earlier:
        yield f"data.earlier=true asks when an outcome was known, and task={c.task.name} has no dates: leave it out."
    if c.task.name == "labels" and c.task.labels is None and c.data.name != "meds" and not own_world:
        yield "task=labels needs a file: set task.labels to a MEDS label file (parquet), or a folder of them."
    elif c.task.name != "labels" and (given := [f"task.{name}" for name, value in own.items() if value is not None]):
        yield f"task={c.task.name} has labels of its own and does not read {', '.join(given)}: choose task=labels."
    if c.task.bins is not None and (not c.task.bins or list(c.task.bins) != sorted(set(c.task.bins))):
        yield f"task.bins={list(c.task.bins)} must be rising numbers: correct them."
    yield from _protocol_contradictions(c)
    if c.task.draw == "kare" and c.task.name not in PROTOCOLS["kare"]:
        yield f"task.draw=kare is KARE's of its own two tasks, not of {c.task.name}: choose all or last."
    if c.scale.name == "full" and c.data.root is None:
        yield "scale=full trains on real tables: set data.root to their folder, or choose scale=demo."
    if min(c.task.split) <= 0 or abs(sum(c.task.split) - 1) > 1e-6:
        yield f"task.split={list(c.task.split)} must hold three shares above 0 that add up to 1: correct them."
    if c.task.legacy_order and c.data.leakage == "strict":
        yield "task.legacy_order=true shows visits of the future: set it back, or choose data.leakage=paper."


PROTOCOLS: Mapping[str, tuple[str, ...]] = {  # paper -> the tasks it has; strict is ours and has them all
    "ghar": ("los", "read", "dec"),
    "kare": ("kare_mortality", "kare_readmission"),
    "graphwalker": ("series_mortality", "series_readmission", "series_los", "series_dec"),
    "ehrshot": ("guo_los", "guo_readmission", "new_acutemi", "lab_anemia"),
    "exprag": ("dischargeqa_diagnosis", "dischargeqa_medication", "dischargeqa_instruction"),
}


def _protocol_contradictions(c: Config) -> Iterator[str]:
    name, tasks = c.protocol.name, PROTOCOLS.get(c.protocol.name)
    if tasks is not None and c.task.name not in tasks:
        yield f"protocol={name} has no task={c.task.name}: choose task={', '.join(tasks)}."
    if name in ("ghar", "kare") and c.data.root is not None and c.data.name != "demo" and c.data.codes is None:
        yield f"protocol={name} maps codes as its paper does: set data.codes to a folder of code tables (docs/data.md)."
    if c.task.name.startswith(("series_", "dischargeqa_")) and (c.task.complete or c.task.split_of == "cohort"):
        yield f"task={c.task.name} reads neither task.complete nor task.split_of=cohort: leave them out."


def _engine_contradictions(c: Config) -> Iterator[str]:
    engine = c.engine
    unread = {"kv_cache_gb": engine.kv_cache_gb, "memory": engine.memory, "sync": engine.sync}
    given = [f"engine.{name}={value}" for name, value in unread.items() if value is not None]
    given += ["engine.sleep=true"] if engine.sleep else []
    given += [f"engine.gpus={engine.shared_by}"] if engine.shared_by > 1 else []
    if engine.kind != "vllm" and given:
        yield f"engine={engine.kind} does not read {', '.join(given)}: choose engine=vllm."
    if engine.kind == "vllm" and (engine.kv_cache_gb is None) == (engine.memory is None):
        yield "engine.kind=vllm needs engine.kv_cache_gb or engine.memory: set one of them, and the other to null."
    if engine.kind == "api" and c.model.kind != "pretrained":
        yield "engine=api asks the server that model.path names: choose model=pretrained and set model.path."
    if engine.sync == "adapter" and c.model.finetune == "full":
        yield "engine.sync=adapter, but model.lora_rank=null has none: set engine.sync=weights or a model.lora_rank."


def _model_contradictions(c: Config) -> Iterator[str]:
    if c.env.history_tokens >= c.model.max_length:
        yield (
            f"env.history_tokens={c.env.history_tokens} leaves no room in model.max_length={c.model.max_length}, which "
            "holds the rest of a prompt and its reply too: lower the first or raise the second."
        )
    elif c.env.history_tokens + (longest := max(c.env.budgets.values(), default=0)) >= c.model.max_length:
        yield (
            f"env.reply_tokens lets a reply have {longest} tokens, and with env.history_tokens={c.env.history_tokens} "
            f"no room is left for the rest of a prompt in model.max_length={c.model.max_length}: lower the first or "
            "raise the last."
        )
    shape = {"hidden": c.model.hidden, "layers": c.model.layers, "vocab": c.model.vocab}
    if c.model.kind == "demo":
        missing = [f"model.{name}" for name, size in shape.items() if size is None]
        if missing:
            yield (
                f"model.path=null builds the demo's model, which needs a shape: set {', '.join(missing)}, or name a "
                "model by model.path."
            )
        elif c.model.hidden and c.model.hidden % 4:
            # There are two heads, and rotary embeddings turn pairs of dimensions.
            yield f"model.hidden={c.model.hidden} must be a multiple of 4, an even number for each of 2 heads."
    elif given := [f"model.{name}" for name, size in shape.items() if size is not None]:
        yield (
            f"model.path={c.model.path} has its own shape: set {', '.join(given)} to null, or choose model=pretrained."
        )
