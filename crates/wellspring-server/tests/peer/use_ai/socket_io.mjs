// `socket.io-client` against a server, as use-ai's clients use it: `node socket_io.mjs URL`.
// Prints what it received, one line per scene, or fails.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { io } from "socket.io-client";

const base = process.argv[2];
const user = (content) => ({ id: crypto.randomUUID(), role: "user", content });

/// A client, and all messages that it received.
class Client {
  constructor(options = {}) {
    this.events = [];
    this.waiting = [];
    this.socket = io(base, { reconnection: false, forceNew: true, ...options });
    this.socket.on("agents", (agents) => { this.agents = agents; });
    this.socket.on("config", (config) => { this.config = config; this.settle(); });
    this.socket.on("disconnect", (reason) => { this.gone = reason; this.settle(); });
    this.socket.on("connect_error", (error) => { this.refused = error; this.settle(); });
    this.socket.on("event", (event) => { this.events.push(event); this.settle(); });
  }
  settle() {
    this.waiting = this.waiting.filter(({ test, resolve }) => {
      const found = test(this);
      if (found) resolve(found);
      return !found;
    });
  }
  /// Waits until a condition holds.
  until(test) {
    const found = test(this);
    if (found) return Promise.resolve(found);
    return new Promise((resolve) => this.waiting.push({ test, resolve }));
  }
  event(test, from = 0) { return this.until(() => this.events.slice(from).find(test)); }
  of(type, runId) { return this.event((it) => it.type === type && (!runId || it.runId === runId)); }
  connected() { return this.until(() => this.config); }
  say(type, data) { this.socket.emit("message", { type, data }); }
  run(agent, text, more = {}) {
    const runId = crypto.randomUUID();
    const threadId = crypto.randomUUID();
    const props = { ...more.forwardedProps, agent };
    this.say("run_agent", { threadId, runId, messages: [user(text)], tools: [], context: [], state: {}, ...more, forwardedProps: props });
    return more.runId ?? runId;
  }
  ends(runId) { return this.event((it) => it.runId === runId && ["RUN_FINISHED", "RUN_ERROR"].includes(it.type)); }
  close() { this.socket.disconnect(); }
}

/// The answer's text of a run: message ids begin with our run id, which is in the start event.
function textOf(events, runId) {
  const ids = new Set(events.filter((it) => it.type === "TEXT_MESSAGE_START" && it.runId === runId).map((it) => it.messageId));
  return events.filter((it) => it.type === "TEXT_MESSAGE_CONTENT" && ids.has(it.messageId)).map((it) => it.delta).join("");
}

