"""Record batches to Arrow and back, for all records of a Fetch answer at once. Pure.

`decode.decode_batches(data, first_offset=..., end_offset=None, columns=ALL_COLUMNS, aborted=(),
check_crcs=True)` takes the bytes of one partition of a Fetch answer and answers with a `Decoded`:

- `batch`: a `pyarrow.RecordBatch` of the asked columns, in the order of `columns.SCHEMA`: offset
  int64, timestamp_ms int64, timestamp_type int32 (0 create time, 1 log append time), leader_epoch
  int32, key binary, value binary, headers list<struct<key: string, value: binary>> (null for a
  record without headers, as Spark's `kafka` source has it). One row for each record from
  `first_offset` up to `end_offset`, which is exclusive.
- `next_offset`: what to fetch next, past holes, control batches and aborted data. It is
  `first_offset` when not even one whole batch came.
- `control_ranges`: pairs (first, end) of offsets, end exclusive, that a batch covers without data
  for a reader: markers, aborted data, empty batches.
- `missing`: such pairs of offsets that no batch covers, or that have no record in a batch with
  data: what compaction has removed, or what is lost. Rows, control ranges and these are exactly
  `first_offset` to `next_offset`.
- `altered_keys`: how many keys of headers are not UTF-8, so that some bytes were replaced.
- `is_partial`: whole batches are left over, since this much becomes too large at once. Call again
  with the same bytes and `first_offset=next_offset`; fetch only when it is False.

`aborted` is pairs of a producer id and a first offset, as `kgw.records.aborted` takes them. A batch
that is cut off at the end is left for the next fetch. A damaged one raises RecordError, which names
its base offset.

`encode.encode_batches(batch, compression=..., max_batch_bytes=..., producer_id=-1,
producer_epoch=-1, base_sequence=-1, is_transactional=False)` takes key, value, headers and
timestamp_ms (each may be missing, but one of key and value), and answers with a list of
`EncodedBatch(data, record_count)` in the order of the rows.
"""
