"""What a run can be told: every key, its type, its allowed values. Defaults stand in conf/, never here.

`ghar.configure` reads a composed mapping into these classes and checks what types cannot say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal


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


Count = Annotated[int, Range(1)]
Natural = Annotated[int, Range(0)]
Positive = Annotated[float, Range(0, above=True)]
NotNegative = Annotated[float, Range(0)]
Fraction = Annotated[float, Range(0, 1)]

Policy = Literal["llm_only", "always_rag", "scripted", "ghar_sft", "ghar_rl", "rllib"]


@dataclass(frozen=True)
class Scale:
    name: Literal["demo", "full"]  # demo: two cores, generated patients; full: the paper's setting


@dataclass(frozen=True)
class Data:
    name: Literal["demo", "mimic4", "mimic3", "eicu", "meds", "medqa"]  # the source, which names its file format
    root: str | None  # folder of the source's tables, a file of medqa; null generates the demo world
    patients: Count  # size of the demo world
    world_seed: Natural  # of the demo world
    leakage: Literal["paper", "strict"]  # strict shows only what was knowable at prediction time
    codes: str | None  # folder of code tables (ghar/data/codes.py lists them); null maps nothing
    cache: str  # folder for what can be recomputed: the demo world, converted tables, indexes


@dataclass(frozen=True)
class Task:
    # GHAR's three; KARE's two; GraphWalker's three on time series (ghar/data/tasks/series.py)
    name: Literal[
        "los", "read", "dec", "kare_mortality", "kare_readmission",
        "series_mortality", "series_readmission", "series_los",
        "dischargeqa_diagnosis", "dischargeqa_medication", "dischargeqa_instruction",  # EXPRAG's DischargeQA
        "guo_los", "guo_readmission", "new_acutemi", "lab_anemia",  # EHRSHOT's, for EHR-RAG
        "medqa",  # GraphWalker's Appendix M
    ]
    anchor: Literal["discharge", "admission"]  # what dec's 24 hours are counted from
    window_days: Count  # read, kare_readmission: readmission within so many days
    legacy_order: bool  # visits by id and not by time, as PyHealth 1.1 has them; to reproduce published numbers only
    split: tuple[Fraction, Fraction, Fraction]  # shares of train, valid, test; by patient
    split_seed: Natural
    max_train: Count | None  # at most so many samples, null for all
    max_valid: Count | None
    max_test: Count | None


@dataclass(frozen=True)
class Kg:
    path: str | None  # PrimeKG-format csv or csv.gz; null is the demo world's graph
    references: str | None  # table of code to node cross-references; null links by name alone


@dataclass(frozen=True)
class Retriever:
    kind: str  # tfidf, bm25, e5, bge_m3, clinical_bert, or any sentence-transformers name
    top_n: Count  # nodes and edges per partition, N of Eq. 10
    probes: Count | None  # lists of a large partition that a query reads (dense kinds); null reads all, exactly
    service: str | None  # address of launch/serve_retrieval.py, like http://127.0.0.1:8077; null retrieves in process
    workers: Count  # service: processes that answer, and calls a run has under way
    batch: Count  # service, Ray: requests answered together
    wait_ms: NotNegative  # service, Ray: how long the first request of a batch waits for others


@dataclass(frozen=True)
class Model:
    kind: Literal["demo", "pretrained"]  # demo: a small Qwen2 built on the spot
    path: str | None  # pretrained: folder or hub name
    dtype: Literal["float32", "bfloat16"]
    finetune: Literal["lora", "full"]
    lora_rank: Count
    lora_alpha: Count
    critic: Literal["head", "adapter"]  # value heads on the shared trunk, or on an adapter of their own
    hidden: Count | None  # demo: width, layers, heads; null for a pretrained model
    layers: Count | None
    heads: Count | None
    vocab: Annotated[int, Range(256)] | None  # demo: size limit of its tokenizer


@dataclass(frozen=True)
class Engine:
    kind: Literal["hf", "vllm", "api"]  # api: model.path is the address of a server, as in kare.expert
    max_batch: Count  # requests per forward pass
    temperature: Positive  # of sampling in training; evaluation is greedy
    importance_cap: Positive | None  # C of truncated importance sampling; null trusts the engine's log-probs
    device: Literal["cpu", "cuda"] | None  # vllm: what it must run on; null takes what vLLM was built for
    kv_cache_gb: Positive | None  # vllm: GiB for keys and values
    sync: Literal["weights", "adapter"] | None  # vllm, LoRA: what is sent; null sends adapters on GPUs in 16 bits
    sleep: bool  # vllm on GPUs: give memory back between rollouts


@dataclass(frozen=True)
class Env:
    prompts: Literal["compact", "full"]  # template set: compact for small models
    rewrites: Count  # queries that fill the queue at the start, K
    max_iterations: Count  # I of Algorithm 1
    max_paths: Count  # meta-paths per retrieval
    history_tokens: Count  # budget of the patient text
    ablation: Literal["none", "ni", "nt", "nl", "nm"]  # Table VII; NS is reward.composition=separate
    in_flight: Count  # episodes running at once


@dataclass(frozen=True)
class Reward:
    eta: NotNegative  # weight of R_orm, Eq. 14
    alpha: float  # distance of Eq. 15
    length: Count  # L of Eq. 8
    normalise: Literal["range", "running", "none"]  # per term, before they are added
    rank: Literal["sound", "literal"]  # literal: max(alpha, difference) as printed in Eq. 15
    composition: Literal["shared", "separate"]  # separate: each agent its own terms (ablation NS)


@dataclass(frozen=True)
class Base:
    """Gives the demo model its parametric knowledge."""

    steps: Natural
    batch: Count
    lr: Positive


@dataclass(frozen=True)
class Warmup:
    """Rejection sampling by a teacher, then SFT."""

    teacher: str  # "scripted", or the folder or hub name of a model
    samples: Count  # training samples put to the teacher
    attempts: Count  # per sample, until one is correct
    epochs: Count
    batch: Count
    micro_batch: Count  # replies a forward pass, here and in the base stage; changes memory and time, not results
    lr: Positive


@dataclass(frozen=True)
class Rl:
    """Multi-agent PPO (Eqs. 16-18)."""

    updates: Natural
    episodes: Count  # per update: the one definition of a batch
    epochs: Count  # passes over a batch
    minibatches: Count
    lr: Positive  # of the policy
    value_lr: Positive  # of the value heads
    clip: Positive  # epsilon of Eq. 16
    value_clip: Positive
    gamma: Fraction
    lam: Fraction
    credit: Literal["token", "turn", "bilevel"]
    per_agent: bool  # GAE within each agent's own turns
    kl: NotNegative  # weight of the KL term to the reference
    ratio: Literal["behaviour", "reference"]  # reference: Eq. 16 as printed
    critic_target: Literal["returns", "reward"]  # reward: Eq. 17 as printed
    value_coef: NotNegative
    entropy: NotNegative
    micro_tokens: Count  # tokens per forward and backward pass; changes memory, not results
    max_grad_norm: Positive
    eval_every: Count  # updates
    save_every: Count  # updates between checkpoints; an evaluation always saves one
    eval_samples: Count
    patience: Count | None  # evaluations without a better one before stopping; null never stops early


@dataclass(frozen=True)
class Rllib:
    """RLlib's PPO on the navigation environment; what it shares with ours stands in trainer.rl."""

    policies: Literal["shared", "separate"]  # one for all agents, or one for each
    hidden: Count  # width of its layers
    runners: Natural  # processes that sample; 0 samples in the process that learns
    timeout: Positive  # seconds that sampling a batch may take


