// Prints one event of every kind with all its fields, and what the official encoder makes of
// it: `node ag_ui_events.mjs > ../../fixtures/ag_ui/events.jsonl`.

import { EventSchemas } from "@ag-ui/core/schemas";
import { encode } from "@ag-ui/proto";

const base = { metadata: { deep: { list: [1, "a", null, true], n: -1.5 } }, timestamp: 1760000000000, rawEvent: { x: null } };
const part = { subagentRunId: "s-1", ...base };
const parts = [
  { type: "text", text: "Look:", id: "p-1", metadata: { a: 1 } },
  { type: "image", source: { type: "data", value: "AA==", mimeType: "image/png" } },
  { type: "audio", source: { type: "url", value: "https://example.com/a" }, id: "p-2" },
  { type: "video", source: { type: "url", value: "https://example.com/v", mimeType: "video/mp4" } },
  { type: "document", source: { type: "file", value: "f-1", provider: "acme", mimeType: "a/b" }, metadata: { filename: "a" } },
];
const patch = [
  { op: "add", path: "/a", value: null },
  { op: "remove", path: "/b" },
  { op: "replace", path: "", value: { c: [] } },
  { op: "move", path: "/a", from: "/b" },
  { op: "copy", path: "/a", from: "/b" },
  { op: "test", path: "/a", value: "x" },
];
const messages = [
  { role: "developer", id: "m-1", content: "Be kind.", name: "dev" },
  { role: "system", id: "m-2", content: "", encryptedValue: "e" },
  { role: "user", id: "m-3", content: "Hi", name: "mira" },
  { role: "user", id: "m-4", content: parts },
  {
    role: "assistant", id: "m-5", content: "Hm", metadata: { a: 1 }, subagentRunId: "s-1",
    toolCalls: [{ id: "c-1", type: "function", function: { name: "clock", arguments: "{}" }, encryptedValue: "e", metadata: { k: "v" } }],
  },
  { role: "assistant", id: "m-6" },
  { role: "tool", id: "m-7", toolCallId: "c-1", content: "12:00", error: "late", encryptedValue: "e" },
  { role: "tool", id: "m-8", toolCallId: "c-1", content: parts.slice(0, 1) },
  { role: "activity", id: "m-9", activityType: "plan", content: { entries: [] } },
  { role: "reasoning", id: "m-10", content: "Why?", encryptedValue: "e", subagentRunId: "s-1" },
];
const usage = [
  { provider: "acme", model: "m", inputTokens: 1, outputTokens: 200, totalTokens: 201, reasoningTokens: 0, cachedInputTokens: 3, cacheWriteInputTokens: 4 },
  {},
];
const input = {
  threadId: "t", runId: "r", protocolVersion: "1.0", parentRunId: "q", state: [1], messages: messages.slice(2, 3),
  tools: [{ name: "pick", description: "Picks.", parameters: { type: "object" }, metadata: { a: 1 } }, { name: "x", description: "" }],
  context: [{ description: "page", value: "/" }], forwardedProps: { a: false },
  resume: [{ interruptId: "i", status: "resolved", payload: { ok: true }, metadata: { a: 1 } }, { interruptId: "j", status: "cancelled" }],
};
const interrupts = [
  { id: "i", reason: "tool_call", message: "May I?", toolCallId: "c-1", responseSchema: { type: "object" }, expiresAt: "2025-10-09T08:53:20.123Z", metadata: { a: 1 }, subagentRunId: "s-1" },
  { id: "j", reason: "confirmation" },
];
const events = [
  { type: "TEXT_MESSAGE_START", messageId: "m", role: "user", name: "mira", ...part },
  { type: "TEXT_MESSAGE_START", messageId: "m" },
  { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "Grüße \u{1f980}", ...part },
  { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "x".repeat(300) },
  { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "" },
  { type: "TEXT_MESSAGE_END", messageId: "m", ...part },
  { type: "TEXT_MESSAGE_CHUNK", messageId: "m", role: "assistant", delta: "a", name: "n", ...part },
  { type: "TEXT_MESSAGE_CHUNK" },
  { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "clock", parentMessageId: "m", ...part },
  { type: "TOOL_CALL_ARGS", toolCallId: "c", delta: "{}", ...part },
  { type: "TOOL_CALL_END", toolCallId: "c", ...part },
  { type: "TOOL_CALL_CHUNK", toolCallId: "c", toolCallName: "clock", parentMessageId: "m", delta: "", ...part },
  { type: "TOOL_CALL_RESULT", messageId: "m", toolCallId: "c", content: "12:00", role: "tool", ...part },
  { type: "TOOL_CALL_RESULT", messageId: "m", toolCallId: "c", content: parts },
  { type: "TOOL_CALL_RESULT", messageId: "m", toolCallId: "c", content: "" },
  { type: "STATE_SNAPSHOT", snapshot: { a: [1, null] }, ...part },
  { type: "STATE_SNAPSHOT", snapshot: null },
  { type: "STATE_DELTA", delta: patch, ...part },
  { type: "MESSAGES_SNAPSHOT", messages, ...base },
  { type: "ACTIVITY_SNAPSHOT", messageId: "m", activityType: "plan", content: { a: {} }, replace: false, ...part },
  { type: "ACTIVITY_SNAPSHOT", messageId: "m", activityType: "plan", content: {}, replace: true },
  { type: "ACTIVITY_DELTA", messageId: "m", activityType: "plan", patch, ...part },
  { type: "RAW", event: { a: 1 }, source: "acme", ...part },
  { type: "CUSTOM", name: "source", value: null, ...part },
  { type: "RUN_STARTED", threadId: "t", runId: "r", protocolVersion: "1.0", parentRunId: "q", input, ...base },
  { type: "RUN_FINISHED", threadId: "t", runId: "r", result: "done", outcome: { type: "success", pendingToolCallIds: ["c-1", "c-2"] }, usage, ...base },
  { type: "RUN_FINISHED", threadId: "t", runId: "r", outcome: { type: "interrupt", interrupts } },
  { type: "RUN_FINISHED", threadId: "t", runId: "r", outcome: { type: "cancelled" } },
  { type: "RUN_FINISHED", threadId: "t", runId: "r" },
  { type: "RUN_ERROR", message: "no", code: "lost", usage, ...base },
  { type: "STEP_STARTED", stepName: "step-1", ...part },
  { type: "STEP_FINISHED", stepName: "step-1", ...part },
  { type: "REASONING_START", messageId: "m", ...part },
  { type: "REASONING_MESSAGE_START", messageId: "m", role: "reasoning", ...part },
  { type: "REASONING_MESSAGE_CONTENT", messageId: "m", delta: "Hm", ...part },
  { type: "REASONING_MESSAGE_END", messageId: "m", ...part },
  { type: "REASONING_MESSAGE_CHUNK", messageId: "m", delta: "Hm", ...part },
  { type: "REASONING_END", messageId: "m", ...part },
  { type: "REASONING_ENCRYPTED_VALUE", subtype: "tool-call", entityId: "c", encryptedValue: "e", ...part },
  { type: "REASONING_ENCRYPTED_VALUE", subtype: "message", entityId: "m", encryptedValue: "e" },
  { type: "SUBAGENT_STARTED", subagentRunId: "s", name: "clerk", description: "d", parentSubagentRunId: "p", parentToolCallId: "c", parentMessageId: "m", ...base },
  { type: "SUBAGENT_FINISHED", subagentRunId: "s", result: 1, outcome: { type: "suspended", interruptIds: ["i"] }, ...base },
  { type: "SUBAGENT_FINISHED", subagentRunId: "s", outcome: { type: "success" } },
  { type: "SUBAGENT_ERROR", subagentRunId: "s", message: "no", code: "lost", ...base },
];

// Our maps are ordered by key; these must be too, or the bytes differ.
const sorted = (value) =>
  Array.isArray(value) ? value.map(sorted)
  : value && typeof value === "object" ? Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])]))
  : value;

for (const event of events.map(sorted)) {
  EventSchemas.parse(event);
  console.log(JSON.stringify({ event, hex: Buffer.from(encode(event)).toString("hex") }));
}
