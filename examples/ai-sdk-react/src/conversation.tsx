import { useChat } from "@ai-sdk/react";
import {
  getToolName,
  isToolUIPart,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
  type UIMessage,
} from "ai";
import { type FormEvent, useEffect, useLayoutEffect, useRef, useState } from "react";
import { keep, kept, runTool, stopRun, transport } from "./chat";

/** Answers the question whether a tool of the server may run. */
type Approve = (answer: { id: string; approved: boolean }) => void;

export function Conversation({ agents }: { agents: string[] }) {
  const [stopped, setStopped] = useState(false);
  const { messages, status, error, sendMessage, stop, addToolOutput, addToolApprovalResponse } = useChat({
    id: kept.id,
    messages: kept.messages,
    transport,
    // After a reload the message that is going on is there again, and goes on.
    resume: kept.agent !== "",
    // The output of a tool in the page, and the answer to a question, go back by themselves.
    sendAutomaticallyWhen: (chat) =>
      lastAssistantMessageIsCompleteWithToolCalls(chat) || lastAssistantMessageIsCompleteWithApprovalResponses(chat),
    onToolCall: ({ toolCall: { toolName: tool, toolCallId, input } }) => {
      try {
        void addToolOutput({ tool, toolCallId, output: runTool(tool, input) });
      } catch (error) {
        void addToolOutput({ tool, toolCallId, state: "output-error", errorText: String(error) });
      }
    },
    onFinish: ({ isAbort }) => setStopped(isAbort),
  });
  const running = status === "submitted" || status === "streaming";
  useEffect(() => keep({ messages }), [messages]);
  useStayingAtTheEnd(messages);

  const send = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const text = String(form.get("text"));
    if (!text || running) return;
    keep({ agent: String(form.get("agent")) });
    setStopped(false);
    void sendMessage({ text });
    event.currentTarget.reset();
  };

  return (
    <>
      <div id="messages" aria-busy={running}>
        {messages.map((message) => <Message key={message.id} message={message} approve={addToolApprovalResponse} />)}
        {stopped && <div className="error" data-testid="error-message">Stopped.</div>}
        {error && <div className="error" data-testid="error-message">{error.message}</div>}
      </div>
      <form onSubmit={send}>
        <select name="agent" data-testid="agent" aria-label="Agent" defaultValue={kept.agent || agents[0]}>
          {agents.map((name) => <option key={name}>{name}</option>)}
        </select>
        <input name="text" data-testid="chat-input" aria-label="Message" autoComplete="off" autoFocus />
        <button data-testid="send-button">Send</button>
        <button type="button" data-testid="abort-button" hidden={!running} onClick={() => Promise.all([stop(), stopRun()])}>Stop</button>
      </form>
    </>
  );
}

function Message({ message: { role, parts }, approve }: { message: UIMessage; approve: Approve }) {
  return parts.map((part, index) => {
    if (part.type === "text") return part.text && <div key={index} className={role} data-testid={`${role}-message`}>{part.text}</div>;
    if (!isToolUIPart(part)) return null;
    const { state, approval } = part;
    if (state !== "approval-requested") return <div key={index} className="tool">{getToolName(part)} {state.startsWith("output") ? "✓" : "…"}</div>;
    return (
      <div key={index} className="question">
        Allow {getToolName(part)} {JSON.stringify(part.input)}?
        <br />
        <button data-testid="allow-button" onClick={() => approve({ id: approval.id, approved: true })}>Allow</button>{" "}
        <button data-testid="deny-button" onClick={() => approve({ id: approval.id, approved: false })}>Deny</button>
      </div>
    );
  });
}

/** Scrolls with the text, unless the reader has scrolled up. */
function useStayingAtTheEnd(messages: UIMessage[]) {
  const height = useRef(0);
  useLayoutEffect(() => {
    if (innerHeight + scrollY >= height.current - 50) scrollTo(0, document.body.scrollHeight);
    height.current = document.body.scrollHeight;
  }, [messages]);
}
