"""What the pages for a first visit tell their reader to run is run, as it is written there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import steps
from tests.docs.shell import Shell
from tests.state.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.docs.pages import Step

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"
README = ROOT / "README.md"
CLOSING = ROOT / "docs" / "closing.md"
# The commands of the project itself, as in an environment into which it was installed.
PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"


def do(
    page_steps: Iterable[Step],
    folder: Path,
    notes: Path,
    timeout_s: float,
    texts: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Do the steps of a page in a folder, with a free port in place of 9092, unless told others."""
    address = f"127.0.0.1:{free_port()}"
    env = {"PATH": PATH}
    if texts is None:
        env |= {"KGW_LISTENERS": f"PLAINTEXT://{address}", "KGW_BOOTSTRAP": address}
    with Shell(
        folder,
        notes,
        env=env | dict(settings or {}),
        texts=texts or {"127.0.0.1:9092": address},
        timeout_s=timeout_s,
    ) as shell:
        for step in page_steps:
            if "install" in step.block.words:
                assert [] == missing(step.block.text)
            else:
                shell.do(step)


def missing(commands: str) -> list[str]:
    """What `pip install` of these commands would have to fetch; the project itself is `.`."""
    wanted: list[str] = []
    for line in commands.splitlines():
        if line.startswith("pip install "):
            wanted += shlex.split(line)[2:]
    assert wanted
    return [name for name in wanted if not is_installed(name)]


def is_installed(name: str) -> bool:
    """Whether a package is there, or this project has the extra that is named."""
    extra = re.fullmatch(r"\.(?:\[(?P<name>\w+)\])?", name)
    if extra is None:
        try:
            distribution(name)
        except PackageNotFoundError:
            return False
        return True
    provided = distribution("kgw-broker").metadata.get_all("Provides-Extra", [])
    return extra["name"] in (None, *provided)


@pytest.fixture
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what the test itself writes down, away from the page's."""
    return tmp_path_factory.mktemp("notes")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_tutorial_without_spark(tmp_path: Path, notes: Path) -> None:
    """Every command before and after the part about Spark does what the page says."""
    without = [one for one in steps(TUTORIAL.read_text()) if "Spark" not in one.block.heading]
    do(without, tmp_path, notes, 30)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_tutorial(tmp_path: Path, notes: Path) -> None:
    """Every command of the page does what the page says; it needs Java and a minute."""
    do(steps(TUTORIAL.read_text()), tmp_path, notes, 300)


def ports(*shown: int) -> dict[str, str]:
    """Return free ports for the ports of a page."""
    return {f":{port}": f":{free_port()}" for port in shown}


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_from_open_to_closed(tmp_path: Path, notes: Path) -> None:
    """Every command of the page does what the page says, and there are ten of them."""
    page = CLOSING.read_text()
    texts = ports(9092, 9093)
    settings = {"KGW_BOOTSTRAP": f"127.0.0.1{texts[':9092']}"}
    found = steps(page)
    closing = [
        line
        for one in found
        if one.block.heading == "The ten commands" and one.block.language == "sh"
        for line in one.block.text.splitlines()
    ]
    assert 10 == len(closing)
    do(found, tmp_path, notes, 30, texts, settings)


def has_pytest_plugin() -> bool:
    """Whether the installed kgw brings one."""
    return any(point.group == "pytest11" for point in distribution("kgw-broker").entry_points)


# In the README the parts that run in the checkout; the example of a test has a folder of its own.
IN_TESTS = "In your tests"


def has_what_scripts_run_installs() -> bool:
    """Whether `scripts/run` finds everything there; as `ensure_environment` in lib.sh looks."""
    stamp = ROOT / ".venv" / ".installed-serve"
    with (ROOT / "requirements" / "serve.txt").open("rb") as lock:
        found = subprocess.run(["cksum"], stdin=lock, capture_output=True, check=True)
    return stamp.is_file() and stamp.read_bytes() == found.stdout


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.skipif(
    "CI" not in os.environ and not has_what_scripts_run_installs(),
    reason="scripts/run would install packages in the middle of the tests: run scripts/test",
)
def test_readme(tmp_path: Path, notes: Path) -> None:
    """Its commands are run in the checkout, with the data elsewhere; nothing is fetched."""
    found = [one for one in steps(README.read_text()) if IN_TESTS != one.block.heading]
    settings = {"KGW_LOG_DIRS": str(tmp_path / "data"), "PIP_NO_INDEX": "1"}
    do(found, ROOT, notes, 30, settings=settings)


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.skipif(not has_pytest_plugin(), reason="this kgw brings no plugin of pytest")
def test_readmes_example_of_a_test(tmp_path: Path, notes: Path) -> None:
    """A test that asks for a broker passes."""
    found = [one for one in steps(README.read_text()) if IN_TESTS == one.block.heading]
    do(found, tmp_path, notes, 30)
