// The page: talk to any agent, see it think and work, answer its questions, stop it; reload
// or come back later and nothing is lost, because the server has it all.
//
// Whatever comes from a run is put on the page as text, never as HTML.

import { StreamRefused, empty, fold, follow, interject, progressPercent, progressText } from "./client.js";

// Where the API is: an application may have mounted it below a path of its own.
const root = new URL("..", import.meta.url).pathname.replace(/\/$/, "");

const $ = (id) => document.getElementById(id);
const main = document.querySelector("main");

let token = localStorage.getItem("wellspring-token") ?? "";
let agents = [];
/** What is on the screen; given up when another thread is chosen. */
let scene = new AbortController();
let thread;
let working; // The run that goes on, if one does.

function headers(more = {}) {
  return token ? { authorization: `Bearer ${token}`, ...more } : more;
}

async function api(method, path, body) {
  const init = { method, headers: headers() };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers["content-type"] = "application/json";
    init.headers["idempotency-key"] = crypto.randomUUID?.() ?? String(Math.random());
  }
  const response = await fetch(root + path, init);
  const answer = response.status === 204 ? undefined : await response.json();
  if (response.status === 401) {
    await askForToken();
    return api(method, path, body);
  }
  if (!response.ok) throw new Error(answer?.error ? `${answer.error.message}. ${answer.error.remedy}` : response.statusText);
  return answer;
}

async function askForToken() {
  $("token").showModal();
  await new Promise((resolve) => $("token").addEventListener("close", resolve, { once: true }));
  token = $("secret").value.trim();
  localStorage.setItem("wellspring-token", token);
}

/** An element with a class and children; text is text. */
function el(tag, name, ...children) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  node.append(...children);
  return node;
}

// Words, with the little Markdown that models write.

function inline(text) {
  const nodes = [];
  for (const piece of text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*|\*[^*\s][^*\n]*\*)/)) {
    if (/^`[^`]+`$/.test(piece)) nodes.push(el("code", "", piece.slice(1, -1)));
    else if (/^\*\*[^*]+\*\*$/.test(piece)) nodes.push(el("strong", "", piece.slice(2, -2)));
    else if (/^\*[^*]+\*$/.test(piece)) nodes.push(el("em", "", piece.slice(1, -1)));
    else if (piece) nodes.push(piece);
  }
  return nodes;
}

function words(text) {
  const nodes = [];
  let list;
  let paragraph = [];
  const flush = () => {
    if (paragraph.length) {
      const lines = paragraph.flatMap((line, at) => (at ? [el("br"), ...inline(line)] : inline(line)));
      nodes.push(el("p", "", ...lines));
    }
    paragraph = [];
    list = undefined;
  };
  const lines = text.split("\n");
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at];
    const item = /^\s*([-*•]|\d+[.)])\s+(.*)$/.exec(line);
    const heading = /^#{1,6}\s+(.*)$/.exec(line);
    if (line.startsWith("```")) {
      flush();
      const code = [];
      while (++at < lines.length && !lines[at].startsWith("```")) code.push(lines[at]);
      nodes.push(el("pre", "", el("code", "", code.join("\n"))));
    } else if (heading) {
      flush();
      nodes.push(el("h3", "", ...inline(heading[1])));
    } else if (item) {
      const tag = /\d/.test(item[1]) ? "ol" : "ul";
      if (list?.localName !== tag) {
        flush();
        nodes.push((list = el(tag)));
      }
      list.append(el("li", "", ...inline(item[2])));
    } else if (line.trim() === "") {
      flush();
    } else {
      if (list) flush();
      paragraph.push(line);
    }
  }
  flush();
  return nodes;
}

function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}

/** The first thing that a call's arguments say. */
function gist(args) {
  try {
    const value = Object.values(JSON.parse(args)).find((it) => typeof it === "string" || typeof it === "number");
    return value === undefined ? "" : String(value).replace(/\s+/g, " ").slice(0, 120);
  } catch {
    return "";
  }
}

function drawBlock(node, block, finished) {
  if (block.kind === "input") {
    node.className = "said";
    node.textContent = block.text;
  } else if (block.kind === "text") {
    node.className = "block text";
    node.replaceChildren(...words(block.text));
  } else if (block.kind === "thought") {
    const details = node.firstChild ?? node.appendChild(el("details", "thought", el("summary"), el("div")));
    node.className = "block";
    details.querySelector("summary").textContent = finished ? "Thoughts" : "Thinking…";
    details.querySelector("div").textContent = block.text.trim();
    if (!details.dataset.touched) details.open = !finished;
    details.querySelector("summary").onclick = () => (details.dataset.touched = "yes");
  } else {
    node.className = "block";
    node.hidden = block.name === "update_plan" && !block.isError; // The plan itself is shown.
    const state = !block.done ? "busy" : block.isError ? "wrong" : "ok";
    const details = node.firstChild ?? node.appendChild(el("details", "", el("summary"), el("div", "inside")));
    details.className = `card ${state}`;
    const label = block.done ? block.name : `Using ${block.name}…`;
    const mark = el("span", "mark", !block.done ? "" : block.isError ? "✕" : "✓");
    details.querySelector("summary").replaceChildren(mark, el("span", "", label), el("code", "", gist(block.args)));
    const inside = [];
    const percent = progressPercent(block.progress);
    if (percent !== undefined && !block.done) {
      const bar = el("progress");
      bar.max = 100;
      bar.value = percent;
      inside.push(bar);
    }
    const shown = progressText(block.progress);
    if (shown) inside.push(el("pre", "", shown));
    if (block.done && block.output && !(shown && !block.isError)) inside.push(el("pre", "", pretty(block.output)));
    if (block.args !== "{}") inside.push(el("div", "quiet", "Asked with"), el("pre", "", pretty(block.args)));
    details.querySelector(".inside").replaceChildren(...inside);
    if (!details.dataset.touched) details.open = !block.done && block.progress.length > 0;
    details.querySelector("summary").onclick = () => (details.dataset.touched = "yes");
  }
}

