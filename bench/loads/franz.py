"""Drives bench/loads/go, the load generator on franz-go: the cheapest client per byte.

It is compiled on first use, into .cache; that needs Go and, once, its modules from the network.
"""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.harness.servers import Server

SOURCE = Path(__file__).with_name("go")
PROGRAM = Path(__file__).resolve().parents[2] / ".cache" / "bench" / "franz-load"

Option = str | float
Load = subprocess.Popen[str]
"""A generator that runs."""


@cache
def program() -> Path:
    """The compiled generator, built anew where its source is newer (the compiler knows)."""
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(["go", "build", "-o", str(PROGRAM), "."], cwd=SOURCE, check=True)
    except FileNotFoundError:
        message = "the load generator in bench/loads/go needs Go (https://go.dev/dl) on PATH"
        raise RuntimeError(message) from None
    return PROGRAM


def start(command: str, server: Server, topic: str, **chosen: Option) -> Load:
    """Begins one measurement and returns at once; `answer` waits for it."""
    arguments = [str(program()), command, "-bootstrap", server.bootstrap, "-topic", topic]
    for name, value in chosen.items():
        arguments.append(f"-{name.replace('_', '-')}={value}")
    pipe = subprocess.PIPE
    return subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def answer(process: Load, told: str = "") -> dict[str, float]:
    """What the generator measured, `told` the last; RuntimeError with what it said if it failed."""
    try:
        said, complaints = process.communicate(told)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    if process.returncode:
        arguments = " ".join(map(str, process.args[1:])) if isinstance(process.args, list) else ""
        message = f"{complaints.strip()} ({arguments})"
        raise RuntimeError(message)
    figures: dict[str, float] = json.loads(said)
    return figures


def create_topic(server: Server, topic: str, partitions: int) -> None:
    """Makes a topic and returns once each partition has a leader."""
    answer(start("create", server, topic, partitions=partitions))


def delete_topic(server: Server, topic: str) -> None:
    """Deletes a topic with all that it holds."""
    answer(start("delete", server, topic))


def produce(server: Server, topic: str, **chosen: Option) -> dict[str, float]:
    """Writes at full speed; main.go has the options. Gives rates, `bytes` and `requests`."""
    return answer(start("produce", server, topic, **chosen))


def consume(server: Server, topic: str, **chosen: Option) -> dict[str, float]:
    """Reads `records` from the start at full speed, repeatedly; gives the same as `produce`."""
    return answer(start("consume", server, topic, **chosen))


def latency(server: Server, topic: str, **chosen: Option) -> dict[str, float]:
    """Writes at a fixed rate and reads it back; gives `end_to_end_*` and `produce_*` in ms."""
    return answer(start("latency", server, topic, **chosen))


def transact(server: Server, topic: str, **chosen: Option) -> dict[str, float]:
    """Writes transactions at full speed; transactions.go has the options.

    Gives what `produce` does, `transactions_per_s`, and `transaction_*`, `commit_*` and
    `end_to_end_*` in ms.
    """
    return answer(start("transact", server, topic, **chosen))


def live(server: Server, topic: str, **chosen: Option) -> Load:
    """Begins the same until it is asked with `parts`; returns when it flows, or has failed."""
    process = start("live", server, topic, **chosen)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def parts(process: Load, times: Mapping[str, tuple[int, int]]) -> dict[str, float]:
    """Ends live traffic; gives `NAME_end_to_end_*` and `NAME_produce_*` of parts of its time.

    A part is from one `time.time_ns()` to another: the records that were due in it.
    """
    lines = (f"{name} {begin_ns} {end_ns}\n" for name, (begin_ns, end_ns) in times.items())
    return answer(process, "".join(lines))
