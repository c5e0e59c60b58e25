"""The page in a real browser: it opens, filters and shows episodes, at 1440 and 420 px, in light and dark.

Chromium is driven without a driver: a script at the end of a copy of the page presses what a reader would press and
writes what it saw into the title, which --dump-dom prints.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ghar.metrics.report import write_report
from ghar.metrics.runfolder import RunFolder
from ghar.metrics.style import ReportStyle
from ghar.trainers.evaluation.leakage import section
from tests.metrics.conftest import build_run
from tests.running import run_command

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
TITLES = {"ghar_sft": "After SFT", "ghar_rl": "After RL"}
LOOK = ReportStyle(titles=TITLES, main="ghar_rl", before="ghar_sft", learns=True)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium here (apt-get install chromium)"),
]
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")


def chromium(page: Path, *more: str) -> str:
    words = [str(BROWSER), *FLAGS, f"--user-data-dir={page.parent / 'profile'}", *more, page.as_uri()]
    done = run_command(words)
    done.check_returncode()
    return done.stdout


def asked(page: Path, script: str, *more: str) -> dict[str, Any]:
    """What `script`, an async function's body that returns a value, sees in the page. more: flags of the browser."""
    probe = page.with_name("probe.html")
    errors = "window.addEventListener('error', (e) => { document.title = JSON.stringify({error: e.message}); });"
    run = f"(async () => {{ {script} }})().then((seen) => {{ document.title = JSON.stringify(seen); }});"
    text = page.read_text().replace("<head>", f"<head><script>{errors}</script>", 1)
    probe.write_text(text.replace("</body>", f"<script>{run}</script></body>"))
    dom = chromium(probe, "--dump-dom", "--virtual-time-budget=20000", *more)
    title = re.search(r"<title>(.*?)</title>", dom, re.DOTALL)
    assert title is not None
    return json.loads(title[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


PRESS = """
const rows = () => document.querySelectorAll("#rows tbody tr").length;
const set = (name, value) => {
  const field = document.getElementById("filters").elements.namedItem(name);
  field.value = value;
  field.dispatchEvent(new Event("input", {bubbles: true}));
};
const seen = {all: rows(), count: document.getElementById("count").textContent};
set("kind", "wrong"); seen.wrong = rows();
set("kind", ""); set("search", "p0003"); seen.found = rows();
set("search", "");
const cell = document.querySelector("#matrix-main button");
cell.click(); seen.cell = [Number(cell.textContent), rows()];
document.querySelector("#rows tbody tr").click();
await new Promise((done) => setTimeout(done, 1500));
seen.sides = document.querySelectorAll("#detail .side > div").length;
seen.text = document.getElementById("detail").textContent;
seen.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
seen.titles = document.querySelectorAll("svg circle title").length;
return seen;
"""


def test_a_reader_filters_clicks_a_cell_and_reads_two_variants(whole_run: RunFolder) -> None:
    seen = asked(write_report(whole_run.path, LOOK), PRESS)
    assert seen["all"] == 60 and seen["count"].startswith("60 of 60 rows. After RL is right on ")
    assert 0 < seen["wrong"] < 60 and seen["found"] == 1 and seen["cell"][0] == seen["cell"][1] > 0
    assert seen["sides"] == 2 and "Reward" in seen["text"] and "Agent top" in seen["text"]
    assert seen["wide"] <= 0 and seen["titles"] > 20


FILTERS = """
const form = document.getElementById("filters").elements;
const set = (name, value) => {
  form.namedItem(name).value = value;
  form.namedItem(name).dispatchEvent(new Event("input", {bubbles: true}));
  return [...document.querySelectorAll("#rows tbody tr")].map((row) => row.cells[0].textContent);
};
const seen = {sides: [form.namedItem("left").value, form.namedItem("right").value]};
for (const name of ["truth", "guess", "kind", "source", "group"]) {
  seen[name] = {};
  for (const option of [...form.namedItem(name).options]) {
    if (option.value) seen[name][option.text] = set(name, option.value);
  }
  set(name, "");
}
for (const [name, value] of [["confidence", "0.7"], ["tokens", "800"], ["search", "12"]]) {
  seen[name] = set(name, value);
  set(name, "");
}
seen.all = set("search", "").length;
return seen;
"""
GROUPS = {"sex": ("female", "male"), "age": ("18-44", "45-64", "65-79")}


WORDS = """
const form = document.getElementById("filters").elements;
const rows = () => [...document.querySelectorAll("#rows tbody tr")].map((row) => row.cells[0].textContent);
const until = async (met) => { while (!met()) await new Promise((done) => setTimeout(done, 20)); };
const look = async (text) => {
  form.namedItem("words").value = text;
  form.namedItem("words").dispatchEvent(new Event("input", {bubbles: true}));
  await until(() => document.getElementById("filters").dataset.words === text);
  return rows();
};
let saved = "";
URL.createObjectURL = (blob) => { blob.text().then((text) => { saved = text; }); return "blob:nothing"; };
HTMLAnchorElement.prototype.click = () => {};
const seen = {report: await look("Passage 1"), quoted: await look('say "no"'), none: await look("no such words")};
await look("passage 1");
document.getElementById("save").click();
await until(() => saved);
document.querySelector("#rows tbody tr").click();
await until(() => location.hash);
return {...seen, saved: saved.split("\\r\\n"), link: location.hash};
"""


def test_words_are_found_in_texts_rows_are_saved_and_an_episode_has_a_link(
    tmp_path: Path, episodes: dict[str, list[dict[str, Any]]]
) -> None:
    every = {name: fuller(rows) for name, rows in episodes.items()}
    every["ghar_rl"][3]["turns"][0]["reply"] = 'I say "no" here'
    page = write_report(build_run(tmp_path / "run", every).path, LOOK)
    seen = asked(page, WORDS)
    wanted = kept(every["ghar_rl"], lambda i, row: i % 4 == 1)
    assert seen["report"] == wanted and seen["quoted"] == [every["ghar_rl"][3]["sample_id"]] and seen["none"] == []
    assert seen["saved"][0].startswith('"sample","patient","label","After RL"')
    assert len(seen["saved"]) == len(wanted) + 2
    assert [line.split(",")[0].strip('"') for line in seen["saved"][1:-1]] == wanted
    assert seen["link"] == f"#episode={wanted[0]}"


def fuller(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with what only some runs have: probabilities, look-ups, several sources."""
    paths = (["drug treats disease"], ["drug treats disease", "disease has sign"], [None], [])
    found = [[{"text": f"passage {j}", "kind": "report", "score": 0.5 - j / 10, "path": path, "shown": j == 0}
              for j, path in enumerate(own)] for own in paths]  # fmt: skip
    def more(i: int) -> dict[str, Any]:
        shares = [0.5 + i % 5 / 10, 0.5 - i % 5 / 10, *[0.0] * 8]
        lookups = [{"query": f"query {i}", "found": found[i % 4]}] if i % 4 < 3 else []
        return {"label_probabilities": shares, "asked": {"graph": i % 4 < 2, "past": i % 3}, "lookups": lookups}

    return [{**row, **more(i)} for i, row in enumerate(rows)]


def group_of(place: int) -> dict[str, str]:
    return {kind: names[place % len(names)] for kind, names in GROUPS.items()}


def kept(rows: list[dict[str, Any]], keep: Any) -> list[str]:
    return [row["sample_id"] for i, row in enumerate(rows) if keep(i, row)]


def test_every_filter_keeps_what_it_names(tmp_path: Path, episodes: dict[str, list[dict[str, Any]]]) -> None:
    """Held against a direct reading of the rows."""
    every = {name: fuller(rows) for name, rows in episodes.items()}
    folder = build_run(tmp_path / "run", every)
    folder.write_groups({row["sample_id"]: group_of(i) for i, row in enumerate(every["ghar_rl"])})
    page = write_report(folder.path, LOOK)
    seen = asked(page, FILTERS)
    left, right = (every[name] for name in seen["sides"])
    assert seen["sides"] == ["ghar_rl", "ghar_sft"] and seen["all"] == 60
    for label, ids in seen["truth"].items():
        assert ids == kept(left, lambda i, row, label=label: row["label"] == label)
    for answer, ids in seen["guess"].items():
        wanted = None if answer == "no readable answer" else answer
        assert ids == kept(left, lambda i, row, wanted=wanted: row["prediction"] == wanted)
    kinds = {
        "left is right": lambda i, row: row["correct"],
        "left is wrong": lambda i, row: not row["correct"],
        "left and right disagree": lambda i, row: row["prediction"] != right[i]["prediction"],
        "only left is right": lambda i, row: row["correct"] and not right[i]["correct"],
        "only right is right": lambda i, row: not row["correct"] and right[i]["correct"],
        "a retrieval was needed": lambda i, row: row["needs_retrieval"],
        "none was needed": lambda i, row: not row["needs_retrieval"],
        "left retrieved": lambda i, row: row["retrieved"],
        "needed, but left did not retrieve": lambda i, row: row["needs_retrieval"] and not row["retrieved"],
        "no readable answer": lambda i, row: row["prediction"] is None,
    }
    assert seen["kind"] == {name: kept(left, keep) for name, keep in kinds.items()}
    sources = {
        "drug treats disease": lambda i, row: i % 4 < 2, "disease has sign": lambda i, row: i % 4 == 1,
        "report": lambda i, row: i % 4 == 2, "source graph": lambda i, row: i % 4 < 2,
        "source past": lambda i, row: i % 3 > 0,
    }  # fmt: skip
    assert seen["source"] == {name: kept(left, keep) for name, keep in sorted(sources.items())}
    for kind, names in GROUPS.items():
        for name in names:
            wanted = kept(left, lambda i, row, kind=kind, name=name: group_of(i)[kind] == name)
            assert seen["group"].pop(f"{kind}: {name}") == wanted
    assert not seen["group"]
    assert seen["confidence"] == kept(left, lambda i, row: max(row["label_probabilities"]) >= 0.7)
    assert seen["tokens"] == kept(left, lambda i, row: row["prompt_tokens"] + row["completion_tokens"] >= 800)
    assert seen["search"] == kept(left, lambda i, row: "12" in row["sample_id"] or row["subject_id"] == 12)
    text = page.read_text()
    assert "sex female" in text and "age 45-64" in text  # subgroups


READ = """
document.querySelector("#rows tbody tr:nth-child(2)").click();
while (!document.querySelector("#detail .turn")) await new Promise((done) => setTimeout(done, 20));
const sides = [...document.querySelectorAll("#detail .side > div")];
const cells = (row) => [...row.cells].map((cell) => cell.textContent);
return {titles: sides.map((side) => side.querySelector("h3").textContent),
        rewards: sides.map((side) => side.querySelector("div.quiet").textContent.split(/[.] (?=[0-9]+ calls)/)[0]),
        found: sides.map((side) => [...side.querySelectorAll("table tbody tr")].map(cells))};
"""


def test_a_patient_under_two_variants_with_evidence_and_a_sum(
    tmp_path: Path, episodes: dict[str, list[dict[str, Any]]]
) -> None:
    folder = build_run(tmp_path / "run", {name: fuller(rows) for name, rows in episodes.items()})
    seen = asked(write_report(folder.path, LOOK), READ)
    assert seen["titles"] == ["After RL", "After SFT"]
    for total, terms in (line.removeprefix("Reward ").split(" = ") for line in seen["rewards"]):
        numbers = [float(term.split()[1]) for term in terms.split(", ")]
        assert len(numbers) == 5 and sum(numbers) == pytest.approx(float(total), abs=0.003)
    lines = [["1", "0.500", "used", "drug treats disease", "passage 0"],
             ["2", "0.400", "cut", "disease has sign", "passage 1"]]  # fmt: skip
    assert seen["found"] == [lines, lines]


TRAINING = """
const rows = () => [...document.querySelectorAll("#training-rows tbody tr")].map((row) => row.cells[0].textContent);
const until = async (met) => { while (!met()) await new Promise((done) => setTimeout(done, 20)); };
const form = document.getElementById("training-filters");
const set = (name, value) => {
  form.elements.namedItem(name).value = value;
  form.elements.namedItem(name).dispatchEvent(new Event("input", {bubbles: true}));
};
const seen = {all: rows(), heads: [...document.querySelectorAll("#training-rows th")].map((cell) => cell.textContent),
              tests: document.querySelectorAll("#rows tbody tr").length};
seen.updates = [...form.elements.namedItem("group").options].map((option) => option.text);
set("group", [...form.elements.namedItem("group").options].find((option) => option.text === "update: 10").value);
seen.tenth = rows();
set("group", "");
set("words", "a reply of training");
await until(() => form.dataset.words === "a reply of training");
seen.words = rows();
document.querySelector("#training-rows tbody tr").click();
await until(() => document.querySelector("#training-detail .turn"));
return {...seen, link: location.hash, text: document.getElementById("training-detail").textContent,
        other: document.getElementById("detail").textContent};
"""


def test_training_episodes_are_listed_searched_and_linked(
    tmp_path: Path, episodes: dict[str, list[dict[str, Any]]]
) -> None:
    folder = build_run(tmp_path / "run", episodes)
    assert "Training episodes" not in write_report(folder.path, LOOK).read_text()
    for update in (5, 10, 40):
        own = [{**row, "update": update, "attempt": i} for i, row in enumerate(episodes["ghar_sft"][:3])]
        own[1] |= {"turns": [{**own[1]["turns"][0], "reply": f"A reply of training, {update}"}]}
        folder.write_training_episodes(update, own)
    page = write_report(folder.path, LOOK)
    seen = asked(page, TRAINING)
    ids = [f"{row['sample_id']}, update 10, attempt {i + 1}" for i, row in enumerate(episodes["ghar_sft"][:3])]
    assert len(seen["all"]) == 9 and seen["tests"] == 60 and seen["tenth"] == ids
    assert seen["heads"][:4] == ["sample", "patient", "label", "Policy in training"] and "right" not in seen["heads"]
    assert seen["updates"] == ["any", "update: 5", "update: 10", "update: 40"]
    assert seen["words"] == [ids[1].replace("update 10", f"update {update}") for update in (5, 10, 40)]
    assert "A reply of training, 5" in seen["text"] and "Reward" in seen["text"] and seen["other"] == ""
    assert seen["link"].startswith("#training-episode=")
    narrow = asked(page, NARROW, "--window-size=420,900")
    assert narrow["wide"] <= narrow["inner"] and not narrow["out"], narrow


def test_ten_thousand_rows_open_within_two_seconds(tmp_path: Path, episodes: dict[str, list[dict[str, Any]]]) -> None:
    folder = RunFolder.open(tmp_path / "large")
    for name in ("ghar_sft", "ghar_rl"):
        rows = episodes[name]
        many = ({**rows[i % len(rows)], "sample_id": f"q{i:05d}", "subject_id": i // 2} for i in range(10_000))
        folder.write_episodes(name, many)
    page = write_report(folder.path, LOOK)
    assert page.stat().st_size < 40_000_000
    least = {"load": float("inf"), "read": float("inf")}
    for _ in range(3):  # other tests run beside this one
        seen = asked(page, OPENED)
        assert seen["count"].startswith("10,000 of 10,000 rows") and "q00099" in seen["text"]
        least = {name: min(value, seen[name]) for name, value in least.items()}
        if max(least.values()) < 2000:
            break
    assert least["load"] < 2000 and least["read"] < 2000, least


OPENED = """
      const start = performance.now();
      document.querySelector("#rows tbody tr:nth-child(100)").click();
      while (!document.querySelector("#detail .turn")) await new Promise((done) => setTimeout(done, 20));
      const opened = performance.getEntriesByType("navigation")[0];
      return {count: document.getElementById("count").textContent, load: opened.domInteractive,
              text: document.getElementById("detail").textContent.slice(0, 40), read: performance.now() - start};
"""


NARROW = """
document.querySelector("#rows tbody tr:nth-child(2)").click();
while (!document.querySelector("#detail .turn")) await new Promise((done) => setTimeout(done, 20));
for (const more of document.querySelectorAll("details")) more.open = true;
const right = (one) => one.getBoundingClientRect().right;
const scrolled = ".scroll, pre, nav, section > table, .charts > div > table";
const out = (one) => right(one) > innerWidth + 1 && !one.closest(scrolled);
return {inner: innerWidth, wide: document.documentElement.scrollWidth, out: [...document.querySelectorAll("main *")]
        .filter(out).map((one) => one.tagName + " " + one.className)};
"""


def test_a_cohort_of_long_names_does_not_stick_out_of_a_phone(whole_run: RunFolder) -> None:
    summary = whole_run.summary() or {}
    about = "admissions of patients with at least two visits that were left out"
    summary["data"] = {f"{about}, {i}": 10**i for i in range(9)}
    whole_run.write_summary(summary)
    seen = asked(write_report(whole_run.path, LOOK), NARROW, "--window-size=420,900")
    assert seen["wide"] <= seen["inner"] <= 500 and not seen["out"], seen


def test_nothing_sticks_out_of_a_phone(tmp_path: Path, episodes: dict[str, list[dict[str, Any]]]) -> None:
    """With the parts that every trained run has: what was known when, rare and common diseases, look-ups read."""
    folder = build_run(tmp_path / "run", {name: fuller(rows) for name, rows in episodes.items()})
    mode = {"samples": 5, "facts": 40, "late": 3, "with_outcome": 9, "at_outcome": 5, "leak_score": 1.0,
            "hours_ahead": 0.0}  # fmt: skip
    summary = {"audit": {"used": "paper", "modes": {"paper": mode, "strict": mode}},
               "rarity": {name: {group: [20, 0.5] for group in ("G1", "G2", "G3")} for name in episodes}}  # fmt: skip
    page = write_report(folder.path, replace(LOOK, sections=section(summary)))
    seen = asked(page, NARROW, "--window-size=420,900")
    assert seen["wide"] <= seen["inner"] <= 500 and not seen["out"], seen


@pytest.mark.parametrize("width", [1440, 420])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_drawn_wide_and_narrow_light_and_dark(whole_run: RunFolder, width: int, scheme: str) -> None:
    page, picture = write_report(whole_run.path, LOOK), whole_run.path / f"{width}-{scheme}.png"
    dark = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    chromium(page, f"--window-size={width},2600", f"--screenshot={picture}", *dark)
    from matplotlib.image import imread

    drawn = imread(picture)
    assert drawn.shape[1] == width
    corner = float(drawn[5, 5, :3].mean())  # the paper
    assert corner > 0.9 if scheme == "light" else corner < 0.3
    assert drawn[..., :3].std() > 0.05  # something is written on it
