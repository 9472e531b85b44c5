// Browsers refuse workers on pages that were opened from a folder. There, the search of the site runs in a hidden
// frame instead. The theme looks for a class of this name, and for a script with `iframe-worker` in its address.
if (location.protocol === "file:") {
  window.IFrameWorker = class IFrameWorker extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.appendChild(this.frame)
      const page = this.frame.contentDocument
      page.open()
      page.write("<!doctype html><head></head>")
      page.close()
      this.scope = this.frame.contentWindow
      this.scope.postMessage = data => {
        const message = new MessageEvent("message", { data })
        this.dispatchEvent(message)
        this.onmessage?.(message)
      }
      this.scope.importScripts = (...urls) => Promise.all(urls.map(address => this.load(address)))
      this.ready = this.load(url)
    }

    load(address) {
      return new Promise((resolve, reject) => {
        const script = this.frame.contentDocument.createElement("script")
        script.src = address
        script.onload = resolve
        script.onerror = () => reject(new Error(`cannot load ${address}`))
        this.frame.contentDocument.head.appendChild(script)
      })
    }

    async postMessage(data) {
      await this.ready
      this.scope.dispatchEvent(new this.scope.MessageEvent("message", { data }))
    }

    terminate() {
      this.frame.remove()
    }
  }
  window.Worker = window.IFrameWorker
}
