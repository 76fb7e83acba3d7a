// All streams of a browser, over few connections.
//
// Browsers open six connections to an HTTP/1 server, for all tabs together. So the tabs share
// one `Hub`, in a SharedWorker: it reads each run once, however many tabs show it, streams the
// runs that were looked at last, and asks for the others' records now and then.

import { StreamRefused, follow, waitLonger } from "./client.js";

/** The path of the API, which an application may have mounted below a prefix. */
export const root = new URL("..", import.meta.url).pathname.replace(/\/$/, "");

/** Concurrent streams. With one connection for polling, three of the six stay free. */
const STREAMS_MAX = 2;

/** Interval of polling a run that is not streamed. */
const POLL_MS = 1000;

/** Reads runs for any number of listeners. */
export class Hub {
  #sources = new Map(); // Run and token to source.
  #polling = Promise.resolve(); // One request at a time.
  #looks = 0;

  /**
   * Calls `listener` with a run's records, from the first one on: `{ records }`, `{ connection }`,
   * and at last `{ done: true }` or `{ refused }`. Returns a handle with `look` and `leave`.
   */
  watch({ run, token }, listener) {
    const key = `${run} ${token}`;
    let source = this.#sources.get(key);
    if (!source) {
      const headers = token ? { authorization: `Bearer ${token}` } : {};
      const url = `${root}/v1/runs/${run}/events?dialect=record`;
      source = { key, url, headers, records: [], fresh: [], listeners: new Set(), looked: 0, after: "0" };
      this.#sources.set(key, source);
      this.#read(source);
    } else {
      // Records that the other listeners have not got yet are in the next batch.
      listener({ records: source.records.slice(0, source.records.length - source.fresh.length) });
      if (source.connection) listener({ connection: source.connection });
    }
    source.listeners.add(listener);
    const look = () => {
      source.looked = ++this.#looks;
      this.#choose();
    };
    const leave = () => {
      source.listeners.delete(listener);
      if (source.listeners.size === 0) this.#close(source);
    };
    look();
    return { look, leave };
  }

  #close(source) {
    if (this.#sources.get(source.key) !== source) return;
    this.#sources.delete(source.key);
    source.closed = true;
    source.stream?.abort();
    source.wake?.();
    this.#choose();
  }

  /** Streams the runs that were viewed most recently. */
  #choose() {
    const byLook = [...this.#sources.values()].sort((a, b) => b.looked - a.looked);
    byLook.forEach((source, at) => {
      const live = at < STREAMS_MAX;
      if (live === source.live) return;
      source.live = live;
      source.stream?.abort();
      source.wake?.();
    });
  }

  /** Reads one run to its end, streamed or polled. */
  async #read(source) {
    let wait = 0;
    // A finished run needs no stream, so pages are read first.
    let caughtUp = false;
    try {
      while (!source.closed && !source.ended) {
        if (source.live && caughtUp) {
          await this.#stream(source);
          continue;
        }
        const page = await this.#page(source);
        for (const { id, data } of page?.events ?? []) this.#record(source, id, data);
        this.#connection(source, page ? "open" : "waiting");
        source.ended ||= page?.done;
        caughtUp = page?.events.length === 0;
        if (page && (source.live || !caughtUp)) continue;
        wait = page ? POLL_MS : waitLonger(wait);
        await new Promise((resolve) => {
          source.wake = resolve;
          setTimeout(resolve, wait);
        });
      }
      this.#flush(source);
      this.#tell(source, { done: true });
    } catch ({ status, message }) {
      this.#flush(source);
      this.#tell(source, { refused: { status, message } });
    }
    this.#close(source);
  }

  /** Streams a run until it ends, or until other runs are viewed. */
  async #stream(source) {
    source.stream = new AbortController();
    const { signal } = source.stream;
    const { headers, after } = source;
    const onConnection = (state) => this.#connection(source, state);
    for await (const { id, event } of follow(source.url, { headers, after, signal, onConnection })) {
      this.#record(source, id, event);
    }
    source.ended ||= !signal.aborted;
  }

  /** The next records, or nothing if the server cannot be reached. */
  async #page(source) {
    const ask = this.#polling.then(async () => {
      if (source.closed) return undefined;
      const headers = { ...source.headers, accept: "application/json" };
      const response = await fetch(`${source.url}&after=${source.after}`, { headers, cache: "no-store" });
      if (response.ok) return response.json();
      if (response.status === 429 || response.status >= 500) return undefined;
      const body = await response.json().catch(() => ({}));
      throw new StreamRefused(response.status, body.error);
    });
    this.#polling = ask.catch(() => {});
    try {
      return await ask;
    } catch (error) {
      if (error instanceof StreamRefused) throw error;
      return undefined;
    }
  }

  #record(source, id, record) {
    source.after = id;
    source.records.push(record);
    source.fresh.push(record);
    // The events of one read are passed on together.
    source.timer ??= setTimeout(() => this.#flush(source));
  }

  #flush(source) {
    clearTimeout(source.timer);
    source.timer = undefined;
    const records = source.fresh;
    source.fresh = [];
    if (records.length) this.#tell(source, { records });
  }

  #connection(source, connection) {
    if (source.connection === connection) return;
    source.connection = connection;
    this.#tell(source, { connection });
  }

  #tell(source, message) {
    for (const listener of source.listeners) listener(message);
  }
}

/** Serves a hub to a tab that is at the other end of a port. */
export function servePort(hub, port) {
  const handles = new Map();
  port.onmessage = ({ data: { watch, look, leave, everything } }) => {
    if (watch) handles.set(watch.id, hub.watch(watch, (message) => port.postMessage({ id: watch.id, ...message })));
    handles.get(look)?.look();
    const left = everything ? [...handles.keys()] : [leave];
    for (const id of left) {
      handles.get(id)?.leave();
      handles.delete(id);
    }
  };
}

/** Follows runs for a tab. Without shared workers, each tab has its own hub. */
export function connect() {
  let hubPort;
  if (globalThis.SharedWorker) {
    hubPort = new SharedWorker(new URL("./worker.js", import.meta.url), { type: "module", name: "wellspring" }).port;
  } else {
    const { port1, port2 } = new MessageChannel();
    servePort(new Hub(), port1);
    hubPort = port2;
  }
  const watched = new Map();
  hubPort.onmessage = ({ data }) => watched.get(data.id)?.(data);
  const look = () => {
    const newest = [...watched.keys()].at(-1);
    if (newest && document.visibilityState === "visible") hubPort.postMessage({ look: newest });
  };
  addEventListener("focus", look);
  document.addEventListener("visibilitychange", look);
  // A tab that crashes sends no message: its runs are polled until they end.
  addEventListener("pagehide", () => hubPort.postMessage({ everything: true }));
  addEventListener("pageshow", (event) => event.persisted && location.reload());

  /** Follows a run until it ends, or until `signal` aborts. */
  return function watch({ run, token, signal, onRecords, onConnection }) {
    return new Promise((resolve, reject) => {
      const id = `${run} ${Math.random()}`;
      const leave = () => {
        watched.delete(id);
        hubPort.postMessage({ leave: id });
        resolve();
      };
      if (signal.aborted) return resolve();
      signal.addEventListener("abort", leave, { once: true });
      watched.set(id, ({ records, connection, done, refused }) => {
        if (records) onRecords(records);
        if (connection) onConnection(connection);
        if (refused) reject(new StreamRefused(refused.status, { message: refused.message }));
        if (done || refused) {
          signal.removeEventListener("abort", leave);
          leave();
        }
      });
      hubPort.postMessage({ watch: { id, run, token } });
    });
  };
}
