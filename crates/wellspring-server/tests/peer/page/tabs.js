// More tabs than a browser has connections, each with its own active run.

import { Page, say, script, tell, until } from "/test/kit.js";

const threads = location.hash.slice(1).split(",");

script(async () => {
  const pages = [];
  for (const thread of threads) pages.push(await new Page(`/#${thread}`).ready());
  for (const page of pages) await until("its card", () => page.find(".busy progress"));
  say(`${pages.length} tabs show their runs`);
  await tell("pass");
  for (const page of pages) await page.idle();
  pages[0].type("Another");
  await until("the next run", () => pages[0].all(".run").length === 2);
  say(...new Set(pages.slice(1).map((page) => page.look().join("; "))));
});
