// What is shown, as one object, and as the fragment of the address: it works from a file too.

const state = { filter: "", only: [], hide: false, sort: "", open: "", theme: "" };

function addressed() {
  const text = location.hash.slice(1);
  const given = new URLSearchParams(text.includes("=") ? text : "");
  return {
    filter: given.get("filter") || "",
    only: (given.get("only") || "").split(",").filter(Boolean),
    hide: given.get("hide") === "passing",
    sort: given.get("sort") || "",
    open: given.get("open") || "",
    theme: given.get("theme") || "",
  };
}

function fragment() {
  const given = new URLSearchParams();
  if (state.filter) given.set("filter", state.filter);
  if (state.only.length) given.set("only", state.only.join(","));
  if (state.hide) given.set("hide", "passing");
  if (state.sort) given.set("sort", state.sort);
  if (state.open) given.set("open", state.open);
  if (state.theme) given.set("theme", state.theme);
  return `#${given}`.replaceAll("%2F", "/").replaceAll("%2C", ",");
}

let waiting = 0;

// Shows a change and puts it into the address: as a step of its own, or, while somebody types,
// over the last one.
function update(change, { typing = false } = {}) {
  Object.assign(state, change);
  show(change);
  clearTimeout(waiting);
  const put = () => {
    if (fragment() === (location.hash || "#")) return;
    try {
      if (typing) history.replaceState(null, "", fragment());
      else history.pushState(null, "", fragment());
    } catch { /* too many steps in a short time: the next one is kept */ }
  };
  if (typing) waiting = setTimeout(put, 200);
  else put();
}

function restore() {
  const text = location.hash.slice(1);
  if (text && !text.includes("=")) return; // a place in the page, no state
  Object.assign(state, addressed());
  show(state);
}

function show(change) {
  if ("theme" in change) showTheme(state.theme || (change === state ? keptTheme() : ""));
  if ("sort" in change) sortRows();
  if ("filter" in change || "only" in change || "hide" in change) filterRows();
  if ("open" in change) showDetail();
}
