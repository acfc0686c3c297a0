"""Completes the SBOM (CycloneDX) that cyclonedx-py wrote of an environment; scripts/lock runs it.

Into each component go the hashes of its lock file, which pip checks, and its scope: `required` for
what every kgw needs, `optional` for what an extra needs, `excluded` for what only builds.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

UNDECLARED_LICENCES = {
    # Says "3-Clause BSD License" in a field that has no fixed words.
    "protobuf": "BSD-3-Clause",
}

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def normalized(name: str) -> str:
    """Return a package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(lock: str) -> dict[str, tuple[str, list[str]]]:
    """Return version and hashes by normalized name, of a lock file's text."""
    found: dict[str, tuple[str, list[str]]] = {}
    for line in lock.splitlines():
        if pin := _PIN.match(line):
            hashes: list[str] = []
            found[normalized(pin[1])] = (pin[2], hashes)
        if one := _HASH.search(line):
            hashes.append(one[1])
    return found


def completed(
    bom: dict[str, Any], lock: str, *, required: set[str], used: set[str]
) -> dict[str, Any]:
    """Return the SBOM with hashes, licences and scopes. ValueError where it and the lock differ."""
    pins = pinned(lock)
    seen = set()
    for component in bom["components"]:
        name = normalized(component["name"])
        version, hashes = pins.get(name, ("", []))
        if version != component["version"]:
            message = f"{name} {component['version']} is not what the lock file pins: {version}"
            raise ValueError(message)
        seen.add(name)
        component["scope"] = (
            "required" if name in required else "optional" if name in used else "excluded"
        )
        component.setdefault("externalReferences", []).append(
            {
                "type": "distribution",
                "url": f"https://pypi.org/project/{name}/{version}/",
                "comment": "any one of the files that the lock file allows",
                "hashes": [{"alg": "SHA-256", "content": one} for one in hashes],
            }
        )
        if not component.get("licenses"):
            licence = {"acknowledgement": "concluded", "id": UNDECLARED_LICENCES.get(name)}
            if licence["id"] is None:
                message = f"{name} declares no licence: look, and say it in UNDECLARED_LICENCES"
                raise ValueError(message)
            component["licenses"] = [{"license": licence}]
    if missing := pins.keys() - seen:
        message = f"not installed, so not in the SBOM: {', '.join(sorted(missing))}"
        raise ValueError(message)
    kgw = bom["metadata"]["component"]
    kgw["purl"] = f"pkg:pypi/kgw-broker@{kgw['version']}"
    return bom


def main() -> None:
    """Read the files that are named, and write the SBOM."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("bom", "lock", "required", "used", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    arguments = parser.parse_args()
    bom = completed(
        json.loads(arguments.bom.read_text()),
        arguments.lock.read_text(),
        required=set(pinned(arguments.required.read_text())),
        used=set(pinned(arguments.used.read_text())),
    )
    arguments.output.write_text(json.dumps(bom, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
