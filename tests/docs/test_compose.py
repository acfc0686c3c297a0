"""What the compose files start are command lines that the programs take.

Whether they are files of compose at all, by its schema and its rules, is asked of compose's own
library: `e2e/compose-check`, which `scripts/check` runs where there is Go.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kgw.admin.probe import admin_address
from kgw.cli.main import main
from kgw.testing.certificates import CertificateAuthority
from tests import patience
from tests.image.dockerfile import parse_stages
from tests.seaweedfs.binary import VERSION, weed
from tests.seaweedfs.fixtures import seaweedfs_or_skip
from tests.state.servers import free_port

ROOT = Path(__file__).resolve().parents[2]
DEVELOPMENT, SEAWEEDFS, SYSTEM = "compose.yaml", "compose.seaweedfs.yaml", "e2e/compose.yaml"
SECURED = "compose.tls.yaml"
FILES = (DEVELOPMENT, SEAWEEDFS, SYSTEM, SECURED)
IMAGE = parse_stages((ROOT / "Dockerfile").read_text())[-1]
PROBE = ["CMD", "python", "-m", "kgw.admin.probe"]


def services(file: str) -> dict[str, dict[str, Any]]:
    """The services of a file, by name."""
    # A variable that is not set has its default.
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", (ROOT / file).read_text())
    found: dict[str, dict[str, Any]] = yaml.safe_load(text)["services"]
    return found


def command_of(service: dict[str, Any]) -> list[str]:
    """The whole command line, without an agent in front of it."""
    words = [*service.get("entrypoint", entry_point(service)), *service.get("command", [])]
    return words[words.index("--") + 1 :] if "--" in words else words


def is_gateway(service: dict[str, Any]) -> bool:
    """Whether it runs the image of `Dockerfile`."""
    return service.get("build") in (".", "..")


def entry_point(service: dict[str, Any]) -> list[str]:
    """That of the image, where it is the gateway's."""
    (program,) = [one.program or () for one in IMAGE.of("ENTRYPOINT")]
    return [*program] if is_gateway(service) else []


def commands_of(program: str) -> list[Any]:
    """The arguments of a program in every service that starts it."""
    return [
        pytest.param(words[1:], id=f"{file} {name}")
        for file in FILES
        for name, service in services(file).items()
        if (words := command_of(service))[:1] == [program] and "users" not in words
    ]


def gateways() -> list[Any]:
    """Every service that runs the image of `Dockerfile`."""
    return [
        pytest.param(service, id=f"{file} {name}")
        for file in FILES
        for name, service in services(file).items()
        if is_gateway(service) and "users" not in command_of(service)
    ]


def mounted(file: str) -> list[tuple[str, str, str]]:
    """The service, the place in the checkout and the place inside of what a file mounts."""
    return [
        (name, *one.split(":")[:2])
        for name, service in services(file).items()
        for one in service.get("volumes", [])
        if one.startswith(".")
    ]


def hardened(service: dict[str, Any]) -> tuple[Any, Any, Any]:
    """What a service says of what its processes may do."""
    return service.get("read_only"), service.get("cap_drop"), service.get("security_opt")


def test_every_service_is_looked_at() -> None:
    """Five gateways beside that of compose.yaml, and two SeaweedFS of three servers."""
    assert (6, 6) == (len(commands_of("kgw")), len(commands_of("weed")))


@pytest.mark.parametrize("arguments", commands_of("kgw"))
def test_kgw_takes_its_command_line(arguments: list[str]) -> None:
    """It keeps its records where the file has a volume, or in the SeaweedFS, and nowhere else."""
    result = CliRunner().invoke(main, [*arguments, "--print-config", "--json"])
    assert (0, "") == (result.exit_code, result.stderr)
    printed = json.loads(result.stdout)
    kept = ("--data-dir" in arguments, printed["kgw.backend"]["value"])
    assert kept in {(True, "embedded"), (False, "seaweedmq://filer:8888/kafka")}


@pytest.mark.parametrize("service", gateways())
def test_the_health_check_asks_where_the_gateway_answers(service: dict[str, Any]) -> None:
    """It is the image's program, and asks the address that the command line or the image gives."""
    health = service.get("healthcheck", {"test": PROBE})
    assert PROBE == health["test"][:4]
    environment = {**IMAGE.environment, **service.get("environment", {})}
    listeners = environment["KGW_ADMIN_LISTENERS"]
    given = re.findall(r"kgw\.admin\.listeners=(\S+)", " ".join(command_of(service)))
    assert [admin_address(listeners)] * len(given) == [admin_address(one) for one in given]


@pytest.mark.parametrize("file", FILES)
def test_what_is_mounted_is_there(file: str) -> None:
    """A container engine makes a folder of what is missing, and nobody is told."""
    folder = (ROOT / file).parent
    assert [] == [one for one in mounted(file) if not (folder / one[1]).exists()]


