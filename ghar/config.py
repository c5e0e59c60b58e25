"""What a run can be told: every key, its type, its allowed values. Defaults stand in conf/, never here.

`ghar.configure` reads a composed mapping into these classes and checks what types cannot say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol


@dataclass(frozen=True)
class Range:
    """Bounds of a number, both included unless `above` (then the lower one is not)."""

    low: float
    high: float = float("inf")
    above: bool = False

    def __str__(self) -> str:
        if self.high == float("inf"):
            return f"{'above' if self.above else 'at least'} {self.low:g}"
        return f"{'above' if self.above else 'from'} {self.low:g} {'and at most' if self.above else 'to'} {self.high:g}"

    def holds(self, number: float) -> bool:
        return (number > self.low if self.above else number >= self.low) and number <= self.high


@dataclass(frozen=True)
class OwnModule:
    """Beside the choices of a Literal, a module of the user's own: PACKAGE.MODULE (docs/extending.md)."""


@dataclass(frozen=True)
class OrYears:
    """Beside the choices of a Literal, a year or a span of years: 2014, 2011-2016."""

    def holds(self, value: object) -> bool:
        span = re.fullmatch(r"(\d{4})(?:-(\d{4}))?", str(value))
        return span is not None and (span[2] is None or span[1] <= span[2])


@dataclass(frozen=True)
class OrGpus:
    """Beside true and false, GPUs to plan for: h100, 8xh100, 4x48gb (`ghar.device.planned_for`)."""

    def holds(self, value: object) -> bool:
        return isinstance(value, str) and re.fullmatch(r"(\d+x)?[A-Za-z]*\d+[A-Za-z0-9-]*", value) is not None


Count = Annotated[int, Range(1)]
Natural = Annotated[int, Range(0)]
Positive = Annotated[float, Range(0, above=True)]
NotNegative = Annotated[float, Range(0)]
Fraction = Annotated[float, Range(0, 1)]


@dataclass(frozen=True)
class ScaleConfig:
    # demo: two cores, generated patients; laptop: a pretrained model without a GPU; full: the paper's setting
    name: Literal["demo", "laptop", "full"]


POSTGRESQL = "postgresql:"  # how data.root begins where it names a service of a database


@dataclass(frozen=True)
class DataConfig:
    # the source, which names its file format; demo_long: generated long histories, for EHR-RAG (small: for tests);
    # demo_cases: generated patients whose outcome other patients' cases alone tell, for GraphWalker
    name: Annotated[
        Literal[
            "demo",
            "demo_long",
            "demo_long_small",
            "demo_cases",
            "mimic4",
            "mimic3",
            "eicu",
            "meds",
            "omop",
            "medqa",
            "summary",
        ],
        OwnModule(),
    ]
    root: str | None  # folder of the source's tables, file or folder of texts; null generates the demo world
    patients: Count  # size of the demo world
    world_seed: Natural  # of the demo world
    # what the demo world's outcomes draw on: the graph; four: the patient's own past and other patients' reports too,
    # in shares of envs/worlds/severity/sources.py; the last two: mostly the one or the other of four
    mix: Literal["graph", "four", "four_mostly_graph", "four_mostly_patients"]
    leakage: Literal["paper", "strict"]  # strict shows only what was knowable at prediction time
    codes: str | None  # folder of code tables (ghar/data/codes.py lists them); null maps nothing
    # what is shown, linked and counted in mapped codes: ICD as CCS and drugs as ATC level 3, or drugs alone
    mapping: Literal["all", "drugs"]
    vocabulary: str | None  # meds: YAML file of what further codes mean; null knows the shapes in docs/data.md
    # further tables for systems that read events, ehr_rag above all: of mimic4 (ed is MIMIC-IV-ED's folder beside
    # hosp/, notes MIMIC-IV-Note's radiology); mimic3 has inputs, outputs, transfers, services and notes; eicu inputs
    more: tuple[
        Literal["ed", "omr", "microbiology", "emar", "inputs", "outputs", "transfers", "services", "notes"], ...
    ]
    earlier: bool  # similar patients, examples and reports are those whose outcome was known before, by time
    take: Count | None  # so many patients of real tables, drawn by chance, for a quick look; null takes all
    cache: str  # folder for what can be recomputed: the demo world, converted tables, indexes


