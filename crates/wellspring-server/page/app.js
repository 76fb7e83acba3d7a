// The page: talk to any agent, watch it think and work, answer its questions, stop it. The
// server keeps everything, so a reload or another tab shows the same.
//
// Text from a run is put on the page as text, never as HTML.

import { StreamRefused, waitLonger } from "./client.js";
import { el, link, markdown } from "./dom.js";
import { answerText, questionForm } from "./form.js";
import { Sender, keep, pending } from "./outbox.js";
import { emptyRun, foldRecord } from "./records.js";
import { connect, root } from "./streams.js";

/** Tools whose calls are not shown as cards: the plan, the question and the result are. */
const QUIET_TOOLS = ["update_plan", "ask_user", "return_result"];

/** How long a hidden tab waits before it draws. */
const HIDDEN_DRAW_MS = 250;

/** The reason in the log for a run that was cancelled on this page. */
const STOP_REASON = "stopped on the page";

/** Conversations in the list. */
const THREADS_SHOWN = 100;

const $ = (id) => document.getElementById(id);
const main = document.querySelector("main");
const watch = connect();

let token = localStorage.getItem("wellspring-token") ?? "";
/** Aborted when another conversation is shown. */
let scene = new AbortController();
let thread;
/** The id of a conversation that has no thread yet. */
let draft = newDraft();
/** The active run, if there is one. */
let working;

function newDraft() {
  return `${Date.now()}-${Math.random()}`;
}

async function api(method, path, body, key) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const init = { method, headers };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    headers["content-type"] = "application/json";
    if (key) headers["idempotency-key"] = key;
  }
  let response, answer;
  try {
    response = await fetch(root + path, init);
    answer = response.status === 204 ? undefined : await response.json();
  } catch {
    const error = new Error("The server cannot be reached.");
    throw Object.assign(error, { temporary: true });
  }
  if (response.status === 401) {
    await askForToken(answer?.error);
    return api(method, path, body, key);
  }
  if (!response.ok) {
    const said = answer?.error;
    // The link to the API's description is not useful here.
    const remedy = said?.remedy?.includes("openapi") ? "" : sentence(said?.remedy);
    const error = new Error(said ? `${sentence(said.message)} ${remedy}`.trim() : response.statusText);
    const temporary = response.status === 429 || response.status >= 500;
    throw Object.assign(error, { temporary, status: response.status, code: said?.code });
  }
  return answer;
}

function sentence(text) {
  return text ? `${text[0].toUpperCase()}${text.slice(1)}.`.replace(/\.\.$/, ".") : "";
}

/** Asks for the token once, however many requests need it. */
let asking;
function askForToken(error) {
  asking ??= new Promise((resolve) => {
    $("token-problem").textContent = token ? sentence(error?.message) : "";
    $("token").showModal();
    const done = () => {
      token = $("secret").value.trim();
      localStorage.setItem("wellspring-token", token);
      asking = undefined;
      resolve();
    };
    $("token").addEventListener("close", done, { once: true });
  });
  return asking;
}

/** Announces what is visible to people who use a screen reader. */
function announce(text) {
  $("status").textContent = text;
}

// The appearance of a run.

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** The first value of a call's arguments, in one line. */
function gist(args) {
  try {
    const value = Object.values(JSON.parse(args)).find((it) => typeof it === "string" || typeof it === "number");
    return value === undefined ? "" : String(value).replace(/\s+/g, " ").slice(0, 120);
  } catch {
    return "";
  }
}

/** A details element that opens and closes by itself until a person touches it. */
function fold(node, name, open) {
  const details = node.querySelector(":scope > details") ?? node.appendChild(el("details", "", el("summary"), el("div", "inside")));
  details.className = name;
  const [summary, inside] = details.children;
  summary.onclick = () => (details.dataset.touched = "yes");
  if (!details.dataset.touched) details.open = open;
  return [summary, inside];
}

const OUTCOMES = { denied: "not allowed", interrupted: "interrupted", timed_out: "took too long", error: "failed" };

