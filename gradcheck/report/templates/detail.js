// A cell drilled down to: what fails in full, a table of all samples, and what the checks reject.

let opened = null; // { row, column, tr }

function cellName(row, column) {
  return `${row.name}/${row.names[column]}`;
}

function toggleDetail(cell) {
  const row = rows.find((found) => found.tr === cell.parentElement);
  if (!row || cell.classList.contains("none")) return;
  const name = cellName(row, row.cells.indexOf(cell));
  update({ open: state.open === name ? "" : name });
}

function showDetail() {
  const wanted = state.open;
  if (opened && cellName(opened.row, opened.column) === wanted) return;
  closeDetail();
  if (!wanted) return;
  for (const row of rows) {
    if (wanted.startsWith(row.name)) {
      const column = row.names.findIndex((_, i) => cellName(row, i) === wanted);
      if (column >= 0 && !row.cells[column].classList.contains("none")) {
        openDetail(row, column);
        return;
      }
    }
  }
}

function closeDetail() {
  if (!opened) return;
  opened.row.cells[opened.column].removeAttribute("aria-expanded");
  opened.tr.remove();
  opened = null;
}

async function openDetail(row, column) {
  const cell = row.cells[column];
  const place = el("td", { colspan: String(row.tr.children.length) }, el("p", { class: "soft" }, "…"));
  const tr = el("tr", { class: "detail" }, place);
  opened = { row, column, tr };
  cell.setAttribute("aria-expanded", "true");
  row.table.closest("details")?.setAttribute("open", "");
  followRow();
  let content;
  try {
    content = detail(row, column, await resultsOf(row.first + column));
  } catch (error) {
    content = el("p", {}, `This browser cannot unpack the details (${error.message}).`);
  }
  if (opened && opened.tr === tr) place.replaceChildren(content);
}

// The open detail stays under its row, whatever becomes of that.
function followRow() {
  if (!opened) return;
  opened.row.tr.after(opened.tr);
  opened.tr.hidden = !opened.row.shown;
}

const TEXTS = ["sample", "hunts", "verdict", "certificate", "repro", "cotangent"];
const COLUMNS = [...TEXTS, "compared", "failed", "unresolved", "place", "got", "bar", "error",
  "bound", "times", "ulp"];

// The results of a cell, each as an object.
async function resultsOf(cell) {
  const chunks = [...document.querySelectorAll("template.packed")];
  const element = chunks.filter((chunk) => Number(chunk.dataset.first) <= cell).at(-1);
  const chunk = await unpack(element);
  if (!chunk.columns) {
    chunk.columns = Object.fromEntries(COLUMNS.map((name) => [name, chunk[name].split("\n")]));
  }
  const at = cell - Number(element.dataset.first);
  const start = chunk.counts.slice(0, at).reduce((sum, count) => sum + count, 0);
  const where = `${chunk.texts[chunk.cases[at]]}/`;
  return Array.from({ length: chunk.counts[at] }, (_, i) => {
    const pairs = COLUMNS.map((name) => [name, chunk.columns[name][start + i]]);
    const result = { ...Object.fromEntries(pairs), ...chunk.more[start + i] };
    for (const name of TEXTS) result[name] = result[name] === "" ? "" : chunk.texts[result[name]];
    [result.got, result.want = result.got] = result.got.split(" ");
    const name = `${where}${result.sample}/${chunk.texts[chunk.dtypes[at]]}`;
    result.repro = result.repro.replace("{}", () => name);
    return result;
  });
}

function detail(row, column, results) {
  const failing = results.filter((result) => result.lead !== undefined && result.verdict !== "PASS")
    .sort((a, b) => badness(b) - badness(a));
  const close = el("button", { type: "button", class: "close", "aria-label": "close the details" }, "✕");
  close.addEventListener("click", () => {
    const cell = row.cells[column];
    update({ open: "" });
    cell.focus();
  });
  const title = el("h3", {}, `${row.op} `, el("span", { class: "soft" }, row.dialect),
    ` ${row.output} `, el("span", { class: "soft" }, row.names[column]));
  const drawn = results.find((result) => result.pictures && result.verdict === "PASS");
  return el("section", { "aria-label": `details of ${cellName(row, column)}` },
    el("div", { class: "title" }, title, close),
    failing.map((result, i) => failure(result, failing[i - 1])),
    drawn ? pictures(drawn) : null,
    samples(results),
    certificate(results.filter((result) => result.certificate)));
}

function chip(word) {
  return el("span", { class: `chip ${tone(word)}` }, word);
}

function tone(word) {
  if (word === "PASS") return "good";
  if (["INCONCLUSIVE", "NOTRUN"].includes(word)) return "warn";
  return ["UNSUPPORTED", "UNBOUND", "SKIP", "XFAIL"].includes(word) ? "calm" : "bad";
}

