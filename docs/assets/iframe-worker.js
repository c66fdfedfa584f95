// Search works in a Worker, and a browser starts none for pages opened from a folder. There a hidden frame does the work:
// the worker's script is loaded in it, and what either side posts is handed to the other as an event.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = "<!doctype html><title>search</title>";
      this.frame.addEventListener("load", () => this.#load(String(url)), { once: true });
      document.body.append(this.frame);
    }

    #load(url) {
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...urls) => urls.reduce((before, one) => before.then(() => this.#script(one)), Promise.resolve());
      this.#script(url).then(() => {
        const { waiting } = this;
        this.waiting = null;
        waiting.forEach((data) => this.postMessage(data));
      });
    }

    #script(url) {
      const { contentDocument } = this.frame;
      return new Promise((done, failed) => {
        const script = contentDocument.createElement("script");
        Object.assign(script, { src: url, onload: done, onerror: failed });
        contentDocument.body.append(script);
      });
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
