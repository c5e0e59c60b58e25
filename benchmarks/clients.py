"""Learners and tools that no one here wrote, on every registered environment, onto docs/environments.md.

Each client takes the id's default view first, and where it cannot read that, the view of token ids or of texts. A cell
says which view it played and what it did there; a client that reads none of an id's views is named with its reason.
Needs the extras `test` and `ray`. Every training is of a few steps: the table shows that a client runs, not that it
learns.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "environments.md"
BEGIN, END = "<!-- clients -->", "<!-- /clients -->"
REPLIES = ("0", "1", "2", "3", "4", "5", "6", "7", "no", "yes", "A", "B")
FAILED = "**fails**"


class NoView(Exception):
    """The id has no view that the client reads."""


def clients(folder: Path, page: Path = PAGE) -> dict[str, Any]:
    """Run every client on every id and write the page's table. One that raises is written down as `FAILED`."""
    from ghar.envs.register import GAMES

    minari_folder = str(folder.absolute() / "minari")
    os.environ |= {"TRL_EXPERIMENTAL_SILENCE": "1", "WANDB_MODE": "disabled", "MINARI_DATASETS_PATH": minari_folder}
    cells: dict[str, dict[str, str]] = {}
    for client, (_, run) in CLIENTS.items():
        cells[client] = {}
        for name in GAMES:
            cells[client][name] = cell(run, name, folder)
            print(json.dumps({client: {name: cells[client][name]}}), flush=True)
        before, _, rest = page.read_text().partition(BEGIN)
        page.write_text(f"{before}{BEGIN}\n{table(cells)}\n{END}{rest.partition(END)[2]}")
    return cells


def cell(run: Callable[[str, Path], str], name: str, folder: Path) -> str:
    """What one client did on one id."""
    try:
        return run(name, folder)
    except NoView as none:
        return f"none: {none}"
    except Exception as error:  # a client may raise anything, which is what the table is to show
        traceback.print_exc()
        return f"{FAILED}: {type(error).__name__}"


