"""Whose weights answer: the stages of a run (base, after the warm-up, after RL), a saved model, or a server."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ghar.config import Config
from ghar.envs.system import WORDS, Reader, System, Variant
from ghar.errors import BadInput
from ghar.llm.engines import make_engine, without_weights
from ghar.llm.models import load_configured, untrained
from ghar.llm.policy import EnginePolicy
from ghar.trainers.base import base_seed, reader_of
from ghar.trainers.evaluation.label_scores import label_probabilities
from ghar.trainers.rl.actor_critic import ActorCritic, ActorCriticConfig
from ghar.trainers.rl.serving import serving
from ghar.trainers.rl.settings import has_critic, needs_reference
from ghar.trainers.runs import checkpoint, manifest
from ghar.trainers.runs.kept_config import kept_config
from ghar.trainers.runs.models import BASE, SFT, check_saved, load_sft, load_stage
from ghar.trainers.stages import POLICY_STAGES


@dataclass(frozen=True)
class AnsweringModel:
    """A language model that answers. reader: how it reads; ranker: its label probabilities, None where it has none."""

    policy: EnginePolicy
    reader: Reader
    ranker: Callable[..., Any] | None


@dataclass(frozen=True)
class RunStages:
    """The stages that a run folder, or eval.checkpoint, holds. step: a checkpoint of RL; home: the folder it is in."""

    home: Path
    step: Path | None

    def names(self, who: str) -> str:
        """The stage that `who` means here: "trained" is the newest there is."""
        if who == "trained":
            return who if self.step is not None else self.names("sft")
        return who if self._holds(who) else "base"

    def has_trained_weights(self, stages: Iterable[str]) -> bool:
        """Return whether a training made weights here: of the warm-up, or of the system's further `stages`."""
        return any(map(self._holds, (SFT, *stages)))

    def lacks(self, who: str, stages: Collection[str]) -> bool:
        """Return whether a trained run has no weights of `who`, "sft", "trained" or among `stages`; a run that was
        never trained lacks nothing."""
        own = who in (*POLICY_STAGES, *stages)
        return own and self.has_trained_weights(stages) and self.names(who) == "base"

    def _holds(self, stage: str) -> bool:
        return (self.home / stage / "config.json").is_file()


def lacking_variants(system: System[Any], run_stages: RunStages, named: Sequence[str] = ()) -> list[str]:
    """List the variants whose weights the run lacks: the base model would answer in their name.

    named: variants asked for by name. BadInput where one of these lacks its stage; listed ones are printed.
    """
    stages = system.training.stages
    variants = [system.variant(name) for name in named or system.listed]
    lacking = [variant for variant in variants if run_stages.lacks(variant.who, stages)]
    home = run_stages.home
    folder = {one.name: home / (SFT if one.who in POLICY_STAGES else one.who) for one in lacking}
    if named and lacking:
        name = lacking[0].name
        raise BadInput(
            f"{folder[name]} does not exist, whose weights play {name}: leave this variant out, or train the run again "
            "with it."
        )
    for name, missing in folder.items():
        print(f"{name} is left out: {missing}, whose weights play it, does not exist.")
    return [variant.name for variant in lacking]


def check_trained(config: Config, system: System[Any], wanted: Sequence[Variant]) -> None:
    """BadInput, before a variant is played, where the weights after RL that one asks for were trained for another
    system, or another way than the configuration says."""
    run_stages = find(config)
    step = run_stages.step if config.engine.loads_weights else None
    if step is None or not any(run_stages.names(v.who) == "trained" for v in wanted if system.asks_model(v)):
        return
    try:
        there = checkpoint.trained_of(step)
    except (KeyError, ValueError):
        return  # damaged, as `checkpoint.load` says
    here = _trained_keys(config, system.agents)
    wrong = [key for key in {**there, **here} if there.get(key) != here.get(key)]
    if not wrong:
        return
    kept, own = kept_config(step.resolve().parent.parent), config.system.name
    name = own if kept is None else kept["system"]["name"]
    if name != own:
        raise BadInput(f"{step} was trained for system={name}, and this is system={own}: name a checkpoint of {own}.")
    reasons = ", ".join(f"{key} is {there.get(key)} there and {here.get(key)} here" for key in wrong)
    raise BadInput(f"{step} was trained another way ({reasons}): use the keys that it was trained with.")


def without_variants(system: System[Any], names: Sequence[str]) -> System[Any]:
    """Take variants out of what an evaluation plays by default."""
    if not names:
        return system

    def shortened(own: System[Any]) -> System[Any]:
        listed = tuple(name for name in own.listed if name not in names)
        return replace(own, report=replace(own.report, listed=listed))

    return system.adapt(shortened)


def find(config: Config) -> RunStages:
    """What there is to evaluate: eval.checkpoint, else the best of run_dir."""
    checkpoints = Path(config.run_dir) / "checkpoints"
    if config.eval.checkpoint is None:
        return RunStages(checkpoints, checkpoint.find(checkpoints, "best"))
    step = Path(config.eval.checkpoint)
    if (step / "model.json").is_file() and (step.parent / SFT).is_dir():
        return RunStages(step.parent, step)
    if (step / "config.json").is_file():
        return RunStages(checkpoints, None)  # a saved model, which stands in the base's place
    raise BadInput(
        f"eval.checkpoint={step} is no checkpoint: name a folder such as RUN/checkpoints/step-10, or of a saved model."
    )


