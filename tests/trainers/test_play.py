"""Playing a study's cases: how a retriever in other processes is asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from envs.rollout import Corpus
from envs.teacher import ScriptedTeacher
from ghar.episode import Episode, Evidence, Retrieve
from trainers.demo import TEACHER, teacher_knowledge
from trainers.play import play


class Counted:
    """A corpus that takes 20 ms a call and remembers how many calls were under way at once."""

    def __init__(self, inner: Corpus):
        self.inner, self.now, self.most, self.lock = inner, 0, 0, threading.Lock()

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.02)
        with self.lock:
            self.now -= 1
        return self.inner.retrieve(requests)


def test_a_service_gets_as_many_calls_at_once_as_it_has_workers(small_study):
    service = replace(small_study.config.retriever, service="http://127.0.0.1:1", workers=3)
    far = replace(small_study, config=replace(small_study.config, retriever=service))
    cases = small_study.cases(small_study.splits.train, None)[:24]
    teacher = ScriptedTeacher(teacher_knowledge(small_study, cases), TEACHER)

    def played(study, corpus: Counted) -> list[Episode]:
        episodes = play(study, cases, teacher, seed=0, title="", corpus=corpus)
        return [replace(episode, seconds=0.0) for episode in episodes]

    near, remote = Counted(small_study.retriever), Counted(small_study.retriever)
    assert played(small_study, near) == played(far, remote)
    assert near.most == 1 and 1 < remote.most <= 3
