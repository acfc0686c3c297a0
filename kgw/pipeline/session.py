"""A SparkSession as the pipeline needs it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from kgw.pipeline.source import KgwDataSource

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_MASTER: Final = "local[*,4]"
"""Every processor, and three more attempts at a task that fails: plain `local[*]` makes none."""

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Between Spark and its Python workers; a quarter less time at best.
    "spark.python.unix.domain.socket.enabled": "true",
    # A session that a command makes is of this machine alone.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def session(
    app_name: str = "kgw",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    log_level: str = "ERROR",
) -> SparkSession:
    """Return a session that knows `format("kgw")`: the one that runs already, or a new one.

    `settings` go before the ones that stand here. Workers run the interpreter that runs this, with
    its packages, unless PYSPARK_PYTHON names another one.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    chosen = dict(_SETTINGS)
    if master is not None and not master.startswith("local"):
        # Workers on other machines must reach the driver.
        del chosen["spark.driver.bindAddress"], chosen["spark.driver.host"]
    else:
        # Otherwise Spark warns of a host name that stands for another address.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app_name).master(master or DEFAULT_MASTER)
    for name, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(log_level)
    spark.dataSource.register(KgwDataSource)
    return spark
