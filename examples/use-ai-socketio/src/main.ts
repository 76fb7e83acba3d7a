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

const client = new Client(tools, {
  agents: (all, chosen) => {
    agents.replaceChildren(...all.map(({ id, name }) => new Option(name, id, id === chosen)));
  },
  changed: (lines, approvals) => {
    const errors = messages.querySelectorAll<HTMLElement>(".error");
    const asked = approvals.map(({ toolCallId, question }) => {
      const asked = line("question", question);
      asked.append(document.createElement("br"), button("Allow", "allow-button", () => client.answer(toolCallId, true)), " ", button("Deny", "deny-button", () => client.answer(toolCallId, false)));
      return asked;
    });
    show([...lines.map(({ role, text, done }) => line(role, role === "tool" ? `${text} ${done ? "✓" : "…"}` : text)), ...asked, ...errors]);
  },
  running: (running, error) => {
    abort.hidden = !running;
    messages.ariaBusy = String(running);
    if (running) messages.querySelectorAll(".error").forEach((it) => it.remove());
    if (error) show([...messages.querySelectorAll<HTMLElement>(":scope > div"), line("error", error)]);
  },
}, new URLSearchParams(location.search).get("server") ?? undefined);

element<HTMLFormElement>("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!text.value || !abort.hidden) return;
  client.send(agents.value, text.value);
  text.value = "";
  scrollTo(0, document.body.scrollHeight);
});
abort.addEventListener("click", () => client.abort());
text.focus();
