// A conversation: thoughts, cards, a plan, a question, added input, a reload, a stop.

import { Page, say, script, tell, until } from "/test/kit.js";

script(async () => {
  const page = await new Page().ready();
  page.type("Look into it");
  await until("thinking", () => page.find(".thought[open]"));
  page.step("it thinks");
  await tell("pass");
  await until("progress", () => page.find(".busy progress") && page.find(".plan li"));
  page.step("a tool works");
  await tell("pass");
  await until("a question", () => page.find(".question"));
  page.step("it asks");
  page.find(".question .primary").click();
  await until("words", () => page.look().some((line) => line.startsWith("text: one")));
  page.type("Be brief");
  await until("what was added", () => page.all("#runs .said").length === 2);
  page.step("somebody adds to it");
  await tell("pass");
  await page.idle();
  page.step("it is done");
  const done = page.look().join("\n");
  await page.reload();
  await until("all of it again", () => page.find(".run") && page.look().join("\n") === done);
  page.type("And now a long one");
  await until("the next words", () => page.look().some((line) => line === "text: a"));
  page.find("#stop").click();
  await page.idle();
  page.step("it was stopped");
  say(`# conversations: ${page.all("#threads a").map((it) => it.innerText).join(", ")}`);
});
