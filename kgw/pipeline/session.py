"""A SparkSession as the pipeline needs it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from kgw.pipeline.classic import check_not_remote
from kgw.pipeline.master import Master
from kgw.pipeline.planner import with_lookup
from kgw.pipeline.source import KgwDataSource

if TYPE_CHECKING:
    from collections.abc import Mapping

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Between Spark and its Python workers; a quarter less time at best.
    "spark.python.unix.domain.socket.enabled": "true",
}
_LOCAL_SETTINGS: Final = {
    # A session that a command makes is of this machine alone.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Elsewhere workers write to logs, and not to the terminal of whoever asked.
    "spark.python.daemon.module": "kgw.pipeline.daemon",
}
_PYTHON: Final = "spark.pyspark.python"


def session(
    app_name: str = "kgw",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    log_level: str = "ERROR",
) -> SparkSession:
    """Return a session that knows `format("kgw")`: the one that runs already, or a new one.

    `settings` go before the ones that stand here. Workers run the interpreter that runs this, with
    its packages, unless spark.pyspark.python or PYSPARK_PYTHON names another one. Raises
    OptionError where it would be one of Spark Connect.
    """
    check_not_remote(master, settings or {}, os.environ)
    chosen = Master() if master is None else Master(master)
    given = {**_SETTINGS, **(_LOCAL_SETTINGS if chosen.is_local else {}), **(settings or {})}
    # A session that is made by a running program reads only the variable.
    if _PYTHON in given:
        os.environ["PYSPARK_PYTHON"] = given[_PYTHON]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if chosen.is_local:
        # Otherwise Spark warns of a host name that stands for another address.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ["PYTHONPATH"] = with_lookup(os.environ.get("PYTHONPATH", ""))
    builder = SparkSession.builder.appName(app_name).master(chosen.url)
    for name, value in given.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(log_level)
    spark.dataSource.register(KgwDataSource)
    return spark
