"""Where the services of the whole system are: in containers, or on this machine.

The rule by which one is told from the other, and the only one: a command line is made of words that
are the same in both, and of three kinds that a `Site` knows.

    place        in containers                       on this machine
    at("x.y")    the service's name and usual port   127.0.0.1 and a free port
    listen(...)  0.0.0.0 and the usual port          127.0.0.1 and the same free port
    path(...)    a path of the container             a path below the run's directory
    program(...) what the image has                  what this checkout has
"""

from __future__ import annotations

import random
import socket
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.interop.libraries import OTHERS, PYTHON, java_program
from tests.seaweedfs.cluster import GRPC_ABOVE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
LOCAL = "127.0.0.1"

LANGUAGES = ("python", "go", "java", "javascript", "rust")
COPYING = ("python", "java")
"""Whose transactional producers copy; Python's is confluent-kafka, as its other is aiokafka."""

# What shares the network of `gateway` is reached under that name: the admin side of a gateway
# listens on loopback, and Prometheus is to scrape it.
_PLACES: Mapping[str, tuple[str, int]] = {
    "gateway.kafka": ("gateway", 9092),
    "gateway.admin": (LOCAL, 9644),
    "gateway.agent": ("gateway", 7000),
    "gateway-seaweedmq.kafka": ("gateway", 9093),
    "gateway-seaweedmq.admin": (LOCAL, 9645),
    "gateway-seaweedmq.agent": ("gateway", 7001),
    "prometheus.http": ("gateway", 9090),
    "master.http": ("master", 9333),
    "volume.http": ("volume", 8080),
    "filer.http": ("filer", 8888),
    **{
        f"{role}-{language}.agent": (f"{role}-{language}", 7000)
        for role, languages in {
            "producer": LANGUAGES,
            "consumer": LANGUAGES,
            "copier": COPYING,
        }.items()
        for language in languages
    },
    "spark.agent": ("spark", 7000),
}
_WEED = ("master.http", "volume.http", "filer.http")

_CONTAINER_PATHS: Mapping[str, str] = {
    "gateway": "/var/lib/kgw",
    "master": "/data",
    "volume": "/data",
    "filer": "/data",
    "prometheus": "/prometheus",
    "prometheus.yaml": "/etc/prometheus/prometheus.yaml",
    "rules": "/etc/prometheus/rules",
    "archive": "/archive",
    "results": "/results",
}
_CONTAINER_PROGRAMS: Mapping[str, Sequence[str]] = {
    "kgw": ["kgw"],
    "agent": ["python", "/opt/e2e/agent.py"],
    "weed": ["weed"],
    "prometheus": ["/bin/prometheus"],
    "python": ["python"],
    "python-client": ["/opt/aiokafka/bin/python", "-m", "tests.interop.drivers.aiokafka_driver"],
    "python-copier": ["python", "-m", "tests.interop.drivers.confluent"],
    "go": ["/opt/clients/franz-go"],
    "java": [
        *("java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"),
        *("/opt/clients/java/driver.jar:/opt/clients/java/lib/*", "kgw.e2e.Driver"),
    ],
    "javascript": ["node", "/opt/clients/javascript/driver.js"],
    "rust": ["/opt/clients/rust-rdkafka"],
}


@dataclass(frozen=True, slots=True)
class Site:
    """One of the two."""

    places: Mapping[str, tuple[str, int]]
    programs: Mapping[str, Sequence[str]]
    paths: Mapping[str, str]
    any_address: str
    """What to listen on so that the other services connect."""

    @classmethod
    def of_containers(cls) -> Self:
        """Return the site of `e2e/compose.yaml`."""
        return cls(_PLACES, _CONTAINER_PROGRAMS, _CONTAINER_PATHS, "0.0.0.0")

    @classmethod
    def of_machine(
        cls, directory: Path, *, weed: Path, prometheus: Path, kgw: Sequence[str] = ()
    ) -> Self:
        """Return a site on free ports, with all files below a directory.

        `kgw` stands in for the command `kgw` of this checkout.
        """
        programs = {
            "kgw": kgw or [sys.executable, "-m", "kgw"],
            "agent": [sys.executable, str(ROOT / "e2e" / "system" / "agent.py")],
            "weed": [str(weed)],
            "prometheus": [str(prometheus)],
            "python": [sys.executable],
            "python-client": PYTHON["aiokafka"],
            "python-copier": PYTHON["confluent-kafka"],
            "go": OTHERS["franz-go"],
            "java": java_program("java/target/kafka-4", "driver.jar", "kgw.e2e.Driver"),
            "javascript": ["node", str(ROOT / "e2e" / "javascript" / "driver.js")],
            "rust": [str(ROOT / ".cache" / "rust-driver" / "release" / "rust-rdkafka")],
        }
        paths = {name: str(directory / name) for name in _CONTAINER_PATHS}
        paths["rules"] = str(ROOT / "deploy" / "prometheus")
        ports = free_ports(_PLACES)
        return cls({name: (LOCAL, ports[name]) for name in _PLACES}, programs, paths, LOCAL)

    def at(self, place: str) -> str:
        """Return where others reach a place, as host:port."""
        host, port = self.places[place]
        return f"{host}:{port}"

    def host(self, place: str) -> str:
        """Return the host of a place."""
        return self.places[place][0]

    def port(self, place: str) -> int:
        """Return the port of a place."""
        return self.places[place][1]

    def listen(self, place: str) -> str:
        """Return what its service listens on, as host:port."""
        return f"{self.any_address}:{self.port(place)}"

    def path(self, name: str) -> str:
        """Return where something is kept."""
        return self.paths[name]

    def program(self, name: str) -> list[str]:
        """Return how a program is started."""
        return list(self.programs[name])


def free_ports(places: Iterable[str]) -> dict[str, int]:
    """Return ports that nobody listens on.

    All are below 32768, where Linux begins to take the near ends of connections from: a gateway
    that is killed and started again must find its port free.
    """
    ports: dict[str, int] = {}
    # Held until all are found, so that no two are the same.
    with ExitStack() as held:
        for place in places:
            while place not in ports:
                port = random.randrange(11_000, 22_000)
                needed = (port, port + GRPC_ABOVE) if place in _WEED else (port,)
                try:
                    for one in needed:
                        held.enter_context(socket.socket()).bind((LOCAL, one))
                except OSError:
                    continue
                ports[place] = port
    return ports
