"""Asks the Python Package Index about known vulnerabilities of what a lock file pins.

The index is asked for each version, as `pip-audit` does. Some mirrors answer for the newest version
of a package alone; then the others are named, as nobody could be asked about them.
Exceptions stand in requirements/audit.toml, each with a reason and a last day.
"""

from __future__ import annotations

import json
import tomllib
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.packages.building import ROOT

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    Ask = Callable[[str], Mapping[str, Any] | None]
    """Returns the document of a path, or None where there is none."""

INDEX = "https://pypi.org/pypi"
EXCEPTIONS = ROOT / "requirements" / "audit.toml"
LIMIT_S = 30


class Finding(NamedTuple):
    """A vulnerability that somebody has published."""

    package: str
    version: str
    id: str
    summary: str
    fixed_in: tuple[str, ...]


class Exemption(NamedTuple):
    """A finding that somebody has looked at, and that counts again after a day."""

    id: str
    package: str
    until: dt.date
    reason: str


class Verdict(NamedTuple):
    """What came of asking."""

    findings: list[Finding]
    exempted: list[Finding]
    unanswered: list[str]


def audit(
    pins: Mapping[str, str], ask: Ask, exemptions: Iterable[Exemption], today: dt.date
) -> Verdict:
    """Ask about each package and version."""
    exempt = {(one.package, one.id) for one in exemptions if today <= one.until}
    verdict = Verdict([], [], [])
    for package, version in pins.items():
        document = ask(f"{package}/{version}/json") or ask(f"{package}/json")
        if document is None or document["info"]["version"] != version:
            verdict.unanswered.append(package)
            continue
        for one in document["vulnerabilities"]:
            # Taken back by who had published it.
            if one.get("withdrawn"):
                continue
            known = {one["id"], *one.get("aliases", [])}
            is_exempt = any((package, name) in exempt for name in known)
            found = Finding(
                package,
                version,
                one["id"],
                one.get("summary") or one.get("details", "").partition("\n")[0],
                tuple(one.get("fixed_in", ())),
            )
            (verdict.exempted if is_exempt else verdict.findings).append(found)
    return verdict


def load_exemptions(path: Path = EXCEPTIONS) -> list[Exemption]:
    """Return what the file says. Raises TypeError where an exception lacks something."""
    entries = tomllib.loads(path.read_text()).get("exception", [])
    return [Exemption(**entry) for entry in entries]


def ask_index(path: str) -> Mapping[str, Any] | None:
    """Return a document of the index, or None where it has none. OSError where it cannot be asked.

    HTTPError is an OSError, too: an answer that says neither yes nor no.
    """
    try:
        with urllib.request.urlopen(f"{INDEX}/{path}", timeout=LIMIT_S) as answer:  # noqa: S310 -- https
            document: Mapping[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise
    return document
