// The fold from a run's records to what a screen shows. Pure: no network, no page.
//
// Everything is found by its id: text by its part, a card by its call, a question by its number.
// A record changes `view`; each block that changed has a new `version`, so that only what
// changed is drawn again.

/** A run before its first record. */
export function emptyRun() {
  return {
    blocks: [],
    plan: [],
    /** Question id to block, for the questions that are open. */
    open: new Map(),
    done: false,
    outcome: undefined,
    input: undefined,
    byPart: new Map(),
    byInbox: new Map(),
    byQuestion: new Map(),
    /** Sub-agent number to its block. */
    agents: new Map(),
    /** Output part to the part of its call. */
    outputs: new Map(),
  };
}

/** Applies one record. */
export function foldRecord(view, record) {
  const [[name, value]] = Object.entries(record.event);
  FOLDS[name]?.(view, value, record.agent ?? 0);
  return view;
}

const FOLDS = {
  run_started(view, { request }) {
    view.input = textOf(request.input);
  },
  turn_started(view, { attempt }, agent) {
    if (attempt > 1) push(view, agent, { kind: "note", text: `The model was interrupted. Attempt ${attempt}.` });
  },
  part_started(view, { part, kind }, agent) {
    const [[name, detail]] = typeof kind === "string" ? [[kind, {}]] : Object.entries(kind);
    if (name === "output") {
      view.outputs.set(part, detail.call);
    } else if (name === "thought") {
      start(view, agent, part, { kind: "thought", text: "", finished: false });
    } else if (name === "text" && detail.role !== "user") {
      start(view, agent, part, { kind: "text", text: "", finished: false });
    } else if (name === "tool_call") {
      const card = { name: detail.name, title: detail.title, args: "", output: "", shown: [], children: [] };
      start(view, agent, part, { kind: "tool", ...card, done: false });
    }
  },
  part_delta(view, { part, chunk }) {
    const call = view.byPart.get(view.outputs.get(part));
    const block = call ?? view.byPart.get(part);
    if (!block) return;
    block[call ? "output" : block.kind === "tool" ? "args" : "text"] += chunk;
    block.version++;
  },
  part_finished(view, { part }) {
    change(view.byPart.get(part), { finished: true });
  },
  parts_voided(view, { parts }) {
    for (const part of parts) {
      const block = view.byPart.get(part);
      view.byPart.delete(part);
      view.outputs.delete(part);
      if (block) remove(view, block);
    }
  },
  tool_started(view, { call, arguments: edited }) {
    change(view.byPart.get(call), { started: true, ...(edited && { args: JSON.stringify(edited) }) });
  },
  tool_updated(view, { call, update }) {
    const card = view.byPart.get(call);
    if (!card) return;
    if (update.title) card.title = update.title;
    if (update.content?.replace) card.shown = [...update.content.replace];
    if (update.content?.append) card.shown.push(...update.content.append);
    const { data } = update;
    if (typeof data === "string") card.output += data;
    else if (typeof data?.content === "string") card.output += data.content;
    const percent = data?.total > 0 ? (100 * data.done) / data.total : data?.percent;
    if (typeof percent === "number") card.percent = Math.max(0, Math.min(100, percent));
    card.version++;
  },
  tool_finished(view, { call, outcome, result }) {
    const card = view.byPart.get(call);
    if (!card) return;
    if (result.content?.length) card.shown = result.content;
    change(card, { done: true, outcome, result: result.output });
  },
  question_asked(view, question, agent) {
    const card = view.byPart.get(question.call);
    const block = push(view, agent, { kind: "question", question, card, answered: undefined });
    view.open.set(question.question, block);
    view.byQuestion.set(question.question, block);
  },
  question_answered(view, { question, answer, by }) {
    view.open.delete(question);
    change(view.byQuestion.get(question), { answered: answer, by });
  },
  agent_started(view, { parent, call, name }, agent) {
    const block = { kind: "agent", name, children: [], done: false };
    const card = view.byPart.get(call);
    if (card) add(view, card.children, block, card);
    else push(view, parent ?? 0, block);
    view.agents.set(agent, block);
  },
  agent_finished(view, { outcome }, agent) {
    change(view.agents.get(agent), { done: true, outcome });
  },
  plan_updated(view, { entries }) {
    view.plan = entries;
  },
  input_accepted(view, { inbox, content }) {
    // Without content the client only changed its tools or context.
    if (!content.length) return;
    view.byInbox.set(inbox, push(view, 0, { kind: "input", text: textOf(content) }));
  },
  input_applied(view, { inbox }) {
    // The model reads it from here on, so it moves below what came before.
    const block = view.byInbox.get(inbox);
    if (!block) return;
    remove(view, block);
    view.blocks.push(block);
  },
  source_cited(view, source, agent) {
    const name = source.title ?? source.url ?? source.id ?? "a source";
    push(view, agent, { kind: "note", text: `Source: ${name}`, url: source.url });
  },
  file_produced(view, file, agent) {
    push(view, agent, { kind: "note", text: `File: ${file.name ?? file.media_type}`, url: file.source?.url });
  },
  result_ready(view, { value }, agent) {
    push(view, agent, { kind: "result", value });
  },
  run_finished(view, { outcome }) {
    view.done = true;
    view.outcome = outcome;
    view.open.clear();
  },
};

function change(block, values) {
  if (block) Object.assign(block, values).version++;
}

function add(view, list, block, parent) {
  Object.assign(block, { version: 0, parent });
  list.push(block);
  touch(parent);
  return block;
}

/** A card shows its children, so it changes with them. */
function touch(block) {
  for (let it = block; it; it = it.parent) it.version++;
}

function push(view, agent, block) {
  const parent = view.agents.get(agent);
  return add(view, parent?.children ?? view.blocks, block, parent);
}

function start(view, agent, part, block) {
  view.byPart.set(part, push(view, agent, block));
}

function remove(view, block) {
  const list = block.parent?.children ?? view.blocks;
  const at = list.indexOf(block);
  if (at >= 0) list.splice(at, 1);
  touch(block.parent);
}

/** Content blocks as text. */
export function textOf(content) {
  return (content ?? []).map((block) => block.text ?? block.resource?.text ?? `[${Object.keys(block)[0]}]`).join("\n");
}
