"""What leaves a finished run: weights that other tools load, and a card that says what they are.

<run>/export/
    merged/    the trained policy as a plain transformers folder, tokenizer included
    adapter/   LoRA only: the trained adapter in PEFT's format, which `vllm serve --enable-lora` reads too
               base.sha256 in it names the files it belongs on by their sums (`sha256sum -c base.sha256`)
    base/      LoRA only: what the adapter belongs on, the policy after SFT
    README.md  model card, the same in merged/; the one in adapter/ names the adapter's own base
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ghar.config import Config
from ghar.disk import report_full_disk
from ghar.errors import BadInput
from ghar.llm.adapter import base_of, merge_and_unload
from ghar.metrics.runfolder import RunFolder, write_whole
from ghar.metrics.upper_bounds import in_words
from ghar.provenance import learned_from_credentialed, write_mark
from ghar.trainers.evaluation.weights import find, identity, make_actor
from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.runs import checkpoint, manifest
from ghar.trainers.runs.models import SFT, check_sft, load_sft, save_model, use_cores

METRICS = ("accuracy", "macro_f1", "reward", "retrieval_rate", "when_f1", "iterations")
VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # what --max-lora-rank may be (vLLM 0.32)


def export(config: Config) -> Path:
    """Write `run_dir`/export, whole or not at all, from the best checkpoint (or `eval.checkpoint`). Returns it.

    BadInput when the run is not finished, or its weights are missing or damaged.
    """
    use_cores(config.threads)
    run = Path(config.run_dir)
    summary = RunFolder(run).summary()
    if summary is None:
        raise BadInput(f"{run} holds no finished run: train it first, with the same command and launch/train.py.")
    step = find(config).step
    if step is None:
        raise BadInput(f"{run / 'checkpoints'} holds no checkpoint of RL to export: train the run first.")
    target, partial = run / "export", run / ".export.partial"
    with report_full_disk(run), _made(partial):
        if config.model.finetune == "lora":  # while no other model is in memory
            _write_base(config, step.parent, partial / "base")
        actor, tokenizer = load_trained(config, step)
        if config.model.finetune == "lora":
            name = write_adapter(actor, partial / "adapter", partial / "base")
        credentialed = any(map(learned_from_credentialed, (step, step.parent / SFT)))
        save_model(merge(actor), tokenizer, partial / "merged", credentialed)
        for folder in (partial, partial / "merged"):
            write_whole(folder / "README.md", card(config, summary, step, credentialed))
            write_mark(folder, credentialed)
        if config.model.finetune == "lora":
            write_whole(partial / "adapter" / "README.md", card(config, summary, step, credentialed, name))
            write_mark(partial / "adapter", credentialed)
    shutil.rmtree(target, ignore_errors=True)
    os.replace(partial, target)
    print(f"Exported {step.name}: {', '.join(sorted(path.name for path in target.iterdir()))} in {target}")
    return target


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """An empty folder, which goes again where what it is for fails."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def load_trained(config: Config, step: Path) -> tuple[ActorCritic, Any]:
    """The actor as a checkpoint of RL holds it, and its tokenizer. BadInput for damaged weights."""
    base, tokenizer = load_sft(config, step.parent)
    actor = make_actor(config, base, checkpoint.agents_of(step), learns=False)
    actor.load_trainable_state(checkpoint.load(step, identity(config, actor, tokenizer, step.parent)).weights)
    return actor, tokenizer


def _write_base(config: Config, checkpoints: Path, target: Path) -> None:
    """The policy after SFT as a whole model, whether the run keeps it as one or as an adapter."""
    check_sft(checkpoints)
    if base_of(checkpoints / SFT) is None:
        shutil.copytree(checkpoints / SFT, target, copy_function=_link)
    else:
        save_model(*load_sft(config, checkpoints), target, learned_from_credentialed(checkpoints / SFT))


def write_adapter(actor: ActorCritic, target: Path, base: Path) -> str:
    """The actor's adapter as adapter_config.json and adapter_model.safetensors; the critic's stays behind.

    base: the sealed model that it belongs on. PEFT is told a name made from its weights' sums, which is returned: it
    leads to no folder and no hub, so that no tool puts the adapter on another model by itself, wherever it is moved.
    """
    sums = {name: sum_ for name, sum_ in manifest.sums(base).items() if name.endswith((".safetensors", ".bin"))}
    settings = actor.policy.peft_config["default"]
    settings.base_model_name_or_path = f"ghar-sft-{manifest.weights_sum(base)[:16]}"
    # PEFT lists every layer by its full name; the kinds of layers mean the same, as every one of a kind has an adapter
    settings.target_modules = {name.rpartition(".")[2] for name in settings.target_modules}
    # Embeddings are never trained; PEFT would ask the hub about them.
    actor.policy.save_pretrained(target, selected_adapters=["default"], save_embedding_layers=False)
    write_whole(target / "base.sha256", (f"{sums[name]}  ../base/{name}\n" for name in sorted(sums)))
    return settings.base_model_name_or_path


def merge(actor: ActorCritic) -> Any:
    """The actor as a plain transformers model. With LoRA the adapter is folded in for good: the actor is used up."""
    if actor.cfg.finetune == "full":
        return actor.policy
    return merge_and_unload(actor.policy)


def card(
    config: Config, summary: Mapping[str, Any], step: Path, credentialed: bool, adapter_on: str | None = None
) -> str:
    """The model card (Markdown with the hub's front matter) of the weights in `step`.

    credentialed: the weights' own mark. adapter_on: of the adapter alone, the name of the base that it belongs on.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    lora = config.model.finetune == "lora"
    pages = Environment(
        loader=PackageLoader("ghar.metrics"), undefined=StrictUndefined, trim_blocks=True, autoescape=False
    )
    pages.filters["interval"] = _interval
    pages.filters["in_words"] = lambda ceilings: in_words({"ceilings": ceilings})
    rank = next((r for r in VLLM_RANKS if r >= (config.model.lora_rank or 0)), None)
    return pages.get_template("card.md").render(
        summary={
            **{"commit": None, "ceilings": None},
            **summary,
            "task": {"question": None, **summary["task"]},
        },
        config=asdict(config),
        lora=lora,
        adapter_on=adapter_on,
        base_model=config.model.path or "a small Qwen2 built by GHAR's demo",
        credentialed=credentialed,
        step=int(step.name.removeprefix("step-")),
        best=config.eval.checkpoint is None,
        metrics=[m for m in METRICS if any(m in numbers for numbers in summary["policies"].values())],
        vllm_rank=rank if lora else None,
    )


def _interval(value: Any) -> str:
    """A metric's [value, low, high] as text; undefined where a policy has no such number."""
    return "{:.3f} [{:.3f}, {:.3f}]".format(*value) if isinstance(value, list) and None not in value else "-"


def _link(source: str, target: str) -> None:
    """A second name for a file instead of a second copy, where the file system has such."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
