"""RLlib's multi-agent PPO (new API stack) on a system's decisions as numbers, through its PettingZoo wrapper.

Needs the extra `ray` (pip install '.[ray]'); nothing else imports this module at the top.
"""

# pyright: reportMissingImports=false
# ray is an extra that the linters' environment need not have

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule, MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.wrappers.pettingzoo_env import PettingZooEnv
from ray.tune.registry import register_env

from ghar.config import Config, RllibConfig
from ghar.envs import system as systems
from ghar.envs.play import play, stage_of, validation_cases
from ghar.envs.records import Records, of_credentialed
from ghar.envs.system import Decisions, System
from ghar.envs.views.games import Game
from ghar.envs.views.gym_view import GymView
from ghar.envs.views.pettingzoo_view import aec
from ghar.errors import BadInput
from ghar.llm.policy import Policy
from ghar.metrics.runfolder import RunFolder
from ghar.privacy import ask_gate
from ghar.provenance import write_mark
from ghar.storage import new_folder
from ghar.trainers.ray.start import start_ray
from ghar.trainers.rllib.module import MaskedModule
from ghar.trainers.runs.models import use_cores
from ghar.trainers.runs.resume import as_yaml, occupied

ENV = "navigation"
FOLDER = "rllib"  # of the best update's checkpoint, below RUN/checkpoints
HIDDEN = 64  # width of a layer
STEPS = 6  # decisions an episode takes, about: RLlib counts steps where we count episodes
SIDE_BY_SIDE = 32  # episodes that one forward pass serves
LONGEST = 300.0  # seconds that sampling a batch may take
RANDOM_PLAY = 256  # episodes that tell what returns are like


def section(config: Config) -> RllibConfig:
    """The section `rllib`. BadInput where it is null."""
    if config.rllib is None:
        raise BadInput("The section rllib is null: choose rllib=ppo.")
    return config.rllib


def decisions_of(system: System[Any]) -> Decisions:
    """What RLlib learns from. BadInput for a system that has no decisions as numbers."""
    if system.truth.decisions is None:
        raise BadInput(systems.no_numbers(system.name))
    return system.truth.decisions()


def train(config: Config) -> None:
    """`trainer.rl.updates` updates on the training patients; rewards on the validation patients as it goes. The
    checkpoint is of the update that was best on those; its reward on the test patients stands beside the scripted
    optimum's."""
    section(config)
    systems.check_numbers(config)
    ask_gate(config, lambda: of_credentialed(config))
    with occupied(Path(config.run_dir)):
        _train(config)


def _train(config: Config) -> None:
    use_cores(config.threads)
    folder = RunFolder.open(Path(config.run_dir))
    folder.remove("metrics.jsonl")
    folder.write_config(as_yaml(config))
    system = systems.build(Records(config))
    own, valid = decisions_of(system), validation_cases(system, config.task, config.trainer.rl.eval_samples)
    rule, optimum = best_rule(system, own, config, valid)
    print(f"Scripted optimum on {len(valid)} validation samples: reward {optimum:.3f}")
    checkpoint, best = folder.path / "checkpoints" / FOLDER, -np.inf
    with algorithm(config, own.game(system.cases.train)) as algo:
        for row in learn(algo, config, lambda: reward(system, config, valid, policy_of(algo, own, config))):
            folder.log(row)
            if "eval/reward" in row:
                mean = row["eval/reward"]
                print(f"update {row['step']:3d}  validation reward {mean:.3f}, {mean / optimum:.1%} of the optimum")
                if mean > best:
                    best = mean
                    with new_folder(checkpoint) as temporary:
                        algo.save_to_path(str(temporary.resolve()))
                        write_mark(temporary, system.origin.credentialed)
    test = system.cases.test
    learned, scripted = (reward(system, config, test, p) for p in (load_policy(checkpoint, own), own.policy(rule)))
    about = {"generated": system.origin.generated, "credentialed": system.origin.credentialed, "seed": config.seed}
    folder.write_summary({**about, "optimum": scripted, "rllib": learned})
    print(f"Test reward {learned:.3f}, scripted optimum {scripted:.3f}. Checkpoint: {checkpoint}")


def best_rule(
    system: System[Any], own: Decisions, config: Config, cases: Sequence[Any]
) -> tuple[Callable[..., list[int]], float]:
    """The scripted optimum, as the mean reward of every rule on `cases` tells it, and that reward."""
    scores = [(reward(system, config, cases, own.policy(rule)), rule) for rule in own.rules]
    best, rule = max(scores, key=lambda pair: pair[0])
    return rule, best


def reward(system: System[Any], config: Config, cases: Sequence[Any], policy: Policy) -> float:
    """Mean reward of a policy on `cases`, without references."""
    stage = stage_of(system, system.variants[system.main], config)
    episodes = play(stage, cases, policy, seed=config.seed, title="Playing")
    return float(np.mean([system.reward(e, case).total for e, case in zip(episodes, cases, strict=True)]))


def learn(algo: Any, config: Config, evaluate: Callable[[], float]) -> Iterator[dict[str, Any]]:
    """`trainer.rl.updates` updates, each as a row of metrics.jsonl; "eval/reward" is in every `eval_every`-th."""
    rl = config.trainer.rl
    for update in range(1, rl.updates + 1):
        row = {"phase": "rl", "step": update, **numbers(algo.train())}
        if update % rl.eval_every == 0 or update == rl.updates:
            row["eval/reward"] = evaluate()
        yield row


