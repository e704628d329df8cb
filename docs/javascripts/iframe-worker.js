// Search runs in a worker, and browsers start none for a page opened from disk. There, a hidden
// frame takes its place: the same script, with the two ends of its messages tied to this page.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(script) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = frame.contentWindow;
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inner.importScripts = (...others) => Promise.all(others.map((other) => load(inner, other)));
      this.loaded = load(inner, script).then(() => inner);
    }

    postMessage(data) {
      this.loaded.then((inner) => inner.dispatchEvent(new MessageEvent("message", { data })));
    }
  };

  function load(inner, source) {
    return new Promise((resolve, reject) => {
      const element = inner.document.createElement("script");
      element.src = source;
      element.onload = resolve;
      element.onerror = reject;
      inner.document.documentElement.append(element);
    });
  }
}
