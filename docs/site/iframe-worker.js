// A page opened from a file cannot start a Worker, which the search needs, so the search runs in a
// hidden frame instead.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe")
    #started = new Promise(resolve => (this.#frame.onload = resolve)).then(() => this.#start())
    #url

    constructor(url) {
      super()
      this.#url = url
      this.#frame.hidden = true
      this.#frame.srcdoc = "<!doctype html>"
      document.body.append(this.#frame)
    }

    #start() {
      const inside = this.#frame.contentWindow
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = () => {} // stemmers of other languages are not needed
      const script = inside.document.createElement("script")
      script.src = this.#url
      inside.document.body.append(script)
      return new Promise(resolve => (script.onload = () => resolve(inside)))
    }

    postMessage(data) {
      this.#started.then(inside => inside.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.#frame.remove()
    }
  }
