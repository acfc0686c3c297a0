"""All requests asked of a server, and what Apache Kafka was heard to answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgw.handlers.table import HANDLERS
from kgw.protocol.api_keys import ApiKey
from tests.differential.requests import PLANS, cases

if TYPE_CHECKING:
    from tests.differential.requests import Case
    from tests.differential.servers import Server

ANSWERS = Path(__file__).with_name("kafka-4.4.0")

FIRST_VERSIONS = {
    ApiKey.PRODUCE: 3,
    ApiKey.FETCH: 4,
    ApiKey.LIST_OFFSETS: 1,
    ApiKey.OFFSET_COMMIT: 2,
    ApiKey.OFFSET_FETCH: 1,
    ApiKey.CREATE_TOPICS: 2,
    ApiKey.DELETE_TOPICS: 1,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
    ApiKey.DESCRIBE_CONFIGS: 1,
}
"""Those that Kafka 4.4 serves, where kgw serves older ones too; its ApiVersions names older ones of
Produce (KAFKA-18659)."""


def versions(api: ApiKey) -> range:
    """Return the versions that both serve."""
    handler = HANDLERS[api]
    return range(FIRST_VERSIONS.get(api, handler.min_version), handler.max_version + 1)


async def answers(server: Server, api: ApiKey) -> list[tuple[Case, Any]]:
    """Ask all requests of an API, and return them with the answers in the common form."""
    found = []
    prepared = set()
    for case in cases(api, versions(api)):
        if case.tag not in prepared:
            await server.prepare(case.tag, PLANS[api].needs)
            prepared.add(case.tag)
        found.append((case, await server.answer(case)))
    return found


def write(api: ApiKey, found: list[tuple[Case, Any]]) -> None:
    """Keep what Kafka has answered: each answer once, on a line of its own."""
    ANSWERS.mkdir(exist_ok=True)
    distinct = list(dict.fromkeys(json.dumps(answer) for _, answer in found))
    numbers = {text: number for number, text in enumerate(distinct)}
    lines = [
        json.dumps([[case.name, numbers[json.dumps(answer)]] for case, answer in found]),
        *distinct,
    ]
    (ANSWERS / f"{api.name.lower()}.jsonl").write_text("\n".join(lines) + "\n")


def kept(api: ApiKey) -> list[tuple[str, Any]]:
    """Return the names of the requests, and what Kafka has answered to them."""
    first, *rest = (ANSWERS / f"{api.name.lower()}.jsonl").read_text().splitlines()
    distinct = [json.loads(line) for line in rest]
    return [(name, distinct[number]) for name, number in json.loads(first)]