@dataclass(frozen=True)
class PaperProtocol:
    """A paper's way to cut its data: conf/protocol/NAME.yaml sets the keys and says where the paper is silent."""

    name: Literal["none", "ghar", "kare", "graphwalker", "ehrshot", "exprag", "strict"]  # whose, as the report says


@dataclass(frozen=True)
class TaskConfig:
    # GHAR's three; KARE's two; GraphWalker's three on time series (ghar/data/tasks/series.py)
    name: Annotated[
        Literal[
            "los",
            "read",
            "dec",
            "kare_mortality",
            "kare_readmission",
            "los_24h",
            "mortality_24h",  # asked after a stay's first day (ghar/data/tasks/first_day.py)
            "series_mortality",
            "series_readmission",
            "series_los",
            "series_dec",
            "dischargeqa_diagnosis",
            "dischargeqa_medication",
            "dischargeqa_instruction",  # EXPRAG's DischargeQA
            "guo_los",
            "guo_readmission",
            "new_acutemi",
            "lab_anemia",  # EHRSHOT's, for EHR-RAG
            "medqa",  # examination questions (ghar/data/tasks/question_files.py)
            "summary",  # of clinical texts (ghar/data/tasks/summary_files.py)
            "order_check",  # contraindicated orders: real stays, the graph's truth (ghar/data/tasks/order_check.py)
            "labels",  # those of a MEDS label file
        ],
        OwnModule(),
    ]
    labels: str | None  # task=labels: a label file or a folder of them; null, or a name: of those beside MEDS data
    question: str | None  # task=labels: what is asked; null asks as NAME.json beside the labels does, or by their name
    bins: tuple[float, ...] | None  # task=labels: edges that cut numbers into answers; null takes quartiles
    # what is counted from: dec's 24 hours, and the days of read and kare_readmission
    anchor: Literal["discharge", "admission"]
    window_days: Count  # read, kare_readmission: readmission within so many days
    complete: bool  # los, read, dec: of visits with a diagnosis, a procedure and a drug alone, as PyHealth has it
    # in which stays is predicted, all if empty: of adults (18 years), a patient's first, with intensive care, in
    # true years (mimic4, eicu)
    stays: tuple[Annotated[Literal["adults", "first", "icu"], OrYears()], ...]
    draw: Literal["all", "last", "kare"]  # of a patient: all samples, the last of two or more visits, or KARE's draw
    patients: Count | None  # so many are drawn; null takes all
    legacy_order: bool  # visits by id and not by time, as PyHealth 1.1 has them; to reproduce published numbers only
    split: tuple[Fraction, Fraction, Fraction]  # shares of train, valid, test; by patient
    split_of: Literal["task", "cohort"]  # whose patients are shared out; cohort: alike for every task
    split_seed: Natural  # of the drawing by patient
    max_train: Count | None  # at most so many samples, drawn; null for all
    max_valid: Count | None  # the same of validation
    # the same of the test; 0 leaves it unopened: evaluations play the validation samples, to choose settings by
    max_test: Natural | None

    @property
    def played(self) -> Literal["test", "valid"]:
        """Which samples evaluations play."""
        return "valid" if self.max_test == 0 else "test"


@dataclass(frozen=True)
class KgConfig:
    path: str | None  # PrimeKG-format csv or csv.gz; null is the generated graph, of generated patients alone
    references: str | None  # table of code to node cross-references; null links by name alone


@dataclass(frozen=True)
class RetrieverConfig:
    kind: str  # tfidf, bm25, e5, bge_m3, clinical_bert, any sentence-transformers name, or a module of your own
    top_n: Count  # nodes and edges per partition, N of Eq. 10
    probes: Count | None  # dense kinds: lists of a large partition that are read, which misses hits; null reads all
    service: str | None  # address of launch/serve_retrieval.py, like http://127.0.0.1:8077; null retrieves in process
    workers: Count  # service: processes that answer, and calls a run has under way


