// Browsers start no workers on pages that are opened as files. There, search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.document.open();
      inside.document.write(
        `<script>
          postMessage = message => parent.postMessage(message, "*");
          importScripts = (...urls) => Promise.all(urls.map(url => new Promise(resolve => {
            const script = Object.assign(document.createElement("script"), { src: url, onload: resolve });
            document.head.append(script);
          })));
        </script><script src="${url}"></script>`
      );
      inside.document.close();
      this.ready = new Promise(resolve => inside.addEventListener("load", resolve));
      window.addEventListener("message", event => {
        if (event.source === inside) this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      });
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
