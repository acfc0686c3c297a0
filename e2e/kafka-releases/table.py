"""Prints kgw/testing/costume_table.py from what e2e/fetch-kafka-releases.sh has written.

python e2e/kafka-releases/table.py .cache/kafka-releases.txt > kgw/testing/costume_table.py
ruff format kgw/testing/costume_table.py
"""

from __future__ import annotations

import sys
from pathlib import Path

from kgw.handlers.table import HANDLERS
from kgw.protocol.api_keys import ApiKey

_HEAD = '''"""Which versions of each API a release of Kafka serves.

Printed by e2e/kafka-releases/table.py from the kafka-clients jars of these releases; scripts/e2e
compares the two. Of APIs that kgw serves alone.
"""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey

'''


def changes(text: str) -> tuple[list[str], dict[ApiKey, list[tuple[str, int, int]]]]:
    """Return the releases in order, and for each API the releases in which its versions changed.

    An API that a release no longer has is one with versions from 0 to -1.
    """
    releases: list[str] = []
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for line in text.splitlines():
        release, number, first, last = line.split()
        if release not in releases:
            releases.append(release)
        found[release, int(number)] = (int(first), int(last))
    table = {}
    for key in sorted(HANDLERS):
        rows: list[tuple[str, int, int]] = []
        for release in releases:
            served = found.get((release, key), (0, -1))
            if served != (rows[-1][1:] if rows else (0, -1)):
                rows.append((release, *served))
        table[ApiKey(key)] = rows
    return releases, table


def main() -> None:
    """Print the module."""
    releases, table = changes(Path(sys.argv[1]).read_text())
    print(_HEAD, end="")
    print(f"RELEASES = {tuple(releases)!r}")
    print('"""Oldest first."""\n')
    print("SERVED_SINCE: dict[ApiKey, tuple[tuple[str, int, int], ...]] = {")
    for key, rows in table.items():
        print(f"    ApiKey.{key.name}: {tuple(rows)!r},")
    print("}")
    print(
        '"""The releases in which the versions of an API changed, and the first and last since."""'
    )


if __name__ == "__main__":
    main()
