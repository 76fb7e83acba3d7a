import { createRoot } from "react-dom/client";
import { Conversation } from "./conversation";
import { server } from "./chat";

const { agents } = await (await fetch(`${server}/v1/agents`)).json();
const names = agents.map(({ name }: { name: string }) => name);
createRoot(document.getElementById("root")!).render(<Conversation agents={names} />);