def table(cells: Mapping[str, Mapping[str, str]]) -> str:
    """Markdown, a row a client."""
    names = list(next(iter(cells.values())))
    lines = [f"| client | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for client, own in cells.items():
        label = " ".join([client, *(version(package) for package in CLIENTS[client][0])])
        lines.append(f"| {label} | {' | '.join(own[name] for name in names)} |")
    return "\n".join(lines)


def make(name: str, **arguments: Any) -> Any:
    """The Gymnasium environment of an id, as a user makes it."""
    import gymnasium

    return gymnasium.make(f"ghar.envs.register:ghar/{name}-v0", **arguments)


def encoded(name: str) -> dict[str, str]:
    """Arguments of the view that shows arrays: the default one where it does, else token ids."""
    from gymnasium.spaces import Dict

    return {} if isinstance(make(name).observation_space, Dict) else {"view": "tokens"}


def text_game(name: str) -> tuple[Any, str]:
    """The id's game of texts, and which view that is. Raises NoView for an id without texts."""
    from ghar.envs.register import GAMES
    from ghar.envs.views.games import TextGame

    game = GAMES[name]()
    if isinstance(game, TextGame):
        return game, "default"
    if name == "Navigation":
        raise NoView("no texts")
    return GAMES[name](view="text"), "text"


def view_of(arguments: Mapping[str, Any]) -> str:
    return "default" if "view" not in arguments else "token"


def legal(info: Mapping[str, Any], rng: np.random.Generator) -> int | str:
    """A random legal action of a Gymnasium environment: of the mask, of the choices, or a short reply."""
    if "action_mask" in info:
        return int(rng.choice(np.flatnonzero(info["action_mask"])))
    return str(rng.choice(info["choices"] or REPLIES))


def stable_baselines(name: str, folder: Path) -> str:
    """PPO knows no masks: what it may not do is drawn anew, and costs."""
    from stable_baselines3 import PPO

    arguments = encoded(name)
    model = PPO("MultiInputPolicy", make(name, illegal="penalise", **arguments), n_steps=32, batch_size=16, n_epochs=1,
                seed=0, device="cpu")  # fmt: skip
    model.learn(32)
    return f"{view_of(arguments)} view: PPO, 32 steps"


def maskable(name: str, folder: Path) -> str:
    """Every forbidden action would raise."""
    from sb3_contrib import MaskablePPO

    arguments = encoded(name)
    model = MaskablePPO("MultiInputPolicy", make(name, **arguments), n_steps=32, batch_size=16, n_epochs=1, seed=0,
                        device="cpu")  # fmt: skip
    model.learn(32)
    return f"{view_of(arguments)} view: PPO, 32 steps"


def rllib(name: str, folder: Path) -> str:
    """PPO of the new API stack with RLlib's own module: the mask is flattened with the rest, as a plain input."""
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.connectors.env_to_module import FlattenObservations
    from ray.tune.registry import register_env

    from ghar.trainers.ray.start import start_ray

    arguments, started = encoded(name), not ray.is_initialized()
    start_ray(1)
    register_env(name, lambda _: make(name, illegal="penalise", **arguments))

    def flatten(env: object, spaces: object = None, device: object = None) -> Any:
        return FlattenObservations()

    config = (
        PPOConfig().environment(name).framework("torch")
        .env_runners(num_env_runners=0, env_to_module_connector=flatten)
        .learners(num_learners=0)
        .training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
    )  # fmt: skip
    algorithm = config.build_algo()
    try:
        result = algorithm.train()
        if not result["num_env_steps_sampled_lifetime"]:
            raise RuntimeError("RLlib sampled no step.")
    finally:
        algorithm.stop()
        if started:
            ray.shutdown()
    return f"{view_of(arguments)} view: PPO, 64 steps"


def cleanrl(name: str, folder: Path) -> str:
    """One file, one loop: REINFORCE on the default view. Texts are read as counts of hashed words."""
    import torch

    env = make(name)
    arrays = isinstance(env.observation_space, dict) or hasattr(env.observation_space, "spaces")
    width = env.observation_space["observation"].shape[0] if arrays else 256
    actions = int(env.action_space.n) if arrays else len(REPLIES)
    torch.manual_seed(0)
    network = torch.nn.Linear(width, actions)
    optimiser, before = torch.optim.Adam(network.parameters(), lr=1e-2), network.weight.detach().clone()
    for seed in range(4):
        (seen, info), ended, logs, rewards = env.reset(seed=seed), False, [], []
        while not ended:
            logits = network(torch.from_numpy(seen["observation"].astype(np.float32) if arrays else hashed(seen)))
            if arrays:
                logits = logits.masked_fill(torch.from_numpy(seen["action_mask"]) == 0, -1e9)
            drawn = torch.distributions.Categorical(logits=logits)
            action = drawn.sample()
            logs.append(drawn.log_prob(action))
            if arrays:
                reply: int | str = int(action)
            else:
                among = info["choices"] or REPLIES
                reply = among[int(action) % len(among)]
            seen, reward, terminated, truncated, info = env.step(reply)
            rewards.append(float(reward))
            ended = terminated or truncated
        loss = -(torch.stack(logs).sum() * (sum(rewards) - 1.0))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    if not (network.weight.detach() != before).any():
        raise RuntimeError("Nothing was learned from.")
    return "default view: REINFORCE, 4 episodes"


def hashed(text: str) -> np.ndarray:
    """float32 [256]: how often words of each hash stand in the text."""
    from zlib import crc32

    return np.bincount([crc32(word.encode()) % 256 for word in text.split()], minlength=256).astype(np.float32)


def supersuit(name: str, folder: Path) -> str:
    """Wrappers that read any space, around Gymnasium's, the AEC and the Parallel view; an episode in each."""
    import supersuit as ss

    from ghar.envs.register import GAMES
    from ghar.envs.views.pettingzoo_view import aec, parallel

    rng = np.random.default_rng(0)
    wrap: Any = ss  # its wrappers are typed for one kind of environment and take all
    env = wrap.clip_reward_v0(make(name), lower_bound=-1, upper_bound=1)
    (_, info), ended = env.reset(seed=0), False
    while not ended:
        _, reward, terminated, truncated, info = env.step(legal(info, rng))
        if not -1 <= reward <= 1:
            raise RuntimeError(f"The reward {reward} was not clipped.")
        ended = terminated or truncated
    game = GAMES[name]()
    turns = wrap.reward_lambda_v0(aec(game), lambda reward: reward / 10)
    turns.reset(seed=0)
    for _ in turns.agent_iter(500):
        observation, _reward, terminated, truncated, info = turns.last()
        turns.step(None if terminated or truncated else asked(observation, info, rng))
    side = wrap.reward_lambda_v0(parallel(game), lambda reward: reward / 10)
    observed, infos = side.reset(seed=0)
    while side.agents:
        observed, *_, infos = side.step({agent: asked(observed[agent], infos[agent], rng) for agent in side.agents})
    return "default view: wrappers of Gymnasium, AEC and Parallel, an episode each"


def asked(observation: object, info: Mapping[str, Any], rng: np.random.Generator) -> int | str:
    """A random legal action of a PettingZoo agent; it waits where it has nothing to decide."""
    if isinstance(observation, dict):
        return int(rng.choice(np.flatnonzero(observation["action_mask"])))
    return str(rng.choice(info["choices"] or REPLIES)) if observation else ""


def minari(name: str, folder: Path) -> str:
    """Record episodes, write them to disk, read them back, make the environment from the data set."""
    import minari as store

    rng, number = np.random.default_rng(0), f"ghar/{name.lower()}-v0"
    with contextlib.suppress(ValueError, FileNotFoundError):
        store.delete_dataset(number)
    env = store.DataCollector(make(name))
    total = 0
    for seed in range(3):
        (_, info), ended = env.reset(seed=seed), False
        while not ended:
            _, _, terminated, truncated, info = env.step(legal(info, rng))
            ended, total = terminated or truncated, total + 1
    env.create_dataset(number)
    back = store.load_dataset(number)
    if (back.total_episodes, back.total_steps) != (3, total):
        raise RuntimeError(f"{back.total_steps} steps of {total} came back.")
    back.recover_environment().reset(seed=0)
    return "default view: 3 episodes kept and read"


def trl(name: str, folder: Path) -> str:
    """One step of GRPO by a model of two layers that knows nothing."""
    import trl as library
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    from ghar.envs.views.trl_view import TrlEnvironment, rows
    from ghar.llm.demo_model import build_model, build_tokenizer

    game, view = text_game(name)
    template = (Path(library.__file__).parent / "chat_templates" / "qwen3.jinja").read_text()
    texts = [game.start(case, 0).paused.acts[0].prompt for case in game.scene.cases[:20]]
    tokenizer = build_tokenizer([template, *texts], [], 600)
    tokenizer.chat_template = template
    arguments = GRPOConfig(
        output_dir=str(folder / "trl"), max_steps=1, per_device_train_batch_size=2, num_generations=2,
        max_completion_length=8, report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no",
    )  # fmt: skip

    def place(completions: list[object], **_: object) -> list[float | None]:
        return [float(i) for i, _ in enumerate(completions)]  # rewards that differ, so that there is a gradient

    trainer = GRPOTrainer(
        build_model(tokenizer, hidden=16, layers=1, heads=2, seed=0), reward_funcs=[place], args=arguments,
        processing_class=tokenizer, train_dataset=rows(game, 4), environment_factory=lambda: TrlEnvironment(game),
    )  # fmt: skip
    trainer.train()
    return f"{view} view: GRPO, 1 step"


def verifiers(name: str, folder: Path) -> str:
    """Rollouts by its loop, of a server on this machine that gives one reply to everything."""
    import verifiers as vf

    from ghar.envs.views.verifiers_view import VerifiersEnvironment

    game, view = text_game(name)
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with _server() as url:
            env = VerifiersEnvironment(game, cases=2, max_turns=60)
            client = vf.ClientConfig(api_base_url=url, max_retries=0, timeout=60)
            rows = env.get_dataset().to_list()
            outputs: Any = asyncio.run(env.run_group(rows, client, "one-reply", {"n": 1, "max_tokens": 8}))
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
    if wrong := [output["error"] for output in outputs if output["error"] is not None]:
        raise RuntimeError(str(wrong[0]))
    return f"{view} view: 2 rollouts"


class _OneReply(BaseHTTPRequestHandler):
    """OpenAI's chat completions: the last choice of a question that has some, else 3."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        question = body["messages"][-1]["content"]
        reply = question.rpartition("Choices: ")[2].split(", ")[-1] if "\nChoices: " in question else "3"
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": reply}}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        about = {"id": "1", "object": "chat.completion", "created": 0, "model": "one-reply"}
        data = json.dumps({**about, "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextlib.contextmanager
def _server() -> Iterator[str]:
    """The address of a server, which is gone when the block ends."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), _OneReply)
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{http.server_port}/v1"
    finally:
        http.shutdown()
        http.server_close()


# client -> packages whose versions the table names, what runs it on an id
CLIENTS: dict[str, tuple[tuple[str, ...], Callable[[str, Path], str]]] = {
    "SuperSuit": (("supersuit",), supersuit),
    "Minari": (("minari",), minari),
    "CleanRL-style loop": ((), cleanrl),
    "verifiers": (("verifiers",), verifiers),
    "MaskablePPO": (("sb3-contrib",), maskable),
    "Stable-Baselines3": (("stable-baselines3",), stable_baselines),
    "TRL": (("trl",), trl),
    "RLlib": (("ray",), rllib),
}
