"""The client libraries, and the fixtures with which tests/interop and e2e ask them and gateways."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from kgw.testing.process import SERVE, GatewayProcess
from tests.data_directories import problems_below
from tests.interop.client import Client, Clients

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.seaweedfs.cluster import Cluster

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
JAVASCRIPT = {"kafkajs": ["node", str(ROOT / "e2e" / "javascript" / "driver.js")]}
"""KafkaJS, whose driver does what the tests of logins, of the system and of its own ask for."""
OLD_JAVA = {
    "java-2.1": java("kafka-2.1"),
    "java-2.8": java("kafka-2.8"),
    "java-3.3": java("kafka-3.3"),
    "java-3.9": java("kafka-3.9"),
}
"""Java's library through the years: what is promised of 2.8 and newer, and seen of older ones."""
# sarama takes the versions of all APIs from the server version that it is told: these are of 2017.
OLD = {"sarama-0.11": go("sarama", "0.11.0.0")}

EMBEDDED, SEAWEEDMQ, IMAGE = "embedded", "seaweedmq", "image"
BACKEND = os.environ.get("INTEROP_BACKEND", EMBEDDED)
"""Where gateways keep their records in tests that do not say where.

"image" stands for volumes of containers, for scripts/image.
"""
ON_BOTH = pytest.mark.parametrize("backend", [EMBEDDED, SEAWEEDMQ], indirect=True, scope="session")
"""Marks what is tried with a real SeaweedFS in the short run, too."""

LANGUAGES = {"python": PYTHON, "others": OTHERS, "old-java": OLD_JAVA}
NAMES = tuple(LANGUAGES[os.environ.get("INTEROP_LANGUAGES", "python")])
"""Those that tests of every library are about: Python's, or with scripts/e2e the others."""


@pytest.fixture(scope="session")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """Gives the client of a name; its driver starts when it is first asked for."""
    logs = tmp_path_factory.mktemp("drivers")

    def start(name: str) -> Client:
        command = {**PYTHON, **OTHERS, **JAVASCRIPT, **OLD, **OLD_JAVA}[name]
        if name in PYTHON and not Path(command[0]).exists():
            problem = f"no environment for {name}; scripts/test makes it"
            if os.environ.get("INTEROP_CLIENTS") == "required":
                pytest.fail(problem)
            pytest.skip(problem)
        return Client(name, command, cwd=ROOT, log_path=logs / f"{name}.log")

    with closing(Clients(start)) as clients:
        yield clients


class NewGateway(Protocol):
    """Makes a gateway, not yet started, whose records nobody else has."""

    def __call__(
        self, data_dir: Path, *settings: str, command: Sequence[str] = SERVE
    ) -> GatewayProcess: ...


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> str:
    """Return the name of where gateways keep their records in this run, or in this test."""
    name: str = getattr(request, "param", BACKEND)
    return name


@pytest.fixture(scope="session")
def new_gateway(backend: str, request: pytest.FixtureRequest) -> NewGateway:
    """Return what makes gateways over data directories, volumes, or namespaces of a SeaweedFS."""
    if backend != SEAWEEDMQ and BACKEND == IMAGE:
        from tests.image.container import contain

        return contain
    if backend == EMBEDDED:
        return GatewayProcess
    seaweedfs: Cluster = request.getfixturevalue("seaweedfs")

    def make(data_dir: Path, *settings: str, command: Sequence[str] = SERVE) -> GatewayProcess:
        return GatewayProcess(
            data_dir,
            *settings,
            # One that is started after a kill does not wait for the lease of the one before.
            command=(*command, "--take-over"),
            backend=seaweedfs.url(seaweedfs.new_namespace()),
        )

    return make


@pytest.fixture(scope="session")
def gateway(
    new_gateway: NewGateway, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """One gateway that all tests share; each uses topics of its own."""
    directory = tmp_path_factory.mktemp("gateway")
    with new_gateway(directory / "data") as process:
        yield process
    assert [] == problems_below(directory)


@pytest.fixture
def own_gateway(new_gateway: NewGateway, tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway that the test may kill."""
    with new_gateway(tmp_path / "data") as process:
        yield process
