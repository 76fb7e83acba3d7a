// Reads AG-UI streams, one JSON object per line: {"events": [...], "frames": base64}. For each
// it prints what the official client makes of it, {"messages", "state", "problems"}:
//
// - the events as the official schemas see them, without repair;
// - the binary frames, decoded, which must be the same events;
// - the messages and the state that a client ends with.

import { createInterface } from "node:readline";
import { isDeepStrictEqual } from "node:util";

import { AbstractAgent } from "@ag-ui/client";
import { EventSchemas } from "@ag-ui/core/schemas";
import { decode } from "@ag-ui/proto";
import { from } from "rxjs";

class Replay extends AbstractAgent {
  constructor(events) {
    super({ initialState: null });
    this.events = events;
  }

  run() {
    return from(this.events);
  }
}

function* frames(bytes) {
  for (let at = 0; at < bytes.length; ) {
    const length = bytes.readUInt32BE(at);
    yield decode(bytes.subarray(at + 4, at + 4 + length));
    at += 4 + length;
  }
}

async function judge({ events, frames: binary, messages }) {
  const problems = [];
  // The client reports here what it strips or repairs.
  console.warn = (...said) => problems.push(said.map(String).join(" "));
  console.error = console.warn;
  for (const event of events) {
    const parsed = EventSchemas.safeParse(event);
    if (!parsed.success) problems.push(`${JSON.stringify(event)}: ${parsed.error.message}`);
  }
  const decoded = [...frames(Buffer.from(binary, "base64"))];
  decoded.forEach((event, index) => {
    const want = events[index];
    if (!isDeepStrictEqual(JSON.parse(JSON.stringify(event)), want)) {
      problems.push(`binary ${JSON.stringify(event)} is not ${JSON.stringify(want)}`);
    }
  });
  if (decoded.length !== events.length) problems.push(`${decoded.length} binary events`);
  const agent = new Replay(events);
  agent.setMessages(messages);
  try {
    await agent.runAgent({ runId: "peer" });
  } catch (error) {
    problems.push(`the client: ${error.message}`);
  }
  return { messages: agent.messages, state: agent.state, problems };
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await judge(JSON.parse(line)))}\n`);
}
