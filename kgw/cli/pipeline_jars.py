"""`kgw pipeline jars`: what Spark's own Kafka connector needs."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from kgw.cli.errors import CommandError
from kgw.cli.output import print_json
from kgw.cli.settings import json_option
from kgw.pipeline.jars import (
    MAVEN_CENTRAL,
    fetch_by_maven,
    fetch_from,
    fetch_jars,
    has_maven,
    spark_jars,
)


@click.command(short_help='Fetch the jars for format("kafka").')
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
    help="The version of Spark that they are for. Default: that of PySpark.",
)
@click.option(
    "--repository",
    metavar="URL",
    help="A Maven repository to fetch from over HTTP. Default: what mvn is set up to use, where it "
    f"is installed, and otherwise {MAVEN_CENTRAL}.",
)
@json_option()
def jars(
    *, directory: Path, spark_version: str | None, repository: str | None, is_json: bool
) -> None:
    """Fetch the four jars of Spark's Kafka connector that fit PySpark, and check their checksums.

    Prints the setting spark.jars that a session needs for format("kafka"). format("kgw") needs
    no jar.
    """
    if spark_version is None:
        try:
            spark_version = version("pyspark")
        except PackageNotFoundError:
            raise CommandError(
                "PySpark is not installed: pip install 'kgw[spark]', or name a version with --spark"
            ) from None
    fetch = (
        fetch_by_maven
        if repository is None and has_maven()
        else fetch_from(repository or MAVEN_CENTRAL)
    )
    try:
        found = fetch_jars(directory, spark_version, fetch)
    except OSError as error:
        raise CommandError(f"cannot write to {directory}: {error}") from None
    if is_json:
        print_json(
            {
                "spark": spark_version,
                "jars": [str(one) for one in found],
                "settings": {"spark.jars": spark_jars(found)},
            }
        )
    else:
        click.echo(f"spark.jars={spark_jars(found)}")
