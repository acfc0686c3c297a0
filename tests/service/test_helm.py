"""The chart before the real helm, and its manifests before the types of Kubernetes' API."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kgw.cli.main import main
from tests.docs.test_named_commands import problem
from tests.service.test_chart import CHART, ROOT

pytestmark = [pytest.mark.slow, pytest.mark.full]

TOOLS = Path(os.environ.get("KGW_HELM_TOOLS", ROOT / ".cache" / "helm"))
SAMPLES = sorted(path.name for path in (CHART / "ci").glob("*-values.yaml"))


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm, which `scripts/helm` has built."""
    return subprocess.run(
        [str(TOOLS / "helm"), *arguments], capture_output=True, text=True, check=False
    )


def rendered(*arguments: str) -> list[dict[str, Any]]:
    """Return every object of the chart, each decoded strictly."""
    made = helm("template", "release", str(CHART), "--namespace", "space", *arguments)
    assert 0 == made.returncode, made.stderr
    checked = subprocess.run(
        [str(TOOLS / "check")], input=made.stdout, capture_output=True, text=True, check=False
    )
    assert 0 == checked.returncode, checked.stderr
    objects: list[dict[str, Any]] = json.loads(checked.stdout)
    return objects


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    """Return the objects of a kind by name."""
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


def sample(name: str) -> tuple[str, str]:
    """Return the options for one of the sample values files."""
    return "--values", str(CHART / "ci" / name)


@pytest.mark.parametrize("name", ["", *SAMPLES])
def test_lint(name: str) -> None:
    """Helm finds nothing to complain of, strictly."""
    done = helm("lint", "--strict", str(CHART), *(sample(name) if name else ()))
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout
    assert "[ERROR]" not in done.stdout


@pytest.mark.parametrize("name", ["", *SAMPLES])
def test_what_is_made(name: str, tmp_path: Path) -> None:
    """The command line and the settings are kgw's; services select the pod, and it alone."""
    objects = rendered(*(sample(name) if name else ()))
    (stateful,) = of_kind(objects, "StatefulSet").values()
    assert 1 == stateful["spec"]["replicas"]
    template = stateful["spec"]["template"]
    (container,) = template["spec"]["containers"]
    (toml,) = [
        one["data"]["kgw.toml"]
        for one in of_kind(objects, "ConfigMap").values()
        if "kgw.toml" in one["data"]
    ]
    (tmp_path / "kgw.toml").write_text(toml, encoding="utf-8")
    words = [
        word.replace("/etc/kgw/kgw.toml", str(tmp_path / "kgw.toml")) for word in container["args"]
    ]
    command = [*container["command"][1:], *words, "--print-config", "--json"]
    result = CliRunner().invoke(main, command)
    assert (0, "") == (result.exit_code, result.stderr)
    ports = {one["name"] for one in container["ports"]}
    pod_labels = template["metadata"]["labels"].items()
    (doctor,) = of_kind(objects, "Pod").values()
    for service in of_kind(objects, "Service").values():
        selector = service["spec"]["selector"].items()
        assert selector <= pod_labels
        assert not selector <= doctor["metadata"]["labels"].items()
        assert {one["targetPort"] for one in service["spec"]["ports"]} <= ports
    assert stateful["spec"]["serviceName"] in of_kind(objects, "Service")
    volumes = {one["name"] for one in template["spec"]["volumes"]}
    volumes |= {one["metadata"]["name"] for one in stateful["spec"].get("volumeClaimTemplates", [])}
    assert {one["name"] for one in container["volumeMounts"]} <= volumes


