"""Converts record batches to Arrow and back, all records of a Fetch response at once. Pure.

`decode.decode_batches(data, first_offset=..., end_offset=None, columns=ALL_COLUMNS, aborted=(),
check_crcs=True)` takes the bytes of one partition of a Fetch response and returns a `Decoded`:

- `batch`: a `pyarrow.RecordBatch` of the asked columns, in the order of `columns.SCHEMA`: offset
  int64, timestamp_ms int64, timestamp_type int32 (0 create time, 1 log append time), leader_epoch
  int32, key binary, value binary, headers list<struct<key: string, value: binary>> (null for a
  record without headers, as in Spark's `kafka` source). One row for each record from
  `first_offset` up to `end_offset`, which is exclusive.
- `next_offset`: the next offset to fetch, after holes, control batches and aborted data. It is
  `first_offset` if the response has no whole batch.
- `control_ranges`: pairs (first, end) of offsets, end exclusive, in batches that have no data for
  a reader: control batches, aborted data, empty batches.
- `missing`: pairs (first, end) of offsets that no batch covers, or that have no record in a batch
  with data: compaction has removed their records, or they are lost. Rows, control ranges and
  missing offsets are together exactly `first_offset` to `next_offset`.
- `altered_keys`: how many header keys are not UTF-8, so that some bytes were replaced.
- `is_partial`: whole batches are left over, as decoding all of them would take too much memory.
  Call again with the same bytes and `first_offset=next_offset`; fetch only if it is False.

`aborted` has pairs of a producer id and a first offset, as `kgw.records.aborted` takes them. A
batch that is cut off at the end is left for the next fetch. A damaged batch raises RecordError,
which has its base offset.

`encode.encode_batches(batch, compression=..., max_batch_bytes=..., producer_id=-1,
producer_epoch=-1, base_sequence=-1, is_transactional=False)` takes key, value, headers and
timestamp_ms (each may be missing, but either key or value must be there), and returns a list of
`EncodedBatch(data, record_count)` in the order of the rows.
"""