function drawPlan(node, entries) {
  const items = entries.map((entry) => el("li", entry.status, entry.content));
  node.replaceChildren(el("h3", "", "Plan"), el("ol", "", ...items));
  node.hidden = entries.length === 0;
}

function drawQuestion(run, question) {
  const card = el("div", "block card question", el("p", "", question.prompt));
  const row = el("div", "row");
  const answer = async (answer) => {
    for (const button of row.querySelectorAll("button")) button.disabled = true;
    try {
      await api("POST", `/v1/runs/${run}/answers`, { question: question.question, answer });
    } catch (error) {
      card.append(el("p", "failed-note", error.message));
    }
  };
  const button = (label, act, name = "") => {
    const node = el("button", name, label);
    node.type = "button";
    node.onclick = act;
    row.append(node);
  };
  if (question.form === "approve") {
    button("Allow", () => answer({ approve: {} }), "primary");
    button("Allow in this thread", () => answer({ approve: { scope: "thread" } }));
    button("Refuse", () => answer({ deny: {} }));
  } else if (question.form?.choose) {
    const { choices, multiple } = question.form.choose;
    if (multiple) {
      for (const choice of choices) {
        const box = el("input");
        box.type = "checkbox";
        box.value = choice.id;
        row.append(el("label", "", box, ` ${choice.label}`));
      }
      button("Answer", () => answer({ choose: [...row.querySelectorAll("input:checked")].map((box) => box.value) }), "primary");
    } else {
      for (const choice of choices) button(choice.label, () => answer({ choose: [choice.id] }));
    }
  } else {
    const field = el("textarea");
    field.placeholder = "An answer, as text or JSON";
    card.append(field);
    button("Answer", () => {
      let value = field.value;
      try {
        value = JSON.parse(value);
      } catch {
        // Then it is a text.
      }
      answer({ value });
    }, "primary");
  }
  card.append(row);
  return card;
}

/** Keeps the end in sight, unless somebody has scrolled up to read. */
function keepEnd(draw) {
  const atEnd = main.scrollHeight - main.scrollTop - main.clientHeight < 80;
  draw();
  if (atEnd) main.scrollTop = main.scrollHeight;
}

/** Shows a run from its start on, until it ends. */
async function showRun(run, input, signal) {
  const section = el("section", "run");
  const plan = el("div", "block card plan");
  const blocks = el("div");
  const questions = el("div");
  const end = el("p", "waiting", "…");
  plan.hidden = true;
  section.append(el("div", "said", input), plan, blocks, questions, end);
  keepEnd(() => $("runs").append(section));
  main.scrollTop = main.scrollHeight;

  const view = empty();
  const drawn = new Map();
  let due = false;
  const draw = () => {
    due = false;
    keepEnd(() => {
      view.blocks.forEach((block, at) => {
        const finished = view.done || at < view.blocks.length - 1;
        const version = `${block.version} ${finished}`;
        if (!drawn.has(block)) drawn.set(block, { node: el("div") });
        const shown = drawn.get(block);
        if (blocks.children[at] !== shown.node) blocks.insertBefore(shown.node, blocks.children[at] ?? null);
        if (shown.version !== version) drawBlock(shown.node, block, finished);
        shown.version = version;
      });
      end.hidden = view.done || asked.size > 0 || view.blocks.at(-1)?.kind === "text";
    });
  };
  const drawSoon = () => {
    if (!due) requestAnimationFrame(draw); // Many events, one drawing.
    due = true;
  };

  const asked = new Map();
  const added = new Map();
  const side = new AbortController();
  signal.addEventListener("abort", () => side.abort());
  const aside = (async () => {
    const kinds = "plan_updated,question_asked,question_answered,input_accepted,input_applied";
    const url = `${root}/v1/runs/${run}/events?dialect=record&kinds=${kinds}`;
    for await (const { id, event: record } of follow(url, { headers: headers(), signal: side.signal })) {
      const { plan_updated, question_asked, question_answered, input_accepted, input_applied } = record.event;
      if (input_accepted) {
        const block = { kind: "input", text: textOf(input_accepted.content) };
        added.set(input_accepted.inbox, block);
        interject(view, block);
        drawSoon();
      }
      if (input_applied) {
        interject(view, added.get(input_applied.inbox), id);
        drawSoon();
      }
      keepEnd(() => {
        if (plan_updated) drawPlan(plan, plan_updated.entries);
        if (question_asked) {
          const card = drawQuestion(run, question_asked);
          asked.set(question_asked.question, card);
          questions.append(card);
        }
        if (question_answered) {
          asked.get(question_answered.question)?.remove();
          asked.delete(question_answered.question);
        }
        end.hidden = asked.size > 0;
      });
    }
  })().catch(() => {});

  const onConnection = (state) => ($("connection").hidden = state === "open");
  const url = `${root}/v1/runs/${run}/events?dialect=agent_event`;
  for await (const { id, event } of follow(url, { headers: headers(), signal, onConnection })) {
    fold(view, event, id);
    drawSoon();
    if (view.done) break;
  }
  if (signal.aborted) return;
  await aside; // What was decided and added is shown too, also of a run that was over before.
  draw();
  questions.replaceChildren();
  if (view.error?.startsWith("cancelled")) end.replaceWith(el("p", "stopped quiet", "Stopped."));
  else if (view.error) end.replaceWith(el("p", "failed-note", view.error));
  else end.remove();
}

