// Uses the page in other windows as a person would, and reports to the test what is shown.

const said = [];

/** Adds a line to the report for the test. */
export const say = (...lines) => said.push(...lines);

/** Sends the test a request, and waits until it is done. */
export const tell = (what) => fetch(`/test/${what}`, { method: "POST" });

/** Waits until `look` returns a value. */
export async function until(what, look) {
  const since = Date.now();
  for (;;) {
    const seen = look();
    if (seen) return seen;
    if (Date.now() - since > 100000) throw new Error(`${what} never came: ${say.page?.shown()}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** A window with the page in it. */
export class Page {
  #window;

  constructor(path = "/") {
    this.#window = open(path);
    say.page = this;
  }

  get document() {
    return this.#window?.document;
  }

  shown() {
    return this.document?.body?.innerText;
  }

  find(selector) {
    return this.document?.querySelector(selector);
  }

  all(selector) {
    return [...this.document.querySelectorAll(selector)];
  }

  async ready() {
    await until("the page", () => this.find("#agent option") && this.find(".hello, .run"));
    return this;
  }

  async reload() {
    this.#window.isOld = true;
    this.#window.location.reload();
    await until("reloading", () => !this.#window.isOld);
  }

  type(text) {
    this.find("#input").value = text;
    this.find("#ask").requestSubmit();
  }

  /** Waits until no run is active. */
  async idle() {
    await until("the end", () => this.find(".run") && this.find("#stop").hidden && !this.find(".waiting") && !this.find("#pending").firstChild);
  }

  /** One line for each block that is shown. */
  look() {
    const shown = (node) => node.getClientRects().length > 0;
    const one = (text) => text.replace(/\s+/g, " ").trim();
    const nodes = this.all(".said, .plan li, .block, .waiting, .stopped, .failed-note");
    return nodes.filter(shown).map((node) => {
      if (node.matches(".waiting")) return "waiting";
      if (node.matches(".question .failed-note")) return "";
      if (node.matches(".stopped, .failed-note")) return `${node.className}: ${node.innerText}`;
      if (node.matches(".said")) return `${node.matches(".pending") ? "pending" : "user"}: ${node.innerText}`;
      if (node.matches(".plan li")) return `plan: ${node.className} ${node.firstChild.textContent}`;
      const form = node.querySelector(":scope > .question");
      if (form) {
        const labels = [...form.querySelectorAll("legend, .field .name")].map((it) => one(it.innerText));
        const buttons = [...form.querySelectorAll("button")].map((it) => it.innerText);
        const problem = form.querySelector(".failed-note:not([hidden])")?.innerText;
        const pre = form.querySelector("pre");
        const about = pre ? ` {${one(pre.innerText)}}` : "";
        const fields = labels.length ? ` (${labels.join(", ")})` : "";
        return `question: ${one(form.querySelector(".prompt").innerText)}${about}${fields} [${buttons.join(", ")}]${problem ? ` ! ${problem}` : ""}`;
      }
      const details = node.querySelector(":scope > details");
      if (!details) return node.matches(".plan") ? "" : `text: ${one(node.innerText)}`;
      const bar = node.querySelector("progress");
      const name = one(details.querySelector("summary").innerText);
      const state = details.classList.contains("card") ? details.className.replace("card ", "") : details.className;
      const inner = details.open ? ` open: ${one(details.lastChild.innerText)}` : "";
      return `${state}: ${name}${bar ? ` ${bar.value}%` : ""}${inner}`;
    }).filter(Boolean);
  }

  step(name) {
    say(`# ${name}`, ...this.look());
  }
}

/** Runs a script and sends its report to the test. */
export async function script(steps) {
  try {
    await steps();
  } catch (error) {
    say(`! ${error.message}`);
  }
  await fetch("/test/said", { method: "POST", body: said.join("\n") });
}
