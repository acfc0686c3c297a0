"""The gateway with something wrong that no client and no setting brings about.

`KGW_MISBEHAVES=bug python -m tests.monitoring.misbehaving_serve serve ...`
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any, NoReturn

from kgw.backend.embedded.partition_log import EmbeddedPartitionLog
from kgw.cli.main import main
from kgw.errors import StorageError
from kgw.gateway import Gateway
from kgw.handlers.describe_cluster import DescribeCluster
from kgw.state.sql.lag_history import SqlLagHistory

if TYPE_CHECKING:
    from collections.abc import Callable

HOW = "KGW_MISBEHAVES"


def _bug() -> None:
    """DescribeCluster fails for no reason."""

    def answer(_: object) -> NoReturn:
        raise RuntimeError("planted")

    _replace(DescribeCluster, "answer", answer)


def _late_loop() -> None:
    """The event loop is held for 0.3 s, again and again."""
    start = Gateway.start
    tasks = []

    async def hold() -> None:
        while True:
            time.sleep(0.3)  # noqa: ASYNC251 - this is what is wrong
            await asyncio.sleep(0.05)

    async def started(self: Gateway) -> None:
        await start(self)
        tasks.append(asyncio.ensure_future(hold()))

    _replace(Gateway, "start", started)


def _no_history() -> None:
    """The history of lag cannot be written."""
    _replace(SqlLagHistory, "append", _fail)


def _no_retention() -> None:
    """No log start can be moved."""
    _replace(EmbeddedPartitionLog, "drop_before", _fail)


async def _fail(*_: object, **__: object) -> NoReturn:
    raise StorageError("planted")


def _replace(owner: Any, name: str, value: object) -> None:
    setattr(owner, name, value)


WAYS: dict[str, Callable[[], None]] = {
    "bug": _bug,
    "late_loop": _late_loop,
    "no_history": _no_history,
    "no_retention": _no_retention,
}

if __name__ == "__main__":
    WAYS[os.environ[HOW]]()
    main(prog_name="kgw")
