// The official AG-UI client, and two servers that share a store: `node ag_ui_two_servers.mjs URL
// OTHER_URL`. Both serve the agent `demo`. Prints a line of JSON per scene, or fails.

import assert from "node:assert/strict";
import { HttpAgent } from "@ag-ui/client";

const servers = process.argv.slice(2).map((base) => `${base}/ag-ui/demo`);
const user = (content) => ({ id: crypto.randomUUID(), role: "user", content });
const client = () => new HttpAgent({ url: servers[0], threadId: crypto.randomUUID() });
const said = (agent) => agent.messages.filter((it) => it.role === "assistant" && it.content).map((it) => it.content);

// One stream of a run at one server, cut off after some pieces of text. Returns whether the run
// ended.
async function follow(agent, runId, server, pieces) {
  agent.url = servers[server];
  let finished = false;
  await new Promise((resolve, reject) => {
    agent.runAgent({ runId }, {
      onTextMessageContentEvent: () => {
        if (--pieces === 0) {
          agent.abortRun();
          resolve();
        }
      },
      onRunFinishedEvent: () => { finished = true; },
      onRunErrorEvent: ({ event }) => { reject(new Error(event.message)); },
    }).then(resolve, reject);
  });
  return finished;
}

// The client moves to the other server whenever it has seen some pieces, with the messages that it
// has. Another client stays where it is.
async function switched() {
  const [moving, staying] = [client(), client()];
  const runId = crypto.randomUUID();
  const question = user("long");
  moving.addMessage(question);
  let moves = 0;
  await follow(moving, runId, 0, 10);
  staying.threadId = moving.threadId;
  staying.addMessage(question);
  const stayed = follow(staying, runId, 1, Infinity);
  do {
    moves += 1;
  } while (!await follow(moving, runId, moves % 2, moves < 8 ? 10 * moves : Infinity));
  assert.ok(await stayed);
  assert.equal(moves, 8, "the run ended too early");
  assert.deepEqual(said(moving), said(staying));
  return { said: said(moving) };
}

// A question of a run that began at one server is answered at the other.
async function answered() {
  const asker = client();
  asker.addMessage(user("ask"));
  let outcome;
  await asker.runAgent({}, { onRunFinishedEvent: ({ event }) => { outcome = event.outcome; } });
  assert.equal(outcome.type, "interrupt");
  asker.url = servers[1];
  const resume = outcome.interrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: ["rain"] }));
  await asker.runAgent({ resume }, { onRunFinishedEvent: ({ event }) => { outcome = event.outcome; } });
  return { outcome: outcome.type, said: said(asker) };
}

// A run is cancelled at the other server.
async function cancelled() {
  const agent = client();
  const runId = crypto.randomUUID();
  agent.addMessage(user("long"));
  let outcome;
  let asked = false;
  await agent.runAgent({ runId }, {
    onTextMessageContentEvent: () => {
      if (!asked) fetch(`${servers[1]}/runs/${runId}/cancel`, { method: "POST" });
      asked = true;
    },
    onRunFinishedEvent: ({ event }) => { outcome = event.outcome; },
  });
  return { outcome: outcome.type };
}

for (const scene of [switched, answered, cancelled]) {
  console.log(JSON.stringify(await scene()));
}
process.exit(0);