def test_everything() -> None:
    """What the options promise is in the manifests."""
    objects = rendered(*sample("everything-values.yaml"))
    stateful = of_kind(objects, "StatefulSet")["release-kgw"]
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    assert "--advertise=EXTERNAL://kafka.example.org:443" in container["args"]
    toml = of_kind(objects, "ConfigMap")["release-kgw"]["data"]["kgw.toml"]
    assert '"log.segment.bytes" = 134217728\n' in toml
    assert '"auto.create.topics.enable" = false\n' in toml
    (claim,) = stateful["spec"]["volumeClaimTemplates"]
    assert ("1Ti", "fast") == (
        claim["spec"]["resources"]["requests"]["storage"],
        claim["spec"]["storageClassName"],
    )
    (monitor,) = of_kind(objects, "PodMonitor").values()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert {"name": "kgw-token", "key": "admin"} == endpoint["authorization"]["credentials"]
    assert not of_kind(objects, "Secret")
    (rules,) = of_kind(objects, "PrometheusRule").values()
    assert [] != rules["spec"]["groups"][0]["rules"]
    dashboard = of_kind(objects, "ConfigMap")["release-kgw-dashboard"]["data"]["kgw.json"]
    source = (ROOT / "deploy" / "grafana" / "kgw.json").read_text(encoding="utf-8")
    assert json.loads(source) == json.loads(dashboard)
    (policy,) = of_kind(objects, "NetworkPolicy").values()
    assert 2 == len(policy["spec"]["ingress"])


def test_the_secret() -> None:
    """A token of the chart's own is long enough, and its file is not open to every user."""
    objects = rendered()
    (secret,) = of_kind(objects, "Secret").values()
    assert 64 == len(secret["data"]["token"])
    volumes = of_kind(objects, "StatefulSet")["release-kgw"]["spec"]["template"]["spec"]["volumes"]
    (token,) = [one["secret"] for one in volumes if one["name"] == "token"]
    assert (secret["metadata"]["name"], 0o440) == (token["secretName"], token["defaultMode"])


