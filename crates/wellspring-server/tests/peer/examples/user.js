// Uses an example page as a person would, whatever its protocol. After the reload it continues where it stopped.
const { stopped } = document.currentScript.dataset;
const find = (name) => document.querySelector(`[data-testid="${name}"]`);
const shown = (name) => [...document.querySelectorAll(`[data-testid="${name}-message"]`)].map((it) => it.textContent);
const until = async (what, test) => {
  const since = performance.now();
  while (!test()) {
    if (performance.now() - since > 20_000) throw new Error(`never: ${what}; shown: ${document.body.innerText}`);
    await new Promise((resolve) => requestAnimationFrame(resolve));
  }
  note(what);
};
const note = (what) => sessionStorage.setItem("noted", `${sessionStorage.getItem("noted") ?? ""}${what}\n`);
const pass = () => fetch("/test/pass", { method: "POST" });
const ask = async (agent, text) => {
  await new Promise((resolve) => setTimeout(resolve));
  find("agent").value = agent;
  find("chat-input").value = text;
  find("send-button").click();
};
const last = () => shown("assistant").at(-1);

async function first() {
  await until("the agents are offered", () => find("agent")?.options.length > 2);
  await ask("grow", "Go");
  await until("the text has begun", () => last() === "one ");
  await pass();
  await until("the text has grown", () => last() === "one two");
  await until("the run is over", () => find("abort-button").hidden);
  await ask("paint", "Paint it");
  await until("the tool ran in the page", () => document.body.style.background === "teal");
  await until("the agent knows", () => last() === "Painted.");
  await until("the run is over", () => find("abort-button").hidden);
  await ask("ask", "Do it");
  await until("the user is asked", () => find("allow-button"));
  find("allow-button").click();
  await until("and allows it", () => last() === "Done.");
  await until("the run is over", () => find("abort-button").hidden);
  await ask("stuck", "Hang");
  await until("a text that does not go on", () => last() === "forever ");
  find("abort-button").click();
  await until("stopped", () => shown("error")[0] === stopped);
  await ask("grow", "Again");
  await until("the text has begun again", () => last() === "one ");
  sessionStorage.setItem("reloaded", "yes");
  location.reload();
}

async function second() {
  await until("after the reload the text is there", () => last() === "one ");
  await pass();
  await until("and it goes on without a repeated word", () => last() === "one two");
  await until("with the conversation before it", () => shown("user").join() === "Go,Paint it,Do it,Hang,Again");
  await fetch("/test/said", { method: "POST", body: sessionStorage.getItem("noted") });
}

(sessionStorage.getItem("reloaded") ? second() : first()).catch((error) => {
  fetch("/test/said", { method: "POST", body: `${sessionStorage.getItem("noted")}${error}` });
});
