// A page that is opened as a file may start no worker, which the search needs: its script runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.postMessage = (data) => loaded.then(() => inside.dispatchEvent(new MessageEvent("message", { data })));
      const loaded = new Promise((done) => {
        const script = inside.document.createElement("script");
        script.src = url;
        script.onload = done;
        // The index is a script of the page.
        inside.__index = window.__index;
        inside.document.head.append(script);
      });
    }
    terminate() {}
  };
}
