// Questions as forms: approvals, choices, and fields made from a JSON schema. A form that the
// server refuses stays, with the reason, so that it can be corrected and sent again.

import { button, el } from "./dom.js";

/** Choices that are shown all at once; longer lists become a menu. */
const RADIOS_MAX = 6;

/** A text this long gets more than one line. */
const LINE_CHARS_MAX = 120;

/**
 * A form for a question, with `about` shown below its prompt. `send` gives the answer to the
 * server and rejects with the server's reason.
 */
export function questionForm(question, send) {
  const form = el("form", "card question");
  const title = el("p", "prompt", question.prompt);
  title.id = `question-${Math.random().toString(36).slice(2)}`;
  form.setAttribute("aria-labelledby", title.id);
  const problem = el("p", "failed-note");
  problem.setAttribute("role", "alert");
  problem.hidden = true;
  const row = el("div", "row");
  const answer = async (value) => {
    for (const node of form.elements) node.disabled = true;
    problem.hidden = true;
    try {
      await send(value);
    } catch (error) {
      for (const node of form.elements) node.disabled = false;
      problem.textContent = error.message;
      problem.hidden = false;
      (form.querySelector("input, select, textarea") ?? form.querySelector("button")).focus();
    }
  };
  const [fields, read] = fieldsOf(question.form, row, answer);
  const decline = question.form === "approve" ? "Refuse" : "Decline";
  if (read) {
    const submit = el("button", "primary", "Answer");
    submit.type = "submit";
    row.append(submit);
  }
  if (!saysNo(question.form)) row.append(button(decline, "", () => answer({ deny: {} })));
  form.onsubmit = (event) => {
    event.preventDefault();
    if (!read) return;
    try {
      answer(read());
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
    }
  };
  const about = question.about === undefined ? [] : [el("pre", "", question.about)];
  form.append(title, ...about, ...fields, row, problem);
  return form;
}

/** An answer as readable text. */
export function answerText(question, answer) {
  if (answer.approve) return { once: "allowed", thread: "allowed in this conversation", always: "always allowed" }[answer.approve.scope ?? "once"];
  if (answer.deny) {
    const no = question.form === "approve" ? "refused" : "declined";
    return answer.deny.reason ? `${no}: ${answer.deny.reason}` : no;
  }
  if (answer.choose) {
    const label = (id) => question.form.choose?.choices.find((it) => it.id === id)?.label ?? id;
    return answer.choose.map(label).join(", ");
  }
  if ("value" in answer) return typeof answer.value === "string" ? answer.value : JSON.stringify(answer.value);
  return answer === "expired" ? "not answered in time" : "withdrawn";
}

/** Whether one of the choices already means "no". */
function saysNo(form) {
  const no = /^(decline|reject|deny|refuse|no)\b/i;
  return form.choose?.choices.some((it) => no.test(it.id) || no.test(it.label)) ?? false;
}

/** The fields of a form, and a function that reads them. Buttons that answer at once go into `row`. */
function fieldsOf(form, row, answer) {
  if (form === "approve") {
    const allow = (label, name, scope) => row.append(button(label, name, () => answer({ approve: { scope } })));
    allow("Allow", "primary", "once");
    allow("Allow in this conversation", "", "thread");
    return [[], undefined];
  }
  if (form.choose) {
    const { choices, multiple } = form.choose;
    const options = choices.map(({ id, label }) => ({ value: id, label }));
    if (multiple) {
      const [node, read] = checkboxes(options, []);
      return [[node], () => ({ choose: read() })];
    }
    for (const { value, label } of options) row.append(button(label, "", () => answer({ choose: [value] })));
    return [[], undefined];
  }
  const schema = form.schema ?? {};
  if (schema.type !== "object" || !schema.properties) {
    const { node, read } = field("value", schema, true, undefined);
    return [[node], () => ({ value: read() })];
  }
  const required = new Set(schema.required);
  const all = Object.entries(schema.properties).map(([name, kind]) => {
    const it = field(kind.title ?? name, kind, required.has(name), kind.description);
    return { name, ...it };
  });
  const read = () => {
    const entries = all.map(({ name, read }) => [name, read()]).filter(([, value]) => value !== undefined);
    return { value: Object.fromEntries(entries) };
  };
  return [all.map((it) => it.node), read];
}

