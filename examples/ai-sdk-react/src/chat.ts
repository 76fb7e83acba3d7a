// Where the chat is, what the page keeps of it, and how its requests are made.

import { DefaultChatTransport, type UIMessage } from "ai";

/** The server; without `?server=` the one that the page came from. */
export const server = new URLSearchParams(location.search).get("server") ?? "";

/** What a reload needs: the chat's id, the agent that was asked last, and what was said. */
type Kept = { id: string; agent: string; messages: UIMessage[] };

const CHAT = "ai-sdk-chat";
const stored = sessionStorage.getItem(CHAT);
export const kept: Kept = stored ? JSON.parse(stored) : { id: crypto.randomUUID(), agent: "", messages: [] };

export function keep(change: Partial<Kept>) {
  sessionStorage.setItem(CHAT, JSON.stringify(Object.assign(kept, change)));
}

/** The tools that run in the page, as the model is told of them, and what they do. */
export const tools = [
  {
    name: "paint",
    description: "Gives the page another background colour.",
    inputSchema: { type: "object", properties: { colour: { type: "string" } }, required: ["colour"] },
  },
];

export function runTool(name: string, input: any): unknown {
  if (name !== "paint") throw new Error(`this page has no tool ${name}`);
  document.body.style.background = input.colour;
  return { painted: input.colour };
}

const api = () => `${server}/ai-sdk/${encodeURIComponent(kept.agent)}`;

// The agent is part of the address, so that each message can go to another one.
export const transport = Object.assign(
  new DefaultChatTransport({
    prepareSendMessagesRequest: ({ id, messages, trigger, messageId }) => ({
      api: api(),
      body: { id, messages, trigger, messageId, tools },
    }),
    // `finished`: the message may have ended while the page was away.
    prepareReconnectToStreamRequest: ({ id }) => ({ api: `${api()}/${id}/stream?finished=true` }),
  }),
  // A resumed message comes from its beginning: the SDK then replaces what it has of it.
  { resumeStreamIsReplay: true },
);

/** Stops the run. `stop()` only closes the connection: the run would go on without this viewer. */
export async function stopRun() {
  await fetch(`${api()}/${kept.id}/stop`, { method: "POST" });
}
