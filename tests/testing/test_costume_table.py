"""The table of releases against the kafka-clients jars of all of them.

e2e/fetch-kafka-releases.sh writes what those say; KGW_KAFKA_RELEASES names the file.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kgw.handlers.table import HANDLERS
from kgw.testing.costume_table import RELEASES, SERVED_SINCE


@pytest.mark.full
@pytest.mark.slow
def test_the_table_is_what_the_jars_say() -> None:
    """Every release, and every API that kgw serves."""
    said: dict[tuple[str, int], tuple[int, int]] = {}
    for line in Path(os.environ["KGW_KAFKA_RELEASES"]).read_text().splitlines():
        release, number, first, last = line.split()
        if int(number) in HANDLERS:
            said[release, int(number)] = (int(first), int(last))
    assert list(RELEASES) == list(dict.fromkeys(release for release, _ in said))
    table: dict[tuple[str, int], tuple[int, int]] = {}
    for key, rows in SERVED_SINCE.items():
        for place, release in enumerate(RELEASES):
            past = [row for row in rows if RELEASES.index(row[0]) <= place]
            if past and past[-1][1] <= past[-1][2]:
                table[release, int(key)] = past[-1][1:]
    assert said == table
