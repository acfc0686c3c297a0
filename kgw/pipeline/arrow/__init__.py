"""Converts record batches to Arrow and back, all batches of a Fetch response in one call. Pure.

`decode.decode_batches(data, first_offset=..., end_offset=None, columns=ALL_COLUMNS, aborted=(),
check_crcs=True)` takes the bytes of one partition of a Fetch response and returns a `Decoded`:

- `batch`: a `pyarrow.RecordBatch` of the requested columns, in the order of `columns.SCHEMA`:
  offset int64, timestamp_ms int64, timestamp_type int32 (0 create time, 1 log append time),
  leader_epoch int32, key binary, value binary, headers list<struct<key: string, value: binary>>
  (null for a record without headers, as in Spark's `kafka` source). One row for each record from
  `first_offset` up to `end_offset`, which is exclusive.
- `next_offset`: the next offset to fetch, also after trailing gaps, control batches and aborted
  data. It is `first_offset` if the response has no complete batch.
- `control_ranges`: pairs (first, end) of offsets of control batches, aborted data and empty
  batches; `end` is exclusive.
- `missing`: pairs (first, end) of the other offsets without a record: compaction has removed the
  records, or they are lost. Rows, control ranges and missing offsets together cover exactly
  `first_offset` to `next_offset`.
- `altered_keys`: how many header keys are not UTF-8; their invalid bytes were replaced.
- `is_partial`: some complete batches were not decoded, because they would take too much memory. If
  it is True, call again with the same bytes and `first_offset=next_offset`; otherwise fetch.

`aborted` has pairs (producer id, first offset), as for `kgw.records.aborted`. An incomplete batch
at the end is ignored; the next fetch returns it again. A damaged batch raises BatchError, which has
the base offset of the batch.

`encode.encode_batches(batch, compression=..., max_batch_bytes=..., producer_id=-1,
producer_epoch=-1, base_sequence=-1, is_transactional=False)` takes the columns key, value, headers
and timestamp_ms (any may be missing, but not both key and value), and returns a list of
`EncodedBatch(data, record_count)` in the order of the rows.
"""
