"""docs/pytest.md: what it shows runs, and what there is, it names."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from kgw.protocol.api_keys import ApiKey
from kgw.testing import plugin
from kgw.testing.broker import Broker
from kgw.testing.costume_table import RELEASES
from kgw.testing.fault_rules import api_name
from kgw.testing.faults import Faults
from kgw.testing.topic_fields import TOPIC_FIELDS
from tests.testing.running import Outcome, run_pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "pytest.md").read_text()
BLOCKS = dict(
    re.findall(r"^#+ ([^\n]+)\n(?:(?!^#).)*?^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
)
"""Python by the heading above it."""
IN_FULL = {"Spark": "a session of Spark takes seconds to start"}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Return what became of the blocks that are not for the full run, by heading."""
    return run_blocks(tmp_path_factory.mktemp("page"), *(set(BLOCKS) - set(IN_FULL)))


def run_blocks(directory: Path, *headings: str) -> dict[str, Outcome]:
    """Run blocks as they are written, and return what became of each, by heading."""
    files = {f"test_{number}": heading for number, heading in enumerate(headings)}
    texts = {name: BLOCKS[heading] for name, heading in files.items()}
    found = run_pytest(directory, texts, mode="auto")
    # Where one of several tests of a block has not passed, that one counts.
    outcomes: dict[str, Outcome] = {}
    for (file, _), outcome in found.items():
        if outcomes.get(files[file], Outcome("passed")).result == "passed":
            outcomes[files[file]] = outcome
    return outcomes


def test_each_block_of_python_is_run() -> None:
    """There is one below a heading, and each has a test."""
    assert len(BLOCKS) == PAGE.count("```python")
    assert [] == [heading for heading, text in BLOCKS.items() if "def test_" not in text]


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("heading", [one for one in BLOCKS if one not in IN_FULL])
def test_what_the_page_shows_passes(outcomes: dict[str, Outcome], heading: str) -> None:
    """As it is written there."""
    assert Outcome("passed") == outcomes[heading]


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("heading", IN_FULL)
def test_what_takes_long_passes(tmp_path: Path, heading: str) -> None:
    """As it is written there."""
    assert {heading: Outcome("passed")} == run_blocks(tmp_path, heading)


def table(heading: str) -> set[str]:
    """Return the names in the first column of the table below a heading."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`(\w+)", row)}


def methods(kind: type) -> set[str]:
    """Return the public methods of a class."""
    return {
        name
        for name, member in vars(kind).items()
        if inspect.isfunction(member) and not name.startswith("_")
    }


def test_all_fixtures_and_markers_are_told_of() -> None:
    """Each in its table, and nothing else."""
    fixtures = {name for name in vars(plugin) if name.startswith("kgw_")}
    assert fixtures == table("Fixtures")
    assert {form.partition("(")[0] for form in plugin.MARKERS} == table("Markers")


def test_all_methods_are_told_of() -> None:
    """Of the broker, and of its faults."""
    assert methods(Broker) == table("What a test can do and see by itself")
    about_faults = {"struck", "clear", "check"}
    assert methods(Faults) - about_faults == table("Faults")
    assert [] == [name for name in about_faults if f"`faults.{name}()`" not in PAGE]


def test_the_apis_and_releases_that_it_names_are_all() -> None:
    """Those that a fault can be for by topic, and those that there are costumes of."""
    apis = ", ".join(map(api_name, list(TOPIC_FIELDS)[:-1]))
    last = api_name(list(TOPIC_FIELDS)[-1])
    assert f"can be for {apis} and {last}." in PAGE
    assert ApiKey.FETCH in TOPIC_FIELDS
    text = "0.10.0, 0.10.1, 0.10.2, 0.11.0, 1.0 and 1.1, 2.0 to 2.8, 3.0 to 3.9, and 4.0 to 4.4;"
    assert text in PAGE
    named = ["0.10.0", "0.10.1", "0.10.2", "0.11.0", "1.0", "1.1"]
    named += [f"2.{number}" for number in range(9)] + [f"3.{number}" for number in range(10)]
    assert (*named, "4.0", "4.1", "4.2", "4.3", "4.4") == RELEASES
