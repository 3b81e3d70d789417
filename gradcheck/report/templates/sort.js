// Rows in another order: by a column, given by its name; with "-" before it, the other way round.

function prepareHeads() {
  for (const th of document.querySelectorAll("th[data-sort]")) {
    const button = el("button", { type: "button", class: "sort" }, th.textContent.trim());
    button.addEventListener("click", () => update({ sort: nextSort(th) }));
    th.replaceChildren(button);
  }
}

// Numbers and results start with the largest and the worst, texts with A.
function nextSort(th) {
  const name = th.dataset.sort;
  const down = th.classList.contains("number") || "result" in th.dataset;
  const order = down ? [`-${name}`, name, ""] : [name, `-${name}`, ""];
  return order[(order.indexOf(state.sort) + 1) % order.length];
}

async function sortRows() {
  const down = state.sort.startsWith("-");
  const name = down ? state.sort.slice(1) : state.sort;
  for (const th of document.querySelectorAll("th[data-sort]")) {
    if (name && th.dataset.sort === name) th.ariaSort = down ? "descending" : "ascending";
    else th.removeAttribute("aria-sort");
  }
  if (name) await ready;
  for (const table of document.querySelectorAll("table.matrix")) sortTable(table, name, down);
  followRow();
}

function sortTable(table, name, down) {
  const head = [...table.tHead.querySelectorAll("th[data-sort]")].find((th) => th.dataset.sort === name);
  const sorted = Boolean(head);
  if (!sorted && !table.classList.contains("sorted")) return;
  table.classList.toggle("sorted", sorted);
  const of = rows.filter((row) => row.table === table);
  const keys = new Map(of.map((row) => [row, sorted ? sortKey(row, head) : row.number]));
  const sign = down ? -1 : 1;
  const ordered = of.sort((a, b) => sign * compared(keys.get(a), keys.get(b)) || a.number - b.number);
  const bodies = [...table.tBodies];
  if (table.dataset.op) { // of a model: each part by itself
    for (const body of bodies) {
      body.append(...ordered.filter((row) => row.tr.parentElement === body).map((row) => row.tr));
    }
  } else {
    const each = Math.ceil(ordered.length / bodies.length);
    bodies.forEach((body, i) =>
      body.append(...ordered.slice(i * each, (i + 1) * each).map((row) => row.tr)));
  }
  sizeBodies(table);
}

function sortKey(row, head) {
  if ("result" in head.dataset) {
    const at = row.names.indexOf(head.dataset.sort);
    // The worst is the largest: what stands early in the order, then what is far over its bound.
    return row.ranks[at] < 0 ? [-99, 0] : [-row.ranks[at], row.bad[at] === "inf" ? Infinity : row.bad[at]];
  }
  if (head.classList.contains("number")) return Number(cellUnder(row, head).replaceAll(",", "")) || 0;
  return cellUnder(row, head);
}

function cellUnder(row, head) {
  if (head.classList.contains("op")) return row.output && row.table.dataset.op ? row.output : row.op;
  if (head.dataset.sort === "variant") return row.dialect;
  const places = { samples: -2, "worst ± uncertainty": -2, elements: -1 };
  const at = places[head.dataset.sort];
  return at ? [...row.tr.children].at(at).textContent : row.output;
}

function compared(a, b) {
  if (Array.isArray(a)) return a[0] - b[0] || (a[1] === b[1] ? 0 : a[1] - b[1]);
  return a < b ? -1 : a > b ? 1 : 0;
}
