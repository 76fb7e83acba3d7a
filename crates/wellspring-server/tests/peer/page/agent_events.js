// A separate page that reads AgentEvents with /page/client.js.

import { empty, fold, follow, progressPercent, progressText } from "/page/client.js";
import { say, script } from "/test/kit.js";

script(async () => {
  const run = location.hash.slice(1);
  const view = empty();
  for await (const { event } of follow(`/v1/runs/${run}/events?dialect=agent_event`)) fold(view, event);
  for (const { kind, text, name, args, output, progress, done } of view.blocks) {
    if (kind !== "tool") say(`${kind}: ${text}`);
    else say(`tool: ${name} ${args} ${progressPercent(progress)}% ${progressText(progress).trim()} -> ${output} ${done ? "done" : "open"}`);
  }
  say(`done: ${view.done}, error: ${view.error}`);
});
