// Questions of every form: filled in wrongly, corrected, chosen and declined.

import { Page, script, until } from "/test/kit.js";

script(async () => {
  const page = await new Page().ready();
  const question = (prompt) => until(prompt, () => page.find(".question .prompt")?.innerText === prompt && page.find(".question"));
  const fill = (form, label, value) => {
    const field = [...form.querySelectorAll(".field")].find((it) => it.querySelector(".name").innerText.startsWith(label));
    field.querySelector("input, select, textarea").value = value;
  };
  const press = (label) => [...page.find(".question").querySelectorAll("button")].find((it) => it.innerText === label).click();

  page.type("Ask me");
  let form = await question("Who are you?");
  page.step("a form");
  fill(form, "Name", "Ada");
  fill(form, "Age", "36");
  form.querySelector("fieldset input").checked = true;
  // A constraint that no field can check, so that the server refuses it.
  fill(form, "Code", "abcd");
  press("Answer");
  await until("the reason", () => page.find(".question .failed-note:not([hidden])"));
  page.step("a wrong answer");
  fill(form, "Code", "x-1");
  press("Answer");
  await question("Anything else?");
  press("Decline");
  form = await question("Which one?");
  page.step("options");
  press("River");
  form = await question("Which ones?");
  for (const box of form.querySelectorAll("input")) box.checked = true;
  press("Answer");
  await question("How many?");
  fill(page.find(".question"), "Answer", "7");
  press("Answer");
  await page.idle();
  page.step("it is done");
});