@dataclass(frozen=True)
class ModelConfig:
    # of a pretrained model: folder or hub name, a GGUF file, or package:NAME for one in a Python package; null: the
    # demo's, a small Qwen2 built on the spot
    path: str | None
    system_message: str | None  # before every prompt, if the chat template shows one; null: the template's own
    template_arguments: dict[str, Any] | None  # of the chat template, as {enable_thinking: false}
    dtype: Literal["float32", "bfloat16", "auto"]  # of weights and computation; auto: bfloat16 where it is quick
    max_length: Count  # tokens of a prompt with its reply at most, in training and in vllm
    lora_rank: Count | None  # of the low-rank adapters that are trained, alpha twice as much; null trains all weights
    critic: Literal["head", "own"]  # value heads on the policy's trunk, or a trunk (LoRA: an adapter) of its own
    hidden: Count | None  # demo: width; null for a pretrained model, here and below
    layers: Count | None  # demo: layers
    vocab: Annotated[int, Range(256)] | None  # demo: size limit of its tokenizer

    @property
    def kind(self) -> Literal["demo", "pretrained"]:
        """demo: a small Qwen2 built on the spot."""
        return "demo" if self.path is None else "pretrained"

    @property
    def lora_alpha(self) -> int:
        return 2 * (self.lora_rank or 0)

    @property
    def finetune(self) -> Literal["lora", "full"]:
        return "full" if self.lora_rank is None else "lora"


@dataclass(frozen=True)
class EngineConfig:
    # api: model.path is the address of a server, model@http://host:8000/v1
    kind: Annotated[Literal["hf", "vllm", "api"], OwnModule()]
    max_batch: Count  # requests per forward pass
    temperature: Positive  # of sampling in training; evaluation is greedy
    importance_cap: Positive | None  # C of truncated importance sampling; null trusts the engine's log-probs
    kv_cache_gb: Positive | None  # vllm: GiB for keys and values, on each GPU
    memory: Annotated[float, Range(0, 0.95, above=True)] | None  # vllm: share of each GPU, for all
    sync: Literal["weights", "adapter"] | None  # vllm, LoRA: what is sent; null sends adapters on GPUs in 16 bits
    sleep: bool  # vllm on GPUs: give memory back between rollouts
    gpus: Count | None  # of each process; null: its own, none on Ray; vllm, one process: several share one engine

    @property
    def shared_by(self) -> int:
        """GPUs that share one engine (tensor parallelism)."""
        return self.gpus or 1

    @property
    def loads_weights(self) -> bool:
        """Whether weights of ours answer, and not a server or an engine of the user's own: these only evaluate."""
        return self.kind in ("hf", "vllm")

    @property
    def untrainable(self) -> str:
        """Why no training has an engine that does not load weights."""
        return f"engine={self.kind} takes no weights: it plays evaluations; choose engine=hf to train."


@dataclass(frozen=True)
class EnvConfig:
    prompts: Literal["compact", "full"]  # template set: compact for small models
    # free: replies are read as they are; chosen: the model chooses among the options what its words leave open
    decisions: Literal["free", "chosen"]
    # by role, tokens that a reply may have, at least 1, as {summarise: 192}; null, and roles that are left out: as the
    # prompt files have it
    reply_tokens: dict[str, int] | None
    history_tokens: Count  # budget of the patient text
    in_flight: Count  # episodes running at once

    @property
    def budgets(self) -> Mapping[str, int]:
        """Tokens of a reply, by role, that a run sets in place of the prompt files'."""
        return self.reply_tokens or {}


@dataclass(frozen=True)
class RewardConfig:
    eta: NotNegative  # weight of the outcome, Eq. 14 of GHAR


@dataclass(frozen=True)
class BaseConfig:
    """Gives the demo model its parametric knowledge; a pretrained model has its own."""

    steps: Natural  # of training; 0 leaves it untrained
    batch: Count  # exercises a step
    # of its weights and exercises; null is data.world_seed, so that runs share one base model: the package's, where one
    # of this recipe and of at least so many steps comes with it, else one that is made once; a number makes it again
    seed: Natural | None


