"""Talks to an ACP agent through the protocol's own Python SDK, and says how it went.

Usage: client.py DIRECTORY COMMAND [ARGUMENT...]
"""

import asyncio
import os
import sys

from acp import PROTOCOL_VERSION, Client, spawn_agent_process, text_block
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    FileSystemCapabilities,
    Implementation,
    RequestPermissionResponse,
)


class Watcher(Client):
    """Keeps what it is told, and answers by the kind of an option."""

    def __init__(self):
        self.updates = []
        self.asked = []
        self.kind = "allow_once"
        self.heard = asyncio.Event()

    async def request_permission(self, session_id, tool_call, options, **kwargs):
        self.asked.append(tool_call.title)
        for option in options:
            if option.kind == self.kind:
                outcome = AllowedOutcome(outcome="selected", option_id=option.option_id)
                return RequestPermissionResponse(outcome=outcome)
        return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))

    async def session_update(self, session_id, update, **kwargs):
        self.updates.append(update)
        self.heard.set()

    def take(self):
        updates, self.updates, self.asked, asked = self.updates, [], [], self.asked
        return updates, asked


def words(updates, kind):
    chunks = [it for it in updates if it.session_update == kind]
    return "".join(getattr(it.content, "text", "") for it in chunks)


def calls(updates):
    """Each call by its title, with the last status that was heard of it."""
    names, status = {}, {}
    for update in updates:
        if update.session_update == "tool_call":
            names[update.tool_call_id] = update.title
        if update.session_update in ("tool_call", "tool_call_update") and update.status:
            status[update.tool_call_id] = update.status
    return sorted(f"{names[it]} {status[it]}" for it in names)


def spawn(*arguments, **options):
    return spawn_agent_process(*arguments, env=dict(os.environ), **options)


async def main(directory, command, *arguments):
    watcher = Watcher()
    async with spawn(watcher, command, *arguments, cwd=directory) as (agent, process):
        capabilities = ClientCapabilities(
            fs=FileSystemCapabilities(read_text_file=False, write_text_file=False), terminal=False
        )
        introduced = await agent.initialize(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=capabilities,
            client_info=Implementation(name="test", version="1"),
        )
        print("version", introduced.protocol_version, introduced.agent_info.name)
        opened = await agent.new_session(cwd=directory, mcp_servers=[])
        session = opened.session_id
        print("mode", opened.modes.current_mode_id)

        ask = lambda text: agent.prompt(session_id=session, prompt=[text_block(text)])
        answer = await ask("show me")
        updates, asked = watcher.take()
        print("allowed:", answer.stop_reason, asked, calls(updates))
        plans = [it for it in updates if it.session_update == "plan"]
        print("plan", [entry.status for entry in plans[-1].entries])
        print("thought", words(updates, "agent_thought_chunk")[:23])
        print("said", words(updates, "agent_message_chunk")[:21])

        watcher.kind = "reject_once"
        answer = await ask("once more")
        updates, asked = watcher.take()
        print("rejected:", answer.stop_reason, asked, calls(updates))

        watcher.kind = "allow_once"
        answer = await ask("ask")
        updates, asked = watcher.take()
        print("asked:", answer.stop_reason, asked, words(updates, "agent_message_chunk"))

        watcher.heard.clear()
        prompt = asyncio.create_task(ask("long"))
        await watcher.heard.wait()
        await agent.cancel(session_id=session)
        print("cancelled:", (await prompt).stop_reason)
        watcher.take()

        try:
            await ask("fail for good")
        except Exception as error:
            print("failed:", error)
        watcher.take()

        listed = await agent.list_sessions(cwd=directory)
        print("listed", [it.session_id == session for it in listed.sessions])
    # The agent ends when its input does.
    print("exit", process.returncode)

    # Another process, the same session.
    async with spawn(watcher, command, *arguments, cwd=directory) as (agent, process):
        await agent.initialize(protocol_version=PROTOCOL_VERSION)
        await agent.load_session(session_id=session, cwd=directory, mcp_servers=[])
        updates, _ = watcher.take()
        print("loaded:", words(updates, "user_message_chunk"), calls(updates))
        await agent.set_session_mode(session_id=session, mode_id="demo")
        answer = await agent.prompt(session_id=session, prompt=[text_block("help")])
        print("went on:", answer.stop_reason)


asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 120))
