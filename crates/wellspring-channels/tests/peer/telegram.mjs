// An independent fake of Telegram. It prints its address, and the current state of every message
// of the bot. Lines on stdin are a person's actions: {"write": text} or {"press": data}.
import { createServer } from "node:net";
import { createInterface } from "node:readline";
import TelegramServer from "telegram-test-api";

const probe = createServer().listen(0, "localhost");
await new Promise((resolve) => probe.once("listening", resolve));
const { port } = probe.address();
await new Promise((resolve) => probe.close(resolve));

const Server = TelegramServer.default ?? TelegramServer;
const server = new Server({ port, storeTimeout: 600 });
await server.start();
const print = (value) => console.log(JSON.stringify(value));
const shown = () =>
  print({
    shown: server.storage.botMessages.map(({ messageId, message }) => ({
      id: messageId,
      text: message.text,
      parse_mode: message.parse_mode ?? null,
      buttons: (message.reply_markup?.inline_keyboard ?? []).flat(),
    })),
  });
server.on("AddedBotMessage", shown);
server.on("EditedMessageText", shown);
const client = server.getClient("12:secret");
print({ url: server.config.apiURL });
for await (const line of createInterface({ input: process.stdin })) {
  const { write, press } = JSON.parse(line);
  if (write) await client.sendMessage(client.makeMessage(write));
  if (press) await client.sendCallback(client.makeCallbackQuery(press, { message: { message_id: 1, chat: { id: 1, type: "private" } } }));
}
await server.stop();
