// A list of episodes: filter, sort, and read one under two variants side by side. prefix: of its elements' ids and of
// its links. Returns a function that shows the episodes of one variant with one label and one prediction.
function browse(prefix) {
  const part = (name) => document.getElementById(prefix + name);
  const table = JSON.parse(part("table").textContent);
  const colors = JSON.parse(document.getElementById("agents").textContent);
  const packs = [...document.querySelectorAll(`script.${prefix}pack`)];
  const form = part("filters");
  const body = part("rows").querySelector("tbody");
  const head = part("rows").querySelector("thead tr");
  const alone = table.variants.length < 2;
  const WINDOW = 100;
  const opened = new Map();
  let found = [], shown = WINDOW, sorted = "", upwards = true, chosen = -1;

  const field = (name) => form.elements.namedItem(name);
  const titled = Object.fromEntries(table.variants.map((v) => [v.name, v.title]));
  const word = (i) => (i === null ? "not played" : i < 0 ? "none" : table.words[i]);
  const node = (tag, text, kind) => {
    const made = document.createElement(tag);
    if (text !== undefined && text !== null) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  const add = (parent, tag, text, kind) => parent.appendChild(node(tag, text, kind));
  const option = (select, value, text) => { const made = add(select, "option", text); made.value = value; };

  for (const variant of table.variants) {
    option(field("left"), variant.name, variant.title);
    option(field("right"), variant.name, variant.title);
  }
  if (table.variants.length > 1) field("right").selectedIndex = 1;
  for (const name of ["truth", "guess"]) {
    option(field(name), "", "any");
    table.words.forEach((text, i) => option(field(name), String(i), text));
  }
  option(field("guess"), "-1", "no readable answer");
  for (const [name, texts] of [["source", table.sources], ["group", table.groups]]) {
    option(field(name), "", "any");
    const order = texts.map((text, i) => [text, i]).sort((a, b) => a[0].localeCompare(b[0], "en", { numeric: true }));
    for (const [text, i] of order) option(field(name), String(i), text);
    field(name).parentElement.hidden = !texts.length;
  }
  if (alone) {  // nothing stands beside it
    for (const name of ["left", "right"]) field(name).parentElement.hidden = true;
    for (const one of [...field("kind").options]) if (["apart", "gained", "lost"].includes(one.value)) one.remove();
  }
  const first = { left: field("left").value, right: field("right").value };

  // What each choice of "Show" keeps; l, r: columns of the left and right variant.
  const kinds = {
    right: (l, r, i) => l.right[i] === 1,
    wrong: (l, r, i) => l.right[i] === 0,
    apart: (l, r, i) => l.guess[i] !== null && r.guess[i] !== null && l.guess[i] !== r.guess[i],
    gained: (l, r, i) => l.right[i] === 1 && r.right[i] === 0,
    lost: (l, r, i) => l.right[i] === 0 && r.right[i] === 1,
    needed: (l, r, i) => table.samples[i].needs === true,
    spared: (l, r, i) => table.samples[i].needs === false,
    asked: (l, r, i) => l.retrieved[i] === 1,
    missed: (l, r, i) => table.samples[i].needs === true && l.retrieved[i] === 0,
    failed: (l, r, i) => l.guess[i] === -1,
  };
  const heads = {
    sample: (i) => table.samples[i].id,
    patient: (i) => table.samples[i].of ?? "",
    label: (i) => word(table.samples[i].truth),
    left: (i) => word(columns("left").guess[i]),
    right: (i) => word(columns("right").guess[i]),
    confidence: (i) => columns("left").confidence[i],
    "retrieved": (i) => (columns("left").retrieved[i] ? "yes" : "no"),
    calls: (i) => columns("left").calls[i],
    tokens: (i) => columns("left").tokens[i],
    seconds: (i) => columns("left").seconds[i],
    reward: (i) => columns("left").reward[i],
  };
  if (alone) delete heads.right;
  function columns(side) { return table.columns[field(side).value]; }

  // The texts of every sample in lower case, read once, when someone first looks for words.
  let texts = null;
  async function readAll() {
    const read = new Map();
    for (let number = 0; number < packs.length; number++) {
      for (const [i, sample] of Object.entries(await pack(number))) read.set(Number(i), JSON.stringify(Object.values(sample)).toLowerCase());
    }
    texts = read;
    filter();
  }

  function filter() {
    const words = field("words").value.trim().toLowerCase();
    if (words && !texts) { readAll(); return; }
    const l = columns("left"), r = columns("right");
    const text = field("search").value.trim().toLowerCase();
    const truth = field("truth").value, guess = field("guess").value, kind = kinds[field("kind").value];
    const least = field("confidence").value, tokens = field("tokens").value;
    const source = field("source").value, group = field("group").value;
    found = [];
    for (let i = 0; i < table.samples.length; i++) {
      const sample = table.samples[i];
      if (text && !(String(sample.id).toLowerCase().includes(text) || String(sample.of ?? "").toLowerCase() === text)) continue;
      if (words && !(texts.get(i) ?? "").includes(JSON.stringify(words).slice(1, -1))) continue;
      if (truth !== "" && sample.truth !== Number(truth)) continue;
      if (guess !== "" && l.guess[i] !== Number(guess)) continue;
      if (kind && !kind(l, r, i)) continue;
      if (least !== "" && !(l.confidence[i] >= Number(least))) continue;
      if (tokens !== "" && !(l.tokens[i] >= Number(tokens))) continue;
      if (source !== "" && !(l.sources[i] ?? []).includes(Number(source))) continue;
      if (group !== "" && !sample.groups.includes(Number(group))) continue;
      found.push(i);
    }
    if (sorted) {
      const key = heads[sorted], turn = upwards ? 1 : -1;
      const keys = new Map(found.map((i) => [i, key(i)]));
      found.sort((a, b) => {
        const x = keys.get(a), y = keys.get(b);
        return turn * (x === y ? a - b : x === null ? 1 : y === null ? -1 : x < y ? -1 : 1);
      });
    }
    shown = WINDOW;
    draw();
  }

  function draw() {
    head.replaceChildren();
    for (const name of Object.keys(heads)) {
      const text = name === "left" || name === "right" ? titled[field(name).value] : name;
      const cell = add(head, "th", text + (sorted === name ? (upwards ? " \u2191" : " \u2193") : ""));
      cell.scope = "col";
      cell.addEventListener("click", () => { upwards = sorted === name ? !upwards : true; sorted = name; filter(); });
    }
    const l = columns("left"), r = columns("right");
    body.replaceChildren(...found.slice(0, shown).map((i) => {
      const row = node("tr");
      row.tabIndex = 0;
      row.dataset.sample = i;
      row.setAttribute("aria-selected", String(i === chosen));
      for (const [name, value] of Object.entries(heads)) {
        const cell = add(row, "td", value(i));
        if (name === "left" && l.right[i] !== null) cell.className = l.right[i] ? "right" : "wrong";
        if (name === "right" && r.right[i] !== null) cell.className = r.right[i] ? "right" : "wrong";
      }
      row.addEventListener("click", () => choose(i));
      row.addEventListener("keydown", (event) => { if (event.key === "Enter") choose(i); });
      return row;
    }));
    const right = found.filter((i) => l.right[i] === 1).length;
    const share = found.length ? ` ${titled[field("left").value]} is right on ${right.toLocaleString("en")} of them.` : "";
    part("count").textContent =
      `${found.length.toLocaleString("en")} of ${table.samples.length.toLocaleString("en")} rows.${share}`;
    form.dataset.words = field("words").value;  // what the rows shown were looked through for
    part("more").hidden = shown >= found.length;
  }

  // The texts of a pack of samples, unpacked when one of them is first read.
  async function pack(number) {
    if (!opened.has(number)) {
      const script = packs[number];
      opened.set(number, script.type === "application/json" ? JSON.parse(script.textContent) : JSON.parse(await unzipped(script.textContent)));
    }
    return opened.get(number);
  }
  async function unzipped(text) {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  async function choose(i) {
    chosen = i;
    // a link to this episode; a page that may not change its address (a preview, an archive) goes on without
    try { history.replaceState(null, "", `#${prefix}episode=${encodeURIComponent(table.samples[i].id)}`); } catch { /* as it is */ }
    for (const row of body.children) row.setAttribute("aria-selected", String(Number(row.dataset.sample) === i));
    const texts = (await pack(Math.floor(i / table.pack)))[i];
    const sample = table.samples[i], detail = part("detail");
    detail.replaceChildren();
    const title = add(detail, "h3", sample.id);
    if (sample.of !== null && sample.of !== undefined) add(title, "span", ` of patient ${sample.of}`, "quiet small");
    const about = [`Label ${word(sample.truth)}`];
    if (sample.needs !== null) about.push(`a retrieval was ${sample.needs ? "needed" : "not needed"}`);
    if (sample.ups !== null && sample.ups !== undefined) about.push(`retrievals needed: ${sample.ups}`);
    add(detail, "p", about.join(" \u00b7 "));
    add(detail, "pre", texts.patient ?? "The texts of this row were left out of the page; episodes/*.jsonl has them.");
    const side = add(detail, "div", undefined, "side");
    const names = [...new Set([field("left").value, field("right").value])];
    for (const name of names) read(add(side, "div"), name, table.columns[name], i, texts.runs[name]);
  }

  function read(place, name, columns, i, episode) {
    add(place, "h3", titled[name]);
    const outcome = add(place, "div", undefined, "outcome");
    add(outcome, "span", "Answer ").appendChild(node("b", word(columns.guess[i])));
    if (columns.right[i] !== null) add(outcome, "span", columns.right[i] ? "Right" : "Wrong", columns.right[i] ? "right" : "wrong");
    if (columns.confidence[i] !== null) add(outcome, "span", `probability ${columns.confidence[i]}`);
    if (!episode) return;
    if (episode.failure) add(place, "p", `Failed: ${episode.failure}`, "wrong");
    add(place, "div", `${episode.line}. ${columns.calls[i]} calls, ${columns.tokens[i].toLocaleString("en")} tokens, ${columns.seconds[i]} s.`, "small quiet");
    for (const lookup of episode.lookups) lookedUp(place, lookup);
    for (const turn of episode.turns) {
      const block = add(place, "div", undefined, "turn");
      block.style.setProperty("--agent", colors[turn.agent] ?? "currentColor");
      const top = add(block, "div", undefined, "head");
      add(top, "b", `Agent ${turn.agent}`);
      add(top, "span", turn.role);
      add(top, "span", `iteration ${turn.step}`);
      add(top, "span", turn.completed ? "chosen for it" : turn.ok ? "readable" : "not readable", turn.ok ? "right" : "wrong");
      add(block, "div", turn.reply, "reply");
      if (turn.evidence) { add(block, "h4", "Evidence shown"); add(block, "pre", turn.evidence); }
      if (turn.prompt !== null) {
        const more = add(block, "details");
        add(more, "summary", "Prompt");
        add(more, "pre", turn.prompt);
      }
    }
  }

  function lookedUp(place, lookup) {
    const more = add(place, "details");
    const used = lookup.found.filter((one) => one.shown).length;
    add(more, "summary", `Look-up "${lookup.query}": ${lookup.found.length} found, ${used} used`);
    const list = add(add(more, "div", undefined, "scroll"), "table");
    const top = add(add(list, "thead"), "tr");
    for (const name of ["rank", "score", "", "meta-path", "passage"]) add(top, "th", name);
    const rows = add(list, "tbody");
    lookup.found.forEach((one, rank) => {
      const row = add(rows, "tr");
      const used = one.shown ? "used" : "cut";
      for (const value of [rank + 1, one.score.toFixed(3), used, one.path ?? one.kind]) add(row, "td", value);
      add(row, "td", one.text, one.shown ? "" : "cut");
    });
  }

  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => {
    field("left").value = first.left;
    field("right").value = first.right;
    filter();
  }));
  for (const name of ["left", "right"]) field(name).addEventListener("change", () => { if (chosen >= 0) choose(chosen); });
  part("more").addEventListener("click", () => { shown += WINDOW; draw(); });
  const quoted = (value) => `"${String(value ?? "").replaceAll('"', '""')}"`;
  part("save").addEventListener("click", () => {
    const name = (key) => (key === "left" || key === "right" ? titled[field(key).value] : key);
    const lines = [Object.keys(heads).map((key) => quoted(name(key))), ...found.map((i) => Object.values(heads).map((value) => quoted(value(i))))];
    const link = node("a");
    link.href = URL.createObjectURL(new Blob([lines.map((line) => line.join(",") + "\r\n").join("")], { type: "text/csv" }));
    link.download = "episodes.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  filter();
  const link = `#${prefix}episode=`, wanted = location.hash.startsWith(link) ? decodeURIComponent(location.hash.slice(link.length)) : null;
  const at = table.samples.findIndex((sample) => String(sample.id) === wanted);
  if (at >= 0) choose(at).then(() => part("detail").scrollIntoView());
  return (variant, truth, guess) => {
    field("left").value = variant;
    field("truth").value = truth;
    field("guess").value = guess;
    field("kind").value = "";
    filter();
    form.scrollIntoView();
  };
}
if (document.getElementById("table")) {
  const show = browse("");
  for (const cell of document.querySelectorAll(".confusion button")) {
    cell.addEventListener("click", () => show(cell.dataset.variant, cell.dataset.truth, cell.dataset.guess));
  }
}
if (document.getElementById("training-table")) browse("training-");
