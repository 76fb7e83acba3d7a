// use-ai's wire, as its clients speak it: what a page needs of it.

import { io, type Socket } from "socket.io-client";

/** An AG-UI event, as the server sends it. */
export type AgUiEvent = { type: string; runId?: string; [member: string]: any };

/** A tool that runs in the page. */
export type Tool = {
  description: string;
  parameters: object;
  run: (args: any) => unknown | Promise<unknown>;
};

export type Message = {
  id: string;
  role: string;
  content: string;
  toolCalls?: { id: string; function: { name: string } }[];
  toolCallId?: string;
};

/** A line of the conversation: something said, or a tool and whether it is done. */
export type Line = { id: string; role: "user" | "assistant" | "tool"; text: string; done?: boolean };

/** A tool of the server that runs only if the user allows it. */
export type Approval = { toolCallId: string; question: string };

export type Handlers = {
  agents: (agents: { id: string; name: string }[], defaultAgent: string) => void;
  /** The conversation and what waits for the user's approval, each time that they have changed. */
  changed: (lines: Line[], approvals: Approval[]) => void;
  /** A run began, or ended; with an error if it has one. */
  running: (running: boolean, error?: string) => void;
};

/** What a reload needs to find the run again. */
type Asked = { threadId: string; runId: string; agent: string; question: Message };

const ASKED = "use-ai-asked";

export class Client {
  private socket: Socket;
  private lines: Line[] = [];
  private calls = new Map<string, { name: string; args: string }>();
  /** The calls that this page has run: the server names them again after a reconnect. */
  private done = new Set<string>();
  private approvals: Approval[] = [];
  private asked: Asked | null = null;

  constructor(private tools: Record<string, Tool>, private handlers: Handlers, url?: string) {
    this.socket = url ? io(url) : io();
    this.socket.on("agents", ({ agents, defaultAgent }) => handlers.agents(agents, defaultAgent));
    this.socket.on("event", (event: AgUiEvent) => this.take(event));
    // Also after the connection was lost: the run went on without us.
    this.socket.on("connect", () => this.attach());
  }

  send(agent: string, text: string) {
    const threadId = this.asked?.threadId ?? crypto.randomUUID();
    const question = { id: crypto.randomUUID(), role: "user", content: text };
    this.asked = { threadId, runId: crypto.randomUUID(), agent, question };
    sessionStorage.setItem(ASKED, JSON.stringify(this.asked));
    this.run();
  }

  abort() {
    if (this.asked) this.say("abort_run", { runId: this.asked.runId });
  }

  answer(toolCallId: string, approved: boolean) {
    this.say("tool_approval_response", { toolCallId, approved });
    this.answered(toolCallId);
    this.changed();
  }

  private attach() {
    const kept = sessionStorage.getItem(ASKED);
    if (kept) this.asked = JSON.parse(kept);
    if (this.asked) this.run();
  }

  /** Asks, or attaches: a run that the server knows by its id is not begun again. */
  private run() {
    if (!this.asked) return;
    const { threadId, runId, agent, question } = this.asked;
    const tools = Object.entries(this.tools).map(([name, { description, parameters }]) => ({ name, description, parameters }));
    const forwardedProps = { agent };
    this.say("run_agent", { threadId, runId, messages: [question], tools, state: {}, context: [], forwardedProps });
  }

  private say(type: string, data: object) {
    this.socket.emit("message", { type, data });
  }

  private changed() {
    this.handlers.changed(this.lines, this.approvals);
  }

  private take(event: AgUiEvent) {
    switch (event.type) {
      case "RUN_STARTED":
        this.handlers.running(true);
        break;
      case "MESSAGES_SNAPSHOT":
        this.lines = event.messages.flatMap((it: Message) => linesOf(it, event.messages));
        break;
      case "TEXT_MESSAGE_START":
        this.begin({ id: event.messageId, role: "assistant", text: "" });
        break;
      case "TEXT_MESSAGE_CONTENT": {
        const line = this.line(event.messageId);
        if (line) line.text += event.delta;
        break;
      }
      case "TOOL_CALL_START":
        this.calls.set(event.toolCallId, { name: event.toolCallName, args: "" });
        this.begin({ id: event.toolCallId, role: "tool", text: event.toolCallName });
        break;
      case "TOOL_CALL_ARGS":
        this.calls.get(event.toolCallId)!.args += event.delta;
        break;
      case "TOOL_CALL_END":
        void this.call(event.toolCallId);
        break;
      case "TOOL_CALL_RESULT": {
        const line = this.line(event.toolCallId);
        if (line) line.done = true;
        this.answered(event.toolCallId);
        break;
      }
      case "TOOL_APPROVAL_REQUEST": {
        const { toolCallId, toolCallName, toolCallArgs, annotations } = event;
        this.answered(toolCallId);
        this.approvals.push({ toolCallId, question: annotations?.message ?? `May ${toolCallName} run with ${JSON.stringify(toolCallArgs)}?` });
        break;
      }
      case "RUN_FINISHED":
      case "RUN_ERROR":
        this.approvals = [];
        this.handlers.running(false, event.error ?? event.message);
        break;
    }
    this.changed();
  }

  /** A line begins. After a reconnect the server begins the open ones again. */
  private begin(line: Line) {
    this.lines = [...this.lines.filter((it) => it.id !== line.id), line];
  }

  private line(id: string) {
    return this.lines.find((it) => it.id === id);
  }

  private answered(toolCallId: string) {
    this.approvals = this.approvals.filter((it) => it.toolCallId !== toolCallId);
  }

  private async call(toolCallId: string) {
    const call = this.calls.get(toolCallId);
    const tool = call && this.tools[call.name];
    if (!tool || this.done.has(toolCallId)) return;
    this.done.add(toolCallId);
    const result = await tool.run(JSON.parse(call.args || "{}"));
    this.say("tool_result", { messageId: crypto.randomUUID(), toolCallId, content: JSON.stringify(result ?? null), role: "tool" });
  }
}

/** A message as lines: what was said, and the tools that were called. */
function linesOf({ id, role, content, toolCalls = [] }: Message, all: Message[]): Line[] {
  const said: Line[] = content && (role === "user" || role === "assistant") ? [{ id, role, text: content }] : [];
  const isDone = (id: string) => all.some((it) => it.toolCallId === id);
  return [...said, ...toolCalls.map((call): Line => ({ id: call.id, role: "tool", text: call.function.name, done: isDone(call.id) }))];
}
