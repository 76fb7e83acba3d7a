// The AI SDK's own chat and both of its transports against a server: `node ai_sdk.mjs URL`.
// Prints what it received, one line per scene and transport, or fails.

import assert from "node:assert/strict";
import {
  AbstractChat,
  DefaultChatTransport,
  WebSocketChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
  uiMessageChunkSchema,
} from "ai";
import WebSocket from "ws";

const base = process.argv[2];

/** The state of a chat, without a framework. */
class State {
  status = "ready";
  error = undefined;
  messages = [];
  pushMessage = (message) => { this.messages = [...this.messages, message]; };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (index, message) => { this.messages = this.messages.with(index, structuredClone(message)); };
  snapshot = (it) => structuredClone(it);
}

class Chat extends AbstractChat {
  constructor({ messages = [], ...init }) { super({ state: Object.assign(new State(), { messages }), ...init }); }
}

/** Checks every part against the SDK's own schema, and records it. */
function checked(transport, seen) {
  const through = (stream) => stream && stream.pipeThrough(new TransformStream({
    async transform(chunk, controller) {
      const result = await uiMessageChunkSchema().validate(chunk);
      assert.ok(result.success, `${JSON.stringify(chunk)}: ${result.error}`);
      seen.push(chunk);
      controller.enqueue(chunk);
    },
  }));
  return {
    resumeStreamIsReplay: true,
    sendMessages: async (options) => through(await transport.sendMessages(options)),
    reconnectToStream: async (options) => through(await transport.reconnectToStream(options)),
    close: () => transport.close?.(),
  };
}

const transports = {
  http: (agent, init) => new DefaultChatTransport({ api: `${base}/ai-sdk/${agent}`, ...init }),
  socket: (agent, init) => new WebSocketChatTransport({ url: `${base}/ai-sdk/${agent}/socket`, webSocket: WebSocket, ...init }),
};

function chat(kind, agent, init = {}, transportInit = {}) {
  const seen = [];
  const errors = [];
  const inner = transports[kind](agent, transportInit);
  const it = new Chat({ transport: checked(inner, seen), onError: (error) => errors.push(error.message), ...init });
  return Object.assign(it, { seen, errors, inner });
}

const parts = (it) => it.lastMessage.parts.map((part) => {
  if (part.type === "text" || part.type === "reasoning") return `${part.type} ${part.text}`;
  if (part.type.startsWith("tool-")) return `${part.type} ${part.state} ${JSON.stringify(part.output ?? part.errorText ?? null)}`;
  if (part.type.startsWith("data-")) return `${part.type} ${JSON.stringify(part.data)}`;
  return part.type;
});
const count = (it, type) => it.seen.filter((chunk) => chunk.type === type).length;
const until = async (condition) => { while (!condition()) await new Promise((resolve) => setTimeout(resolve, 5)); };

