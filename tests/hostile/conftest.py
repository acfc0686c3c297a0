"""A gateway process under attack, and a well-behaved client beside it."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kgw.testing.process import SERVE, GatewayProcess
from tests import patience
from tests.hostile.canary import API_VERSIONS_V0, ask

if TYPE_CHECKING:
    from collections.abc import Iterator

CANARY = "tests.hostile.canary"


class Attacked:
    """The gateway, its address, and what has become of it."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.gateway = gateway
        self.address = (gateway.host, gateway.port)

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.gateway.pid}/fd").iterdir()))

    def descriptors_after(self, idle_s: float, enough: int) -> int:
        """Give the gateway time to notice who has gone; return how many descriptors it has left.

        Asks it something meanwhile, which takes turns of its loop, instead of sleeping.
        """
        limit = patience.Limit(idle_s)
        with socket.create_connection(self.address, timeout=patience.seconds(10)) as connection:
            while True:
                ask(connection, API_VERSIONS_V0)
                others = self.descriptors() - 1
                if others <= enough or limit.is_over:
                    return others

    def anonymous_bytes(self) -> int:
        return self.gateway.usage().anonymous_bytes

    def reset_peak(self) -> None:
        """Let the kernel measure the peak of memory from now on."""
        Path(f"/proc/{self.gateway.pid}/clear_refs").write_text("5")

    def peak_bytes(self) -> int:
        return self.gateway.usage().peak_bytes

    def bugs(self) -> list[str]:
        """Lines of the log that should not be there."""
        signs = ("bug of kgw", "Traceback", '"level": "error"')
        return [line for line in self.gateway.log().splitlines() if any(s in line for s in signs)]

    @contextmanager
    def canary(self, *, reconnects: bool = True) -> Iterator[dict[str, Any]]:
        """Measure a well-behaved client while the block runs; the figures are there afterwards.

        It takes a new connection now and then, unless told not to: a full server has none.
        """
        figures: dict[str, Any] = {}
        command = [sys.executable, "-m", CANARY, self.gateway.host, str(self.gateway.port)]
        command += [] if reconnects else ["stay"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            try:
                yield figures
            finally:
                out, _ = process.communicate(timeout=patience.seconds(20))
                figures.update(json.loads(out))


@pytest.fixture(autouse=True)
def nothing_blocks_the_event_loop() -> None:
    """The gateway's loop is in another process; the test's own may read files."""


@pytest.fixture(autouse=True)
async def quick_attackers() -> None:
    """Take the event loop out of its debug mode: its time would be counted as the gateway's."""
    asyncio.get_running_loop().set_debug(False)


@pytest.fixture
def attacked(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Attacked]:
    """A gateway process; `request.param` holds its settings, or a command to start it with."""
    given = getattr(request, "param", ())
    settings = [one for one in given if "=" in one and not one.startswith("-")]
    command = [one for one in given if one not in settings]
    gateway = GatewayProcess(
        tmp_path / "data", "kgw.backend=memory", *settings, command=[*command, *SERVE]
    )
    with gateway:
        yield Attacked(gateway)
        assert gateway.stop() == 0
