"""What commands share that run on Spark: its master, and a session that ends with the command."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from kgw.cli.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*,4]"

master_option = click.option(
    "--master",
    default=DEFAULT_MASTER,
    show_default=True,
    metavar="MASTER",
    help="Where Spark runs: spark://HOST:PORT, k8s://..., yarn, or every processor of this "
    "machine, with three more attempts at a task that fails.",
)


@contextmanager
def spark_session(app_name: str, master: str) -> Iterator[SparkSession]:
    """Give a session; one that runs already in this process is used, and left running."""
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        from kgw.pipeline.session import session
    except ImportError as error:
        raise CommandError(
            f"Spark cannot be used: {error}. Install it with pip install 'kgw[spark]'"
        ) from None
    is_ours = SparkSession.getActiveSession() is None
    try:
        spark = session(app_name, master=master)
    except (PySparkException, OSError) as error:
        raise CommandError(
            f"Spark cannot start: {error}. `kgw doctor --spark` says what is missing"
        ) from None
    try:
        yield spark
    finally:
        if is_ours:
            spark.stop()
