// Messages that are sent while the server is down arrive once it is up again, once and in order.

import { Page, say, script, tell, until } from "/test/kit.js";

script(async () => {
  const page = await new Page().ready();
  await tell("away");
  page.type("First");
  await until("the notice", () => !page.find("#connection").hidden);
  page.type("Second");
  page.step("the server is away");
  await tell("back");
  await until("both", () => page.all("#runs .said").length === 2);
  await page.idle();
  page.step("the server is back");
  say(`# notice: ${page.find("#connection").hidden ? "hidden" : "shown"}`);

  // A message that was not sent survives closing the page.
  await tell("away");
  page.type("Third");
  await until("the notice", () => !page.find("#connection").hidden);
  await tell("back");
  await page.reload();
  await until("the third", () => page.all("#runs .said").length === 3);
  await page.idle();
  page.step("after a reload");
});
