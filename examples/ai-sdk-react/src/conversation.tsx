import { useChat } from "@ai-sdk/react";
import { getToolName, isToolUIPart, lastAssistantMessageIsCompleteWithToolCalls, type UIMessage } from "ai";
import { type FormEvent, useEffect, useState } from "react";
import { keep, kept, runTool, stopRun, transport } from "./chat";

export function Conversation({ agents }: { agents: string[] }) {
  const [stopped, setStopped] = useState(false);
  const { messages, status, error, sendMessage, stop, addToolOutput } = useChat({
    id: kept.id,
    messages: kept.messages,
    transport,
    // After a reload the message that is going on is there again, and goes on.
    resume: kept.agent !== "",
    // The output of a tool in the page goes back by itself.
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
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
      <div id="messages">
        {messages.map((message) => <Message key={message.id} message={message} />)}
        {stopped && <div className="error" data-testid="error-message">Stopped.</div>}
        {error && <div className="error" data-testid="error-message">{error.message}</div>}
      </div>
      <form onSubmit={send}>
        <select name="agent" data-testid="agent" aria-label="Agent" defaultValue={kept.agent || agents[0]}>
          {agents.map((name) => <option key={name}>{name}</option>)}
        </select>
        <input name="text" data-testid="chat-input" aria-label="Message" autoComplete="off" />
        <button data-testid="send-button">Send</button>
        <button type="button" data-testid="abort-button" hidden={!running} onClick={() => Promise.all([stop(), stopRun()])}>Stop</button>
      </form>
    </>
  );
}

function Message({ message: { role, parts } }: { message: UIMessage }) {
  const text = parts.map((part) => (part.type === "text" ? part.text : "")).join("");
  return (
    <>
      {parts.filter(isToolUIPart).map((part) => (
        <div key={part.toolCallId} className="tool">{getToolName(part)}: {part.state}</div>
      ))}
      {text && <div className={role} data-testid={`${role}-message`}>{text}</div>}
    </>
  );
}