async function connects(transports) {
  const client = new Client({ transports });
  await client.connected();
  assert.equal(client.agents.defaultAgent, "agent");
  assert(client.agents.agents.some((it) => it.id === "talk" && it.name === "talk"));
  assert.equal(client.config.langfuseEnabled, true);
  const run = client.run("talk", "Hi", { state: { page: 7 } });
  const end = await client.ends(run);
  assert.deepEqual(client.events.slice(0, 3).map((it) => it.type), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT"]);
  assert.equal(client.events[0].input.messages[0].content, "Hi");
  assert.deepEqual(client.events[2].snapshot, { page: 7 });
  assert(client.events.every((it) => Number.isInteger(it.timestamp)));
  const step = client.events.find((it) => it.type === "STEP_FINISHED");
  assert.deepEqual([step.stepNumber, step.finishReason], [0, "stop"]);
  assert(client.events.some((it) => it.type === "REASONING_MESSAGE_CONTENT"));
  assert.equal(end.result, "Hello there.");
  assert.equal(end.threadId, client.events[0].threadId);
  assert.equal(textOf(client.events, run), "Hello there.");
  client.close();
}

async function polling() {
  await connects(["polling"]);
  return "polling only";
}

async function websocket() {
  await connects(["websocket"]);
  return "WebSocket only";
}

async function upgrade() {
  const client = new Client();
  await client.connected();
  const run = client.run("gated", "Hi");
  await client.of("TEXT_MESSAGE_CONTENT");
  if (client.socket.io.engine.transport.name !== "websocket") {
    await new Promise((resolve) => client.socket.io.engine.once("upgrade", resolve));
  }
  assert.equal(client.socket.io.engine.transport.name, "websocket");
  client.run("open-gate", "go");
  await client.ends(run);
  assert.equal(textOf(client.events, run), "before after");
  client.close();
  return "polling, then a WebSocket in mid-run";
}

async function several() {
  const client = new Client();
  await client.connected();
  const runs = ["one", "two", "three", "four"].map((word) => client.run("talk", word));
  for (const run of runs) {
    await client.ends(run);
    assert.equal(textOf(client.events, run), "Hello there.");
  }
  client.close();
  return "several runs on one socket";
}

async function tool() {
  const client = new Client();
  await client.connected();
  const tools = [{ name: "paint", description: "paints", parameters: { type: "object" } }];
  const run = client.run("paint", "Paint it", { tools });
  const { toolCallId } = await client.of("TOOL_CALL_END");
  const args = client.events.filter((it) => it.type === "TOOL_CALL_ARGS").map((it) => it.delta).join("");
  assert.deepEqual(JSON.parse(args), { colour: "blue" });
  client.say("tool_result", { messageId: crypto.randomUUID(), toolCallId, content: JSON.stringify({ done: true }), role: "tool", forwardedProps: { state: { page: 8 } } });
  const end = await client.ends(run);
  assert.equal(end.result, "Painted.");
  assert.equal(client.events.filter((it) => it.type === "RUN_STARTED").length, 1);
  const result = client.events.find((it) => it.type === "TOOL_CALL_RESULT");
  assert.deepEqual(JSON.parse(result.content), { done: true });
  assert(client.events.some((it) => it.type === "STATE_SNAPSHOT" && it.snapshot.page === 8));
  client.close();
  return "a tool in the page, answered in mid-run";
}

async function approvals() {
  const client = new Client();
  await client.connected();
  for (const [approved, content] of [[true, "x"], [false, "not today"]]) {
    const from = client.events.length;
    const run = client.run("ask", "Do it");
    const asked = await client.event((it) => it.type === "TOOL_APPROVAL_REQUEST", from);
    assert.equal(asked.toolCallName, "echo");
    assert.deepEqual(asked.toolCallArgs, { say: "x" });
    client.say("tool_approval_response", { toolCallId: asked.toolCallId, approved, reason: approved ? undefined : "not today" });
    await client.ends(run);
    const result = client.events.slice(from).find((it) => it.type === "TOOL_CALL_RESULT");
    assert(result.content.includes(content), result.content);
  }
  client.close();
  return "approved, and denied";
}

async function abort() {
  const client = new Client();
  await client.connected();
  const message = client.run("stuck", "Hang");
  await client.of("TEXT_MESSAGE_CONTENT");
  client.say("abort_run", { runId: message });
  const end = await client.ends(message);
  assert.deepEqual([end.type, end.message], ["RUN_ERROR", "Run aborted by user"]);
  const from = client.events.length;
  const bare = client.run("stuck", "Hang");
  await client.event((it) => it.type === "TEXT_MESSAGE_CONTENT", from);
  client.socket.emit("abort_run");
  assert.equal((await client.ends(bare)).message, "Run aborted by user");
  client.close();
  return "aborted by message, and by a bare event";
}

async function reconnect() {
  const [threadId, runId] = [crypto.randomUUID(), crypto.randomUUID()];
  const messages = [user("Hi")];
  const first = new Client();
  await first.connected();
  first.run("gated", "Hi", { threadId, runId, messages });
  await first.of("TEXT_MESSAGE_CONTENT");
  // The connection is cut, without a closing message.
  first.socket.io.engine.close();
  await first.until(() => first.gone);
  const second = new Client();
  await second.connected();
  second.run("gated", "Hi", { threadId, runId, messages });
  await second.of("TEXT_MESSAGE_CONTENT");
  second.run("open-gate", "go");
  await second.ends(runId);
  assert.deepEqual(second.events.slice(0, 3).map((it) => it.type), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT"]);
  assert.equal(textOf(second.events, runId), "before after");
  // A client that connects after the end gets everything, as messages.
  const third = new Client();
  await third.connected();
  third.run("gated", "Hi", { threadId, runId, messages });
  await third.ends(runId);
  const said = third.events.find((it) => it.type === "MESSAGES_SNAPSHOT").messages.map((it) => it.content);
  assert.deepEqual(said, ["Hi", "before after"]);
  [second, third].forEach((it) => it.close());
  return "lost in mid-run, and back without a repeated word";
}

async function returning() {
  const client = new Client();
  await client.connected();
  const tools = [{ name: "paint", description: "paints", parameters: { type: "object" } }];
  client.run("paint", "Paint it", { tools });
  const { toolCallId } = await client.of("TOOL_CALL_END");
  client.socket.io.engine.close();
  const second = new Client();
  await second.connected();
  second.say("tool_result", { toolCallId, content: "true", role: "tool" });
  const end = await second.event((it) => it.type === "RUN_FINISHED");
  assert.equal(end.result, "Painted.");
  second.close();
  return "a result after the socket was lost";
}

async function feedback() {
  const client = new Client();
  await client.connected();
  const run = client.run("talk", "Hi");
  await client.ends(run);
  const { messageId } = client.events.find((it) => it.type === "TEXT_MESSAGE_START");
  await client.socket.timeout(5000).emitWithAck("message", { type: "message_feedback", data: { messageId, traceId: "trace", feedback: "upvote" } });
  const ours = messageId.split("-").slice(0, 5).join("-");
  const kept = await (await fetch(`${base}/v1/runs/${ours}`)).json();
  assert.deepEqual(kept.feedback.map(({ rating, trace, part }) => [rating, trace, part]), [["upvote", "trace", Number(messageId.split("-")[5])]]);
  await client.socket.timeout(5000).emitWithAck("message", { type: "message_feedback", data: { messageId, traceId: "trace", feedback: null } });
  assert.deepEqual((await (await fetch(`${base}/v1/runs/${ours}`)).json()).feedback, []);
  client.close();
  return "feedback is kept with the run";
}

async function workflow() {
  const client = new Client();
  await client.connected();
  const ids = { runId: crypto.randomUUID(), threadId: crypto.randomUUID() };
  client.say("run_workflow", { runner: "dify", workflowId: "summary", inputs: { text: "long" }, ...ids });
  const end = await client.ends(ids.runId);
  assert.equal(end.result, "Hello there.");
  assert.equal(client.events[0].input.messages[0].content, '{"text":"long"}');
  const other = { runId: crypto.randomUUID(), threadId: crypto.randomUUID() };
  client.say("run_workflow", { runner: "dify", workflowId: "unknown", inputs: {}, ...other });
  const refused = await client.ends(other.runId);
  assert.deepEqual([refused.type, refused.code], ["RUN_ERROR", "no_workflow"]);
  client.close();
  return "a workflow, and one that there is not";
}

async function thinking() {
  const client = new Client({ query: { reasoning: "thinking" } });
  await client.connected();
  const run = client.run("talk", "Hi");
  await client.ends(run);
  const types = new Set(client.events.map((it) => it.type));
  assert(types.has("THINKING_TEXT_MESSAGE_CONTENT") && !types.has("REASONING_MESSAGE_CONTENT"));
  client.close();
  return "reasoning by its older names";
}

async function failures() {
  const client = new Client();
  await client.connected();
  const names = { overloaded: "API_OVERLOADED", limited: "RATE_LIMITED", broken: "UNKNOWN_ERROR" };
  for (const [agent, name] of Object.entries(names)) {
    const end = await client.ends(client.run(agent, "Hi"));
    assert.deepEqual([end.type, end.message], ["RUN_ERROR", name]);
  }
  client.close();
  return "failures by use-ai's names";
}

async function malformed() {
  const client = new Client({ transports: ["websocket"] });
  await client.connected();
  const wrong = [
    ["message"], ["message", null], ["message", 1], ["message", "text"], ["message", []], ["message", {}],
    ["message", { type: "dance" }], ["message", { type: "run_agent" }],
    ["message", { type: "run_agent", data: { threadId: 1 } }],
    ["message", { type: "run_agent", data: { threadId: "t", runId: "r", messages: [] } }],
    ["message", { type: "run_agent", data: { threadId: "t", runId: "r", messages: [user("Hi")], forwardedProps: { agent: "nobody" } } }],
    ["message", { type: "tool_result", data: { toolCallId: "nothing", content: "" } }],
    ["message", { type: "tool_result", data: { toolCallId: `${crypto.randomUUID()}-1`, content: "" } }],
    ["message", { type: "tool_approval_response", data: { toolCallId: "nothing", approved: true } }],
    ["message", { type: "abort_run", data: { runId: "nothing" } }],
    ["message", { type: "message_feedback", data: { messageId: "nothing", feedback: "upvote" } }],
    ["abort_run", 7], ["dance", {}],
  ];
  for (const [index, what] of wrong.entries()) {
    client.socket.emit(...what);
    await client.until(() => client.events.length > index);
    const said = client.events[index];
    assert.deepEqual([said.type, said.message], ["RUN_ERROR", "UNKNOWN_ERROR"], JSON.stringify(what));
    assert(said.error.length > 0);
  }
  const run = client.run("talk", "Hi");
  await client.ends(run);
  assert.equal(textOf(client.events, run), "Hello there.");
  // Binary data is refused, and the socket is closed: what follows it cannot be parsed.
  client.socket.emit("message", Buffer.from([1, 2, 3]));
  await client.until(() => client.gone);
  assert(client.events.some((it) => it.code === "bad_packet"));
  const elsewhere = io(`${base}/admin`, { reconnection: false, forceNew: true });
  const error = await new Promise((resolve) => elsewhere.on("connect_error", resolve));
  assert.match(error.message, /no namespace/);
  elsewhere.disconnect();
  const get = async (query, init) => (await fetch(`${base}/socket.io/?${query}`, init)).status;
  assert.equal(await get("EIO=3&transport=polling"), 400);
  assert.equal(await get("EIO=4&transport=pigeon"), 400);
  assert.equal(await get("EIO=4&transport=polling&sid=nothing"), 400);
  assert.equal(await get("EIO=4&transport=polling&sid=nothing", { method: "POST", body: "40" }), 400);
  return "nonsense of every kind";
}

/// For a server in a separate process, whose status file is in the environment.
async function unread() {
  const { UNREAD_DELTAS, SERVER_STATUS, GROWTH_BYTES_MAX } = process.env;
  const memory = () => 1024 * Number(readFileSync(SERVER_STATUS, "utf8").match(/^VmRSS:\s+(\d+) kB$/m)[1]);
  // The end of a run needs more for a moment, so the lowest of many values counts.
  const settled = async () => {
    let least = Infinity;
    for (let tries = 0; tries < 200; tries += 1) {
      await fetch(`${base}/healthz`);
      least = Math.min(least, memory());
    }
    return least;
  };
  const flood = async () => {
    const client = new Client({ transports: ["websocket"] });
    await client.connected();
    return [client, client.run("flood", "Go")];
  };
  // The first run allocates what later runs reuse.
  const [first, read] = await flood();
  await first.ends(read);
  first.close();
  const before = await settled();
  const [client, run] = await flood();
  await client.of("TEXT_MESSAGE_CONTENT");
  // Nothing is read from the connection until the run has ended.
  const raw = client.socket.io.engine.transport.ws._socket;
  raw.pause();
  const ours = client.events.find((it) => it.type === "TEXT_MESSAGE_START").messageId.split("-").slice(0, 5).join("-");
  let state;
  do {
    const { runs } = await (await fetch(`${base}/v1/runs`)).json();
    state = runs.find((it) => it.run === ours).state;
  } while (state === "running");
  assert.equal(state, "completed");
  const grown = await settled() - before;
  const unread = UNREAD_DELTAS - client.events.filter((it) => it.type === "TEXT_MESSAGE_CONTENT").length;
  assert(unread > 0.9 * UNREAD_DELTAS, `${unread} are unread`);
  assert(grown < GROWTH_BYTES_MAX, `the server's memory grew by ${grown} bytes, of ${before}`);
  const metrics = await (await fetch(`${base}/metrics`)).text();
  const tail = Number(metrics.match(/^wellspring_log_tail_bytes (\d+)$/m)[1]);
  assert(tail <= 512 * 1024, `${tail} bytes are kept`);
  raw.resume();
  await client.ends(run);
  const deltas = client.events.filter((it) => it.type === "TEXT_MESSAGE_CONTENT");
  const words = deltas.map((it) => it.delta).join("").trim().split(" ");
  assert.equal(words.length, Number(UNREAD_DELTAS));
  words.forEach((word, index) => assert.equal(word.split(":")[0], `w${index}`));
  client.close();
  return `${unread} deltas unread, ${grown} bytes more memory, and all of them later`;
}

async function draining() {
  const client = new Client();
  await client.connected();
  const run = client.run("stuck", "Hang");
  await client.of("TEXT_MESSAGE_CONTENT");
  console.log("drain");
  const end = await client.event((it) => it.type === "RUN_ERROR");
  assert.equal(end.code, "draining");
  await client.until(() => client.gone);
  return "a drain is told";
}

const scenes = { polling, websocket, upgrade, several, tool, approvals, abort, reconnect, returning, feedback, workflow, thinking, failures, malformed, draining };
const patience = setTimeout(() => { console.error("a scene hangs"); process.exit(1); }, 180_000);
for (const name of process.argv[3]?.split(",") ?? Object.keys(scenes)) {
  try {
    console.log(await { ...scenes, unread }[name]());
  } catch (error) {
    console.error(`in ${name}:`, error);
    process.exit(1);
  }
}
clearTimeout(patience);
process.exit(0);
