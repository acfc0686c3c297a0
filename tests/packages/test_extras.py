"""Each extra alone: a command that it promises is run with its packages and no others."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from typing import TYPE_CHECKING

import click
import pytest

from kgw.cli.main import main
from tests.packages import extras, linked

if TYPE_CHECKING:
    from pathlib import Path

EXTRAS = [one for one in extras.of_users() if one != "all"]
WITHOUT_SPARK = {"publish", "jars"}
"""What `kgw pipeline` does with other extras, or with a network."""


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_brings_what_it_promises(extra: str, tmp_path: Path) -> None:
    """Nothing that another extra, or a test, has installed is there."""
    installed = linked.needed(linked.KGW, extra)
    path = extras.path_of(extra)
    environment = linked.LinkedEnvironment(tmp_path / "env", installed, path=path)

    assert extras.use(extra, environment, tmp_path / "data", is_small=True)


def test_an_environment_has_what_is_needed_and_nothing_else() -> None:
    """The closure of an extra: what its packages need is in it, other extras are not."""
    names = {one.name.lower() for one in linked.needed(linked.KGW, "mysql")}

    assert {"kgw-broker", "click", "anyio", "pymysql", "cryptography", "cffi"} <= names
    assert set() == names & {"numpy", "pyspark", "asyncpg", "pytest", "pandas"}


def test_an_extra_that_is_not_installed_here_is_told() -> None:
    """It would be tested without its packages otherwise."""
    with pytest.raises(PackageNotFoundError):
        linked.needed("no-such-package")


def test_every_command_of_the_pipeline_is_run() -> None:
    """scripts/package knows each, with the extra that it needs."""
    pipeline = main.get_command(click.Context(main), "pipeline")
    assert isinstance(pipeline, click.Group)
    commands = {*pipeline.list_commands(click.Context(pipeline))}

    assert commands - WITHOUT_SPARK == {name.split()[0] for name in extras.PIPELINE}
