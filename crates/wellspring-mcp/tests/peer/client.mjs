// The official TypeScript SDK as a client of our loopback server, whose address is in the
// arguments. It prints what it received, one JSON value per line.
//
//   node client.mjs http URL TOKEN
//   node client.mjs stdio COMMAND ARGS...
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [kind, where, ...rest] = process.argv.slice(2);
const transport =
  kind === "http"
    ? new StreamableHTTPClientTransport(new URL(where), {
        requestInit: { headers: { Authorization: `Bearer ${rest[0]}` } },
      })
    : new StdioClientTransport({ command: where, args: rest, env: process.env, stderr: "inherit" });

const say = (value) => console.log(JSON.stringify(value));
const client = new Client({ name: "peer", version: "1" });
await client.connect(transport);
say({ server: client.getServerVersion().name });

const { tools } = await client.listTools();
say({ tools: tools.map((tool) => ({ name: tool.name, hints: tool.annotations })) });

say({ echo: await client.callTool({ name: "echo", arguments: { text: "hi" } }) });
say({ fail: await client.callTool({ name: "fail", arguments: {} }) });

// Read from the transport: the SDK itself drops progress that arrives together with the response.
const progress = [];
const take = transport.onmessage;
transport.onmessage = (message, extra) => {
  if (message.method === "notifications/progress") {
    const { progress: n, total, message: said } = message.params;
    progress.push({ progress: n, total, message: said });
  }
  take(message, extra);
};
const counted = await client.callTool({ name: "count", arguments: { to: 3 } }, undefined, {
  onprogress: () => {},
});
say({ counted: counted.structuredContent, progress });

const stop = new AbortController();
const waiting = client.callTool({ name: "wait", arguments: {} }, undefined, {
  signal: stop.signal,
  onprogress: () => stop.abort("enough"),
});
say({ waited: await waiting.then(() => "to the end", () => "until it was cancelled") });

say({ unknown: await client.callTool({ name: "nothing", arguments: {} }).catch((error) => error.code) });
await client.close();
