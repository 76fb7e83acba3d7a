// A typical JavaScript server: `streamText` over Socket.IO, with AG-UI events as use-ai's clients
// expect them, and over HTTP as the AI SDK's own message stream.

import { randomUUID } from "node:crypto";
import http from "node:http";
import { createAnthropic } from "@ai-sdk/anthropic";
import { convertToModelMessages, stepCountIs, streamText } from "ai";
import { Server } from "socket.io";

const provider = createAnthropic({ baseURL: `${process.env.WELLSPRING_BENCH_PROVIDER}/v1`, apiKey: "none" });
const settings = { model: provider("bench"), stopWhen: stepCountIs(10), maxOutputTokens: 4096 };
const onError = ({ error }) => { console.error(error); process.exit(1); };

async function runAgent(socket, { threadId, runId, messages, state }) {
  const emit = (event) => socket.emit("event", { ...event, timestamp: Date.now() });
  emit({ type: "RUN_STARTED", threadId, runId, input: { threadId, runId, messages, state } });
  emit({ type: "MESSAGES_SNAPSHOT", messages });
  emit({ type: "STATE_SNAPSHOT", snapshot: state ?? {} });
  const history = messages.map(({ role, content }) => ({ role, content }));
  const abort = new AbortController();
  const stop = () => abort.abort();
  socket.on("abort_run", stop);
  const { fullStream } = streamText({ ...settings, messages: history, abortSignal: abort.signal, onError });
  let messageId;
  let step = 0;
  let result = "";
  for await (const chunk of fullStream) {
    switch (chunk.type) {
      case "start-step":
        emit({ type: "STEP_STARTED", stepNumber: step });
        break;
      case "text-start":
        messageId = randomUUID();
        emit({ type: "TEXT_MESSAGE_START", messageId, role: "assistant" });
        break;
      case "text-delta":
        emit({ type: "TEXT_MESSAGE_CONTENT", messageId, delta: chunk.text });
        result += chunk.text;
        break;
      case "text-end":
        emit({ type: "TEXT_MESSAGE_END", messageId });
        break;
      case "finish-step":
        emit({ type: "STEP_FINISHED", stepNumber: step++, usage: chunk.usage, finishReason: chunk.finishReason });
        break;
    }
  }
  socket.off("abort_run", stop);
  emit({ type: "RUN_FINISHED", threadId, runId, result });
}

const server = http.createServer(async (request, response) => {
  if (request.method !== "POST" || request.url !== "/ai-sdk") return;
  const body = [];
  for await (const piece of request) body.push(piece);
  const { messages } = JSON.parse(Buffer.concat(body));
  const result = streamText({ ...settings, messages: await convertToModelMessages(messages), onError });
  await result.pipeUIMessageStreamToResponse(response);
});
const io = new Server(server);
io.on("connection", (socket) => {
  socket.emit("agents", { agents: [{ id: "bench", name: "bench" }], defaultAgent: "bench" });
  socket.on("message", ({ type, data }) => { if (type === "run_agent") runAgent(socket, data); });
});
server.listen(0, "127.0.0.1", () => console.log(`127.0.0.1:${server.address().port}`));
