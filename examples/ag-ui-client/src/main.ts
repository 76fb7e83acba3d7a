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

function show(role: string, content: string) {
  const line = document.createElement("div");
  line.className = role;
  line.dataset.testid = `${role}-message`;
  line.textContent = content;
  messages.append(line);
}

const server = new URLSearchParams(location.search).get("server") ?? "";
const client = new Client(tools, {
  messages: (all) => {
    const notes = messages.querySelectorAll(".error");
    messages.replaceChildren();
    for (const { role, content } of all) {
      if (["user", "assistant"].includes(role) && typeof content === "string" && content) show(role, content);
    }
    messages.append(...notes);
  },
  running: (running, note) => {
    abort.hidden = !running;
    if (running) messages.querySelectorAll(".error").forEach((it) => it.remove());
    if (note) show("error", note);
  },
}, server);

const { agents: all } = await (await fetch(`${server}/v1/agents`)).json();
agents.replaceChildren(...all.map(({ name }: { name: string }) => new Option(name, name, name === client.agent)));

element<HTMLFormElement>("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  if (text.value && abort.hidden) client.send(agents.value, text.value);
  text.value = "";
});
abort.addEventListener("click", () => void client.abort());