function drawTool(node, block, run) {
  const failed = block.done && block.outcome !== "ok";
  node.hidden = QUIET_TOOLS.includes(block.name) && !failed;
  const state = !block.done ? "busy" : failed ? "wrong" : "ok";
  const busyShown = block.output || block.shown.length || block.percent !== undefined || block.children.length;
  const [summary, inside] = fold(node, `card ${state}`, !block.done && Boolean(busyShown));
  const label = block.title ?? block.name;
  const mark = el("span", "mark", !block.done ? "" : failed ? "✕" : "✓");
  mark.setAttribute("aria-hidden", "true");
  const how = failed ? [el("span", "how", OUTCOMES[block.outcome] ?? "failed")] : [];
  summary.replaceChildren(mark, el("span", "", block.done ? label : `Using ${label}…`), el("code", "", gist(block.args)), ...how);
  const parts = [];
  if (block.percent !== undefined && !block.done) {
    const bar = el("progress");
    Object.assign(bar, { max: 100, value: block.percent });
    bar.setAttribute("aria-label", label);
    parts.push(bar);
  }
  if (block.output) parts.push(el("pre", "", block.output));
  parts.push(...block.shown.flatMap(drawContent));
  const result = typeof block.result === "string" ? block.result : block.result == null ? "" : JSON.stringify(block.result, null, 2);
  if (block.done && result && (failed || (!block.output && !block.shown.length))) parts.push(el("pre", "", result));
  if (block.args && block.args !== "{}") parts.push(el("div", "quiet", "Arguments"), el("pre", "", pretty(block.args)));
  const children = inside.querySelector(":scope > .children") ?? el("div", "children");
  drawBlocks(children, block.children, block.done, run);
  inside.replaceChildren(...parts, children);
}

function drawContent(content) {
  if (content.diff) {
    const { path, old_text = "", new_text } = content.diff;
    const lines = (text, sign, name) => text.split("\n").map((line) => el("span", name, `${sign} ${line}\n`));
    const old = old_text ? lines(old_text, "−", "gone") : [];
    return [el("div", "quiet", path), el("pre", "diff", ...old, ...lines(new_text, "+", "new"))];
  }
  const { text, link: linked, media, resource } = content.content ?? {};
  if (text !== undefined || resource) return [el("pre", "", text ?? resource.text)];
  if (linked) return [el("p", "", link(linked.name ?? linked.uri, linked.uri))];
  if (media) return [el("p", "quiet", media.name ?? media.media_type)];
  return [];
}

function drawBlock(node, block, finished, run) {
  if (block.kind === "input") {
    node.className = "said";
    node.textContent = block.text;
  } else if (block.kind === "text") {
    node.className = "block text";
    node.replaceChildren(...markdown(block.text));
  } else if (block.kind === "thought") {
    node.className = "block";
    const [summary, inside] = fold(node, "thought", !finished);
    summary.textContent = finished ? "Thoughts" : "Thinking…";
    inside.textContent = block.text.trim();
  } else if (block.kind === "tool") {
    node.className = "block";
    drawTool(node, block, run);
  } else if (block.kind === "agent") {
    node.className = "block";
    const [summary, inside] = fold(node, "agent", !block.done);
    summary.textContent = block.name;
    drawBlocks(inside, block.children, block.done, run);
  } else if (block.kind === "question") {
    node.className = "block";
    if (block.answered === undefined && !finished) node.replaceChildren(form(run, block));
    else node.replaceChildren(answered(block));
  } else if (block.kind === "result") {
    node.className = "block";
    node.replaceChildren(el("pre", "result", JSON.stringify(block.value, null, 2)));
  } else {
    node.className = "block quiet";
    node.replaceChildren(link(block.text, block.url));
  }
}

/** The question. An approval of a call shows the arguments separately. */
function prompt({ question, card }) {
  return question.form === "approve" && card ? `Allow ${card.title ?? card.name}?` : question.prompt;
}

/** Arguments as a person reads them: the bare text if there is only one. */
function plainArguments(args) {
  try {
    const values = Object.values(JSON.parse(args));
    if (values.length === 1 && typeof values[0] === "string") return values[0];
  } catch {
    // Not JSON: shown unchanged.
  }
  return pretty(args);
}

function form(run, block) {
  const { question, card } = block;
  announce(`Question: ${prompt(block)}`);
  const about = question.form === "approve" && card?.args && card.args !== "{}" ? plainArguments(card.args) : undefined;
  return questionForm({ ...question, prompt: prompt(block), about }, (answer) => api("POST", `/v1/runs/${run}/answers`, { question: question.question, answer }));
}

function answered(block) {
  const said = block.answered === undefined ? "not answered" : answerText(block.question, block.answered);
  return el("p", "answered quiet", prompt(block), " ", el("strong", "", said));
}

