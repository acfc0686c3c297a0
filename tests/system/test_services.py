"""The services of the whole system: the same in containers and on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from e2e.system.prometheus import configuration
from e2e.system.services import GATEWAYS, runner_command, services
from e2e.system.site import COPYING, LANGUAGES, ROOT, Site
from tests.image.dockerfile import parse_stages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2e.system.services import Service

CONTAINERS = Site.of_containers()
COMPOSED = yaml.safe_load((ROOT / "e2e" / "compose.yaml").read_text())["services"]
NOT_STARTED_HERE = {"grafana", "runner"}


def machine(directory: Path) -> Site:
    """A site whose programs of others have names of one word."""
    return Site.of_machine(directory, weed=Path("weed"), prometheus=Path("prometheus"), kgw=["kgw"])


@pytest.mark.parametrize("service", services(CONTAINERS), ids=lambda one: one.name)
def test_the_command_line_in_containers_is_that_of_the_table(service: Service) -> None:
    """What the twin starts, with the hosts, paths and programs of containers."""
    composed = COMPOSED[service.name]
    assert list(service.command) == [*composed["entrypoint"], *composed["command"]]


@pytest.mark.parametrize("service", services(CONTAINERS), ids=lambda one: one.name)
def test_containers_wait_for_what_the_twin_waits_for(service: Service) -> None:
    """Each service that another one needs is healthy first."""
    assert list(service.needs) == list(COMPOSED[service.name].get("depends_on", {}))


def test_containers_have_the_services_of_the_table() -> None:
    """And Grafana, which is no package here, and the runner, which the twin is itself."""
    assert {one.name for one in services(CONTAINERS)} | NOT_STARTED_HERE == set(COMPOSED)


def test_the_runner_in_containers_is_what_the_twin_calls() -> None:
    """Its verdict is the exit code of the command."""
    assert runner_command(CONTAINERS) == COMPOSED["runner"]["entrypoint"]


def test_the_runner_waits_for_all_that_it_speaks_with() -> None:
    """Each is healthy before the story begins."""
    agents = {place.partition(".")[0] for place in CONTAINERS.places if place.endswith(".agent")}
    assert agents | {"prometheus"} == set(COMPOSED["runner"]["depends_on"])


def test_prometheus_in_containers_is_told_what_the_twin_tells_it() -> None:
    """`e2e/prometheus.yaml` is written by the code that writes the twin's."""
    assert configuration(CONTAINERS) == (ROOT / "e2e" / "prometheus.yaml").read_text()


def test_only_places_differ_on_this_machine(tmp_path: Path) -> None:
    """Each word of a command line that names no host, path or program is the same."""
    for there, here in zip(services(CONTAINERS), services(machine(tmp_path)), strict=True):
        assert there.name == here.name
        assert options(there.command) == options(here.command)


def options(command: Sequence[str]) -> list[str]:
    """The names of a command's options."""
    return [one.partition("=")[0] for one in command if one.startswith("-")]


def test_no_two_places_of_a_machine_share_a_port(tmp_path: Path) -> None:
    """Also not with the ports of gRPC, which are 10,000 above SeaweedFS's own."""
    site = machine(tmp_path)
    ports = [site.port(place) for place in site.places]
    assert len(ports) == len(set(ports))
    assert all(port < 22_000 for port in ports)


def test_who_takes_part() -> None:
    """Two gateways, producers and consumers in five languages, two that copy."""
    assert (2, 5, 2) == (len(GATEWAYS), len(LANGUAGES), len(COPYING))


def test_what_the_image_of_the_clients_copies() -> None:
    """It is there, and is let through to the build."""
    stages = parse_stages((ROOT / "e2e" / "Dockerfile").read_text())
    sources = {
        name
        for stage in stages
        for one in stage.of("COPY")
        if not one.words.startswith("--from=")
        for name in one.words.split()[:-1]
    }
    let_through = {
        line[1:]
        for line in (ROOT / "e2e" / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert set() == {name for name in sources if not (ROOT / name).exists()}
    assert let_through == {one for one in sources if str(Path(one).parent) not in sources}
