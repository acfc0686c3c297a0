from __future__ import annotations

import pytest

from kgw.pipeline.errors import OptionError
from kgw.pipeline.master import DEFAULT_MASTER, Master, master_of


@pytest.mark.parametrize(
    ("url", "parallelism", "expected"),
    [
        (DEFAULT_MASTER, None, Master("local[*,4]")),
        (DEFAULT_MASTER, 3, Master("local[3,4]", {}, 3)),
        ("local[*]", 1, Master("local[1]", {}, 1)),
        ("spark://a:7077", None, Master("spark://a:7077")),
        (
            "spark://a:7077",
            6,
            Master("spark://a:7077", {"spark.default.parallelism": "6", "spark.cores.max": "6"}, 6),
        ),
        ("yarn", 6, Master("yarn", {"spark.default.parallelism": "6"}, 6)),
    ],
)
def test_fewer_tasks_are_asked_for_where_spark_runs(
    url: str, parallelism: int | None, expected: Master
) -> None:
    """By the master of one machine, by the cores of a standalone cluster, by the jobs elsewhere."""
    assert expected == master_of(url, (), parallelism)


def test_settings_are_handed_on() -> None:
    """A value may have any sign; what the user says goes before what --parallelism means."""
    given = (
        "spark.archives=env.tar.gz#env",
        "spark.a.options=-Da=b",
        "spark.cores.max=2",
    )
    assert {
        "spark.archives": "env.tar.gz#env",
        "spark.a.options": "-Da=b",
        "spark.cores.max": "2",
        "spark.default.parallelism": "6",
    } == master_of("spark://a:7077", given, 6).settings


@pytest.mark.parametrize(
    ("settings", "url", "parallelism", "told"),
    [
        (["spark.executor.memory"], "yarn", None, "spark.NAME=VALUE: spark.executor.memory"),
        (["executor.memory=1g"], "yarn", None, "spark.NAME=VALUE: executor.memory=1g"),
        (["spark.master=yarn"], "yarn", None, "say --master in place of spark.master"),
        (["spark.a=1", "spark.a=2"], "yarn", None, "spark.a is set twice"),
        ([], "127.0.0.1:7077", None, "no master of Spark: 127.0.0.1:7077; it is"),
        ([], "local[2]", 1, r"--master local\[2\] says how many"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    settings: list[str], url: str, parallelism: int | None, told: str
) -> None:
    """With the words that are wrong."""
    with pytest.raises(OptionError, match=told):
        master_of(url, settings, parallelism)