def numbers(result: dict[str, Any]) -> dict[str, float]:
    """What one update tells, as keys of metrics.jsonl."""
    runners = result["env_runners"]
    row = {
        # Agent-Top acts in every episode and is given all of R_all; an agent that never acted is given nothing
        "train/reward": float(runners["agent_episode_returns_mean"]["top_0"]),
        "train/episode_steps": float(runners["episode_len_mean"]),
        "train/steps": float(result["num_env_steps_sampled_lifetime"]),
        "time/update": float(result["time_this_iter_s"]),
    }
    for module, learned in result["learners"].items():
        if module != "__all_modules__":
            row |= {
                f"train/{module}/{name}": float(learned[name])
                for name in ("policy_loss", "vf_loss", "entropy", "mean_kl_loss", "vf_explained_var")
                if name in learned
            }
    return row


@contextmanager
def algorithm(config: Config, game: Game) -> Iterator[Any]:
    """Build PPO and tear it down at the end, with Ray where it did not run before."""
    started = not ray.is_initialized()
    start_ray(1)
    register_env(ENV, lambda _: PettingZooEnv(aec(game)))
    algo = ppo(config, game).build_algo()
    try:
        yield algo
    finally:
        algo.stop()
        if started:
            ray.shutdown()


def ppo(config: Config, game: Game) -> Any:
    """RLlib's configuration from ours. Its KL term is to the last policy, ours to a reference there is none of here:
    it is off. The learning rate falls to a tenth and the weight of the entropy to 0 over `rl.updates`, so that the most
    probable actions become the sampled ones. One policy for all agents ("shared") or one for each ("separate")."""
    rl, rllib = config.trainer.rl, section(config)
    shared = rllib.policies == "shared"
    names = ["shared"] if shared else [f"{agent}_0" for agent in game.agents]
    observed, acted = game.spaces()
    mean, spread = returns_at_random(game, config.seed)
    spec = RLModuleSpec(MaskedModule, observed, acted, model_config={"hidden": HIDDEN, "mean": mean, "spread": spread})
    batch = rl.episodes * STEPS
    steps = batch * rl.updates
    return (
        PPOConfig()
        .environment(ENV, disable_env_checking=True)
        .env_runners(
            num_env_runners=0,  # the process that learns samples too
            num_envs_per_env_runner=SIDE_BY_SIDE,
            # With whole episodes RLlib seeds anew before each SIDE_BY_SIDE of them, always the same patients, and drops
            # those under way, which are the long ones.
            batch_mode="truncate_episodes",
            sample_timeout_s=LONGEST,
        )
        .learners(num_learners=0)
        .multi_agent(policies=set(names), policy_mapping_fn=_mapping(shared))
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=dict.fromkeys(names, spec)))
        .training(
            train_batch_size_per_learner=batch,
            minibatch_size=max(1, batch // rl.minibatches),
            num_epochs=rl.epochs,
            lr=[[0, rl.lr], [steps, rl.lr / 10]],
            gamma=rl.gamma,
            lambda_=rl.lam,
            clip_param=rl.clip,
            vf_clip_param=float("inf"),  # RLlib's clips the loss, not the step: returns above 3 would teach nothing
            vf_loss_coeff=rl.value_coef,
            entropy_coeff=[[0, rl.entropy], [steps, 0.0]],  # pyright: ignore[reportArgumentType]
            grad_clip=rl.max_grad_norm,
            use_kl_loss=False,
        )
        .debugging(seed=config.seed, log_level="ERROR")
        .reporting(min_time_s_per_iteration=0)
        .fault_tolerance(restart_failed_env_runners=False)
    )


def returns_at_random(game: Game, seed: int) -> tuple[float, float]:
    """Mean and standard deviation of what random episodes are worth: the unit of the values that are learned."""
    env = GymView(game)
    env.action_space.seed(seed)
    returns = []
    for episode in range(RANDOM_PLAY):
        env.reset(seed=seed if episode == 0 else None)
        ended, worth = False, 0.0
        while not ended:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            ended, worth = terminated or truncated, worth + float(reward)
        returns.append(worth)
    return float(np.mean(returns)), max(float(np.std(returns)), 1e-3)


def _mapping(shared: bool) -> Callable[..., str]:
    return (lambda agent, *_, **__: "shared") if shared else (lambda agent, *_, **__: agent)


def policy_of(algo: Any, own: Decisions, config: Config) -> Policy:
    """The policy as trained so far, most probable actions."""
    agents = own.game(()).agents
    names = ("shared",) if section(config).policies == "shared" else tuple(f"{agent}_0" for agent in agents)
    return own.policy(_Modules({name: algo.get_module(name) for name in names}))


def load_policy(path: Path, own: Decisions) -> Policy:
    """The policy of a checkpoint, for evaluation beside all others. BadInput when there is none."""
    folder = path / "learner_group" / "learner" / "rl_module"
    if not folder.is_dir():
        wanted = f"name RUN/checkpoints/{FOLDER}"
        raise BadInput(f"rllib.checkpoint={path} is no checkpoint of launch/train_rllib.py: {wanted}.")
    modules = MultiRLModule.from_checkpoint(str(folder.resolve()))
    return own.policy(_Modules(dict(modules.items())))


class _Modules:
    """Decides by RLlib's modules, the most probable action of each."""

    def __init__(self, modules: dict[str, Any]) -> None:
        self.modules = modules

    def __call__(self, seen: np.ndarray, masks: np.ndarray, agents: Sequence[str]) -> list[int]:
        actions = np.zeros(len(agents), np.int64)
        for name, module in self.modules.items():
            rows = [i for i, agent in enumerate(agents) if name in ("shared", f"{agent}_0")]
            if rows:
                batch = {"observation": torch.from_numpy(seen[rows]), "action_mask": torch.from_numpy(masks[rows])}
                logits = module.forward_inference({Columns.OBS: batch})[Columns.ACTION_DIST_INPUTS]
                actions[rows] = logits.argmax(dim=-1).cpu().numpy()
        return actions.tolist()
