"""Measured claims, one command each: python benchmarks/run.py learning --seeds 3

Results are printed and kept under --folder. One file each, benchmarks/<name>.py, says what it measures and how:

learning: the demo, or +experiment=NAME, under `--seeds` seeds, each from a base of its own: RL against SFT, controls
    (rejection-sampling fine-tuning from the same warm-up, at equal episodes and at equal tokens), the other variants
    and the ceilings. `--worlds` gives each seed generated patients and truths of its own.
sealed: a test registered in benchmarks/registrations/NAME.yaml, on worlds that were never generated, opened once:
    python benchmarks/run.py sealed NAME
ablations: Table VII on the demo's world under `--seeds` seeds: NI, NT, NL, NM and NS, each trained, beside its ceiling.
estimators: the same world with a critic (gae) and without one (rloo, the demo's), on as many samples.
navigation: steps per second, and how soon RLlib's PPO reaches 95% of the scripted optimum.
data: reading 20,000 generated MIMIC-IV admissions, tasks and texts, cold and cached, against plain polars.
large: the same of `--share` of 300,000 patients, `--labs` lab rows an admission, and of a third and a tenth of that.
growth: processor seconds of reading, indexes, episodes, updates and so on at three sizes, and the fitted exponents.
processes: processor seconds of an update of 120 episodes under torchrun with 1, 3 and 10 processes, all together.
streaming: largest memory of labels, event store and export of a cohort of `--share` of 186 million events.
retrieval: an index over a generated graph of `--share` of PrimeKG's size (5 GB on disk); Fig. 8(c) of the paper.
rollout: episodes per second against a lock-step loop, with the policy of the run in run_dir=..., on `--share` of the
    episodes of all settings, or of those that `--only` names.
ppo: the optimisation part of a PPO step, against TRL 1.12's where `--trl` names a python that has it; `--only smollm2`
    times episodes of eight turns at SmolLM2's shape.
memory: peak memory of an optimisation step with actor, critic and reference on one base, against three models.
heap: memory that a step of SFT of SmolLM2 takes, by where glibc's heap puts tensors.
patient_graph: k-NN graph and Leiden over 100,000 patients (`--share` of them).
selection: GraphWalker's scored prompts, prompt tokens and prompts per second (`--share` of 100 patients).
effort: demonstration selectors at an equal number of scored prompts, with an exact reader, on `--seeds` worlds.
walks: information gain of GraphWalker's greedy rule against the best walk there is, and of a rule and a learned
    selector with half of its scored prompts, on generated patients.
reports: EXPRAG's ranking of one stay against `--share` of 430,000 admissions, and its index.
kare_dgra: KARE's selection for one patient among `--share` of 60,000 communities.
events: EHR-RAG's event store of `--share` of 10,000 patients with 5,000 events each, and one ETHER query.
kare_graph: KARE's filter of `--share` of 44,000 concept sets, and path search on two graphs of a million edges.
environments: what each registered environment pays simple policies, onto docs/environments.md.
clients: other projects' learners and tools on each registered environment, onto docs/environments.md.
threads: the demo's steps beside 0, 2 and 8 busy processes, by threads and way of waiting.
trivial: what every environment pays policies that take no thought, beside the agents trained in FOLDER/NAME.
distill: KARE's distilled model against models that learn labels alone, on the demo world, under `--seeds` seeds.
injection: how often text planted in records and findings changes a decision, on `--share` of 100 cases a system.
service: the retrieval service under `--share` of 1,000 clients, a tenth of them hostile.
flips: `--share` of 10,000 flipped bits in caches, indexes, models, training examples, and of 10,000 in a run folder.
hostile: `--share` of a million hostile replies through every reader of every system: exceptions, processor time.
silence: bytes that leave the machine, counted by the kernel, in trainings of all systems and in refused ones.
kills: a small training, alone, under torchrun and on Ray, killed `--share` of 50 times: it ends as if left alone.
road: files, functions and depth of calls that one update runs, of trainers/plain.py and of the fast trainer.
representations: distances between the representations of a run's replies, by the label named: Fig. 10(c) of GHAR.
pyhealth: PyHealth's models on the samples of a configuration, as predictions that studies read; `--pyhealth` names a
    python that has pyhealth 1.1.6, `--models` which.
papers: docs/papers.md from the studies: what makes each table and figure, and in what it differs.
study_page: the section of docs/results.md on the study in `--folder`, finished or not, drawn from what is there.
coverage: how often intervals over 2, 3, 5 and 8 seeds hold the truth, on `--share` of 1,000 studies a setting.
sync: `--seeds` exchanges of weights and of adapters with vLLM in bfloat16 on SmolLM2: false alarms, and what is found.
order_arms: order check with SmolLM2: SFT, then rejection sampling, RLOO and MAPPO from it, on unopened test questions.
ward_round: episodes until a goal with a critic and without, on a world made to test a critic, under `--seeds`.
real_decisions: decisions of SmolLM2-135M that can be read, all systems on `--share` of 20 patients of each open demo.
real_outcomes: baselines that ask no model, on a task of the real patients in data.root, and what the test can show.
real_model: replies, label probabilities and SFT a second with SmolLM2-135M and engine hf, at `--share` of their tokens.
adapter_play: replies a second with SmolLM2-135M, its adapter folded in and beside the base, and what this rounds.
base_model: the base model that comes with the package, made again and compared byte by byte.
gallery: the pictures of docs/gallery.md, from generated patients alone (Chromium draws the pages).
kare_clusters: agglomerative clustering of `--share` of 100,000 entity names, against all distances on 5,000.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def bench(name: str) -> Any:
    """The module benchmarks/<name>.py, imported only when it is asked for."""
    return importlib.import_module(f"benchmarks.{name}")


WHAT: dict[str, Callable[[argparse.Namespace], Any]] = {
    "learning": lambda a: bench("learning").learning(a.seeds, a.folder, a.overrides, a.timeout, a.worlds),
    "sealed": lambda a: bench("sealed").sealed(a.overrides, a.folder, a.timeout),
    "ablations": lambda a: bench("ablations").ablations(a.seeds, a.folder, a.overrides, a.timeout),
    "estimators": lambda a: bench("ablations").estimators(a.seeds, a.folder, a.overrides, a.timeout),
    "navigation": lambda a: bench("navigation").navigation(a.seeds, a.overrides),
    "data": lambda a: bench("data").data(a.folder, runs=a.seeds, timeout=a.timeout),
    "large": lambda a: bench("data").large(a.folder, timeout=a.timeout, labs=a.labs, share=a.share),
    "growth": lambda a: bench("growth").growth(a.folder, runs=a.seeds, share=a.share),
    "processes": lambda a: bench("processes").processes(a.folder / "processes", a.overrides, a.timeout),
    "streaming": lambda a: bench("streaming").streaming(a.folder, share=a.share, timeout=a.timeout),
    "retrieval": lambda a: bench("retrieval").retrieval(a.folder / "retrieval", share=a.share, seed=0),
    "rollout": lambda a: bench("rollout").speed(a.seeds, a.overrides, a.share, a.only),
    "ppo": lambda a: bench("ppo").step(a.folder, a.seeds, a.overrides, a.trl, a.timeout, a.only),
    "memory": lambda a: bench("memory").memory(a.folder, a.seeds, a.overrides, a.timeout),
    "heap": lambda a: bench("heap").heap(a.timeout),
    "patient_graph": lambda a: bench("patient_graph").patient_graph(a.folder, a.seeds, share=a.share),
    "events": lambda a: bench("events").events(a.folder, share=a.share, seed=0, timeout=a.timeout),
    "selection": lambda a: bench("selection").selection(a.seeds, a.overrides, share=a.share),
    "kare_dgra": lambda a: bench("kare_dgra").dgra(share=a.share, seed=0),
    "effort": lambda a: bench("effort").effort(a.seeds, a.overrides),
    "walks": lambda a: bench("walks").walks(a.seeds),
    "reports": lambda a: bench("reports").reports(a.folder, share=a.share, seed=0, timeout=a.timeout),
    "kare_graph": lambda a: bench("kare_graph").kare_graph(share=a.share, seed=0),
    "distill": lambda a: bench("distill").distill(a.folder, a.seeds, a.overrides, a.timeout),
    "injection": lambda a: bench("injection").injection(a.overrides, share=a.share),
    "service": lambda a: bench("service").service(a.folder / "service", share=a.share, seed=0),
    "flips": lambda a: bench("flips").flips(a.folder, count=round(10_000 * a.share), seed=a.seeds),
    "hostile": lambda a: bench("hostile").hostile(share=a.share, seed=a.seeds),
    "silence": lambda a: bench("silence").silence(a.folder),
    "saves": lambda a: bench("saves").saves(a.folder, a.seeds),
    "kills": lambda a: bench("kills").kills(a.folder, count=max(1, round(50 * a.share)), seed=a.seeds),
    "environments": lambda a: bench("environments").environments(a.share),
    "clients": lambda a: bench("clients").clients(a.folder),
    "threads": lambda a: bench("threads").threads(a.share),
    "road": lambda a: bench("road").road(),
    "gallery": lambda a: bench("gallery").gallery(a.folder),
    "representations": lambda a: bench("representations").representations(a.overrides, a.folder),
    "pyhealth": lambda a: bench("pyhealth_rows").pyhealth_rows(
        a.folder, a.seeds, a.overrides, a.pyhealth, a.models.split(","), a.timeout
    ),
    "papers": lambda a: bench("papers").papers(),
    "study_page": lambda a: bench("study_page").study_page(a.folder),
    "coverage": lambda a: bench("coverage").coverage(a.share),
    "trivial": lambda a: bench("trivial").trivial(a.overrides, a.folder),
    "sync": lambda a: bench("sync").sync(a.folder, a.seeds),
    "order_arms": lambda a: bench("order_arms").order_arms(
        a.folder, a.overrides, a.timeout, a.arms.split(","), a.seeds, a.line, a.last
    ),
    "ward_round": lambda a: bench("ward_round").ward_round(a.folder, a.seeds, a.overrides, a.timeout),
    "real_decisions": lambda a: bench("real_decisions").real_decisions(a.folder, a.overrides, a.share),
    "real_outcomes": lambda a: bench("real_outcomes").real_outcomes(a.folder, a.overrides),
    "real_model": lambda a: bench("real_model").real_model(share=a.share),
    "adapter_play": lambda a: bench("adapter_play").adapter_play(a.seeds, a.share),
    "base_model": lambda a: bench("base_model").base_model(a.folder / "base_model"),
    "kare_clusters": lambda a: bench("kare_clusters").kare_clusters(a.seeds, share=a.share),
}


def _updates(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def parser_of_words() -> argparse.ArgumentParser:
    """Build the parser of the command line. Overrides may follow options: parse_intermixed_args reads both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("--seeds", type=int, default=3, help="seeds, or repetitions of a measurement")
    parser.add_argument("--folder", type=Path, default=Path("runs/benchmark"), help="where the runs are kept")
    parser.add_argument("--timeout", type=float, default=7200.0, help="seconds one run may take")
    parser.add_argument("--share", type=float, default=1.0, help="of the full size of what is generated")
    parser.add_argument("--worlds", action="store_true", help="learning: a generated world for each seed")
    parser.add_argument("--labs", type=int, default=147, help="large: lab rows an admission")
    parser.add_argument("--trl", type=Path, help="ppo: python of an environment with trl==1.12")
    parser.add_argument("--arms", default="rloo,rft,mappo,label", help="order_arms: arms to train and play")
    parser.add_argument("--line", type=_updates, default=(), help="order_arms: earlier updates to play, as 8,16,32")
    parser.add_argument("--last", type=int, help="order_arms: play arms that were stopped, after this update")
    parser.add_argument("--only", type=_names, default=(), help="ppo, rollout: settings by name, as full-16,full-64")
    parser.add_argument("--pyhealth", type=Path, help="pyhealth: python of an environment with pyhealth==1.1.6")
    parser.add_argument("--models", default="StageNet,GRASP", help="pyhealth: names of PyHealth's models")
    parser.add_argument(
        "overrides", nargs="*", help="configuration of every run, as for launch/train_ghar.py; sealed: NAME"
    )
    return parser


def main() -> None:
    parser = parser_of_words()
    arguments = parser.parse_intermixed_args()
    if arguments.worlds and arguments.what != "learning":
        parser.error(f"--worlds is an option of learning: leave it out of {arguments.what}.")
    if arguments.only and arguments.what not in ("ppo", "rollout"):
        parser.error(f"--only is an option of ppo and rollout: leave it out of {arguments.what}.")
    from benchmarks.result import tell
    from ghar.scratch import use_own_folder

    os.umask(0o077)  # episodes and answers are of patients
    use_own_folder()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    tell(arguments.what, arguments.folder, WHAT[arguments.what](arguments))


if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # instead of benchmarks/
    from ghar.errors import BadInput

    try:
        main()
    except BadInput as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