/** Draws what changed; nodes stay with their blocks. */
const drawn = new WeakMap();
function drawBlocks(container, blocks, over, run) {
  const nodes = blocks.map((block, at) => {
    const finished = over || (block.kind === "thought" && at < blocks.length - 1);
    const version = `${block.version} ${finished}`;
    const shown = drawn.get(block) ?? { node: el("div") };
    drawn.set(block, shown);
    if (shown.version !== version) drawBlock(shown.node, block, finished, run);
    shown.version = version;
    return shown.node;
  });
  // Moving a node closes menus and loses the focus, so nodes that are in place stay.
  nodes.forEach((node, at) => {
    if (container.children[at] !== node) container.insertBefore(node, container.children[at] ?? null);
  });
  while (container.children.length > nodes.length) container.lastChild.remove();
}

function drawPlan(node, entries) {
  const words = { pending: "to do", in_progress: "in progress", completed: "done" };
  const items = entries.map((entry) => {
    const item = el("li", entry.status, entry.content);
    item.append(el("span", "unseen", ` (${words[entry.status] ?? entry.status})`));
    return item;
  });
  node.replaceChildren(el("h3", "", "Plan"), el("ol", "", ...items));
  node.hidden = entries.length === 0;
}

/** Scrolls to the end, unless the reader has scrolled up. */
function keepEnd(draw) {
  const atEnd = main.scrollHeight - main.scrollTop - main.clientHeight < 80;
  draw();
  if (atEnd) main.scrollTop = main.scrollHeight;
}

/** Shows a run from its first record until it ends. */
async function showRun(run, input, signal) {
  const section = el("section", "run");
  section.setAttribute("aria-label", "Run");
  const said = el("div", "said", input);
  const plan = el("div", "block card plan");
  const blocks = el("div");
  const end = el("p", "waiting", "…");
  plan.hidden = true;
  section.append(said, plan, blocks, end);
  // Run ids sort by time, so a run that is shown before older ones still gets its place.
  section.dataset.run = run;
  const later = [...$("runs").children].find((it) => it.dataset.run > run);
  $("runs").insertBefore(section, later ?? null);
  main.scrollTop = main.scrollHeight;

  const view = emptyRun();
  let shownPlan = view.plan;
  let due = false;
  const draw = () => {
    due = false;
    keepEnd(() => {
      said.textContent = view.input ?? input;
      if (shownPlan !== view.plan) drawPlan(plan, (shownPlan = view.plan));
      drawBlocks(blocks, view.blocks, view.done, run);
      const last = view.blocks.at(-1);
      end.hidden = view.done || view.open.size > 0 || (last?.kind === "text" && !last.finished);
    });
  };
  const drawSoon = () => {
    // Many records are drawn at once. A hidden tab gets no animation frames.
    if (!due) document.hidden ? setTimeout(draw, HIDDEN_DRAW_MS) : requestAnimationFrame(draw);
    due = true;
  };
  const onRecords = (records) => {
    for (const record of records) foldRecord(view, record);
    drawSoon();
  };
  await watch({ run, token, signal, onRecords, onConnection: showConnection });
  if (signal.aborted) return;
  draw();
  const { completed, cancelled, failed } = view.outcome ?? {};
  const why = cancelled?.why === STOP_REASON ? undefined : cancelled?.why;
  if (cancelled) end.replaceWith(el("p", "stopped quiet", why ? `Stopped: ${why}.` : "Stopped."));
  else if (failed) end.replaceWith(el("p", "failed-note", sentence(failed.message)));
  else end.remove();
  announce(completed ? "The answer is complete." : cancelled ? "The run was stopped." : "The run failed.");
}

function showConnection(state) {
  $("connection").hidden = state === "open";
  if (state === "open") sender.flush();
}

// Conversations.

/** All runs of a thread, oldest first: pages come newest first. */
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
  draft = id ?? newDraft();
  setWorking(undefined);
  showConnection("open");
  $("runs").replaceChildren();
  markThread();
  showPending();
  document.body.classList.remove("listing");
  $("list").setAttribute("aria-expanded", "false");
  if (!id) {
    $("runs").append(el("div", "hello", el("h2", "", "Start a conversation"),
      el("p", "quiet", "Ask an agent something. Its thoughts, tools and answers are stored as they happen, so you can close this page and come back.")));
    return;
  }
  try {
    const runs = await runsOf(id);
    if (signal.aborted) return;
    $("agent").value = runs.at(-1)?.agent;
    await Promise.all(runs.map(({ run, title, state }) => attend(run, title ?? "", state, signal)));
  } catch (error) {
    if (!signal.aborted) complain(error.message);
  }
}

