"""What the pages for those who move here say of settings and commands holds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from kgw.cli.main import main
from kgw.config import SERVER_SETTINGS
from kgw.config.load import environment_name
from kgw.testing.process import GatewayProcess
from tests.docs.pages import steps
from tests.docs.test_commands import do

DOCS = Path(__file__).resolve().parents[2] / "docs"
KAFKA = DOCS / "moving-from-kafka-in-docker.md"
TESTCONTAINERS = DOCS / "moving-from-testcontainers.md"
ROW = re.compile(r"^\| `KAFKA_(?P<name>\w+)=(?P<value>[^`]*)` \| (?P<ours>[^|]*) \|", re.MULTILINE)
ROWS = [found.groups() for found in ROW.finditer(KAFKA.read_text())]


@pytest.mark.parametrize(("name", "value", "ours"), ROWS)
def test_lines_of_kafkas_image(name: str, value: str, ours: str) -> None:
    """Kgw takes what is named, and refuses what is to be left out, as the page says."""
    kgw, _, taken = ours.strip("` ").partition("=")
    # The image allows listeners that ask nobody who they are.
    image = {"KGW_LISTENERS_WITHOUT_LOGIN": "true"}
    runner = CliRunner(env={"KGW_CONFIG": None, **image, kgw: taken or None})
    if ours == "leave it out":
        setting = f"{name.lower().replace('_', '.')}={value}"
        result = runner.invoke(main, ["serve", "--print-config", "--set", setting])
        assert (2, True) == (result.exit_code, "is not served" in result.stderr)
    else:
        assert kgw in {environment_name(setting) for setting in SERVER_SETTINGS}
        assert 0 == runner.invoke(main, ["serve", "--print-config"]).exit_code


def test_variables_are_settings() -> None:
    """Every variable of kgw that these pages name is read."""
    known = {environment_name(name) for name in SERVER_SETTINGS} | {"KGW_BOOTSTRAP"}
    named = {
        one for page in DOCS.glob("moving-*.md") for one in re.findall(r"KGW_\w+", page.read_text())
    }
    assert set() == named - known


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_server_is_started_for_other_languages(tmp_path: Path) -> None:
    """The command prints the line that a test waits for."""
    (step,) = steps(TESTCONTAINERS.read_text())
    do([step], tmp_path, tmp_path, 30)


def answer(bootstrap: str, *arguments: str, data: str = "") -> str:
    """What a command that succeeds prints."""
    runner = CliRunner(env={"KGW_BOOTSTRAP": bootstrap, "KGW_CONFIG": None})
    result = runner.invoke(main, arguments, input=data)
    assert 0 == result.exit_code, result.stderr
    return result.stdout


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_data_is_brought_along(tmp_path: Path) -> None:
    """Every record is on the other side as it was, and the group where it stood."""
    lines = "".join(
        json.dumps({"key": f"k{n}", "value": n, "headers": {"n": str(n)}, "partition": n % 3})
        + "\n"
        for n in range(300)
    )
    with (
        GatewayProcess(tmp_path / "old") as old,
        GatewayProcess(tmp_path / "new") as new,
    ):
        answer(old.bootstrap, "topics", "create", "orders", "--partitions", "3")
        answer(old.bootstrap, "produce", "orders", "--format", "json", data=lines)
        answer(
            old.bootstrap,
            *("groups", "reset-offsets", "billing", "--topic", "orders", "--to-offset", "42"),
            *("--execute", "--undo-file", str(tmp_path / "first.json")),
        )
        moved = {"127.0.0.1:9092": old.bootstrap, "127.0.0.1:9093": new.bootstrap}
        do(steps(KAFKA.read_text()), tmp_path, tmp_path, 30, texts=moved)
        before, after = (
            sorted(answer(one.bootstrap, "consume", "orders", "--json").splitlines())
            for one in (old, new)
        )
        offsets = [json.loads((tmp_path / name).read_text()) for name in ("old.json", "new.json")]
    assert (300, before) == (len(after), after)
    ends = [[(one["partition"], one["end_offset"]) for one in side] for side in offsets]
    assert ends[0] == ends[1]
    assert "orders,0,42\norders,1,42\norders,2,42\n" == (tmp_path / "billing.csv").read_text()
