"""On the package index the name `kgw` is another project's: nothing may send a reader there."""

from __future__ import annotations

import re

import pytest

from tests.packages.building import ROOT

PAGES = [
    page
    for pattern in (
        "README.md",
        "CONTRIBUTING.md",
        "docs/*.md",
        "docs/clients/*.md",
        "*/**/README.md",
    )
    for page in sorted(ROOT.glob(pattern))
    if not any(part.startswith(".") for part in page.relative_to(ROOT).parts)
]
INSTALLER = re.compile(r"\b(?:pip3?|pipx|uv|uvx) [^\n`#]*")
BY_NAME = re.compile(r"kgw(?:\[.*\])?")


def sent_away(text: str) -> list[str]:
    """Return the commands that would ask the index for kgw."""
    found = []
    for line in text.splitlines():
        for command in INSTALLER.findall(line):
            words = [word.strip("'\".,") for word in command.split()]
            is_named = any(BY_NAME.fullmatch(word) for word in words)
            if is_named and not {"--from", "--spec"} & {*words}:
                found.append(command.strip())
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_installs_by_name(page: str) -> None:
    """Somebody else's program would be installed, and run."""
    assert [] == sent_away((ROOT / page).read_text(encoding="utf-8"))


def test_no_message_names_an_extra_of_the_other_project() -> None:
    """Sources, help texts and settings call the distribution `kgw-broker`."""
    of_the_other = re.compile(r"(?<![\w./-])kgw\[[a-z{]")
    sources = sorted((ROOT / "kgw").rglob("*.py"))

    assert sources
    assert [] == [one.name for one in sources if of_the_other.search(one.read_text())]


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("pip install kgw", True),
        ("pip install 'kgw[spark]'", True),
        ("env/bin/pip install kgw numpy", True),
        ("uvx kgw serve", True),
        ("pipx install kgw", True),
        ("pip install .", False),
        ("pip install 'kgw-broker[spark]'", False),
        ("pip install 'dist/kgw_broker-0.1.0-py3-none-any.whl[spark]'", False),
        ("uvx --from dist/kgw_broker-0.1.0-py3-none-any.whl kgw serve", False),
        ("`pip install .` gives the `kgw` command", False),
    ],
)
def test_the_look_finds_what_it_looks_for(text: str, *, is_found: bool) -> None:
    """Commands that ask the index, and no others."""
    assert is_found == bool(sent_away(text))
