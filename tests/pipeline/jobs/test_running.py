from __future__ import annotations

import pytest

from kgw.pipeline.jobs.running import last_line

JAVA = (
    "An error occurred while calling o1.x.\n: org.apache.spark.SparkException: Job aborted due to "
    "stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: Lost task 0.3 in "
    "stage 0.0 (TID 3) (127.0.0.1 executor 0): "
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"{JAVA}PythonException:\n  File ...\nKeyError: 'of 7'\n\n\tat a(B.scala:1)\n",
            "KeyError: 'of 7'",
        ),
        (
            f'{JAVA}java.io.IOException: Cannot run program "/no/python"\n\tat java.base/x(Y:1)\n',
            'java.io.IOException: Cannot run program "/no/python"',
        ),
        ("", "Exception('')"),
    ],
)
def test_a_task_that_fails_is_told_in_its_own_words(text: str, expected: str) -> None:
    """Without the frames of Java, and without Spark's account of its attempts."""
    assert expected == last_line(Exception(text))
