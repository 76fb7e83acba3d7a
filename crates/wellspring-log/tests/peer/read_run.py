"""Reads a run with nats-py, by what docs/nats.md says of subjects, messages and checksums.

usage: read_run.py ADDRESS STREAM RUN

Prints a line of JSON per frame: its first record, how many it has, and its body in hexadecimal.
"""

import asyncio
import json
import sys
import zlib

import nats


async def main(address: str, stream: str, run: str) -> None:
    client = await nats.connect(address)
    jetstream = client.jetstream()
    subject = f"{stream}.run.{run}"
    last = await jetstream.get_last_msg(stream, subject)
    ordered = await jetstream.subscribe(subject, ordered_consumer=True)
    before = None
    while True:
        message = await ordered.next_msg(timeout=10)
        below = message.subject.removeprefix(f"{stream}.").encode()
        found = zlib.crc32(below + b"\0" + message.data)
        assert message.headers["Wellspring-Sum"] == f"{found:08x}", message.headers
        head, _, body = message.data.partition(b"\n")
        frame = json.loads(head)["entry"].get("frame")
        if frame is not None:
            assert frame.get("prev") == before, (frame, before)
            before = found
            records = body[: frame["bytes"]].hex()
            print(json.dumps([frame["first"], frame["count"], records]))
        if message.metadata.sequence.stream == last.seq:
            break
    await client.close()


asyncio.run(main(*sys.argv[1:]))
