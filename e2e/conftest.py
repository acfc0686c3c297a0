"""Client libraries of other languages, built by scripts/e2e, and gateways for them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kgw.testing.process import GatewayProcess
from tests.interop.client import Client, Clients

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent


def java(directory: str) -> list[str]:
    """Command of the Java driver, built against one version of the library."""
    target = HERE / "java" / "target" / directory
    return [
        "java",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        f"{target / 'driver.jar'}:{target / 'lib'}/*",
        "kgw.e2e.Driver",
    ]


COMMANDS = {
    "franz-go": [str(HERE / "go" / "bin" / "franz-go")],
    "sarama": [str(HERE / "go" / "bin" / "sarama")],
    "kafka-go": [str(HERE / "go" / "bin" / "kafka-go")],
    "java-3.9": java("kafka-3.9"),
    "java-4": java("kafka-4"),
}

# sarama takes the versions of all APIs from the server version that it is told: these are of 2017.
OLD_COMMANDS = {"sarama-0.11": [*COMMANDS["sarama"], "0.11.0.0"]}


@pytest.fixture(scope="session")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """Gives the client of a name; its driver starts when it is first asked for."""
    logs = tmp_path_factory.mktemp("drivers")

    def start(name: str) -> Client:
        command = {**COMMANDS, **OLD_COMMANDS}[name]
        return Client(name, command, cwd=HERE, log_path=logs / f"{name}.log")

    with closing(Clients(start)) as clients:
        yield clients


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """One gateway that all tests share; each uses topics of its own."""
    with GatewayProcess(tmp_path_factory.mktemp("gateway") / "data") as process:
        yield process


@pytest.fixture
def own_gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway that the test may kill."""
    with GatewayProcess(tmp_path / "data") as process:
        yield process