/** The values that a schema lists, with their labels. */
function optionsOf(schema) {
  const named = schema.oneOf ?? schema.anyOf;
  if (Array.isArray(schema.enum)) {
    return schema.enum.map((value, at) => ({ value, label: String(schema.enumNames?.[at] ?? value) }));
  }
  if (named?.length && named.every((it) => "const" in it)) {
    return named.map((it) => ({ value: it.const, label: String(it.title ?? it.const) }));
  }
  return undefined;
}

/** A labelled field for a schema, and a function that returns its value: `undefined` if empty. */
function field(label, schema, required, description) {
  const title = label === "value" && !schema.title ? "Answer" : (schema.title ?? label);
  const about = description ? [el("span", "quiet", description)] : [];
  const options = optionsOf(schema);
  const items = schema.type === "array" && optionsOf(schema.items ?? {});
  if (items || (options && options.length <= RADIOS_MAX)) {
    const [node, read] = items ? checkboxes(items, schema.default ?? []) : radios(options, schema.default, required);
    node.prepend(el("legend", "", title, mark(required)), ...about);
    return { node, read };
  }
  const [input, read] = options ? menu(options, schema, required) : control(schema);
  input.required = required && schema.type !== "boolean";
  const name = el("span", "name", title, mark(required));
  const node = schema.type === "boolean" ? el("label", "field check", input, name, ...about) : el("label", "field", name, ...about, input);
  return { node, read };
}

function mark(required) {
  return required ? "" : el("span", "quiet", " (optional)");
}

function menu(options, schema, required) {
  const select = el("select");
  if (schema.default === undefined || !required) select.append(el("option", "", ""));
  options.forEach((it, at) => {
    const option = el("option", "", it.label);
    option.value = String(at);
    option.selected = it.value === schema.default;
    select.append(option);
  });
  return [select, () => options[select.value === "" ? -1 : Number(select.value)]?.value];
}

function radios(options, chosen, required) {
  const set = el("fieldset");
  const name = `radio-${Math.random()}`;
  const inputs = options.map(({ value, label }) => {
    const input = el("input");
    Object.assign(input, { type: "radio", name, required, checked: value === chosen });
    set.append(el("label", "check", input, label));
    return { input, value };
  });
  return [set, () => inputs.find((it) => it.input.checked)?.value];
}

function checkboxes(options, chosen) {
  const set = el("fieldset");
  const inputs = options.map(({ value, label }) => {
    const input = el("input");
    Object.assign(input, { type: "checkbox", checked: chosen.includes(value) });
    set.append(el("label", "check", input, label));
    return { input, value };
  });
  return [set, () => inputs.filter((it) => it.input.checked).map((it) => it.value)];
}

const INPUT_TYPES = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" };

/** A control for one value of a schema without a list of values. */
function control(schema) {
  const input = el("input");
  if (schema.type === "boolean") {
    Object.assign(input, { type: "checkbox", checked: schema.default === true });
    return [input, () => input.checked];
  }
  if (schema.type === "number" || schema.type === "integer") {
    Object.assign(input, { type: "number", step: schema.type === "integer" ? "1" : "any" });
    if (schema.minimum !== undefined) input.min = schema.minimum;
    if (schema.maximum !== undefined) input.max = schema.maximum;
    input.value = schema.default ?? "";
    return [input, () => (input.value === "" ? undefined : Number(input.value))];
  }
  if (schema.type === "string") {
    const long = schema.maxLength > LINE_CHARS_MAX;
    const text = long ? el("textarea") : input;
    if (!long) input.type = INPUT_TYPES[schema.format] ?? "text";
    if (schema.minLength !== undefined) text.minLength = schema.minLength;
    if (schema.maxLength !== undefined) text.maxLength = schema.maxLength;
    if (schema.pattern && !long) input.pattern = schema.pattern;
    text.value = schema.default ?? "";
    const isTime = input.type === "datetime-local";
    const read = () => (isTime ? new Date(text.value).toISOString() : text.value);
    return [text, () => (text.value === "" ? undefined : read())];
  }
  const json = el("textarea", "json");
  json.placeholder = schema.type === undefined ? "text or JSON" : "JSON";
  json.value = schema.default === undefined ? "" : JSON.stringify(schema.default, null, 2);
  const read = () => {
    if (json.value.trim() === "") return undefined;
    try {
      return JSON.parse(json.value);
    } catch (error) {
      if (schema.type === undefined) return json.value;
      throw new Error(`This is not valid JSON: ${error.message}`);
    }
  };
  return [json, read];
}
