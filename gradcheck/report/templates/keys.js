// The keyboard: from cell to cell, from failure to failure, to the filter, and to the help.

function prepareKeys() {
  document.addEventListener("keydown", pressed);
  for (const table of document.querySelectorAll("table.matrix")) {
    table.setAttribute("role", "grid");
    table.addEventListener("click", (event) => {
      const cell = event.target.closest("td.cell");
      if (cell && getSelection().isCollapsed) { rove(cell); toggleDetail(cell); }
    });
    const first = table.querySelector("td.cell");
    if (first) first.tabIndex = 0;
  }
}

// One cell of a table can be reached by Tab; arrows lead from it to the others.
function rove(cell) {
  for (const other of cell.closest("table").querySelectorAll("td.cell[tabindex]")) {
    other.removeAttribute("tabindex");
  }
  cell.tabIndex = 0;
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input:not([type=checkbox]), textarea");
  if (event.key === "Escape") { escaped(event); return; }
  if (typing || document.getElementById("help").open) return;
  const act = KEYS[event.key];
  if (act) {
    event.preventDefault();
    act();
  } else if (event.target.matches("td.cell")) {
    walked(event);
  }
}

const KEYS = {
  "/": () => document.getElementById("filter")?.select(),
  j: () => jump(1),
  k: () => jump(-1),
  t: nextTheme,
  "?": () => document.getElementById("help").showModal(),
};

function escaped(event) {
  if (document.getElementById("help").open) return; // a dialog closes itself
  if (state.open) {
    const cell = opened?.row.cells[opened.column];
    update({ open: "" });
    cell?.focus();
  } else if (state.filter) {
    event.preventDefault();
    update({ filter: "" });
  } else {
    document.activeElement.blur();
  }
}

function walked(event) {
  const cell = event.target;
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    toggleDetail(cell);
    return;
  }
  const goal = neighbour(cell, event.key);
  if (goal === undefined) return;
  event.preventDefault();
  if (goal) { rove(goal); goal.focus(); }
}

function neighbour(cell, key) {
  const cells = [...cell.parentElement.querySelectorAll("td.cell")];
  const at = cells.indexOf(cell);
  if (key === "ArrowRight") return cells[at + 1] || null;
  if (key === "ArrowLeft") return cells[at - 1] || null;
  if (key === "Home") return cells[0];
  if (key === "End") return cells.at(-1);
  if (key !== "ArrowDown" && key !== "ArrowUp") return undefined;
  const side = key === "ArrowDown" ? "nextElementSibling" : "previousElementSibling";
  let row = cell.parentElement[side];
  while (row && (row.hidden || !row.querySelector(":scope > td.cell"))) row = row[side];
  return row ? row.querySelectorAll("td.cell")[at] : null;
}

// The failures in the order of the page: what is expanded at the top, then the cells.
function jump(step) {
  const all = [...document.querySelectorAll(
    ".card.failure:not([hidden]) > summary, tr:not([hidden]) > td.cell:is(.bad, .warn)",
  )].filter((element) => element.offsetParent !== null);
  if (!all.length) return;
  const here = all.indexOf(document.activeElement);
  const goal = here >= 0 ? all[here + step] : step > 0 ? all[0] : all.at(-1);
  if (!goal) return;
  if (goal.matches("td")) rove(goal);
  goal.focus({ preventScroll: true });
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  goal.scrollIntoView({ block: "center", behavior: calm ? "auto" : "smooth" });
}
