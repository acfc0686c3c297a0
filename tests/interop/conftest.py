"""Client libraries in environments of their own, and gateways for them."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kgw.testing.process import GatewayProcess
from tests.interop.client import Client, Clients

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / ".venv-clients"
DRIVERS = {
    "kafka-python-2": "kafka_python",
    "kafka-python-3": "kafka_python",
    "aiokafka": "aiokafka_driver",
    "confluent-kafka": "confluent",
}


@pytest.fixture(scope="session")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """Gives the client of a name; its driver starts when it is first asked for."""
    logs = tmp_path_factory.mktemp("drivers")

    def start(name: str) -> Client:
        python = ENVIRONMENTS / name / "bin" / "python"
        if not python.exists():
            problem = f"no environment for {name}; scripts/test makes it"
            if os.environ.get("INTEROP_CLIENTS") == "required":
                pytest.fail(problem)
            pytest.skip(problem)
        return Client(
            name,
            [str(python), "-m", f"tests.interop.drivers.{DRIVERS[name]}"],
            cwd=ROOT,
            log_path=logs / f"{name}.log",
        )

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
