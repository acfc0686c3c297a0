"""Tells the story of each gateway, one after the other, and comes to a verdict.

    python -m e2e.system.runner

is the service `runner` of `e2e/compose.yaml`; `scripts/system` calls the same code.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from e2e.system.prometheus import not_scraped
from e2e.system.services import GATEWAYS
from e2e.system.site import Site
from e2e.system.story import Plan, Story
from e2e.system.verdict import Row, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

VERDICT = "verdict.json"


def run(
    site: Site,
    results: Path,
    say: Callable[[str], None],
    *,
    gateways: Sequence[str] = GATEWAYS,
    plan: Plan | None = None,
) -> Verdict:
    """Tell the stories; the verdict is written to `results`, too."""
    verdict = Verdict()
    for gateway in gateways:
        began = time.monotonic()
        say(f"{gateway}: the story begins")
        verdict.rows += Story(site, gateway, plan or Plan(), results, say).tell()
        verdict.seconds[gateway] = round(time.monotonic() - began, 1)
    try:
        problems = not_scraped(site)
    except OSError as error:
        problems = [f"no answer: {error}"]
    verdict.rows.append(Row("prometheus", "it saw both gateways up", problems))
    verdict.write(results / VERDICT)
    return verdict


def main() -> None:
    """Run among the containers."""
    site = Site.of_containers()
    verdict = run(site, Path(site.path("results")), lambda text: print(text, flush=True))
    print(verdict.table())
    sys.exit(0 if verdict.is_good else 1)


if __name__ == "__main__":
    main()
