#!/usr/bin/env bash
# Reads every segment and index of a stopped data directory with Kafka's own kafka-dump-log, records
# included, and fails on anything that it complains of. Needs a JDK and Maven.
#   e2e/dump-log.sh DATA_DIR [KAFKA_VERSION]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
data_dir=${1:?which data directory?}
version=${2:-3.9.1}

classpath_file=$here/.build/dump-log-$version.classpath
if [[ ! -s $classpath_file ]]; then
    mkdir -p "$here/.build"
    mvn --batch-mode --quiet --file "$here/dump-log/pom.xml" "-Dkafka.version=$version" \
        dependency:build-classpath "-Dmdep.outputFile=$classpath_file"
fi
classpath=$(<"$classpath_file")

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
    java -cp "$classpath" kafka.tools.DumpLogSegments --deep-iteration --files "${files[*]}" >"$output" 2>&1
)

complaints='isvalid: false|Mismatches in|out of order|not found|Found [0-9]+ invalid bytes|Exception|Non-consecutive|no message at'
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
