"""InProcessGateway offers what tests look at: they do not know where it is kept."""

from __future__ import annotations

import re
from pathlib import Path

from kgw.testing.gateway import InProcessGateway

ROOT = Path(__file__).parents[2]


async def test_no_test_reaches_through_the_gateway_for_what_is_offered() -> None:
    """So that a service can move to another owner without a change of tests."""
    served = InProcessGateway()
    offered = [
        name for name, one in vars(InProcessGateway).items() if isinstance(one, property)
    ] + [
        name
        for name in (*vars(InProcessGateway), *vars(served))
        if hasattr(served.gateway, name) and name[0] != "_"
    ]
    assert {"catalog", "groups", "lag", "metrics", "checkpoint"} <= {*offered}
    reach = re.compile(rf"gateway\.gateway\.({'|'.join(offered)})\b")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for folder in ("tests", "e2e", "bench")
        for path in (ROOT / folder).rglob("*.py")
        for match in reach.finditer(path.read_text())
    ]
    assert [] == found
