"""Who teaches: a rule, a model, or a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ghar.envs.system import Training
from ghar.episode import Act
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.provenance import GENERATED, UNKNOWN
from ghar.trainers.teacher import teaching
from tests.llm.api_server import listening


def answer(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
    return 200, {"choices": [{"message": {"content": "warfarin"}, "finish_reason": "stop"}],
                 "usage": {"prompt_tokens": 3, "completion_tokens": 1}}  # fmt: skip


def test_a_server_teaches_at_the_temperature_of_sampling() -> None:
    system: Any = SimpleNamespace(name="own", origin=GENERATED, training=Training())
    with listening(answer) as (url, server):
        config = load([f"trainer.warmup.teacher=qwen@{url}"])
        with teaching(config, system) as teacher:
            (reply,) = teacher.answer([Act("top", "answer", "which drug?")], [1])
    assert reply.text == "warfarin"
    assert [(body["model"], body["temperature"]) for _, body, _ in server.came] == [("qwen", 1.0)]


def test_the_model_that_training_starts_from_teaches_itself_without_a_second_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system: Any = SimpleNamespace(name="own", origin=GENERATED, training=Training())
    student, other = (object(), object()), (object(), object())
    monkeypatch.setattr("ghar.trainers.teacher.load_pretrained", lambda path, dtype, key: other)
    monkeypatch.setattr("ghar.trainers.teacher.load_configured", lambda config: pytest.fail("it is loaded again"))
    monkeypatch.setattr("ghar.llm.hf.HFEngine", lambda *of: SimpleNamespace(of=of))
    for name, used in (("mine", student), ("another", other)):
        config = load(["model=pretrained", "model.path=mine", f"trainer.warmup.teacher={name}"])
        with teaching(config, system, student) as teacher:
            assert teacher.engine.of == (*used, config.engine.max_batch)  # type: ignore[attr-defined]


def test_credentialed_text_goes_to_no_server_that_is_not_named() -> None:
    system: Any = SimpleNamespace(name="own", origin=UNKNOWN, training=Training())
    with listening(answer) as (_, server), pytest.raises(BadInput, match=r"privacy\.allow"):
        with teaching(load(["trainer.warmup.teacher=qwen@http://example.org/v1"]), system):
            pass
    assert server.came == []


def test_a_system_without_a_rule_asks_for_a_teacher() -> None:
    system: Any = SimpleNamespace(name="own", origin=GENERATED, training=Training())
    with pytest.raises(BadInput, match="a server as model@http"), teaching(load([]), system):
        pass
