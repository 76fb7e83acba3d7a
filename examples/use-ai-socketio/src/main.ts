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

const client = new Client(tools, {
  agents: (all, chosen) => {
    agents.replaceChildren(...all.map(({ id, name }) => new Option(name, id, id === chosen)));
  },
  messages: (all) => {
    const errors = messages.querySelectorAll(".error");
    messages.replaceChildren();
    for (const { role, content } of all) show(role, content);
    messages.append(...errors);
  },
  running: (running, error) => {
    abort.hidden = !running;
    if (running) messages.querySelectorAll(".error").forEach((it) => it.remove());
    if (error) show("error", error);
  },
}, new URLSearchParams(location.search).get("server") ?? undefined);

element<HTMLFormElement>("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  if (text.value) client.send(agents.value, text.value);
  text.value = "";
});
abort.addEventListener("click", () => client.abort());
