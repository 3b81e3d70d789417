"use strict";
// Enhancement only: without it, everything is on the page and unfolds.
const tools = document.querySelector(".tools");
if (tools) {
  const search = tools.querySelector("input[type=search]");
  const only = tools.querySelector("input[type=checkbox]");
  const left = tools.querySelector("output");
  const rows = [...document.querySelectorAll(".matrix details")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const update = () => {
    const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    document.body.classList.toggle("failing-only", only.checked);
    let shown = 0;
    if (wanted.length) document.querySelectorAll("details.model").forEach((model) => { model.open = true; });
    rows.forEach((row, i) => {
      row.hidden = !wanted.every((word) => texts[i].includes(word));
      if (!row.hidden && !(only.checked && row.classList.contains("passed"))) shown += 1;
    });
    left.textContent = `${shown} of ${rows.length} rows`;
  };
  search.addEventListener("input", update);
  only.addEventListener("change", update);
  tools.hidden = false;
  update();
}
