// Search for pages that are opened from a folder: browsers refuse workers there, so the search's
// script runs in a hidden frame instead, which talks as a worker does. On a server nothing changes.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const base = new URL(url, location.href);
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.setAttribute("aria-hidden", "true");
      const ready = new Promise(resolve => { this.ready = resolve; });
      const start = () => {
        document.body.appendChild(frame);
        const inside = frame.contentWindow;
        inside.document.open();
        inside.document.write("<!doctype html><title>search</title>");
        inside.document.close();
        inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
        inside.importScripts = (...urls) => Promise.all(urls.map(one => new Promise((done, failed) => {
          const script = inside.document.createElement("script");
          script.src = new URL(one, base).href;
          script.onload = done;
          script.onerror = failed;
          inside.document.head.appendChild(script);
        })));
        inside.importScripts(base.href).then(() => this.ready(inside));
      };
      if (document.body) { start(); } else { addEventListener("DOMContentLoaded", start); }
      this.post = data => ready.then(inside =>
        inside.dispatchEvent(new inside.MessageEvent("message", { data })));
      this.frame = frame;
    }
    postMessage(data) { this.post(data); }
    terminate() { this.frame.remove(); }
  };
}
