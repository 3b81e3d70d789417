// A command beside a button that copies it; where that is not allowed, its text is selected.

function copyButton(text, beside) {
  const button = el("button", { type: "button", class: "copy", title: text }, "copy");
  button.setAttribute("aria-label", `copy: ${text}`);
  button.addEventListener("click", async (event) => {
    event.stopPropagation();
    try {
      await navigator.clipboard.writeText(text);
      say(button, "copied");
    } catch {
      const code = beside || revealed(button, text);
      getSelection().selectAllChildren(code);
      say(button, "selected");
    }
  });
  return button;
}

function revealed(button, text) {
  const code = el("code", { class: "run" }, text);
  button.before(code);
  return code;
}

function say(button, word) {
  button.textContent = word;
  document.getElementById("said").textContent = word;
  setTimeout(() => { button.textContent = "copy"; }, 1500);
}

function prepareCopies() {
  document.body.append(el("p", { id: "said", class: "unseen", role: "status" }));
  for (const code of document.querySelectorAll("code.run")) {
    code.after(copyButton(code.textContent, code));
  }
}
