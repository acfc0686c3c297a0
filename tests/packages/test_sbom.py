"""The SBOM says what requirements/run.txt pins, and how it is completed."""

from __future__ import annotations

import json
import re
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

import pytest
from packaging.requirements import Requirement

from kgw import __version__
from scripts.sbom import completed, normalized, pinned
from tests.packages.building import LOCK, ROOT, SBOM

LOCK_OF_TWO = f"""\
One.Package==1.0 \\
    --hash=sha256:{"1" * 64} \\
    --hash=sha256:{"2" * 64}
protobuf==2.0 ; python_version >= "3" \\
    --hash=sha256:{"3" * 64}
"""


def bom_of_two() -> dict[str, Any]:
    """What cyclonedx-py would say of these two."""
    return {
        "metadata": {"component": {"name": "kgw-broker", "version": "1"}},
        "components": [
            {"name": "one_package", "version": "1.0", "licenses": [{"license": {"id": "MIT"}}]},
            {"name": "protobuf", "version": "2.0"},
        ],
    }


def hashes(component: dict[str, Any]) -> list[str]:
    """Return the hashes of a component's files."""
    # Packages may name other places where they are to be had.
    (distribution,) = (one for one in component["externalReferences"] if "hashes" in one)
    return [one["content"] for one in distribution["hashes"]]


def test_it_has_every_package_and_nothing_else() -> None:
    """Versions, files and addresses are those of the lock file; each has a licence and a scope."""
    document = json.loads(SBOM.read_text())
    components = document["components"]
    told = {normalized(one["name"]): (one["version"], hashes(one)) for one in components}

    assert pinned(LOCK.read_text()) == told
    for name, (version, _) in told.items():
        assert f"pkg:pypi/{name}@{version}" in {one["purl"] for one in components}
    assert all(one["licenses"] for one in components)
    assert {"required", "optional", "excluded"} == {one["scope"] for one in components}
    assert ("CycloneDX", "1.6") == (document["bomFormat"], document["specVersion"])


def test_it_tells_what_is_for_what() -> None:
    """Every kgw needs click; gRPC is of an extra; hatchling only builds. It is about this kgw."""
    document = json.loads(SBOM.read_text())
    scopes = {normalized(one["name"]): one["scope"] for one in document["components"]}

    expected = {"click": "required", "grpcio": "optional", "hatchling": "excluded"}
    assert expected == {name: scopes[name] for name in expected}
    assert f"pkg:pypi/kgw-broker@{__version__}" == document["metadata"]["component"]["purl"]


def test_it_is_the_same_each_time() -> None:
    """Neither the time nor a random number is in it."""
    document = json.loads(SBOM.read_text())

    assert ("absent", "absent") == (
        document.get("serialNumber", "absent"),
        document["metadata"].get("timestamp", "absent"),
    )


@pytest.mark.parametrize("lock", ["image", "run", "serve"])
def test_it_has_every_package_that_is_installed(lock: str) -> None:
    """A14: what the image installs, and scripts/run, in these versions."""
    pins = pinned((LOCK.parent / f"{lock}.txt").read_text())
    assert "click" in pins
    assert {name: version for name, (version, _) in pins.items()}.items() <= told().items()


def test_it_has_what_is_installed_here() -> None:
    """What kgw and the extras with which it serves need, and what that needs."""
    installed = installed_for("kgw-broker", serving_extras())
    assert {"click", "uvloop", "crc32c", "cryptography", "cffi"} <= installed
    assert set() == installed - told().keys()


def told() -> dict[str, str]:
    """Return the packages of the SBOM with their versions."""
    components = json.loads(SBOM.read_text())["components"]
    return {normalized(one["name"]): one["version"] for one in components}


def serving_extras() -> set[str]:
    """Return the extras with which a server runs, as scripts/lock has them."""
    (line,) = re.findall(
        r"^serving=\((.*)\)$", (ROOT / "scripts" / "lock").read_text(), re.MULTILINE
    )
    return {*line.split()} - {"--extra"}


def installed_for(name: str, extras: set[str]) -> set[str]:
    """Return the packages that a package needs, itself left out; those that are installed."""
    found: set[str] = set()
    pending = [(name, frozenset(extras))]
    seen = set(pending)
    while pending:
        package, wanted = pending.pop()
        for text in distribution(package).requires or ():
            requirement = Requirement(text)
            marker = requirement.marker
            environments = [{"extra": one} for one in wanted] or [{"extra": ""}]
            if marker is not None and not any(map(marker.evaluate, environments)):
                continue
            needed = (requirement.name, frozenset(requirement.extras))
            try:
                distribution(requirement.name)
            except PackageNotFoundError:
                continue
            found.add(normalized(requirement.name))
            if needed not in seen:
                seen.add(needed)
                pending.append(needed)
    return found - {normalized(name)}


def test_components_are_completed() -> None:
    """Hashes, scopes, and the licence that a package does not declare."""
    document = completed(bom_of_two(), LOCK_OF_TWO, required={"one-package"}, used=set())
    one, protobuf = document["components"]

    assert ("required", ["1" * 64, "2" * 64]) == (one["scope"], hashes(one))
    assert ("excluded", ["3" * 64]) == (protobuf["scope"], hashes(protobuf))
    assert "BSD-3-Clause" == protobuf["licenses"][0]["license"]["id"]


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [
        ("protobuf", "2.1", "protobuf 2.1 is not what the lock file pins: 2.0"),
        ("other", "2.0", "other 2.0 is not what the lock file pins: "),
        (None, None, "not installed, so not in the SBOM: protobuf"),
    ],
)
def test_what_is_installed_must_be_what_is_locked(
    name: str | None, version: str | None, message: str
) -> None:
    """Nothing goes into the SBOM that the lock file does not say, and nothing stays out."""
    document = bom_of_two()
    document["components"].pop()
    if name is not None:
        document["components"].append({"name": name, "version": version})

    with pytest.raises(ValueError, match=message):
        completed(document, LOCK_OF_TWO, required=set(), used=set())


def test_a_package_without_a_licence_is_noticed() -> None:
    """Somebody has to look."""
    document = bom_of_two()
    del document["components"][0]["licenses"]

    with pytest.raises(ValueError, match="one-package declares no licence"):
        completed(document, LOCK_OF_TWO, required=set(), used=set())