def test_grafana_finds_what_it_is_told_of() -> None:
    """The dashboard lies where its provider looks, and Prometheus listens where it asks."""
    provisioning = ROOT / "deploy" / "grafana" / "provisioning"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "kgw.yaml").read_text())[
        "providers"
    ]
    source = (provisioning / "datasources" / "prometheus.yaml").read_text()
    places = {inside for name, _, inside in mounted(SYSTEM) if name == "grafana"}
    assert {"/etc/grafana/provisioning", f"{provider['options']['path']}/kgw.json"} == places
    listens = " ".join(services(SYSTEM)["prometheus"]["command"])
    (asked,) = yaml.safe_load(source)["datasources"]
    assert f"--web.listen-address=0.0.0.0:{asked['url'].rpartition(':')[2]} " in listens


@pytest.mark.parametrize("arguments", commands_of("weed"))
def test_weed_knows_the_options(arguments: list[str]) -> None:
    """Of the version that kgw is tried with."""
    kind, *options = (one for one in arguments if one != "-logtostderr=true")
    with seaweedfs_or_skip():
        program = weed()
    known = subprocess.run(
        [program, "help", kind],
        capture_output=True,
        text=True,
        check=False,
        timeout=patience.seconds(20),
    )
    names = set(re.findall(r"^  -([\w.]+)", known.stdout + known.stderr, re.MULTILINE))
    assert [] == [one for one in options if one[1:].partition("=")[0] not in names]


@pytest.mark.parametrize("file", [SEAWEEDFS, SYSTEM])
def test_seaweedfs_is_the_one_that_tests_run(file: str) -> None:
    """The image of its servers is of the version that is fetched for tests."""
    images = {one["image"] for one in services(file).values() if command_of(one)[:1] == ["weed"]}
    assert {f"chrislusf/seaweedfs:{VERSION}"} == images


@pytest.mark.parametrize(
    ("file", "name"), [(SEAWEEDFS, "kgw-1"), (SEAWEEDFS, "kgw-2"), (SYSTEM, "gateway-seaweedmq")]
)
def test_a_gateway_keeps_its_lock_when_it_is_started_again(file: str, name: str) -> None:
    """Nothing else of its container can be written to."""
    service = services(file)[name]
    assert (True, True) == (service["read_only"], "/tmp" in service["volumes"])


@pytest.mark.parametrize("file", FILES)
def test_what_is_built_here_is_hardened(file: str) -> None:
    """Nothing is written but volumes, no capability is kept, none is gained."""
    wanted = (True, ["ALL"], ["no-new-privileges:true"])
    assert [] == [
        name
        for name, service in services(file).items()
        if "build" in service and hardened(service) != wanted
    ]


def test_the_gateway_of_development_is_reached_from_both_sides() -> None:
    """Clients of the host are told another address than those of the network."""
    (service,) = services(DEVELOPMENT).values()
    advertised = re.findall(r"--advertise (\S+)", " ".join(service["command"]))
    assert ["HOST://localhost:9092", "NETWORK://kgw:19092"] == advertised
    assert ["127.0.0.1:9092:9092"] == service["ports"]


@pytest.mark.slow
def test_what_is_secured_serves_over_tls_and_asks_for_a_login(tmp_path: Path) -> None:
    """Its commands, with the files of a test in place of the secrets and the volume."""
    authority = CertificateAuthority("kgw test", time.time())
    (tmp_path / "ca.pem").write_text(authority.truststore_pem)
    secrets = {
        "server.pem": authority.issue_server(["localhost"]).keystore_pem(),
        "admin.password": "canary-1177",
    }
    for name, content in secrets.items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o400)
    client = tmp_path / "client.properties"
    client.write_text(
        f"security.protocol=SASL_SSL\nssl.truststore.location={tmp_path / 'ca.pem'}\n"
        "sasl.mechanism=SCRAM-SHA-512\nsasl.username=admin\nsasl.password=canary-1177\n"
    )
    client.chmod(0o600)
    port = free_port()

    def here(name: str) -> list[str]:
        words = command_of(services(SECURED)[name])
        replaced = {"/run/secrets": str(tmp_path), "/var/lib/kgw": str(tmp_path / "data")}
        for shown, used in {**replaced, "0.0.0.0": "127.0.0.1", ":9093": f":{port}"}.items():
            words = [word.replace(shown, used) for word in words]
        return [sys.executable, "-m", "kgw", *words[1:]]

    subprocess.run(here("admin-user"), check=True, cwd=ROOT, capture_output=True)
    with subprocess.Popen(here("kgw"), stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline().startswith("ready ")
            arguments = ["doctor", f"localhost:{port}", "--command-config", str(client), "--json"]
            result = CliRunner(env={"KGW_CONFIG": None}).invoke(main, arguments)
            assert [] == json.loads(result.stdout)["problems"]
        finally:
            server.terminate()
    assert 0 == server.returncode
