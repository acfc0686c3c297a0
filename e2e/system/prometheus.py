"""What Prometheus is told to scrape, and what it has seen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import urlencode
from urllib.request import urlopen

from e2e.system.services import GATEWAYS

if TYPE_CHECKING:
    from e2e.system.site import Site

_SEEN = 'max_over_time(up{job="kgw"}[20m])'
_IS = 'up{job="kgw"}'


def configuration(site: Site) -> str:
    """Return the configuration of a site: `e2e/prometheus.yaml` is that of the containers."""
    targets = "".join(
        f"""
      - targets: ["{site.at(f"{name}.admin")}"]
        labels: {{gateway: {name}}}"""
        for name in GATEWAYS
    )
    return f"""# Both gateways of the whole system, in the job that the alert rules of deploy/ know.
# Written by e2e/system/prometheus.py.
global:
  scrape_interval: 2s
  evaluation_interval: 2s

rule_files: ["{site.path("rules")}/alerts.y*ml"]

scrape_configs:
  - job_name: kgw
    static_configs:{targets}
"""


def not_scraped(site: Site) -> list[str]:
    """Return what is wrong with what Prometheus has seen: each gateway was up, and is."""
    wrong = []
    for query in (_SEEN, _IS):
        seen = _query(site, query)
        wrong += [
            f"{query} of {name} is {seen.get(name, 'not there')}"
            for name in GATEWAYS
            if seen.get(name) != 1
        ]
    return wrong


def _query(site: Site, query: str) -> dict[str, float]:
    address = f"http://{site.at('prometheus.http')}/api/v1/query?{urlencode({'query': query})}"
    with urlopen(address, timeout=10) as answer:
        found = json.load(answer)
    return {one["metric"]["gateway"]: float(one["value"][1]) for one in found["data"]["result"]}
