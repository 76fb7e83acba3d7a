// Two calls of one tool at once, the second of which ends first; and an attempt that is voided.

import { Page, script, tell, until } from "/test/kit.js";

script(async () => {
  const page = await new Page().ready();
  page.type("Both");
  await until("two cards", () => page.all(".busy").length === 2);
  await tell("pass");
  await until("the second's end", () => page.all(".ok").length === 1);
  page.step("the second ended first");
  await tell("pass");
  await until("half an answer", () => page.look().includes("text: Half"));
  page.step("half an answer");
  await tell("pass");
  await page.idle();
  for (const card of page.all("details.card")) card.open = true;
  page.step("it is done");
});
