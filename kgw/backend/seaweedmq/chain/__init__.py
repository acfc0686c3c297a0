"""A chain of files that one writer extends, and that another takes over for good.

A directory has an entry `leader.offset`, which names the files in order, and the files. Every
change of the leader entry and of a file is a conditional update: it expects the identity of the
chain, the epoch of the writer and the number of changes made so far, and raises the number. So no
stale writer changes anything once another has raised the epochs, and no list that misses a chunk is
ever written, not even by a request of ours that arrives late. Partitions and the state store are
chains.

In the order in which one builds on the other:

1. `files`: the files, chunks and payloads of a chain, as its owner sees them.
2. `names`, `marks`, `leader`: names of files, attributes of entries, the leader entry. Pure.
3. `outcome`: tells from an entry whether a change without an answer was made. Pure.
4. `settling`: sends a change, and looks its entry up, until its outcome is known.
5. `ledger`: the changes that the writer makes, one after the other.
6. `taking_over`: how another becomes the writer.
7. `appending`: the two stages of an append, upload and update.
8. `chain`: all of it together.

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
