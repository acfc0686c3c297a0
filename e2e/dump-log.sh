#!/usr/bin/env bash
# Reads every segment and index of a stopped data directory with Kafka's own kafka-dump-log, records
# included, and fails on anything that it complains of. Needs a JDK and Maven.
#   e2e/dump-log.sh DATA_DIR [KAFKA_VERSION [compacted]]
# With `compacted`, records may lie apart: the tool names each such pair of offsets.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
data_dir=${1:?which data directory?}
version=${2:-3.9.1}

classpath=$("$here/kafka-tool.sh" "$version")
tool=org.apache.kafka.tools.DumpLogSegments
if ! javap -cp "$classpath" "$tool" >/dev/null 2>&1; then
    tool=kafka.tools.DumpLogSegments
fi

mapfile -t files < <(find "$data_dir/partitions" -type f \
    \( -name '*.log' -o -name '*.index' -o -name '*.timeindex' \) | sort)
if ((${#files[@]} == 0)); then
    echo "dump-log: no segments in $data_dir" >&2
    exit 1
fi
output=$(mktemp)
trap 'rm -f "$output"' EXIT
(
    IFS=,
    java -cp "$classpath" "$tool" --deep-iteration --files "${files[*]}" >"$output" 2>&1
) || {
    tail -20 "$output" >&2
    echo "dump-log: kafka-dump-log $version failed" >&2
    exit 1
}

# Gaps are recognised by their pairs of offsets: 4.3 reports "-1 is followed by" the first offset of
# every segment that does not begin at 0, which 3.9 and 4.1 do not.
complaints='isvalid: false|Mismatches in|out of order|not found|Found [0-9]+ invalid bytes|Exception|no message at'
if [[ ${3:-} != compacted ]]; then
    complaints+='|^ *[0-9]+ is followed by'
fi
if grep -Ein "$complaints" "$output"; then
    echo "dump-log: kafka-dump-log $version complains" >&2
    exit 1
fi
dumped=$(grep -c '^Dumping ' "$output" || true)
if ((dumped != ${#files[@]})); then
    echo "dump-log: $dumped of ${#files[@]} files were dumped" >&2
    tail -5 "$output" >&2
    exit 1
fi
batches=$(grep -c '^baseOffset: ' "$output" || true)
echo "dump-log: kafka-dump-log $version read ${#files[@]} files, $batches batches, no complaint"
