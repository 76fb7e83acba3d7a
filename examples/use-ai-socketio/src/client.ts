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

export type Message = { id: string; role: string; content: string };

export type Handlers = {
  agents: (agents: { id: string; name: string }[], defaultAgent: string) => void;
  /** The conversation, each time that it has changed. */
  messages: (messages: Message[]) => void;
  /** A run began, or ended; with an error if it has one. */
  running: (running: boolean, error?: string) => void;
};

/** What a reload needs to find the run again. */
type Asked = { threadId: string; runId: string; agent: string; question: Message };

const ASKED = "use-ai-asked";

export class Client {
  private socket: Socket;
  private messages: Message[] = [];
  private calls = new Map<string, { name: string; args: string }>();
  /** The calls that this page has run: the server names them again after a reconnect. */
  private done = new Set<string>();
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

  private take(event: AgUiEvent) {
    switch (event.type) {
      case "RUN_STARTED":
        this.handlers.running(true);
        break;
      case "MESSAGES_SNAPSHOT":
        this.messages = event.messages.filter((it: Message) => it.content && ["user", "assistant"].includes(it.role));
        break;
      case "TEXT_MESSAGE_START":
        this.messages = this.messages.filter((it) => it.id !== event.messageId);
        this.messages.push({ id: event.messageId, role: event.role, content: "" });
        break;
      case "TEXT_MESSAGE_CONTENT": {
        const message = this.messages.find((it) => it.id === event.messageId);
        if (message) message.content += event.delta;
        break;
      }
      case "TOOL_CALL_START":
        this.calls.set(event.toolCallId, { name: event.toolCallName, args: "" });
        break;
      case "TOOL_CALL_ARGS":
        this.calls.get(event.toolCallId)!.args += event.delta;
        break;
      case "TOOL_CALL_END":
        void this.call(event.toolCallId);
        break;
      case "RUN_FINISHED":
        this.handlers.running(false);
        break;
      case "RUN_ERROR":
        this.handlers.running(false, event.error ?? event.message);
        break;
    }
    this.handlers.messages(this.messages);
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