@dataclass(frozen=True)
class WarmupConfig:
    """Rejection sampling by a teacher, then SFT."""

    teacher: str  # "scripted", the folder or hub name of a model, or a server, model@http://host:8000/v1
    samples: Count  # training samples put to the teacher
    attempts: Count  # per sample, until one is correct
    epochs: Count  # passes over the training examples
    batch: Count  # training examples a step
    micro_batch: Count  # replies a forward pass, here and in the base stage; changes memory and time, not results
    lr: Positive  # learning rate


@dataclass(frozen=True)
class RlConfig:
    """Multi-agent PPO (Eqs. 16-18)."""

    # of the policy; 0 leaves it as the warm-up made it, and leaves the warm-up out where no variant of eval.variants
    # uses it (label-only SFT has weights of its own)
    updates: Natural
    episodes: Count  # per update: the one definition of a batch
    dynamic: bool  # leave out patients whose attempts all earned the same
    attempts: Count  # times each patient of a batch is played; estimators by group compare them
    epochs: Count  # passes over a batch
    minibatches: Count  # steps a pass over a batch
    lr: Positive  # learning rate of the policy
    # how it falls towards the last update; a module of your own scales lr, kl, entropy and clip (docs/extending.md)
    schedule: Annotated[Literal["constant", "linear", "cosine"], OwnModule()]
    value_lr: Positive  # learning rate of the critic
    value_epochs: Count  # passes of a critic of its own over a batch
    value_minibatches: Count  # its steps a pass
    value_warmup: Natural  # first updates, in which it learns alone and the policy stays
    clip: Positive  # epsilon of Eq. 16
    gamma: Fraction  # discount of later rewards
    lam: Fraction  # lambda of GAE: 1 takes whole returns, 0 one step
    credit: Literal["token", "turn", "bilevel"]  # what has an advantage of its own; bilevel: turns, then tokens
    per_agent: bool  # GAE within each agent's own turns
    # advantages: gae with a critic; grpo, rloo, turn_group against a patient's other attempts; reinforce_pp whitened
    estimator: Literal["gae", "grpo", "rloo", "reinforce_pp", "turn_group"]
    aggregate: Literal["token", "turn", "sequence"]  # what counts alike in the losses
    kl: NotNegative  # weight of the KL term to the reference
    # of the term in the loss, k1 and k2 with the gradient of KL(pi || ref); reward: k1, taken from what a turn earns
    kl_estimator: Literal["k1", "k2", "k3", "reward"]
    kl_target: Positive | None  # nats a token that its weight is steered to; null leaves it as it is
    # GHAR's equations as printed: eq16 has ratios to the reference policy, eq17 critics that learn the shared reward
    as_printed: tuple[Literal["eq16", "eq17"], ...]
    value_coef: NotNegative  # weight of the value loss
    entropy: NotNegative  # weight of the entropy bonus
    micro_tokens: Count  # tokens per forward and backward pass; changes memory, not results
    max_grad_norm: Positive  # longer gradients are cut to this norm
    eval_every: Count  # updates
    # of the best weights; accuracy: of task=summary ROUGE-L
    select: Literal["reward", "accuracy", "balanced_accuracy", "macro_f1"]
    save_every: Count  # updates between checkpoints; an evaluation always saves one
    eval_samples: Count  # validation samples an evaluation plays, at most
    patience: Count | None  # evaluations without a better one before stopping; null never stops early


@dataclass(frozen=True)
class Rft:
    """Rejection-sampling fine-tuning (trainer.method=rft). Rounds, episodes, steps and validation are trainer.rl's, so
    both methods have one budget."""

    keep: Count  # best attempts at each patient that are imitated; trainer.rl.attempts are played
    min_reward: float | None  # episodes with a lower reward are not imitated; null sets no limit
    lr: Positive  # learning rate


@dataclass(frozen=True)
class RllibConfig:
    """RLlib's PPO on a system's game of numbers (rllib=ppo); what it shares with ours stands in trainer.rl."""

    policies: Literal["shared", "separate"]  # one for all agents, or one for each
    checkpoint: str | None  # of launch/train_rllib.py: its policy is a variant of an evaluation, rllib


