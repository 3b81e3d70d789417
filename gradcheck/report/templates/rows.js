// The rows of all tables, and which of them are shown. Keys are made once; a filter then compares
// strings and touches only the rows that come or go.

let rows = [];
let cards = [];
const bits = new Map(); // of the words with which a cell stands

function bit(word) {
  if (!bits.has(word)) bits.set(word, 1 << bits.size);
  return bits.get(word);
}

function collectRows() {
  for (const table of document.querySelectorAll("table.matrix")) {
    const { first, columns, op, dialect } = table.dataset;
    const names = [...table.tHead.querySelectorAll("[data-result]")].map((th) => th.dataset.sort);
    let line = 0;
    for (const tr of table.querySelectorAll("tbody > tr:not(.block)")) {
      const found = { tr, table, names, shown: true, number: rows.length };
      const heads = [...tr.querySelectorAll("th")].map((th) => th.textContent.trim());
      [found.op, found.dialect, found.output] = op === undefined ? heads : [op, dialect, ...heads];
      found.cells = [...tr.querySelectorAll("td.cell")];
      found.first = Number(first) + line * Number(columns);
      found.name = `${found.op}/${found.dialect}/${found.output}`;
      const judged = names.filter((_, i) => !found.cells[i].classList.contains("none"));
      found.key = `${found.name} ${judged.join(" ")} `.toLowerCase();
      found.ranks = found.cells.map(() => -1); // until they are unpacked
      found.mask = 0;
      found.passed = true;
      for (const cell of found.cells) {
        const word = cell.firstElementChild?.textContent.toLowerCase();
        if (word) found.mask |= bit(word);
        if (cell.querySelector("em")) found.mask |= bit("differs");
        if (word && word !== "pass") found.passed = false;
      }
      rows.push(found);
      line += 1;
    }
  }
  cards = [...document.querySelectorAll(".card.failure")].map((card) => {
    const words = [...card.querySelectorAll(".chip")].map((chip) => chip.textContent.toLowerCase());
    const key = card.textContent.toLowerCase().replace(/\s+/g, " ");
    return { card, key, mask: words.reduce((mask, word) => mask | bit(word), 0) };
  });
}

// The names of samples are packed; they join the keys as soon as they are there.
async function collectSamples() {
  const index = await unpack(document.getElementById("index"));
  const sets = index.sets.map((names) => names.toLowerCase());
  for (const row of rows) {
    row.key += sets[index.rows[row.number]];
    row.bad = index.bad.slice(row.first, row.first + row.cells.length);
    row.ranks = row.cells.map((cell) => index.order.indexOf(cell.firstElementChild?.textContent));
  }
}

let tall = 0; // a row, in pixels

// How much room a body takes as long as it is not laid out.
function sizeBodies(table) {
  tall ||= rows[0].tr.offsetHeight || 41;
  for (const body of table.tBodies) {
    const shown = body.querySelectorAll(":scope > tr:not([hidden])").length;
    body.hidden = !shown;
    body.style.containIntrinsicBlockSize = `auto ${shown * tall}px`;
  }
}

function filterRows() {
  const wanted = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const mask = state.only.reduce((all, word) => all | bit(word), 0);
  const fits = (found) =>
    (!mask || (found.mask & mask) !== 0) && wanted.every((word) => found.key.includes(word));
  const tables = new Map();
  let count = 0;
  for (const row of rows) {
    const shown = !(state.hide && row.passed) && fits(row);
    if (shown !== row.shown) {
      row.shown = shown;
      row.tr.hidden = !shown;
    }
    count += shown;
    tables.set(row.table, (tables.get(row.table) || 0) + shown);
  }
  for (const { card, key, mask: of } of cards) card.hidden = !fits({ key, mask: of });
  for (const [table, shown] of tables) {
    table.hidden = !shown;
    sizeBodies(table);
    const model = table.closest("details.model");
    if (model) {
      model.hidden = !shown;
      if (shown && (wanted.length || mask)) model.open = true;
    }
  }
  followRow();
  document.getElementById("nothing").hidden = count > 0;
  document.getElementById("count").textContent =
    `${count.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
  const filter = document.getElementById("filter");
  if (filter.value !== state.filter) filter.value = state.filter;
  document.getElementById("hide").checked = state.hide;
  for (const box of document.getElementsByName("only")) box.checked = state.only.includes(box.value);
}
