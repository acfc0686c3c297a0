"""A chain: a list of files with one writer at a time. A new writer excludes the old one for good.

A chain's directory has the files and an entry `leader.offset`, the leader entry, which lists the
files in order. Every change of the leader entry or of a file is a conditional update. It expects
the identity of the chain, the epoch of the writer and the number of changes made so far, and raises
this number. So once a new writer has raised the epochs, updates by the old writer fail. And a late
request can never write a list of chunks in which a newer chunk is missing. Each partition is a
chain, and so is the state store.

Each module uses those before it:

1. `files`: the files, chunks and payloads of a chain, for the chain's owner.
2. `names`, `marks`, `leader`: names of files, attributes of entries, the leader entry. Pure.
3. `outcome`: finds out from an entry whether an unanswered change was made. Pure.
4. `settling`: sends a change and looks up its entry, until its outcome is known.
5. `ledger`: the writer's changes, one at a time.
6. `taking_over`: makes another process the writer.
7. `appending`: the two stages of an append, upload and update.
8. `chain`: combines these modules.

docs/decisions/0100 says why it is safe.
"""

from kgw.backend.seaweedmq.chain.chain import Chain
from kgw.backend.seaweedmq.chain.files import (
    ChainFile,
    ChainOptions,
    ChunkNote,
    NotWriterError,
    Payload,
)
from kgw.backend.seaweedmq.chain.settling import Settler, TroubledChains

__all__ = [
    "Chain",
    "ChainFile",
    "ChainOptions",
    "ChunkNote",
    "NotWriterError",
    "Payload",
    "Settler",
    "TroubledChains",
]
