"""What commands share that run on Spark: its master, and a session that is started when needed."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Self, TypeVar

import click

from kgw.cli.errors import CommandError
from kgw.pipeline.jobs.running import SparkRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

UnitT = TypeVar("UnitT")
ResultT = TypeVar("ResultT")

DEFAULT_MASTER = "local[*,4]"

master_option = click.option(
    "--master",
    default=DEFAULT_MASTER,
    show_default=True,
    metavar="MASTER",
    help="Where Spark runs: spark://HOST:PORT, k8s://..., yarn, or every processor of this "
    "machine, with three more attempts at a task that fails.",
)


class SparkWhenNeeded:
    """Runs units on Spark; a session is started when it is needed, and ends with the command.

    A session that runs already in this process is used, and left running.
    """

    def __init__(self, app_name: str, master: str) -> None:
        self._app_name = app_name
        self._master = master
        self._session: SparkSession | None = None
        self._runner: SparkRunner | None = None
        self._ending = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    @property
    def session(self) -> SparkSession:
        """The session."""
        if self._session is None:
            self._session = self._start()
        return self._session

    @property
    def parallelism(self) -> int:
        """How many units are worked on at once."""
        return self._started().parallelism

    def run(
        self, units: Sequence[UnitT], work: Callable[[UnitT], ResultT]
    ) -> Iterator[tuple[UnitT, ResultT]]:
        """Do the work of units; see `Runner`."""
        return self._started().run(units, work)

    def _started(self) -> SparkRunner:
        if self._runner is None:
            self._runner = SparkRunner(self.session, self._app_name)
        return self._runner

    def _start(self) -> SparkSession:
        # PySpark warns of a newer pandas, which nothing here uses.
        warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
        try:
            from pyspark.errors import PySparkException
            from pyspark.sql import SparkSession

            from kgw.pipeline.session import session
        except ImportError as error:
            raise CommandError(
                f"Spark cannot be used: {error}. Install it with pip install 'kgw[spark]'"
            ) from None
        is_ours = SparkSession.getActiveSession() is None
        # Spark makes it for tables of its own, which no command has: in the directory of the user.
        warehouse = self._ending.enter_context(TemporaryDirectory(prefix="kgw-spark-"))
        settings = {"spark.sql.warehouse.dir": warehouse}
        try:
            spark = session(self._app_name, master=self._master, settings=settings)
        except (PySparkException, OSError) as error:
            raise CommandError(
                f"Spark cannot start: {error}. `kgw doctor --spark` says what is missing"
            ) from None
        if is_ours:
            self._ending.callback(spark.stop)
        return spark
