// AgentEvent over server-sent events: a stream that reconnects by itself, and the fold from
// events to what a screen shows. No dependency, no build step: import it from a page.
//
//   import { follow, empty, fold } from "/page/client.js";
//   let view = empty();
//   for await (const { id, event } of follow("/v1/runs/…/events?dialect=agent_event")) {
//     view = fold(view, event, id);
//   }

/** How long to wait before reconnecting: doubled each time, up to the second. */
const WAIT_FIRST_MS = 250;
const WAIT_LAST_MS = 8000;

/** The stream cannot be had: the token is wrong, the run is gone. Trying again will not help. */
export class StreamRefused extends Error {
  constructor(status, error) {
    super(error?.message ?? `the server answered ${status}`);
    this.status = status;
    this.code = error?.code;
  }
}

/**
 * The events of a stream, each once and in order, however often the connection breaks.
 * Yields { id, name, event }; ends when the run has ended.
 *
 * @param {string} url
 * @param {{ headers?: object, after?: string, signal?: AbortSignal,
 *           onConnection?: (state: "open" | "waiting") => void }} options
 */
export async function* follow(url, { headers = {}, after, signal, onConnection } = {}) {
  let last = after;
  let wait = WAIT_FIRST_MS;
  let atOnce = true; // A stream that ends well is mostly the last one: ask without waiting, once.
  for (;;) {
    let ended = false;
    try {
      const asked = { ...headers, accept: "text/event-stream" };
      if (last !== undefined) asked["last-event-id"] = last;
      const response = await fetch(url, { headers: asked, signal, cache: "no-store" });
      if (response.status === 204) return; // All of it was seen.
      if (!response.ok) {
        const body = await response.json().catch(() => ({}));
        const refused = new StreamRefused(response.status, body.error);
        const passing = response.status === 429 || response.status >= 500;
        if (!passing) throw refused;
        wait = Math.max(wait, 1000 * Number(response.headers.get("retry-after") ?? 0));
      } else {
        onConnection?.("open");
        for await (const message of messages(response.body)) {
          wait = WAIT_FIRST_MS;
          atOnce = true;
          // What closes the wire, but not the run, has no id: reading on misses nothing.
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
    wait = Math.min(wait * 2, WAIT_LAST_MS);
  }
}

/** The messages of an event stream's bytes. What is cut off in the middle is not one. */
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

/** What a screen shows before anything has happened. */
export function empty() {
  return { blocks: [], done: false, error: undefined };
}

/**
 * What a screen shows after one more event: blocks of thoughts, tool cards and words.
 * Changes `view` and returns it; a block that changed has a new `version`. The event's id is
 * needed only where something is put between the blocks later: see `interject`.
 */
export function fold(view, event, id) {
  const at = placeOf(id);
  switch (event.type) {
    case "thought":
      grow(view, "thought", event.content, at);
      break;
    case "stream":
      grow(view, "text", event.content, at);
      break;
    case "tool_call":
      append(view, {
        kind: "tool", name: event.toolName, args: event.toolArgs, progress: [], done: false, at, version: 0,
      });
      break;
    case "tool_progress": {
      const card = openCard(view, event.toolName);
      if (card) {
        card.progress.push(event.data);
        card.version++;
      }
      break;
    }
    case "tool_result": {
      const card = openCard(view, event.toolName);
      if (card) {
        Object.assign(card, { output: event.output, isError: event.isError === true, done: true });
        card.version++;
      }
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

/** The place in the run that an id names: ids are `record` or `record.event`. */
function placeOf(id) {
  return id === undefined ? Infinity : parseInt(id, 10);
}

/** Where what happens at a place goes: before whatever the user added only after it. */
function indexAt(view, at) {
  const later = view.blocks.findIndex((it) => it.kind === "input" && it.at >= at);
  return later < 0 ? view.blocks.length : later;
}

function append(view, block) {
  view.blocks.splice(indexAt(view, block.at), 0, block);
}

function grow(view, kind, text, at) {
  const last = view.blocks[indexAt(view, at) - 1];
  if (last?.kind === kind) {
    last.pieces.push({ at, from: last.text.length });
    last.text += text;
    last.version++;
  } else {
    append(view, { kind, text, at, pieces: [{ at, from: 0 }], version: 0 });
  }
}

/**
 * Puts what a user added while the run went on where the agent took it up, at the record `id`;
 * at the end, while it has not. Words that came after that are another block from then on.
 */
export function interject(view, block, id) {
  const at = placeOf(id);
  Object.assign(block, { at, version: (block.version ?? -1) + 1 });
  view.blocks = view.blocks.filter((it) => it !== block);
  const after = view.blocks.findIndex((it) => it.at > at);
  const index = after < 0 ? view.blocks.length : after;
  const before = view.blocks[index - 1];
  const cut = before?.pieces?.find((piece) => piece.at > at);
  view.blocks.splice(index, 0, block);
  if (cut) {
    const pieces = before.pieces.filter((piece) => piece.at > at);
    const rest = { ...before, text: before.text.slice(cut.from), at: cut.at, version: 0 };
    rest.pieces = pieces.map((piece) => ({ ...piece, from: piece.from - cut.from }));
    before.text = before.text.slice(0, cut.from);
    before.pieces = before.pieces.filter((piece) => piece.at <= at);
    before.version++;
    view.blocks.splice(index + 1, 0, rest);
  }
  return view;
}

/** Calls of one tool are told apart by their order: the first that is open is the one. */
function openCard(view, name) {
  return view.blocks.find((block) => block.kind === "tool" && block.name === name && !block.done);
}

/** What a tool card shows as its output: chunks joined, the rest as it is. */
export function progressText(progress) {
  let text = "";
  for (const data of progress) {
    if (typeof data === "string") text += data;
    else if (typeof data?.content === "string") text += data.content;
  }
  return text;
}

/** How far a tool says that it is, in percent. */
export function progressPercent(progress) {
  const told = progress.findLast((data) => typeof data?.percent === "number");
  return told && Math.max(0, Math.min(100, told.percent));
}