def load_base(config: Config, system: System[Any], run_stages: RunStages) -> tuple[Any, Any]:
    """Model and tokenizer before any training: a saved one, the run's own base, or one that has learned nothing."""
    if config.eval.checkpoint and run_stages.step is None:
        return load_stage(Path(config.eval.checkpoint), config)
    if config.model.path is not None:
        check_saved(Path(config.model.path))
        return load_configured(config)
    if (run_stages.home / BASE / "config.json").is_file():
        return load_stage(run_stages.home / BASE, config)
    return untrained(config, list(system.training.texts()), (), base_seed(config))


@contextmanager
def answering(config: Config, system: System[Any], run_stages: RunStages) -> Iterator[Callable[[str], Any]]:
    """For the duration, a function from a stage to a context manager of `AnsweringModel`.

    "sft" and "trained" share one engine; others have their own. Each is built when it is asked for, so that one model
    is in memory where these two are asked last. A server answers for all.
    """
    if not config.engine.loads_weights:
        with without_weights(config, system.origin.credentialed) as engine:
            yield lambda stage: _given(AnsweringModel(EnginePolicy(engine, 0, config.env.decisions), WORDS, None))
        return
    with ExitStack() as held:
        made: list[_Shared] = []

        def opened(stage: str) -> Any:
            if stage not in POLICY_STAGES:
                return _saved(config, system, run_stages, stage)
            if not made:
                made.append(_Shared(config, system.agents, run_stages))
                held.callback(made[0].engine.close)
            return made[0].stage(stage)

        yield opened


@contextmanager
def _given(answers: AnsweringModel) -> Iterator[AnsweringModel]:
    yield answers


@contextmanager
def _saved(config: Config, system: System[Any], run_stages: RunStages, stage: str) -> Iterator[AnsweringModel]:
    if stage == "base":
        model, tokenizer = load_base(config, system, run_stages)
    else:
        model, tokenizer = load_stage(run_stages.home / stage, config)
    engine = make_engine(config, model, tokenizer)
    try:
        with serving(engine, model, 0):
            yield _answers(config, engine, tokenizer, model)
    finally:
        engine.close()


class _Shared:
    """An engine for a run's policy after the warm-up and after RL."""

    def __init__(self, config: Config, agents: tuple[str, ...], run_stages: RunStages) -> None:
        self.config, self.agents, self.run_stages = config, agents, run_stages
        self.model, self.tokenizer = load_sft(config, run_stages.home)
        self.engine: Any = make_engine(config, self.model, self.tokenizer)
        self.actor: Any = None

    @contextmanager
    def stage(self, name: str) -> Iterator[AnsweringModel]:
        policy, version = self.model, 0
        if name == "trained":
            policy, version = self._trained(), 1
        elif self.actor is not None:
            raise RuntimeError("the policy after SFT must be asked before the one after RL, which changes it in place")
        with serving(self.engine, policy, version):
            yield _answers(self.config, self.engine, self.tokenizer, self.model)

    def _trained(self) -> Any:
        if self.actor is None:
            step, home = self.run_stages.step, self.run_stages.home
            assert step is not None  # RunStages.names gives "trained" only then
            self.actor = make_actor(self.config, self.model, self.agents, learns=False)
            kept = checkpoint.load(step, identity(self.config, self.actor, self.tokenizer, home))
            self.actor.load_trainable_state(kept.weights)
        return self.actor


def _answers(config: Config, engine: Any, tokenizer: Any, model: Any) -> AnsweringModel:
    scored = hasattr(engine, "score")
    ranker = partial(label_probabilities, engine, tokenizer) if scored else None
    return AnsweringModel(EnginePolicy(engine, 0, config.env.decisions), reader_of(tokenizer, model, engine), ranker)


def make_actor(config: Config, base: Any, agents: tuple[str, ...], learns: bool = True) -> ActorCritic:
    """Actor and critic around `base`, as the configuration says, with a value head for each agent; and the reference,
    which may be a second copy of the weights, where it learns and not only answers or is saved."""
    model = config.model
    return ActorCritic(
        base,
        ActorCriticConfig(
            finetune=model.finetune,
            rank=model.lora_rank or 0,
            alpha=model.lora_alpha,
            critic="own" if has_critic(config) else "head",
            detach=True,  # a value head far from its target would otherwise shake the policy's trunk
            reference=learns and needs_reference(config),
            # rft has the loss of SFT, whatever temperature its episodes were sampled at
            temperature=1.0 if config.trainer.method == "rft" else config.engine.temperature,
            checkpointing=config.deepspeed.checkpointing,
            agents=agents,
            seed=config.seed,
        ),
    )


def identity(config: Config, actor: ActorCritic, tokenizer: Any, home: Path) -> dict[str, str]:
    """What a checkpoint's weights must fit (see ghar.trainers.runs.checkpoint). home: the folder of the checkpoints,
    where the policy after the warm-up lies once for all of them."""
    trained, sft = _trained_keys(config, actor.cfg.agents), manifest.weights_sum(home / SFT)
    return checkpoint.identity(actor.model, tokenizer, config.model.path or "demo", trained, sft)


def _trained_keys(config: Config, agents: Sequence[str]) -> dict[str, str]:
    """What shapes the trainable weights, besides the model."""
    model = config.model
    trained = {"finetune": model.finetune, "critic": model.critic, "agents": ",".join(agents)}
    if model.finetune == "lora":
        trained |= {"rank": str(model.lora_rank), "alpha": str(model.lora_alpha)}
    return trained
