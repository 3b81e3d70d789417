// Light, dark, or as the system says: kept in the address, and where the browser allows it, here.

const THEMES = ["system", "light", "dark"];
const KEPT = "gradcheck-theme";

function keptTheme() {
  try { return localStorage.getItem(KEPT) || ""; } catch { return ""; }
}

function showTheme(theme) {
  const shown = THEMES.includes(theme) ? theme : THEMES[0];
  document.documentElement.dataset.theme = shown;
  const label = document.querySelector("#theme span");
  if (label) label.textContent = shown;
}

function nextTheme() {
  const at = THEMES.indexOf(document.documentElement.dataset.theme);
  const theme = THEMES[(at + 1) % THEMES.length];
  try { localStorage.setItem(KEPT, theme); } catch { /* a page without a store keeps the address */ }
  update({ theme: theme === THEMES[0] ? "" : theme });
}