/** Shows a run, and marks it as the active one until it ends. */
async function attend(run, input, state, signal) {
  if ($("runs").querySelector(`[data-run="${run}"]`)) return;
  const over = ["completed", "cancelled", "failed"].includes(state);
  if (!over) setWorking(run);
  try {
    await showRun(run, input, signal);
  } catch (error) {
    if (!(error instanceof StreamRefused)) throw error;
    complain(error.message);
  }
  if (!signal.aborted && working === run) setWorking(undefined);
  if (!over) listThreads();
}

function complain(message) {
  const note = el("p", "failed-note", message);
  note.setAttribute("role", "alert");
  $("runs").append(note);
}

function setWorking(run) {
  working = run;
  $("stop").hidden = !run;
  $("send").textContent = run ? "Add" : "Send";
  $("input").placeholder = run ? "Add something" : "Ask something";
  document.title = run ? "● Wellspring" : "Wellspring";
}

async function listThreads() {
  let threads;
  try {
    ({ threads } = await api("GET", `/v1/threads?limit=${THREADS_SHOWN}`));
  } catch {
    return; // The list stays unchanged; the connection's state is shown in another place.
  }
  const items = threads.map((it) => {
    const dot = el("i", `dot ${it.state}`);
    dot.title = it.state;
    const link = el("a", "", dot, el("span", "", it.title || "Untitled"));
    link.href = `#${it.thread}`;
    link.dataset.thread = it.thread;
    link.title = `${it.title || "Untitled"} (${it.state})`;
    return el("li", "", link);
  });
  $("threads").replaceChildren(...items);
  markThread();
}

function markThread() {
  for (const link of $("threads").querySelectorAll("a")) {
    if (link.dataset.thread === thread) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

// Sending.

const sender = new Sender(api, (what, message, more) => {
  const here = message.thread ? message.thread === thread : message.draft === draft;
  if (what === "waiting") {
    $("connection").hidden = false;
  } else if (what === "refused") {
    if (here) complain(`Not sent: “${message.input}”. ${more.message}`);
    if (here && !$("input").value) $("input").value = message.input;
  } else if (here) {
    $("connection").hidden = true;
    if (!message.thread) {
      thread = more.thread;
      history.replaceState(null, "", `#${thread}`);
    }
    if (more.state !== undefined) attend(more.run, message.input, more.state, scene.signal).catch((error) => complain(error.message));
  }
  showPending();
  if (what === "sent") listThreads();
});

/** Shows the messages of this conversation that the server has not accepted yet. */
function showPending() {
  const here = pending().filter((it) => (it.thread ? it.thread === thread : it.draft === draft || !thread));
  if (here.length) $("runs").querySelector(".hello")?.remove();
  const shown = here.map((it) => el("div", "said pending", it.input));
  if (here.length) shown.push(el("p", "quiet pending-note", "Not sent yet."));
  keepEnd(() => $("pending").replaceChildren(...shown));
}

function send() {
  const input = $("input").value.trim();
  if (!input) return;
  try {
    keep({ draft, thread, run: working, agent: $("agent").value, input });
  } catch (error) {
    complain(error.message);
    return;
  }
  $("input").value = "";
  showPending();
  main.scrollTop = main.scrollHeight;
  sender.flush();
}

async function stop() {
  if (!working) return;
  try {
    await api("POST", `/v1/runs/${working}/cancel`, { why: STOP_REASON });
  } catch (error) {
    complain(`Not stopped. ${error.message}`);
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
$("stop").addEventListener("click", stop);
$("new").addEventListener("click", () => {
  location.hash = "";
  $("input").focus();
});
$("list").addEventListener("click", () => {
  const open = document.body.classList.toggle("listing");
  $("list").setAttribute("aria-expanded", String(open));
});
addEventListener("hashchange", () => showThread(location.hash.slice(1) || undefined));
addEventListener("online", () => sender.flush());
addEventListener("focus", listThreads);

async function begin() {
  let wait = 0;
  for (;;) {
    try {
      const { agents } = await api("GET", "/v1/agents");
      $("connection").hidden = true;
      return agents;
    } catch (error) {
      if (!error.temporary) throw error;
      $("connection").hidden = false;
      await new Promise((resolve) => setTimeout(resolve, (wait = waitLonger(wait))));
    }
  }
}

try {
  const options = (await begin()).map((agent) => {
    const option = el("option", "", agent.name);
    option.title = agent.description;
    return option;
  });
  $("agent").replaceChildren(...options);
  listThreads();
  showThread(location.hash.slice(1) || undefined);
  sender.flush();
} catch (error) {
  complain(error.message);
}
