// The official TypeScript SDK as a server over streamable HTTP, with sessions and streams.
// It listens on 127.0.0.1, prints the port, and exits when its input ends. With the argument
// `json`, it responds in plain JSON instead of streams.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { ElicitResultSchema } from "@modelcontextprotocol/sdk/types.js";

let cancelled = 0;
const text = (text) => ({ content: [{ type: "text", text }] });

const serve = () => {
  const server = new McpServer({ name: "peer", version: "1" });
  server.registerTool("ask", {}, async (extra) => {
    const properties = { colour: { type: "string", enum: ["red", "green"] } };
    const requestedSchema = { type: "object", properties, required: ["colour"] };
    const params = { message: "Which colour?", requestedSchema };
    const answer = await extra.sendRequest({ method: "elicitation/create", params }, ElicitResultSchema);
    return text(JSON.stringify(answer));
  });
  server.registerTool("wait", {}, async (extra) => {
    const params = { progressToken: extra._meta?.progressToken, progress: 1, message: "waiting" };
    await extra.sendNotification({ method: "notifications/progress", params });
    await new Promise((resolve) => extra.signal.addEventListener("abort", resolve));
    cancelled += 1;
    return text("nobody reads this");
  });
  server.registerTool("cancelled", {}, async () => text(`${cancelled}`));
  return server;
};

const sessions = new Map();
const http = createServer(async (request, response) => {
  if (request.headers["x-key"] !== "k") return response.writeHead(401).end("no key");
  let transport = sessions.get(request.headers["mcp-session-id"]);
  if (request.headers["mcp-session-id"] && !transport) return response.writeHead(404).end();
  if (!transport) {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      enableJsonResponse: process.argv[2] === "json",
      onsessioninitialized: (id) => sessions.set(id, transport),
    });
    await serve().connect(transport);
  }
  await transport.handleRequest(request, response);
});
http.listen(0, "127.0.0.1", () => console.log(http.address().port));
process.stdin.resume().on("end", () => process.exit(0));
