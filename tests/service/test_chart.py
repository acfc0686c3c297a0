"""The Helm chart against the server that it starts: names, ports, flags, and the page about it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from kgw.cli.main import main

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "kgw"
VALUES = (CHART / "values.yaml").read_text(encoding="utf-8")
STATEFUL_SET = (CHART / "templates" / "statefulset.yaml").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
LINKS = {"alerts.yaml": "prometheus/alerts.yaml", "kgw.json": "grafana/kgw.json"}
# What a template puts in: a stand-in of the right kind.
STAND_INS = {
    ".Values.service.port": "9092",
    ".Values.admin.port": "9644",
    ".Values.external.host": "kafka.example.org",
    'include "kgw.host" .': "kgw.default.svc.cluster.local",
    'include "kgw.externalPort" .': "9094",
    'default "embedded" .Values.backend': "embedded",
}


def values(text: str) -> dict[str, str]:
    """Return every value of a values file in block style, by its name with dots."""
    found: dict[str, str] = {}
    inside: list[tuple[int, str]] = []
    for line in text.splitlines():
        match = re.fullmatch(r"( *)([A-Za-z_]+):(?: (.*))?", line)
        if match is None:
            continue
        indentation = len(match[1])
        inside = [one for one in inside if one[0] < indentation]
        name = ".".join([*(one[1] for one in inside), match[2]])
        inside.append((indentation, match[2]))
        if match[3] is not None:
            found[name] = match[3]
    return found


def arguments() -> list[str]:
    """Return what the template gives `kgw serve`, with every option on."""
    server = STATEFUL_SET.partition("        - name: kgw\n")[2]
    block = server.partition("          args:\n")[2].partition("\n          {{- with")[0]
    words = re.findall(r"^            - (--.*)$", block, re.MULTILINE)
    for name, stand_in in STAND_INS.items():
        words = [word.replace(f"{{{{ {name} }}}}", stand_in) for word in words]
    return words


def test_the_command_line() -> None:
    """It is one that kgw takes, and says what the rest of the chart relies on."""
    words = [one for one in arguments() if not one.startswith("--config")]
    assert not [word for word in words if "{{" in word]
    # The template takes it from `security`: tests/service/test_helm.py renders that.
    words += ["--set", "kgw.listeners.without.login=true"]
    result = CliRunner().invoke(main, ["serve", *words, "--print-config", "--json"])
    assert (0, "") == (result.exit_code, result.stderr)
    config = {name: one["value"] for name, one in json.loads(result.stdout).items()}
    assert ["INTERNAL://:9092", "EXTERNAL://:9094"] == config["listeners"]
    assert "embedded" == config["kgw.backend"]
    assert [":9644"] == config["kgw.admin.listeners"]
    for directory in (config["log.dirs"], str(Path(config["kgw.admin.token.file"]).parent)):
        assert f"mountPath: {directory}" in STATEFUL_SET


def test_ports() -> None:
    """Those that the container has are those that it listens at."""
    ports = re.findall(r"containerPort: (.*)", STATEFUL_SET)
    assert ["9092", "9094", "{{ .Values.admin.port }}"] == ports
    assert {"9092", "9644"} == {values(VALUES)["service.port"], values(VALUES)["admin.port"]}


def test_the_user_of_the_image() -> None:
    """The pod runs as the image's user, whose directory the data's is."""
    (user, group) = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)[-1]
    found = values(VALUES)
    for name in ("runAsGroup", "fsGroup"):
        assert group == found[f"podSecurityContext.{name}"]
    assert user == found["podSecurityContext.runAsUser"]
    assert "/var/lib/kgw" in DOCKERFILE


def test_hardening() -> None:
    """No root, nothing to write to but volumes, no capability, no token of the cluster's."""
    found = values(VALUES)
    assert {
        "podSecurityContext.runAsNonRoot": "true",
        "podSecurityContext.seccompProfile.type": "RuntimeDefault",
        "securityContext.allowPrivilegeEscalation": "false",
        "securityContext.readOnlyRootFilesystem": "true",
        "securityContext.capabilities.drop": "[ALL]",
    }.items() <= found.items()
    assert "automountServiceAccountToken: false" in STATEFUL_SET


def test_no_secret_is_open_to_every_user() -> None:
    """Kubernetes gives files of a secret the mode 0644 unless it is told another one."""
    volumes = 0
    for template in sorted((CHART / "templates").rglob("*.yaml")):
        text = template.read_text(encoding="utf-8")
        modes = text.count("defaultMode: 0440")
        assert modes == text.count("secretName:"), template.name
        volumes += modes
    assert 5 == volumes


def test_the_schema_knows_every_value() -> None:
    """And no other: a value that is mistyped is an error."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    named = re.findall(r"^([A-Za-z]+):", VALUES, re.MULTILINE)
    assert {*named, "global"} == set(schema["properties"])
    assert schema["additionalProperties"] is False


def test_the_page() -> None:
    """docs/kubernetes.md has each value with its default, in the same order."""
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([A-Za-z._]+)` \| (?:`(.*?)`|) \|", page, re.MULTILINE)
    expected = [(name, value.strip('"')) for name, value in values(VALUES).items()]
    replaced = ("podSecurityContext.", "securityContext.")
    whole = [one for one in expected if not one[0].startswith(replaced)]
    assert whole == [(name, value) for name, value in rows]


@pytest.mark.parametrize(("name", "source"), LINKS.items())
def test_files_of_others(name: str, source: str) -> None:
    """The alert rules and the dashboard are not copies: `helm` follows the links."""
    link = CHART / "files" / name
    assert link.is_symlink()
    assert (ROOT / "deploy" / source).resolve() == link.resolve()


def test_the_sample_values_are_values() -> None:
    """What `scripts/helm` renders the chart with has no value that the chart does not know."""
    known = set(re.findall(r"^([A-Za-z]+):", VALUES, re.MULTILINE))
    for path in (CHART / "ci").glob("*-values.yaml"):
        named = re.findall(r"^([A-Za-z]+):", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert not set(named) - known, path.name
