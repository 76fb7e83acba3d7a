// AG-UI with its official client: what a page adds to it.

import { HttpAgent, type Interrupt, type Message, type ResumeEntry } from "@ag-ui/client";

/** A tool that runs in the page. */
export type Tool = {
  description: string;
  parameters: object;
  run: (args: any) => unknown | Promise<unknown>;
};

export type Handlers = {
  /** The conversation, each time that it has changed. */
  messages: (messages: Message[]) => void;
  /** A run began, or ended; with what there is to say about its end. */
  running: (running: boolean, note?: string) => void;
  /** The run ended because it needs the user's approval. It continues with the answer. */
  interrupted: (interrupts: Interrupt[]) => void;
};

/** What a reload needs to find the run again, and the conversation up to it. */
type Asked = { threadId: string; runId: string; agent: string; messages: Message[]; resume?: ResumeEntry[] };

const ASKED = "ag-ui-asked";

export class Client {
  private asked: Asked | null = JSON.parse(sessionStorage.getItem(ASKED) ?? "null");
  private messages: Message[] = [];

  constructor(private tools: Record<string, Tool>, private handlers: Handlers, private server: string) {
    // After a reload: a run that the server knows by its id is not begun again, but told as it
    // stands and then as it goes on.
    if (this.asked) void this.run();
  }

  get agent() {
    return this.asked?.agent;
  }

  send(agent: string, text: string) {
    const threadId = this.asked?.threadId ?? crypto.randomUUID();
    this.ask(threadId, agent, [{ id: crypto.randomUUID(), role: "user", content: text }]);
  }

  /** Answers all interrupts of a run, as one request. */
  resume(resume: ResumeEntry[]) {
    const { threadId, agent } = this.asked!;
    this.ask(threadId, agent, [], resume);
  }

  /** Stops the run. `abortRun()` would only close the connection: the run would go on. */
  async abort() {
    if (!this.asked) return;
    const { agent, runId } = this.asked;
    await fetch(`${this.url(agent)}/runs/${runId}/cancel`, { method: "POST" });
  }

  private url(agent: string) {
    return `${this.server}/ag-ui/${encodeURIComponent(agent)}`;
  }

  private ask(threadId: string, agent: string, added: Message[], resume?: ResumeEntry[]) {
    this.asked = { threadId, runId: crypto.randomUUID(), agent, messages: [...this.messages, ...added], resume };
    sessionStorage.setItem(ASKED, JSON.stringify(this.asked));
    void this.run();
  }

  private async run() {
    const { threadId, runId, agent, messages, resume } = this.asked!;
    const http = new HttpAgent({ url: this.url(agent), threadId, initialMessages: messages });
    const tools = Object.entries(this.tools).map(([name, { description, parameters }]) => ({ name, description, parameters }));
    let note: string | undefined;
    let pending: string[] = [];
    let interrupts: Interrupt[] = [];
    this.handlers.running(true);
    try {
      await http.runAgent({ runId, tools, resume }, {
        onMessagesChanged: ({ messages }) => this.show(messages),
        onRunFinishedEvent: ({ event: { outcome } }) => {
          if (outcome?.type === "cancelled") note = "Stopped.";
          if (outcome?.type === "success") pending = outcome.pendingToolCallIds ?? [];
          if (outcome?.type === "interrupt") interrupts = outcome.interrupts;
        },
        onRunErrorEvent: ({ event }) => { note = event.message; },
      });
      this.show(http.messages);
    } catch (error) {
      note = String(error);
    }
    this.handlers.running(false, note);
    if (interrupts.length > 0) this.handlers.interrupted(interrupts);
    // Frontend tools run between two runs: the next one has all of their results.
    if (pending.length > 0) this.ask(threadId, agent, await Promise.all(pending.map((id) => this.call(id))));
  }

  private show(messages: readonly Message[]) {
    this.messages = [...messages];
    this.handlers.messages(this.messages);
  }

  private async call(toolCallId: string): Promise<Message> {
    const calls = this.messages.flatMap((it) => (it.role === "assistant" ? (it.toolCalls ?? []) : []));
    const call = calls.find((it) => it.id === toolCallId)?.function;
    const answer = { id: crypto.randomUUID(), role: "tool" as const, toolCallId };
    try {
      const tool = call && this.tools[call.name];
      if (!tool) throw new Error(`this page has no tool ${call?.name}`);
      const result = await tool.run(JSON.parse(call.arguments || "{}"));
      return { ...answer, content: JSON.stringify(result ?? null) };
    } catch (error) {
      return { ...answer, content: String(error), error: String(error) };
    }
  }
}
