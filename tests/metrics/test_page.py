"""The page in a real browser: it opens, filters and shows episodes, at 1440 and 420 px, in light and dark.

Chromium is driven without a driver: a script at the end of a copy of the page presses what a reader would press and
writes what it saw into the title, which --dump-dom prints.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ghar.metrics.look import Look
from ghar.metrics.report import write_report
from ghar.metrics.runfolder import RunFolder

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LOOK = Look(titles={"ghar_sft": "After SFT", "ghar_rl": "After RL"}, main="ghar_rl", before="ghar_sft", learns=True)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here (apt-get install chromium)")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")


def chromium(page: Path, *more: str) -> str:
    words = [str(BROWSER), *FLAGS, f"--user-data-dir={page.parent / 'profile'}", *more, page.as_uri()]
    return subprocess.run(words, capture_output=True, text=True, timeout=240, check=True).stdout


def asked(page: Path, script: str) -> dict[str, Any]:
    """What `script`, an async function's body that returns a value, sees in the page."""
    probe = page.with_name("probe.html")
    errors = "window.addEventListener('error', (e) => { document.title = JSON.stringify({error: e.message}); });"
    run = f"(async () => {{ {script} }})().then((seen) => {{ document.title = JSON.stringify(seen); }});"
    text = page.read_text().replace("<head>", f"<head><script>{errors}</script>", 1)
    probe.write_text(text.replace("</body>", f"<script>{run}</script></body>"))
    dom = chromium(probe, "--dump-dom", "--virtual-time-budget=20000")
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


def test_ten_thousand_rows_open_within_two_seconds(tmp_path: Path, episodes: dict[str, list[dict[str, Any]]]) -> None:
    folder = RunFolder.open(tmp_path / "large")
    for name in ("ghar_sft", "ghar_rl"):
        rows = episodes[name]
        many = ({**rows[i % len(rows)], "sample_id": f"q{i:05d}", "subject_id": i // 2} for i in range(10_000))
        folder.write_episodes(name, many)
    page = write_report(folder.path, LOOK)
    assert page.stat().st_size < 40_000_000
    tries = [asked(page, OPENED) for _ in range(3)]  # other tests run beside this one
    for seen in tries:
        assert seen["count"].startswith("10,000 of 10,000 rows") and "q00099" in seen["text"]
    assert min(seen["load"] for seen in tries) < 2000 and min(seen["read"] for seen in tries) < 2000, tries


OPENED = """
      const start = performance.now();
      document.querySelector("#rows tbody tr:nth-child(100)").click();
      while (!document.querySelector("#detail .turn")) await new Promise((done) => setTimeout(done, 20));
      const opened = performance.getEntriesByType("navigation")[0];
      return {count: document.getElementById("count").textContent, load: opened.domInteractive,
              text: document.getElementById("detail").textContent.slice(0, 40), read: performance.now() - start};
"""


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