@dataclass(frozen=True)
class TrainerConfig:
    # after SFT: multi-agent PPO, or rejection-sampling fine-tuning on as many episodes; plain: SFT and multi-agent PPO
    # by trainers/plain.py, one slow file to be read
    method: Literal["mappo", "rft", "plain"]
    base: BaseConfig
    warmup: WarmupConfig
    rl: RlConfig
    rft: Rft


Zero = Literal["none", "zero0", "zero1", "zero2", "zero2_offload", "zero3", "zero3_offload", "auto"]


@dataclass(frozen=True)
class DeepspeedConfig:
    """What the processes of `torchrun --nproc-per-node N` share out among them (ZeRO), and what is not kept."""

    # ZeRO's stages, offload: with the optimiser state in CPU memory; auto: the first that fits into the machine's
    # memory, by trainers/memory.py; none: without DeepSpeed
    zero: Zero
    checkpointing: bool  # recompute activations in the backward pass: less memory, more time; also without DeepSpeed

    @property
    def stage(self) -> int | None:
        """ZeRO's; None without DeepSpeed."""
        return None if self.zero in ("none", "auto") else int(self.zero.removeprefix("zero")[0])

    @property
    def offload(self) -> bool:
        return self.zero.endswith("_offload")


@dataclass(frozen=True)
class RayConfig:
    """What launch/train_ray.py starts on a cluster, or on this machine."""

    workers: Count  # processes that train, each on its share of a batch
    rollout_actors: Count  # processes that play episodes, for each worker
    retrieval_actors: Count  # processes that retrieve, for each worker
    max_staleness: Natural  # by how many updates the weights that play may be older than those in training
    timeout_s: Positive  # for an actor's share of a batch; one that takes longer counts as lost


@dataclass(frozen=True)
class EvalConfig:
    variants: tuple[str, ...] | None  # of the system; null is the system's own list
    checkpoint: str | None  # a step folder, or a saved model; null is the best of run_dir
    bootstrap: Count  # resamples behind a confidence interval


class Named(Protocol):
    """The Settings of a system (envs/system.py), which has keys of its own besides.

    One whose keys name folders of patients' texts lists them as its property `patient_text`. One that reads events and
    no visits says so by its property `reads_events`, one that needs a graph by `reads_graph`.
    """

    @property
    def name(self) -> str: ...


@dataclass(frozen=True)
class LoggerConfig:
    wandb: Literal["disabled", "offline", "online"]  # Weights & Biases: off, files for a later sync, or sent at once


@dataclass(frozen=True)
class PrivacyConfig:
    allow: tuple[str, ...]  # where text of credentialed patients may go: wandb, or the host of a service


@dataclass(frozen=True)
class Config:
    """Everything a run was told; `dataclasses.asdict` gives it back as plain values."""

    seed: Natural  # of all that is drawn in training and sampling; the demo world has data.world_seed
    threads: Count | None  # processor threads of a process; null takes the cores that are idle at the start
    run_dir: str  # folder of the run: configuration, metrics, checkpoints, episodes, report
    resume: Literal["auto", "never"]  # an unfinished run of the same configuration in run_dir: go on, or start over
    # print what the run would take (calls, tokens, hours, memory, disk) and stop; 8xh100: on GPUs that are not here
    plan: Annotated[bool | str, OrGpus()]
    keep_last: Count  # newest checkpoints kept, besides the best one; two or more survive a damaged one
    scale: ScaleConfig
    protocol: PaperProtocol
    data: DataConfig
    task: TaskConfig
    kg: KgConfig
    retriever: RetrieverConfig
    model: ModelConfig
    engine: EngineConfig
    env: EnvConfig
    reward: RewardConfig
    trainer: TrainerConfig
    system: Named  # its Settings: envs/NAME/settings.py
    deepspeed: DeepspeedConfig
    ray: RayConfig | None  # of launch/train_ray.py
    rllib: RllibConfig | None  # of launch/train_rllib.py
    eval: EvalConfig
    logger: LoggerConfig
    privacy: PrivacyConfig
