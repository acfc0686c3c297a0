"""The offsets that seeks find, as the gateway itself finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.admin.answers import NotFoundError
from kgw.admin.parameters import AFTER, GROUP, PARTITION, TOPIC, Parameter, ParameterError
from kgw.groups.positions import CommittedPositions
from kgw.offsets.seeker import NoGroupError, OffsetSeeker
from kgw.offsets.where import WHERE_HELP, is_number, parse_seek, seek_as_json
from kgw.partitions.read.reader import PartitionReader

if TYPE_CHECKING:
    from kgw.admin.answers import Answer
    from kgw.admin.parameters import QueryParameters
    from kgw.admin.rights import Viewer
    from kgw.gateway import Gateway

SOUGHT_TOPIC = TOPIC._replace(help="The topic.", is_required=True)
TO = Parameter("to", f"Where to: {WHERE_HELP}.", is_required=True)
RESUMED_GROUP = GROUP._replace(help="Whose position to resume.")


async def seek(gateway: Gateway, query: QueryParameters, viewer: Viewer) -> Answer:
    name, text = query.text(SOUGHT_TOPIC) or "", query.text(TO) or ""
    group_id = query.text(RESUMED_GROUP)
    topic = gateway.catalog.topics.get(name)
    if topic is None:
        raise NotFoundError(f"there is no topic {name!r}")
    after = query.text(AFTER)
    if after is not None and not is_number(after):
        raise ParameterError("after is a partition's number")
    first = 0 if after is None else int(after) + 1
    only = query.number(PARTITION)
    if only is not None and not topic.has_partition(only):
        raise NotFoundError(f"topic {name!r} has no partition {only}")
    indexes = [one for one in topic.partitions if one >= first] if only is None else [only]
    try:
        wanted = parse_seek(text)
    except ValueError as error:
        raise ParameterError(str(error)) from None
    reader = PartitionReader(topic, gateway.fetch_deadlines, gateway.cold_reads)
    positions = None
    if group_id is not None:
        positions = CommittedPositions(gateway.groups.offsets, group_id, topic.topic_id)
    try:
        found = await OffsetSeeker(reader, positions).seek(
            dict.fromkeys(indexes[: query.limit], wanted)
        )
    except NoGroupError:
        raise ParameterError("group is needed to resume its position") from None
    rows = [{"partition": one} | seek_as_json(answer) for one, answer in found.items()]
    more = len(indexes) > query.limit
    return {
        "topic": name,
        "to": text,
        "kind": wanted.kind.value,
        "partitions": rows,
        "next": str(indexes[query.limit - 1]) if more else None,
    }