@dataclass(frozen=True)
class Trainer:
    base: Base
    warmup: Warmup
    rl: Rl
    rllib: Rllib | None  # of policy ghar


@dataclass(frozen=True)
class Deepspeed:
    """What the processes of `torchrun --nproc-per-node N` share out among them (ZeRO), and what is not kept."""

    stage: Annotated[int, Range(0, 3)] | None  # null trains without DeepSpeed
    offload: bool  # optimiser state in CPU memory
    checkpointing: bool  # recompute activations in the backward pass: less memory, more time; also without DeepSpeed


@dataclass(frozen=True)
class Ray:
    """What launch/train_ray.py starts on a cluster, or on this machine."""

    workers: Count  # processes that train, each on its share of a batch
    rollout_actors: Count  # processes that play episodes, for each worker
    retrieval_actors: Count  # processes that retrieve, for each worker
    gpu: bool  # one for each worker and each rollout actor
    max_staleness: Natural  # by how many updates the weights that play may be older than those in training
    timeout_s: Positive  # for an actor's share of a batch; one that takes longer counts as lost


@dataclass(frozen=True)
class Eval:
    policies: tuple[Policy, ...]
    checkpoint: str | None  # folder; null is the best of run_dir
    navigation: str | None  # folder of a checkpoint of launch/train_rllib.py, which policy rllib needs
    bootstrap: Count  # resamples behind a confidence interval


@dataclass(frozen=True)
class System:
    """Which of the published systems predicts. What only one of them reads stands in a section of its own, which is
    null for the others."""

    name: Literal["ghar", "graphwalker", "exprag", "ehr_rag", "kare"]


@dataclass(frozen=True)
class Selector:
    """Whose cases a language model is shown before it predicts: GraphWalker, and the selectors of its tables."""

    name: Literal[
        "graphwalker", "zero_shot", "random_choice", "semantic_emb", "ehr_emb", "time_series", "spell",
        "influence", "ids", "cone", "lms3", "delta_knn", "gradsel",
    ]
    k: Count  # examples at most, K
    encoder: Literal["smart", "concare", "adacare", "text"]  # of the patient graph
    k_g: Count  # neighbours in the graph
    k_c: Count  # cohorts the walk starts from
    k_a: Count  # anchors in each of them
    # paper; released: its code; then the rows of Table 2; show_encoder prints the encoder's prediction into the prompt
    variant: Literal[
        "paper", "released", "no_ehr_emb", "no_cohorts", "no_search", "no_early_stop", "louvain",
        "show_encoder",
    ]
    utility: Literal["entropy", "self_rated"]  # self_rated: the model gives 0 to 10, for engines without log-probs
    inference: Literal["direct", "react"]  # how the label is found with the examples