// A result's error in multiples of its tolerance; one without a number is the worst.
function badness(result) {
  return result.times ? Number(result.times) : Infinity;
}

// One failure, unfolded if it is the first; what the one before it said is not said again.
function failure(result, before) {
  const lead = before && before.lead === result.lead ? el("span", { class: "soft" }, "as above") : prose(result.lead);
  const summary = el("summary", {}, chip(result.verdict), " ", el("b", {}, result.sample), " ", lead);
  const body = el("details", { class: "case" }, summary);
  if (!before) body.open = true;
  const pairs = [...(result.known ? [["baseline", result.known]] : []), ...(result.facts || []),
    ["designed to catch", result.hunts], ...(result.source ? [["source", result.source]] : [])];
  const facts = el("dl", { class: "facts" });
  for (const [label, text] of pairs) if (text) facts.append(el("dt", {}, label), el("dd", {}, prose(text)));
  const code = el("code", { class: "run" }, result.repro);
  facts.append(el("dt", {}, "run"), el("dd", {}, code, copyButton(result.repro, code)));
  body.append(facts);
  if (result.printed) {
    const label = { class: "printed", tabindex: "0", "aria-label": "what the code printed" };
    body.append(el("pre", label, result.printed.join("\n")));
  }
  if (result.pictures) body.append(pictures(result));
  if (result.elements && result.elements.length > 1) body.append(elements(result.elements));
  return body;
}

function pictures(result) {
  return el("div", { class: "pictures" }, result.pictures.map(picture));
}

function elements(found) {
  return tableOf(found.length === 1 ? "The worst element" : `The ${found.length} worst elements`,
    ["element", "got", "expected", "× tol", "ulp", "cotangent"],
    found.map(([place, ...rest]) => [el("th", { scope: "row" }, place), ...rest]));
}

function samples(results) {
  const lines = results.map((result) => {
    const name = el("th", { scope: "row" }, el("b", {}, result.sample), " ", copyButton(result.repro));
    if (result.hunts) name.append(el("small", {}, prose(result.hunts)));
    const notes = [...(result.notes || []), ...(result.verdict === "PASS" ? (result.facts || []).map((pair) => pair.join(": ")) : [])];
    for (const note of notes) name.append(el("small", {}, prose(note)));
    const want = result.want && `${result.want} ± ${result.bar}`;
    const parts = [`${result.failed || 0}/${result.compared}`,
      result.unresolved && `${result.unresolved} unresolved`].filter(Boolean);
    return [name, chip(result.verdict), result.place, result.got, want, result.error, result.bound,
      result.times, result.ulp, parts.join(", "), rejected(result)];
  });
  return tableOf("All samples", ["sample", "verdict", "worst element", "got", "expected", "error", "tol",
    "× tol", "ulp", "failed", "self-check"], lines);
}

function rejected(result) {
  if (!result.certificate) return "";
  const [killed, blind] = sides(result);
  return `${killed.length}/${killed.length + blind.length}`;
}

function sides(result) {
  return result.certificate.split("|").map((names) => names.split(",").filter(Boolean));
}

const MARKS = { rejected: ["✓", "good"], blind: ["○", "bad"], tolerated: ["≈", "soft"], equal: ["=", "calm"] };

function certificate(results) {
  if (!results.length) return null;
  const found = results.map((result) => sides(result).map((names) => new Map(names.map((name) => name.split(": ")))));
  const names = [...new Set(found.flat().flatMap((side) => [...side.keys()]))];
  const lines = results.map((result, i) => [el("th", { scope: "row" }, result.sample), ...names.map((name) => {
    const kind = ["rejected", "blind", "tolerated"].find((_, side) => found[i][side]?.has(name)) ?? "equal";
    const [glyph, mood] = MARKS[kind];
    const title = [`${name}: ${kind}`, found[i][2]?.get(name)].filter(Boolean).join(", ");
    return el("span", { class: `mark ${mood}`, title, role: "img", "aria-label": kind }, glyph);
  })]);
  const heads = ["sample", ...names];
  const table = tableOf("Self-check: wrong gradients given to the same checks", heads, lines, "kills");
  table.append(el("p", { class: "soft" }, "✓ rejected   ○ not detected   ≈ within the tolerance of the dtype   = equal to the right gradient at this sample"));
  return table;
}

function tableOf(title, heads, lines, kind = "") {
  const cells = heads.map((name) => el("th", { scope: "col" }, el("span", {}, name)));
  const body = lines.map((line) => el("tr", {}, line.map((part) =>
    (part instanceof HTMLTableCellElement ? part : el("td", {}, part || "")))));
  const attributes = { class: "scroll", tabindex: "0", role: "region", "aria-label": title };
  return el("div", attributes, el("table", { class: `inner ${kind}` }, el("caption", {}, title),
    el("thead", {}, el("tr", {}, cells)), el("tbody", {}, body)));
}
