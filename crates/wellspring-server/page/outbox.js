// Messages that the server has not accepted yet. They are stored in the browser, so that they
// survive a reload while the server is down, and sent in order until the server accepts them.
// Each has its own idempotency key, so sending twice is harmless.

import { waitLonger } from "./client.js";

const STORED = "wellspring-outbox";

/** Maximum number of stored messages; a person would not write more. */
const MESSAGES_MAX = 100;

/** The messages, oldest first. */
export function pending() {
  try {
    return JSON.parse(localStorage.getItem(STORED)) ?? [];
  } catch {
    return [];
  }
}

function store(messages) {
  localStorage.setItem(STORED, JSON.stringify(messages));
}

/** Stores a message: `{ draft, thread?, run?, agent, input }`. */
export function keep(message) {
  const messages = pending();
  if (messages.length >= MESSAGES_MAX) throw new Error(`${MESSAGES_MAX} messages wait for the server; wait until it is back.`);
  const kept = { ...message, key: key() };
  store([...messages, kept]);
  return kept;
}

function key() {
  return crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
}

/**
 * Sends the pending messages. `api` makes a request; `changed` is called with each message's state:
 * `sent` with the run, `waiting`, or `refused` with the reason.
 */
export class Sender {
  #api;
  #changed;
  #sending = false;
  #wake;

  constructor(api, changed) {
    this.#api = api;
    this.#changed = changed;
  }

  /** Sends now, without waiting for the next retry. */
  async flush() {
    this.#wake?.();
    if (this.#sending) return;
    this.#sending = true;
    // Only one tab sends at a time, if the browser supports locks.
    const send = () => this.#sendAll();
    await (navigator.locks ? navigator.locks.request(STORED, send) : send());
    this.#sending = false;
  }

  async #sendAll() {
    let wait = 0;
    for (let message; (message = pending()[0]); ) {
      try {
        const started = await this.#send(message);
        // Later messages of a conversation that had no thread yet belong to this one.
        const rest = pending().filter((it) => it.key !== message.key);
        for (const it of rest) if (it.draft === message.draft) Object.assign(it, started);
        store(rest);
        wait = 0;
        this.#changed("sent", message, started);
      } catch (error) {
        if (error.temporary) {
          this.#changed("waiting", message, error);
          wait = waitLonger(wait);
          await new Promise((resolve) => {
            this.#wake = resolve;
            setTimeout(resolve, wait);
          });
        } else {
          store(pending().filter((it) => it.key !== message.key));
          this.#changed("refused", message, error);
        }
      }
    }
  }

  async #send({ key, thread, run, agent, input }) {
    if (run) {
      try {
        await this.#api("POST", `/v1/runs/${run}/input`, { content: input }, key);
        return { run, thread };
      } catch (error) {
        // The run ended first: the message starts the next one.
        if (error.status !== 409) throw error;
      }
    }
    const started = await this.#api("POST", "/v1/runs", { agent, input, ...(thread && { thread }) }, key);
    return { run: started.run, thread: started.thread, state: started.state };
  }
}
