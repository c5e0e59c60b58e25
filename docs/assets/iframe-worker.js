/* Browsers start no worker on a page that is opened from disk. There the search runs in a hidden frame instead; the
   theme asks for a class of this name (window.IFrameWorker). */
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.appendChild(this.frame)
      const inner = this.frame.contentWindow
      inner.document.open()
      inner.document.write("<!doctype html><html><body></body></html>")
      inner.document.close()
      inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      inner.importScripts = async (...urls) => {
        for (const one of urls) await this.run(one)
      }
      this.ready = this.run(url)
    }

    /* Load a script into the frame; resolves when it has run. */
    run(url) {
      return new Promise((resolve, reject) => {
        const script = this.frame.contentDocument.createElement("script")
        script.src = new URL(url, location.href)
        script.onload = resolve
        script.onerror = () => reject(new Error(`${url} cannot be read`))
        this.frame.contentDocument.body.appendChild(script)
      })
    }

    /* What is sent before the script has run waits for it, as with a worker. */
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(
        new this.frame.contentWindow.MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
  window.Worker = window.IFrameWorker
}
