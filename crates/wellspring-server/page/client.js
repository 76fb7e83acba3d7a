// Server-sent events of a run: `follow` reads any dialect and reconnects by itself; `fold` turns
// AgentEvents into what a screen shows. No dependency, no build step: import it from a page.
//
//   import { follow, empty, fold } from "/page/client.js";
//   let view = empty();
//   for await (const { event } of follow("/v1/runs/…/events?dialect=agent_event")) {
//     view = fold(view, event);
//   }

/** Reconnecting backs off exponentially between these, with ±25 % jitter. */
const WAIT_FIRST_MS = 250;
const WAIT_LAST_MS = 8000;

/** The delay after a delay of `ms`; 0 before the first one. */
export function waitLonger(ms) {
  return Math.min(ms * 2 || WAIT_FIRST_MS, WAIT_LAST_MS);
}

/** The server refused the stream: the token is invalid or the run is gone. Do not retry. */
export class StreamRefused extends Error {
  constructor(status, error) {
    super(error?.message ?? `the server answered ${status}`);
    this.status = status;
    this.code = error?.code;
  }
}

/**
 * Yields the events of a stream as { id, name, event }, each once and in order, however often
 * the connection breaks. Ends when the run has ended.
 *
 * @param {string} url
 * @param {{ headers?: object, after?: string, signal?: AbortSignal,
 *           onConnection?: (state: "open" | "waiting") => void }} options
 */
export async function* follow(url, { headers = {}, after, signal, onConnection } = {}) {
  let last = after;
  let wait = WAIT_FIRST_MS;
  let atOnce = true; // After a complete response the run is usually over: ask once without waiting.
  for (;;) {
    let ended = false;
    try {
      const asked = { ...headers, accept: "text/event-stream" };
      if (last !== undefined) asked["last-event-id"] = last;
      const response = await fetch(url, { headers: asked, signal, cache: "no-store" });
      if (response.status === 204) return; // There is nothing after the last event.
      if (!response.ok) {
        const body = await response.json().catch(() => ({}));
        const refused = new StreamRefused(response.status, body.error);
        const temporary = response.status === 429 || response.status >= 500;
        if (!temporary) throw refused;
        wait = Math.max(wait, 1000 * Number(response.headers.get("retry-after") ?? 0));
      } else {
        onConnection?.("open");
        for await (const message of messages(response.body)) {
          wait = WAIT_FIRST_MS;
          atOnce = true;
          // An event without an id ends the stream, not the run: reconnecting misses nothing.
          if (message.id === undefined) continue;
          last = message.id;
          yield { id: message.id, name: message.name, event: JSON.parse(message.data) };
        }
        ended = true;
      }
    } catch (error) {
      if (signal?.aborted) return;
      if (error instanceof StreamRefused) throw error;
    }
    if (signal?.aborted) return;
    if (ended && atOnce) {
      atOnce = false;
      continue;
    }
    onConnection?.("waiting");
    await new Promise((resolve) => setTimeout(resolve, wait * (0.75 + Math.random() / 2)));
    wait = waitLonger(wait);
  }
}

/** Splits the bytes of an event stream into messages. An incomplete last message is dropped. */
async function* messages(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      let end;
      while ((end = text.indexOf("\n\n")) >= 0) {
        const message = parse(text.slice(0, end));
        text = text.slice(end + 2);
        if (message) yield message;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parse(block) {
  let id, name;
  const data = [];
  for (const line of block.split("\n")) {
    const at = line.indexOf(":");
    const field = at < 0 ? line : line.slice(0, at);
    const value = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
    if (field === "id") id = value;
    else if (field === "event") name = value;
    else if (field === "data") data.push(value);
  }
  return data.length ? { id, name, data: data.join("\n") } : undefined;
}

/** A view before the first event. */
export function empty() {
  return { blocks: [], done: false, error: undefined };
}

/**
 * Applies one AgentEvent to `view`: blocks of thoughts, text and tool cards. AgentEvents have no
 * call ids, so two parallel calls of one tool cannot be told apart; a page that shows such calls
 * reads records instead (records.js).
 */
export function fold(view, event) {
  switch (event.type) {
    case "thought":
      grow(view, "thought", event.content);
      break;
    case "stream":
      grow(view, "text", event.content);
      break;
    case "tool_call":
      view.blocks.push({ kind: "tool", name: event.toolName, args: event.toolArgs, progress: [], done: false });
      break;
    case "tool_progress":
      openCard(view, event.toolName)?.progress.push(event.data);
      break;
    case "tool_result": {
      const card = openCard(view, event.toolName);
      if (card) Object.assign(card, { output: event.output, isError: event.isError === true, done: true });
      break;
    }
    case "final":
      view.done = true;
      break;
    case "error":
      view.done = true;
      view.error = event.error;
      break;
  }
  return view;
}

function grow(view, kind, text) {
  const last = view.blocks.at(-1);
  if (last?.kind === kind) last.text += text;
  else view.blocks.push({ kind, text });
}

/** The first open card of a tool. */
function openCard(view, name) {
  return view.blocks.find((block) => block.kind === "tool" && block.name === name && !block.done);
}

/** The output that a tool reported so far: text chunks joined. */
export function progressText(progress) {
  let text = "";
  for (const data of progress) {
    if (typeof data === "string") text += data;
    else if (typeof data?.content === "string") text += data.content;
  }
  return text;
}

/** The last percentage that a tool reported, 0 to 100. */
export function progressPercent(progress) {
  const told = progress.findLast((data) => typeof data?.percent === "number");
  return told && Math.max(0, Math.min(100, told.percent));
}