@dataclass(frozen=True)
class Exprag:
    """Whose discharge summaries a language model is shown before it answers a question of DischargeQA."""

    notes: str | None  # folder of MIMIC-IV-Note, which holds note/discharge.csv.gz; null generates summaries
    rows: tuple[Count, Count]  # fewest and most rows that a stay has in each table
    # by codes, with the weights of Eq. 7 so named; released: a third from each modality's own list; by text
    ranker: Literal["uniform", "task_focused", "complementary", "released", "text"]
    top_k: Count  # stays that are ranked
    retriever: Literal["auto_merging", "sentence_window", "bm25", "fusion", "dense", "flare"]
    excerpts: Count  # pieces of their reports that are looked for
    words: Count  # of those pieces in a prompt
    policies: tuple[Literal["direct", "exprag", "scripted_direct", "scripted"], ...]
    judged: Natural  # stays on which the rankers are held against the model as judge; the paper has 100


@dataclass(frozen=True)
class EhrRag:
    """How a patient's events are looked up before a language model predicts: EHR-RAG, its ablations and baselines."""

    methods: tuple[
        Literal[
            "ehr_rag", "no_ether", "no_air", "no_der", "direct", "rag", "uniform", "rule", "react",
            "counts", "embeddings",  # logistic regressions
        ],
        ...,
    ]
    answers: Literal["engine", "scripted"]  # who is asked; scripted: a fixed rule, fitted to the training patients
    chunking: tuple[Count, Natural]  # rows of a chunk, and how many of them the next one repeats
    chunks: tuple[Count, Count]  # candidates by similarity, and chunks kept a query
    alpha: Fraction  # of Eq. 3: similarity against time
    window_days: tuple[Positive, Positive]  # of Eq. 2: recent and early
    indicators: tuple[Count, Count, Count]  # candidates by name, kept by the model, and recent values of each
    budget: tuple[Count, Count]  # rows and tokens of evidence in a prompt; at most half of what the model can read
    embeddings: str | None  # parquet or npz with subject_id, prediction_time and vector, for method embeddings


@dataclass(frozen=True)
class Kare:
    """Which communities of a knowledge graph a language model is shown before it reasons and predicts: KARE."""

    methods: tuple[
        Literal[
            "kare", "no_reasoning", "kare_zero_shot", "zero_shot", "few_shot", "few_shot_4", "rag", "coagent",
            "coagent_unregulated",
            "scripted", "scripted_base",  # a fixed rule with and without communities
        ],
        ...,
    ]
    # who extracts triples, summarises, writes reasoning chains and criticises: scripted (fixed rules, for generated
    # patients), engine (the model of this configuration), or the address of a server, like model@http://host:8000/v1
    expert: str
    abstracts: str | None  # folder of abstracts, JSONL or CSV; null generates them for the demo world
    # paper; released: decay over all nodes, one theme relevance a summary; then the rows of Figure 3
    variant: Literal["paper", "released", "no_hits", "no_decay", "no_coherence", "no_recency", "no_theme"]
    paths: tuple[Count, Count, Count, Count]  # co-occurring concepts X; longest path, most paths, most nodes looked at
    communities: tuple[Count, Count, Count, Count]  # runs of Leiden, size limit of a cluster; Z_s and Z_c
    weights: tuple[Fraction, Fraction, Fraction, Fraction, Fraction]  # alpha, beta, lambda 1 to 3 of Eqs. 3-6
    tokens: Count  # of the communities' summaries, or of abstracts, in a prompt
    chains: Count  # that the expert writes a patient, K
    # what a model is fine-tuned on; weighted: labels by their inverse frequency
    tasks: Literal["multitask", "multitask_weighted", "two_in_one", "label_only"]


@dataclass(frozen=True)
class Logger:
    wandb: Literal["disabled", "offline", "online"]
    project: str
    entity: str | None
    group: str | None


@dataclass(frozen=True)
class Privacy:
    allow: tuple[str, ...]  # where text of credentialed patients may go: wandb, or the host of a service


@dataclass(frozen=True)
class Config:
    """Everything a run was told; `dataclasses.asdict` gives it back as plain values."""

    seed: Natural
    threads: Count
    run_dir: str
    resume: Literal["auto", "never"]  # an unfinished run of the same configuration in run_dir: go on, or start over
    keep_last: Count  # newest checkpoints that are kept; two or more survive a damaged one
    keep_best: Count  # and those with the highest validation reward
    scale: Scale
    data: Data
    task: Task
    kg: Kg
    retriever: Retriever
    model: Model
    engine: Engine
    env: Env
    reward: Reward
    trainer: Trainer
    policy: System
    deepspeed: Deepspeed | None  # of policies ghar and kare
    ray: Ray | None  # of policy ghar
    selector: Selector | None  # of policy graphwalker
    exprag: Exprag | None  # of policy exprag
    ehr_rag: EhrRag | None  # of policy ehr_rag
    kare: Kare | None  # of policy kare
    eval: Eval
    logger: Logger
    privacy: Privacy