function textOf(content) {
  return (content ?? []).map((block) => block.text ?? block.resource?.text ?? `[${Object.keys(block)[0]}]`).join("\n");
}

/** All runs of a thread, oldest first: the newest ones come first, page by page. */
async function runsOf(id) {
  const all = [];
  let after = "";
  do {
    const { runs, next } = await api("GET", `/v1/threads/${id}?limit=200${after}`);
    all.unshift(...runs);
    after = next && `&after=${next}`;
  } while (after);
  return all;
}

async function showThread(id) {
  scene.abort();
  scene = new AbortController();
  const { signal } = scene;
  thread = id;
  setWorking(undefined);
  $("runs").replaceChildren();
  markThread();
  if (!id) {
    const hello = el("div", "hello", el("h2", "", "What shall we look at?"));
    hello.append(el("p", "quiet", "Everything an agent thinks, does and says is kept as it happens. Close this page and come back: nothing is lost."));
    $("runs").append(hello);
    return;
  }
  try {
    for (const { run, agent, state } of await runsOf(id)) {
      const detail = await api("GET", `/v1/runs/${run}`);
      if (signal.aborted) return;
      $("agent").value = agent;
      await attend(run, textOf(detail.input), state, signal);
    }
  } catch (error) {
    if (!signal.aborted) $("runs").append(el("p", "failed-note", error.message));
  }
}

/** Shows a run, as the one that goes on while it does. */
async function attend(run, input, state, signal) {
  const over = ["completed", "cancelled", "failed"].includes(state);
  if (!over) setWorking(run);
  try {
    await showRun(run, input, signal);
  } catch (error) {
    if (!(error instanceof StreamRefused)) throw error;
    $("runs").append(el("p", "failed-note", error.message));
  }
  if (!signal.aborted && working === run) setWorking(undefined);
  if (!over) listThreads();
}

function setWorking(run) {
  working = run;
  $("stop").hidden = !run;
  $("send").hidden = Boolean(run);
  $("input").placeholder = run ? "Add to it" : "Ask something";
}

async function listThreads() {
  const { threads } = await api("GET", "/v1/threads?limit=100");
  const items = threads.map((it) => {
    const link = el("a", "", el("i", `dot ${it.state}`), el("span", "", it.title || "Untitled"));
    link.href = `#${it.thread}`;
    link.dataset.thread = it.thread;
    link.title = it.title;
    return el("li", "", link);
  });
  $("threads").replaceChildren(...items);
  markThread();
}

function markThread() {
  for (const link of $("threads").querySelectorAll("a")) {
    if (link.dataset.thread === thread) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

async function send() {
  const input = $("input").value.trim();
  if (!input) return;
  $("input").value = "";
  try {
    if (working) {
      await api("POST", `/v1/runs/${working}/input`, { content: input });
      return;
    }
    $("runs").querySelector(".hello")?.remove();
    const body = { agent: $("agent").value, input };
    if (thread) body.thread = thread;
    const started = await api("POST", "/v1/runs", body);
    thread = started.thread;
    history.replaceState(null, "", `#${thread}`);
    listThreads();
    await attend(started.run, input, started.state, scene.signal);
  } catch (error) {
    $("runs").append(el("p", "failed-note", error.message));
  }
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
$("input").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
$("stop").addEventListener("click", () => working && api("POST", `/v1/runs/${working}/cancel`, { why: "stopped on the page" }));
$("new").addEventListener("click", () => (location.hash = ""));
addEventListener("hashchange", () => showThread(location.hash.slice(1) || undefined));

({ agents } = await api("GET", "/v1/agents"));
$("agent").replaceChildren(...agents.map((agent) => {
  const option = el("option", "", agent.name);
  option.title = agent.description;
  return option;
}));
listThreads();
showThread(location.hash.slice(1) || undefined);
