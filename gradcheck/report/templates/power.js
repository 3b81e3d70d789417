"use strict";
// The filter: shows the mutants whose row holds every word, and unfolds what it finds.

document.addEventListener("DOMContentLoaded", () => {
  const sections = [...document.querySelectorAll("details.mutants")].map((section) => ({
    section,
    folded: !section.open,
    name: section.querySelector("summary").textContent.toLowerCase(),
    rows: [...section.querySelectorAll("tbody > tr")].map((tr) =>
      ({ tr, text: tr.textContent.toLowerCase() })),
  }));
  window.addEventListener("hashchange", unfoldTarget);
  unfoldTarget();
  const filter = document.getElementById("filter");
  if (!filter) return;
  filter.closest(".tools").hidden = false;
  filter.addEventListener("input", () => filterMutants(sections, filter.value));
  document.getElementById("unfold").addEventListener("click", (event) => {
    const open = event.target.textContent === "unfold all";
    for (const { section } of sections) section.open = open;
    event.target.textContent = open ? "fold all" : "unfold all";
  });
  filterMutants(sections, "");
});

function filterMutants(sections, value) {
  const wanted = value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  let all = 0;
  for (const { section, folded, name, rows } of sections) {
    let shown = 0;
    for (const { tr, text } of rows) {
      tr.hidden = !wanted.every((word) => text.includes(word) || name.includes(word));
      shown += !tr.hidden;
    }
    section.hidden = wanted.length > 0 && !shown;
    if (wanted.length) section.open = shown > 0;
    else if (folded) section.open = false;
    count += shown;
    all += rows.length;
  }
  document.getElementById("nothing").hidden = count > 0 || !all;
  document.getElementById("count").textContent =
    `${count.toLocaleString("en")} of ${all.toLocaleString("en")} mutants`;
}

// A link from the grid leads to a section: it is unfolded.
function unfoldTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.matches("details")) {
    target.open = true;
    target.scrollIntoView();
  }
}
