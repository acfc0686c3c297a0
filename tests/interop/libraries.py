"""The client libraries, and the fixtures with which tests/interop and e2e ask them and gateways."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kgw.testing.process import GatewayProcess
from tests.data_directories import problems_below
from tests.interop.client import Client, Clients

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]


def python(environment: str, driver: str) -> list[str]:
    """Command of a driver in an environment of its own, which scripts/test makes."""
    interpreter = ROOT / ".venv-clients" / environment / "bin" / "python"
    return [str(interpreter), "-m", f"tests.interop.drivers.{driver}"]


def go(program: str, *arguments: str) -> list[str]:
    """Command of a driver in Go."""
    return [str(ROOT / "e2e" / "go" / "bin" / program), *arguments]


def java(directory: str) -> list[str]:
    """Command of the Java driver, built against one version of the library."""
    return java_program(f"java/target/{directory}", "driver.jar", "kgw.e2e.Driver")


def java_program(target: str, jar: str, main: str) -> list[str]:
    """Command of a program that Maven has built in a folder of e2e."""
    directory = ROOT / "e2e" / target
    level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return ["java", level, "-cp", f"{directory / jar}:{directory / 'lib'}/*", main]


PYTHON = {
    "kafka-python-2": python("kafka-python-2", "kafka_python"),
    "kafka-python-3": python("kafka-python-3", "kafka_python"),
    "aiokafka": python("aiokafka", "aiokafka_driver"),
    "confluent-kafka": python("confluent-kafka", "confluent"),
}
OTHERS = {
    "franz-go": go("franz-go"),
    "sarama": go("sarama"),
    "kafka-go": go("kafka-go"),
    "java-3.9": java("kafka-3.9"),
    "java-4": java("kafka-4"),
}
# sarama takes the versions of all APIs from the server version that it is told: these are of 2017.
OLD = {"sarama-0.11": go("sarama", "0.11.0.0")}

NAMES = tuple(OTHERS if os.environ.get("INTEROP_LANGUAGES") == "others" else PYTHON)
"""Those that tests of every library are about: Python's, or with scripts/e2e the others."""


@pytest.fixture(scope="session")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """Gives the client of a name; its driver starts when it is first asked for."""
    logs = tmp_path_factory.mktemp("drivers")

    def start(name: str) -> Client:
        command = {**PYTHON, **OTHERS, **OLD}[name]
        if name in PYTHON and not Path(command[0]).exists():
            problem = f"no environment for {name}; scripts/test makes it"
            if os.environ.get("INTEROP_CLIENTS") == "required":
                pytest.fail(problem)
            pytest.skip(problem)
        return Client(name, command, cwd=ROOT, log_path=logs / f"{name}.log")

    with closing(Clients(start)) as clients:
        yield clients


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """One gateway that all tests share; each uses topics of its own."""
    directory = tmp_path_factory.mktemp("gateway")
    with GatewayProcess(directory / "data") as process:
        yield process
    assert [] == problems_below(directory)


@pytest.fixture
def own_gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway that the test may kill."""
    with GatewayProcess(tmp_path / "data") as process:
        yield process
