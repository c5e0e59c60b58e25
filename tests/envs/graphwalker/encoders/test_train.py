"""Encoders learn, are the same under the same seed, and are computed once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from ghar.data.cohort import Task
from ghar.data.readers.mimic3 import read_mimic3
from ghar.data.readers.mimic4 import read_mimic4
from ghar.data.tasks.series import series_samples
from ghar.data.tasks.splits import Splits, split_stratified
from ghar.envs.graphwalker.encoders import train as training_module
from ghar.envs.graphwalker.encoders.embeddings import Embeddings, Name, digest, embed, embed_texts
from ghar.envs.graphwalker.encoders.train import EncoderTraining, Neural, TrainedEncoder, train_encoder
from ghar.envs.graphwalker.selectors.graph import build_graph
from ghar.envs.worlds.severity import generate_world
from ghar.envs.worlds.severity.charts import charted_world
from ghar.errors import BadInput
from tests.envs.graphwalker.encoders.series import changed, series

pytestmark = pytest.mark.slow

TASK = Task("series-test", "Will it rise?", ("no", "yes"))
SHORT = EncoderTraining(hidden=16, epochs=6, pretrain=2, batch=32, lr=5e-3, patience=4)
TINY = replace(SHORT, epochs=1, pretrain=1)
ALL: tuple[Name, ...] = ("smart", "concare", "adacare", "text")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def splits(n: int = 60) -> Splits:
    samples = series(9, n)
    return Splits(tuple(samples[: n // 2]), tuple(samples[n // 2 : 3 * n // 4]), tuple(samples[3 * n // 4 :]))


@pytest.mark.parametrize("name", ALL[:3])
def test_it_learns(name: Neural) -> None:
    """The single best feature value gives about 0.85; chance is 0.5."""
    samples = series(0, 340)
    encoder = train_encoder(name, samples[:160], samples[160:200], 2, seed=0, training=SHORT)
    vectors, shares = encoder.encode(samples[200:])
    assert vectors.shape == (140, 64 if name == "smart" else 16) and np.allclose(shares.sum(1), 1, atol=1e-5)
    assert roc_auc_score([s.label for s in samples[200:]], shares[:, 1]) > 0.75


def people(seed: int, n: int, tells: int | None) -> list:
    """Series that say nothing of the label, with age and sex, of which the first (0) or second (1) says all; None: no
    static numbers. A quarter of either is not known."""
    rng = np.random.default_rng(seed)
    found = []
    for one in series(seed, n):
        age, female = float(rng.integers(20, 90)), float(rng.integers(2))
        label = int(age > 55) if tells != 1 else int(female)
        static = tuple(number if rng.random() < 0.75 else np.nan for number in (age, female))
        quiet = changed(one, values=np.where(np.isnan(one.history.values), np.nan, 0).astype(np.float32))
        shown = replace(quiet.history, static=() if tells is None else static)
        found.append(replace(quiet, history=shown, label=label))
    return found


@pytest.mark.parametrize("name", ALL[:3])
@pytest.mark.parametrize("tells", [0, 1])
def test_age_or_sex_alone_is_learned_where_it_is_known(name: Neural, tells: int, tmp_path: Path) -> None:
    samples = people(tells, 500, tells)
    settings = replace(SHORT, epochs=12, pretrain=0, lr=1e-2, patience=12)
    encoder = train_encoder(name, samples[:240], samples[240:300], 2, seed=0, training=settings)
    shares, labels = encoder.encode(samples[300:])[1][:, 1], np.array([s.label for s in samples[300:]])
    known = ~np.isnan([s.history.static[tells] for s in samples[300:]])
    assert np.isfinite(shares).all() and roc_auc_score(labels[known], shares[known]) > 0.95
    assert roc_auc_score(labels[~known], shares[~known]) < 0.75  # nothing else tells
    encoder.save(tmp_path / "encoder.pt")
    assert np.array_equal(TrainedEncoder.load(tmp_path / "encoder.pt").encode(samples[300:])[1][:, 1], shares)
    with pytest.raises(BadInput, match="has 0 static values, and its encoder was trained on 2"):
        encoder.encode(people(tells, 4, None))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ALL[:3])
def test_a_gpu_gives_what_the_cpu_gives(name: Neural, tmp_path: Path) -> None:
    """One epoch, kept on the GPU, read again wherever there is one."""
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    parts, found = splits(), {}
    for device in ("cpu", "cuda"):
        encoder = train_encoder(
            name, parts.train, parts.valid, 2, seed=5, training=replace(TINY, epochs=1), device=torch.device(device)
        )
        assert next(encoder.model.parameters()).device.type == device
        found[device] = encoder.encode(parts.test)[1]
        encoder.save(tmp_path / f"{device}.pt")
        again = TrainedEncoder.load(tmp_path / f"{device}.pt").encode(parts.test)[1]
        assert np.allclose(again, found[device], atol=1e-3)
    assert np.allclose(found["cpu"], found["cuda"], atol=0.1)


@pytest.mark.parametrize("name", ALL[:3])
def test_the_same_seed_gives_the_same_vectors(name: Neural, tmp_path: Path) -> None:
    parts = splits()
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    first = train_encoder(name, parts.train, parts.valid, 2, seed=5, training=TINY)
    assert torch.equal(torch.rand(1), expected)  # torch's own generator is left alone
    again = train_encoder(name, parts.train, parts.valid, 2, seed=5, training=TINY)
    other = train_encoder(name, parts.train, parts.valid, 2, seed=6, training=TINY)
    vectors, shares = first.encode(parts.test)
    assert np.array_equal(again.encode(parts.test)[0], vectors)
    assert not np.array_equal(other.encode(parts.test)[0], vectors)
    first.save(tmp_path / "a/encoder.pt")
    loaded = TrainedEncoder.load(tmp_path / "a/encoder.pt")
    assert np.array_equal(loaded.encode(parts.test)[0], vectors)
    assert np.array_equal(loaded.encode(parts.test)[1], shares)
    (tmp_path / "a/encoder.pt").write_bytes(b"no weights")
    with pytest.raises(BadInput, match="delete it"):
        TrainedEncoder.load(tmp_path / "a/encoder.pt")


@pytest.mark.parametrize("name", ALL)
def test_vectors_are_computed_once(name: Name, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = splits()
    found = embed(name, TASK, parts, cache=tmp_path, training=TINY)
    ids = [sample.sample_id for part in (parts.train, parts.valid, parts.test) for sample in part]
    assert list(found.sample_ids) == ids and found.vectors.dtype == np.float32
    assert found.probabilities.shape == (60, 2) and np.allclose(found.probabilities.sum(1), 1, atol=1e-5)
    assert np.array_equal(found.of(["s40", "s3"]), found.vectors[[40, 3]])
    with pytest.raises(BadInput, match="s99 was not encoded"):
        found.of(["s99"])

    def never(*_: object, **__: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(training_module, "train_encoder", never)
    monkeypatch.setattr("ghar.envs.graphwalker.encoders.embeddings.embed_texts", never)
    again = embed(name, TASK, parts, cache=tmp_path, training=TINY)
    assert np.array_equal(again.vectors, found.vectors) and again.sample_ids == found.sample_ids
    with pytest.raises(AssertionError, match="computed again"):
        embed(name, TASK, parts, cache=tmp_path, seed=1, training=TINY)


def test_the_cache_knows_every_change_of_a_sample() -> None:
    samples = series(3, 4)
    keys = {digest(samples, [1]), digest(samples, [2]), digest(samples[:3], [1])}
    for change in ("values", "hours"):
        array = getattr(samples[0].history, change).copy()
        array[0] += 1
        keys.add(digest([changed(samples[0], **{change: array}), *samples[1:]], [1]))
    keys.add(digest([changed(samples[0], observed=~samples[0].history.observed), *samples[1:]], [1]))
    keys.add(digest([replace(samples[0], label=1 - samples[0].label), *samples[1:]], [1]))
    aged = replace(samples[0], history=replace(samples[0].history, static=(61.0, np.nan)))
    keys.add(digest([aged, *samples[1:]], [1]))
    assert len(keys) == 8 and digest(samples, [1]) in keys


def test_one_class_and_unknown_names_are_refused(tmp_path: Path) -> None:
    parts = splits()
    same = replace(parts, train=tuple(replace(sample, label=1) for sample in parts.train))
    for name in ALL:
        with pytest.raises(BadInput, match="All 30 training samples have label 1"):
            embed(name, TASK, same, cache=tmp_path, training=TINY)
    with pytest.raises(BadInput, match="choose smart, concare, adacare, text"):
        embed("smrt", TASK, parts, cache=tmp_path)  # pyright: ignore[reportArgumentType]


def test_texts_are_encoded_once_each() -> None:
    vectors = embed_texts(["a b", "c d", "a b"])
    assert vectors.shape[0] == 3 and np.array_equal(vectors[0], vectors[2]) and not np.array_equal(*vectors[:2])


def test_the_demo_world_has_charts_that_tell(tmp_path: Path) -> None:
    generate_world(tmp_path / "world", seed=0, patients=250)
    cohort = read_mimic4(charted_world(tmp_path / "world"))
    task, samples = series_samples(cohort, "mortality")
    parts = split_stratified(samples, (0.6, 0.2, 0.2))
    found = embed("adacare", task, parts, cache=tmp_path, training=replace(SHORT, epochs=8))
    said = found.probabilities[-len(parts.test) :, 1]
    assert roc_auc_score([sample.label for sample in parts.test], said) > 0.7
    text = embed("text", task, parts, cache=tmp_path)
    assert text.vectors.shape == (len(samples), 128)


@pytest.fixture(scope="module")
def charted(shared_data: Path):
    return series_samples(read_mimic3(shared_data / "mimic-iii-demo-1.4"), "mortality")


@pytest.mark.parametrize("name", ALL)
def test_mimic3_demo(name: Name, charted, tmp_path: Path) -> None:
    task, samples = charted
    parts = split_stratified(samples, (0.6, 0.2, 0.2))
    found = embed(name, task, parts, cache=tmp_path, training=TINY)
    assert isinstance(found, Embeddings) and np.isfinite(found.vectors).all()
    train = [sample.sample_id for sample in parts.train]
    graph = build_graph(found.of(train), train)
    assert 1 <= len(graph.prototypes) < len(train)
