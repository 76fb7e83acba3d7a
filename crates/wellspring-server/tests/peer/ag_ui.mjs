// The official AG-UI client against a server: `node ag_ui.mjs URL`. Prints what it received, one
// line per scene, or fails.

import assert from "node:assert/strict";
import { HttpAgent } from "@ag-ui/client";

const base = process.argv[2];
const user = (content) => ({ id: crypto.randomUUID(), role: "user", content });
const agent = (name, threadId = crypto.randomUUID()) => new HttpAgent({ url: `${base}/ag-ui/${name}`, threadId });
const said = (agent) => agent.messages.filter((it) => it.role === "assistant" && it.content).map((it) => it.content).join("|");

async function text() {
  const talker = agent("talk");
  talker.addMessage(user("Hi"));
  const { result } = await talker.runAgent();
  assert.equal(result, "Hello there.");
  assert.equal(said(talker), "Hello there.");
  assert.equal(talker.messages.find((it) => it.role === "reasoning")?.content, "Hm, what now?");
  talker.addMessage(user("Again"));
  await talker.runAgent();
  assert.equal(said(talker), "Hello there.|Hello there.");
  return "text and reasoning, twice in one thread";
}

async function frontendTool() {
  const painter = agent("paint");
  const tools = [{ name: "paint", description: "paints", parameters: { type: "object", properties: { colour: { type: "string" } } } }];
  painter.addMessage(user("Paint it"));
  await painter.runAgent({ tools });
  const call = painter.messages.flatMap((it) => it.toolCalls ?? []).find((it) => it.function.name === "paint");
  assert.deepEqual(JSON.parse(call.function.arguments), { colour: "blue" });
  painter.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId: call.id, content: "painted" });
  const { result } = await painter.runAgent({ tools });
  assert.equal(result, "Painted.");
  return "a tool in the page, and on with its result";
}

async function interrupt() {
  const asker = agent("ask");
  asker.addMessage(user("Do it"));
  let outcome;
  await asker.runAgent({}, { onRunFinishedEvent: ({ event }) => { outcome = event.outcome; } });
  assert.equal(outcome.type, "interrupt");
  const resume = outcome.interrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: { approved: true } }));
  const { result } = await asker.runAgent({ resume });
  assert.equal(result, "Done.");
  assert.equal(asker.messages.find((it) => it.role === "tool")?.content, "x");
  return "an interrupt, and on after an approval";
}

async function abortAndAttach() {
  const threadId = crypto.randomUUID();
  const runId = crypto.randomUUID();
  const slow = agent("slow", threadId);
  const question = user("Slowly");
  slow.addMessage(question);
  const seen = await new Promise((resolve) => {
    slow.runAgent({ runId }, {
      onTextMessageContentEvent: ({ textMessageBuffer, event }) => {
        slow.abortRun();
        resolve(textMessageBuffer + event.delta);
      },
    }).catch(() => {});
  });
  assert.ok("one two three four".startsWith(seen.trim()));
  // Another client, which knows only the ids, attaches to the run that continued.
  const other = agent("slow", threadId);
  other.addMessage(question);
  const { result } = await other.runAgent({ runId });
  assert.equal(result, "one two three four");
  assert.equal(said(other), "one two three four");
  return "aborting detaches, and the same run id attaches again";
}

async function cancel() {
  const runId = crypto.randomUUID();
  const stuck = agent("stuck");
  stuck.addMessage(user("Hang"));
  let outcome;
  await stuck.runAgent({ runId }, {
    onTextMessageContentEvent: () => { fetch(`${base}/ag-ui/stuck/runs/${runId}/cancel`, { method: "POST" }); },
    onRunFinishedEvent: ({ event }) => { outcome = event.outcome; },
  });
  assert.equal(outcome.type, "cancelled");
  return "cancelled, and told so";
}

async function drain() {
  const stuck = agent("stuck");
  stuck.addMessage(user("Hang"));
  let reported;
  await stuck.runAgent({}, {
    onTextMessageContentEvent: () => { console.log("drain"); },
    onRunErrorEvent: ({ event }) => { reported = event; },
  }).catch(() => {});
  assert.equal(reported.code, "draining");
  assert.match(reported.message, /shutting down/);
  return "a drain is reported";
}

for (const scene of [text, frontendTool, interrupt, abortAndAttach, cancel, drain]) {
  console.log(await scene());
}
process.exit(0);
