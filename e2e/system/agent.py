"""Runs a program and lets another process, over TCP, kill it, start it again and talk with it.

    python agent.py --listen HOST:PORT -- PROGRAM ARGUMENT...

This is what makes one story of the test with containers and the one without: nobody needs a
container engine to kill a gateway with SIGKILL, or to have a client library do something. It needs
nothing but Python, as it is put into the image of kgw as it is.

A connection sends one JSON object a line and gets one line for each:

    {"agent": "status"}   -> {"running": BOOL, "starts": N, "exit": CODE or null}
    {"agent": "kill"}     -> {}     SIGKILL; the program is gone when the answer comes
    {"agent": "start"}    -> {}     unless it runs
    anything else is a line for the program, and the answer is the next line that the program writes

What the program writes without being asked goes to standard output. SIGTERM and SIGINT end the
program with SIGTERM, and then the agent with its exit code, or 128 and the signal that ended it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys

LONGEST_LINE = 1 << 26
STOP_S = 20.0


class Agent:
    """One program, and whoever asks for it."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._starts = 0
        self._asked: asyncio.Future[str] | None = None
        self._turn = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    async def start(self) -> None:
        """Start the program, unless it runs."""
        if self._process is not None and self._process.returncode is None:
            return
        if self._reading is not None:
            await self._reading
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LONGEST_LINE,
            # Ctrl-C at a terminal is for the agent, which ends the program in its own way.
            start_new_session=True,
        )
        self._starts += 1
        self._reading = asyncio.create_task(self._read(self._process))

    async def end(self, number: signal.Signals) -> int:
        """End the program by a signal, or after a while by SIGKILL; returns its exit code."""
        process = self._process
        if process is None:
            return 0
        if process.returncode is None:
            _signal(process, number)
            try:
                await asyncio.wait_for(process.wait(), STOP_S)
            except TimeoutError:
                _signal(process, signal.SIGKILL)
        code = await process.wait()
        if self._reading is not None:
            await self._reading
        return code

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the lines of a connection until it ends."""
        self._connections[writer] = asyncio.current_task()
        try:
            while line := await reader.readline():
                writer.write((await self._answer(line.decode())).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError) as error:
            print(f"agent: {error}", file=sys.stderr, flush=True)
        finally:
            del self._connections[writer]
            writer.close()

    async def hang_up(self) -> None:
        """End all connections; the program must have ended, or owe no answer."""
        tasks = [one for one in self._connections.values() if one is not None]
        for writer in self._connections:
            writer.transport.abort()
        await asyncio.gather(*tasks)

    async def _answer(self, line: str) -> str:
        try:
            asked = json.loads(line)
        except ValueError:
            return json.dumps({"error": "not JSON"})
        match asked:
            case {"agent": "status"}:
                code = None if self._process is None else self._process.returncode
                status = {"running": code is None, "starts": self._starts, "exit": code}
                return json.dumps(status)
            case {"agent": "kill"}:
                await self.end(signal.SIGKILL)
                return "{}"
            case {"agent": "start"}:
                await self.start()
                return "{}"
            case {"agent": unknown}:
                return json.dumps({"error": f"no such thing: {unknown}"})
        async with self._turn:
            return await self._ask(line)

    async def _ask(self, line: str) -> str:
        process, reading = self._process, self._reading
        # Its output ends a moment before its exit code is known.
        if process is None or process.stdin is None or reading is None or reading.done():
            return json.dumps({"error": "its program does not run"})
        self._asked = asyncio.get_running_loop().create_future()
        try:
            process.stdin.write(line.encode())
            await process.stdin.drain()
            return await self._asked
        except ConnectionError:
            return json.dumps({"error": "its program ended"})
        finally:
            self._asked = None

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Hand on what the program writes, until it ends."""
        output = process.stdout
        # What is no whole line is what a killed program has left.
        while output is not None and (line := await output.readline()).endswith(b"\n"):
            if self._asked is None or self._asked.done():
                print(line.decode(), end="", flush=True)
            else:
                self._asked.set_result(line.decode().rstrip("\n"))
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(json.dumps({"error": "its program ended"}))


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Tell the program, and what it has started: it has a session, and so a group, of its own."""
    # Between its end and the moment when asyncio knows of it there is no such process.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


async def run(host: str, port: int, command: list[str]) -> int:
    """Serve until a signal, and return the program's exit code."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    agent = Agent(command)
    await agent.start()
    try:
        server = await asyncio.start_server(agent.serve, host, port, limit=LONGEST_LINE)
        await ended.wait()
        server.close()
    finally:
        code = await agent.end(signal.SIGTERM)
        await agent.hang_up()
    return code if code >= 0 else 128 - code


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Run a program that others may kill and talk to.")
    parser.add_argument("--listen", required=True, metavar="HOST:PORT")
    parser.add_argument("command", nargs="+", help="the program and its arguments, behind --")
    arguments = parser.parse_args()
    host, colon, port = arguments.listen.rpartition(":")
    if not colon or not port.isdecimal():
        parser.error(f"--listen takes HOST:PORT, not {arguments.listen!r}")
    sys.exit(asyncio.run(run(host, int(port), arguments.command)))


if __name__ == "__main__":
    main()