const scenes = {
  async text(kind) {
    const it = chat(kind, "talk");
    await it.sendMessage({ text: "Hi" });
    assert.equal(it.status, "ready", it.errors.join());
    assert.deepEqual(parts(it), ["step-start", "reasoning Hm, what now?", "text Hello there."]);
    assert.ok(count(it, "text-delta") > 1, "in pieces");
    assert.equal(it.lastMessage.metadata.agent, "talk");
    await it.sendMessage({ text: "Again" });
    assert.equal(it.messages.length, 4);
    return "text and reasoning, twice in one chat";
  },
  async serverTool(kind) {
    const it = chat(kind, "work");
    await it.sendMessage({ text: "Work" });
    const outputs = it.seen.filter((chunk) => chunk.type === "tool-output-available");
    assert.deepEqual(outputs.map((chunk) => [chunk.output, chunk.preliminary ?? false]), [[{ percent: 50 }, true], ["worked", false]]);
    assert.deepEqual(parts(it), ["step-start", 'tool-work output-available "worked"', "step-start", "text Done."]);
    assert.ok(it.lastMessage.metadata.usage.totalTokens > 0, JSON.stringify(it.lastMessage.metadata));
    return "a tool of the server, with progress";
  },
  async clientTool(kind) {
    const tools = [{ name: "paint", description: "paints", inputSchema: { type: "object" } }];
    const it = chat(kind, "paint", {
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
      onToolCall: ({ toolCall }) => {
        assert.deepEqual(toolCall.input, { colour: "blue" });
        it.addToolOutput({ tool: "paint", toolCallId: toolCall.toolCallId, output: "painted" });
      },
    }, { body: { tools } });
    await it.sendMessage({ text: "Paint it" });
    await until(() => it.status === "ready" && parts(it).includes("text Painted."));
    assert.equal(it.messages.length, 2, "the message goes on");
    assert.deepEqual(parts(it), ["step-start", 'tool-paint output-available "painted"', "step-start", "text Painted."]);
    return "a tool in the page, and on in the same message";
  },
  async approval(kind) {
    const said = [];
    for (const approved of [true, false]) {
      const it = chat(kind, "ask", { sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses });
      await it.sendMessage({ text: "Do it" });
      const asked = it.lastMessage.parts.find((part) => part.state === "approval-requested");
      await it.addToolApprovalResponse({ id: asked.approval.id, approved, reason: "because" });
      await until(() => it.status === "ready" && parts(it).includes("text Done."));
      assert.equal(it.messages.length, 2);
      said.push(parts(it)[1]);
    }
    assert.deepEqual(said, ['tool-echo output-available "x"', "tool-echo output-denied null"]);
    return "an approval, given and denied";
  },
  async questions(kind) {
    const it = chat(kind, "questions");
    await it.sendMessage({ text: "Ask me" });
    const person = { name: "Ada", age: 36, colour: "red" };
    const given = [{ value: person }, { deny: { reason: "no" } }, { choose: ["river"] }, { choose: ["spring", "river"] }, { value: 7 }];
    const open = () => it.lastMessage.parts.find((part) => part.type === "data-question" && !part.data.answer);
    for (const [index, answer] of given.entries()) {
      const { id, data } = open();
      if (index === 2) {
        assert.deepEqual(data.form.choose.choices.map(({ id }) => id), ["spring", "river"]);
        // An answer that does not fit is refused, and the question stays open.
        await it.sendMessage(undefined, { body: { answers: [{ id, answer: { choose: ["desert"] } }] } });
        assert.equal(it.status, "error");
        assert.equal(open().id, id);
      }
      await it.sendMessage(undefined, { body: { answers: [{ id, answer }] } });
      assert.notEqual(it.status, "error", it.errors.join());
      await it.sendMessage(undefined, { body: { answers: [{ id, answer }] } });
      assert.equal(it.status, "error", "an answer counts once");
    }
    assert.equal(it.messages.length, 2, "the message goes on");
    const asked = it.lastMessage.parts.filter((part) => part.type === "data-question");
    assert.deepEqual(asked.map((part) => part.data.answer), given);
    assert.equal(parts(it).at(-1), "text Thank you.");
    return "questions of every form, answered and declined";
  },
  async stop(kind) {
    const it = chat(kind, "stuck");
    const sent = it.sendMessage({ text: "Hang" });
    await until(() => it.lastMessage?.role === "assistant" && it.lastMessage.parts.length > 1);
    const run = it.lastMessage.id;
    await it.stop();
    if (kind === "http") await fetch(`${base}/ai-sdk/stuck/${it.id}/stop`, { method: "POST" });
    await sent;
    let state;
    do { state = (await (await fetch(`${base}/v1/runs/${run}`)).json()).state; } while (state === "running");
    assert.equal(state, "cancelled");
    await it.resumeStream();
    assert.equal(it.status, "ready", "nothing is going on");
    return "stopping stops the run";
  },
  async resume(kind) {
    const it = chat(kind, "slow");
    it.sendMessage({ text: "Slowly" }).catch(() => {});
    await until(() => it.lastMessage?.role === "assistant" && it.lastMessage.parts.length > 1);
    // A page that is reloaded: it has only the chat's id and the user's message.
    const again = chat(kind, "slow", { id: it.id, messages: it.messages.slice(0, 1) });
    await again.resumeStream();
    assert.deepEqual(parts(again), ["step-start", "text one two three four"]);
    assert.equal(again.messages.length, 2);
    await until(() => it.status === "ready");
    assert.deepEqual(parts(it), ["step-start", "text one two three four"]);
    return "a message is resumed from its beginning, by a second page too";
  },
  async drop(kind) {
    const it = chat(kind, "slow");
    if (kind === "http") {
      // The connection is lost in the middle of a message.
      const fetchCut = async (url, init) => {
        const response = await fetch(url, init);
        if (init.method !== "POST") return response;
        let left = 1;
        return new Response(response.body.pipeThrough(new TransformStream({
          transform(piece, controller) {
            controller.enqueue(piece);
            if (--left < 0) controller.error(new TypeError("network error"));
          },
        })), { headers: response.headers });
      };
      it.inner.fetch = fetchCut;
    }
    const sent = it.sendMessage({ text: "Slowly" });
    await until(() => it.lastMessage?.role === "assistant" && it.lastMessage.parts.length > 1);
    if (kind === "socket") it.inner.connection.socket.terminate();
    await sent;
    assert.equal(it.status, "error");
    await it.resumeStream();
    assert.deepEqual(parts(it), ["step-start", "text one two three four"]);
    assert.equal(it.messages.length, 2, "no duplicate");
    return "a dropped connection is resumed without a duplicate";
  },
  async error(kind) {
    const it = chat(kind, "fails");
    await it.sendMessage({ text: "Fail" });
    assert.equal(it.status, "error");
    assert.match(it.errors.join(), /no luck/);
    const nobody = chat(kind, "talk", { id: "x".repeat(300) });
    await nobody.sendMessage({ text: "Hi" });
    assert.equal(nobody.status, "error");
    assert.match(nobody.errors.join(), /1 to 255 bytes/);
    return "errors are reported";
  },
  async retried(kind) {
    const it = chat(kind, "retries");
    await it.sendMessage({ text: "Try" });
    assert.equal(it.status, "ready", it.errors.join());
    assert.ok(count(it, "reset-step") > 0, "something was taken back");
    // Data parts and tools that run at the same time arrive in any order within their step.
    const [first, second] = [parts(it).slice(0, -2), parts(it).slice(-2)];
    assert.deepEqual(first.toSorted(), [
      'data-plan {"entries":[{"content":"look","status":"in_progress","priority":"medium"}]}',
      "reasoning Hm",
      "source-url",
      "step-start",
      "text Let me see.",
      'tool-echo output-available "Let me see."',
      'tool-plans output-available "planned"',
    ]);
    assert.deepEqual(second, ["step-start", "text Right."]);
    return "a retried turn leaves its final parts";
  },
  async regenerate(kind) {
    const it = chat(kind, "counts");
    await it.sendMessage({ text: "Count" });
    assert.deepEqual(parts(it), ["step-start", "text 1 message"]);
    await it.regenerate();
    assert.deepEqual(parts(it), ["step-start", "text 1 message"]);
    await it.sendMessage({ text: "More" });
    assert.deepEqual(parts(it), ["step-start", "text 3 messages"]);
    await it.regenerate();
    assert.deepEqual(parts(it), ["step-start", "text 3 messages"]);
    assert.equal(it.messages.length, 4);
    return "regenerating branches off";
  },
  async steering(kind) {
    const it = chat(kind, "steered");
    const sent = it.sendMessage({ text: "Go" });
    await until(() => it.lastMessage?.role === "assistant" && it.lastMessage.parts.length > 1);
    const added = await fetch(`${base}/v1/runs/${it.lastMessage.id}/input`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ content: "And hurry." }),
    });
    assert.equal(added.status, 202);
    await chat(kind, "passes").sendMessage({ text: "Go" });
    await sent;
    assert.equal(it.status, "ready", it.errors.join());
    assert.deepEqual(it.seen.filter((chunk) => chunk.type === "steering-message").map((chunk) => chunk.parts), [[{ type: "text", text: "And hurry." }]]);
    assert.equal(parts(it).at(-1), "text Faster.");
    return "what a user adds to a run is shown, and followed";
  },
};

/** Every transport is in the middle of a message when the server begins to shut down. */
async function drain() {
  const all = Object.keys(transports).map((kind) => chat(kind, "stuck"));
  const sent = all.map((it) => it.sendMessage({ text: "Hang" }));
  for (const it of all) await until(() => it.lastMessage?.role === "assistant" && it.lastMessage.parts.length > 1);
  console.log("drain");
  await Promise.all(sent);
  for (const it of all) {
    assert.equal(it.status, "error");
    assert.match(it.errors.join(), /shutting down/);
  }
  return "a drain is reported";
}

for (const kind of Object.keys(transports)) {
  for (const [name, scene] of Object.entries(scenes)) {
    try {
      console.log(`${kind}: ${await scene(kind)}`);
    } catch (error) {
      console.error(`${kind} ${name}:`, error);
      process.exit(1);
    }
  }
}
console.log(`${Object.keys(transports).join(" and ")}: ${await drain()}`);
process.exit(0);
