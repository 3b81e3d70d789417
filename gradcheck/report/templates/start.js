// The theme before anything is painted, everything else when the page is there.

let ready = null; // when the names of samples and the badness of cells are unpacked
showTheme(addressed().theme || keptTheme());

document.addEventListener("DOMContentLoaded", () => {
  document.documentElement.classList.add("live");
  document.querySelector(".corner").hidden = false;
  showTheme(addressed().theme || keptTheme());
  document.getElementById("theme").addEventListener("click", nextTheme);
  const help = document.getElementById("help");
  document.getElementById("ask").addEventListener("click", () => help.showModal());
  help.querySelector(".close").addEventListener("click", () => help.close());
  prepareCopies();
  document.addEventListener("click", followed);
  const tools = document.querySelector(".tools");
  if (!tools) return;
  collectRows();
  ready = collectSamples().catch(() => {}); // a browser that cannot unpack: no names of samples
  prepareHeads();
  prepareKeys();
  prepareTools(tools);
  restore();
  if (state.filter) ready.then(filterRows);
  window.addEventListener("popstate", restore);
  window.addEventListener("hashchange", restore);
});

function prepareTools(tools) {
  const filter = document.getElementById("filter");
  filter.addEventListener("input", () => update({ filter: filter.value }, { typing: true }));
  const hide = document.getElementById("hide");
  hide.addEventListener("change", () => update({ hide: hide.checked }));
  const boxes = [...document.getElementsByName("only")];
  for (const box of boxes) {
    box.addEventListener("change", () =>
      update({ only: boxes.filter((other) => other.checked).map((other) => other.value) }));
  }
  tools.hidden = false;
}

// A link to a part of the page leaves the rest of the address as it is.
function followed(event) {
  const link = event.target.closest("a[href^='#']");
  const part = link && document.getElementById(link.getAttribute("href").slice(1));
  if (!part) return;
  event.preventDefault();
  part.tabIndex = -1;
  part.scrollIntoView();
  part.focus({ preventScroll: true });
}