def test_what_is_secured(tmp_path: Path) -> None:
    """TLS and a login at both listeners, users before the start, rules after it."""
    objects = rendered(*sample("secured-values.yaml"))
    pod = of_kind(objects, "StatefulSet")["release-kgw"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    printed = printed_config(container, tmp_path)
    protocols = ["INTERNAL:SASL_SSL", "EXTERNAL:SASL_SSL"]
    assert protocols == printed["listener.security.protocol.map"]
    assert "/etc/kgw-tls/tls-combined.pem" == printed["ssl.keystore.location"]
    assert "User:admin;User:ops" == printed["super.users"]
    assert printed["kgw.listeners.without.login"] is False
    modes = {one["name"]: one["secret"]["defaultMode"] for one in pod["volumes"] if "secret" in one}
    assert {"token": 0o440, "tls": 0o440, "users": 0o440} == modes
    assert pod["securityContext"]["fsGroup"]
    (mount,) = [one for one in container["volumeMounts"] if one["name"] == "tls"]
    # A mount of a single file is never renewed.
    assert "subPath" not in mount
    users = [[*one["command"], *one["args"]] for one in pod["initContainers"]]
    assert ["admin", "shop"] == [one[3] for one in users]
    (job,) = of_kind(objects, "Job").values()
    rules = job["spec"]["template"]["spec"]
    commands = [[*one["command"], *one["args"]] for one in rules["initContainers"]]
    assert 2 == len(commands)
    (last,) = [[*one["command"], *one["args"]] for one in rules["containers"]]
    (doctor,) = of_kind(objects, "Pod").values()
    asked = ["kgw", "doctor", *doctor["spec"]["containers"][0]["args"]]
    for command in (*users, *commands, last, asked):
        assert problem(shlex.join(command)) is None
    for command in (*commands, last, asked):
        assert "--command-config=/etc/kgw-client/client.properties" in command
    for command in commands:
        # It is refused for its file alone, which is not here.
        result = CliRunner().invoke(main, [*command[1:], "--dry-run"])
        assert "cannot read /etc/kgw-client/client.properties" in result.stderr


def test_certificates_of_clients(tmp_path: Path) -> None:
    """The authority is a file of the same secret."""
    objects = rendered(*sample("certificates-values.yaml"))
    pod = of_kind(objects, "StatefulSet")["release-kgw"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    printed = printed_config(container, tmp_path)
    assert ("required", "/etc/kgw-tls/ca.crt", "/etc/kgw-tls/all.pem") == (
        printed["ssl.client.auth"],
        printed["ssl.truststore.location"],
        printed["ssl.keystore.location"],
    )
    assert printed["kgw.listeners.without.login"] is False
    assert "initContainers" not in pod
    assert not of_kind(objects, "Job")


def test_what_is_open_says_so(tmp_path: Path) -> None:
    """Without a login the setting allows it, in words."""
    pod = of_kind(rendered(), "StatefulSet")["release-kgw"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert printed_config(container, tmp_path)["kgw.listeners.without.login"] is True


def printed_config(container: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the settings that a container's command line has, by name."""
    (folder / "kgw.toml").write_text("", encoding="utf-8")
    words = [
        one.replace("/etc/kgw/kgw.toml", str(folder / "kgw.toml")) for one in container["args"]
    ]
    result = CliRunner().invoke(main, ["serve", *words, "--print-config", "--json"])
    assert (0, "") == (result.exit_code, result.stderr)
    return {name: one["value"] for name, one in json.loads(result.stdout).items()}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["replicas=2"], "one server serves what it keeps"),
        (["replicas=0"], "one server serves what it keeps"),
        (["replica=1"], "replica"),
        (["settings.listeners=x"], "given by the chart itself"),
        (["settings.num.partitions=3"], "write names in full"),
        (["settings.num\\.partitions=null"], "num.partitions has no value"),
        (["external.enabled=true"], "external.host is needed"),
        (
            ["external.enabled=true", "external.host=a", "external.type=NodePort"],
            "external.nodePort is needed",
        ),
        (["terminationGracePeriodSeconds=20"], "15 seconds more"),
        (["settings.kgw\\.shutdown\\.timeout\\.ms=30s"], "number of milliseconds"),
        (["settings.kgw\\.shutdown\\.timeout\\.ms=50000"], "15 seconds more"),
        (["backend=memory"], "backend"),
        (["security.protocol=SASL_SSL"], "security.tls.existingSecret is needed"),
        (["security.protocol=SASL_PLAINTEXT"], "security.users.names is needed"),
        (
            ["security.protocol=SASL_PLAINTEXT", "security.users.names={a}"],
            "security.users.existingSecret is needed",
        ),
        (
            ["security.users.names={a}", "security.users.existingSecret=b"],
            "with PLAINTEXT nobody logs in",
        ),
        (["security.rules[0]={--allow}"], "security.superUsers switches access rules on"),
        (["settings.super\\.users=User:a"], "given by the chart itself"),
        (["security.protocol=TLS"], "protocol"),
        (["admin.port=9094"], "a port of Kafka's clients"),
        (["persistence.accessModes={ReadWriteMany}"], "accessModes"),
        (["image.digest=latest"], "digest"),
    ],
)
def test_what_is_refused(settings: list[str], said: str) -> None:
    """What would be installed and not work as it looks is an error that says why."""
    options = [part for one in settings for part in ("--set", one)]
    done = helm("template", "release", str(CHART), *options)
    assert 1 == done.returncode, done.stdout
    assert said in done.stderr


def test_a_package(tmp_path: Path) -> None:
    """What is packaged holds the files of the links, and renders as the folder does."""
    done = helm("package", str(CHART), "--destination", str(tmp_path))
    assert 0 == done.returncode, done.stderr
    (package,) = tmp_path.glob("kgw-*.tgz")
    made = helm("template", "release", str(package), *sample("everything-values.yaml"))
    assert 0 == made.returncode, made.stderr
    assert "kind: PrometheusRule" in made.stdout


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ("apiVersion: v1\nkind: Service\nspec: {port: 1}\n", 'unknown field "port"'),
        ("apiVersion: v1\nkind: Service\nspec: {ports: 1}\n", "cannot unmarshal"),
        ("apiVersion: v1\nkind: Service\nkind: Service\n", "already set"),
        ("apiVersion: v1\nkind: Servicee\n", "is not known here"),
    ],
)
def test_the_check_bites(manifest: str, said: str) -> None:
    """Control: an unknown field, a wrong type, a repeated key, an unknown kind are errors."""
    done = subprocess.run(
        [str(TOOLS / "check")], input=manifest, capture_output=True, text=True, check=False
    )
    assert 1 == done.returncode
    assert said in done.stderr
