"""`kgw pipeline jars`: downloads the jars of Spark's Kafka connector, and of Delta tables."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kgw.cli.shared.errors import CommandError
from kgw.cli.shared.output import note, print_json
from kgw.cli.shared.settings import json_option
from kgw.cli.shared.writing import writing_to
from kgw.pipeline.jars import (
    MAVEN_CENTRAL,
    delta_tables,
    fetch_by_maven,
    fetch_from,
    fetch_jars,
    fetch_nearest,
    has_maven,
    kafka_connector,
    spark_jars,
)
from kgw.version import install_command

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.command(short_help='Fetch the jars for format("kafka") or format("delta").')
@click.option(
    "--to",
    "directory",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where to put them; made if it is not there.",
)
@click.option(
    "--spark",
    "spark_version",
    metavar="VERSION",
    help="The version of Spark that they are for. Default: that of PySpark, or the nearest patch "
    "before it of which there is a connector.",
)
@click.option(
    "--repository",
    metavar="URL",
    help="A Maven repository to fetch from over HTTP. Default: what mvn is set up to use, where it "
    f"is installed, and otherwise {MAVEN_CENTRAL}.",
)
@click.option(
    "--delta", "is_delta", is_flag=True, help="Fetch Delta's, in place of the Kafka connector's."
)
@json_option()
def jars(
    *,
    directory: Path,
    spark_version: str | None,
    repository: str | None,
    is_delta: bool,
    is_json: bool,
) -> None:
    """Download the four jars of Spark's Kafka connector for PySpark, and check their checksums.

    With --delta, download the two jars of Delta tables. Prints the settings that a session needs
    for format("kafka") or format("delta"). format("kgw") needs no jar.
    """
    installed = None if spark_version else _installed_spark()
    fetch = (
        fetch_by_maven
        if repository is None and has_maven()
        else fetch_from(repository or MAVEN_CENTRAL)
    )
    more: Mapping[str, str] = {}
    fetched_for = spark_version or installed or ""
    with writing_to(directory):
        if is_delta:
            wanted = delta_tables(fetched_for)
            found, more = fetch_jars(directory, wanted, fetch), wanted.settings
        elif installed:
            fetched_for, found = fetch_nearest(directory, installed, fetch)
        else:
            found = fetch_jars(directory, kafka_connector(fetched_for), fetch)
    if installed and fetched_for != installed:
        note(f"no connector of Spark {installed} is there; these are the jars of {fetched_for}")
    settings = {"spark.jars": spark_jars(found), **more}
    if is_json:
        print_json(
            {"spark": fetched_for, "jars": [str(one) for one in found], "settings": settings}
        )
    else:
        for name, value in settings.items():
            click.echo(f"{name}={value}")


def _installed_spark() -> str:
    try:
        return version("pyspark")
    except PackageNotFoundError:
        raise CommandError(
            f"PySpark is not installed: {install_command('spark')}, or name a version with --spark"
        ) from None
