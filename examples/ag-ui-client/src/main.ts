import type { Interrupt, Message } from "@ag-ui/client";
import { Client } from "./client";

const element = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
const [messages, agents, text, abort] = [element("messages"), element<HTMLSelectElement>("agent"), element<HTMLInputElement>("text"), element("abort")];

const tools = {
  paint: {
    description: "Gives the page another background colour.",
    parameters: { type: "object", properties: { colour: { type: "string" } }, required: ["colour"] },
    run: ({ colour }: { colour: string }) => {
      document.body.style.background = colour;
      return { painted: colour };
    },
  },
};

function line(role: string, content: string) {
  const line = document.createElement("div");
  line.className = role;
  line.dataset.testid = `${role}-message`;
  line.textContent = content;
  return line;
}

function button(label: string, testid: string, press: () => void) {
  const button = document.createElement("button");
  button.textContent = label;
  button.dataset.testid = testid;
  button.addEventListener("click", press);
  return button;
}

/** Replaces what is shown, and stays at its end if the reader was there. */
function show(lines: HTMLElement[]) {
  const wasAtEnd = innerHeight + scrollY >= document.body.scrollHeight - 50;
  messages.replaceChildren(...lines);
  if (wasAtEnd) scrollTo(0, document.body.scrollHeight);
}

/** A message as lines: what was said, and the tools that were called. */
function linesOf(message: Message, all: Message[]): HTMLElement[] {
  const { role, content } = message;
  const said = (role === "user" || role === "assistant") && typeof content === "string" && content ? [line(role, content)] : [];
  const calls = message.role === "assistant" ? (message.toolCalls ?? []) : [];
  const isDone = (id: string) => all.some((it) => it.role === "tool" && it.toolCallId === id);
  return [...said, ...calls.map((call) => line("tool", `${call.function.name} ${isDone(call.id) ? "✓" : "…"}`))];
}

/** Asks for an approval. The agent goes on when all have been answered. */
function question(interrupt: Interrupt, answer: (approved: boolean) => void) {
  const asked = line("question", interrupt.message ?? "May the agent go on?");
  const answered = (approved: boolean) => {
    asked.remove();
    answer(approved);
  };
  asked.append(document.createElement("br"), button("Allow", "allow-button", () => answered(true)), " ", button("Deny", "deny-button", () => answered(false)));
  return asked;
}

const notes = () => messages.querySelectorAll<HTMLElement>(":scope > .question, :scope > .error");
const server = new URLSearchParams(location.search).get("server") ?? "";
const client = new Client(tools, {
  messages: (all) => show([...all.flatMap((it) => linesOf(it, all)), ...notes()]),
  running: (running, note) => {
    abort.hidden = !running;
    messages.ariaBusy = String(running);
    if (running) notes().forEach((it) => it.remove());
    if (note) show([...messages.querySelectorAll<HTMLElement>(":scope > div"), line("error", note)]);
  },
  interrupted: (interrupts) => {
    const answers: { interruptId: string; status: "resolved"; payload: { approved: boolean } }[] = [];
    const asked = interrupts.map((interrupt) =>
      question(interrupt, (approved) => {
        answers.push({ interruptId: interrupt.id, status: "resolved", payload: { approved } });
        if (answers.length === interrupts.length) client.resume(answers);
      }),
    );
    show([...messages.querySelectorAll<HTMLElement>(":scope > div"), ...asked]);
  },
}, server);

const { agents: all } = await (await fetch(`${server}/v1/agents`)).json();
agents.replaceChildren(...all.map(({ name }: { name: string }) => new Option(name, name, name === client.agent)));

element<HTMLFormElement>("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!text.value || !abort.hidden) return;
  client.send(agents.value, text.value);
  text.value = "";
  scrollTo(0, document.body.scrollHeight);
});
abort.addEventListener("click", () => void client.abort());
text.focus();
