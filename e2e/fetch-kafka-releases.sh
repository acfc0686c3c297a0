#!/usr/bin/env bash
# Writes what releases of Kafka serve, one line for each API: release, key, first version, last version.
# It asks the kafka-clients jar of each release, which Maven fetches. Argument: the file to write.
# scripts/e2e runs it and compares kgw/testing/costume_table.py with the file; by hand:
#   e2e/fetch-kafka-releases.sh .cache/kafka-releases.txt
#   KGW_KAFKA_RELEASES=.cache/kafka-releases.txt python -m pytest -m full tests/testing/test_costume_table.py
set -euo pipefail

file=${1:?usage: fetch-kafka-releases.sh FILE}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$(dirname "$file")"
jars=$(mktemp -d)
trap 'rm -rf "$jars"' EXIT

fetch() {
    mvn --batch-mode --quiet dependency:copy "-Dartifact=$1" "-DoutputDirectory=$jars"
}

fetch org.slf4j:slf4j-api:1.7.36
: >"$file.new"
for version in 0.10.0.1 0.10.1.1 0.10.2.2 0.11.0.3 1.0.2 1.1.1 2.0.1 2.1.1 2.2.2 2.3.1 2.4.1 2.5.1 2.6.3 \
    2.7.2 2.8.2 3.0.2 3.1.2 3.2.3 3.3.2 3.4.1 3.5.2 3.6.2 3.7.2 3.8.1 3.9.1 4.0.0 4.1.0 4.2.0 4.3.0 4.4.0; do
    fetch "org.apache.kafka:kafka-clients:$version"
    classes=$jars/kafka-clients-$version.jar:$jars/slf4j-api-1.7.36.jar
    java -cp "$classes" "$here/kafka-releases/ApiRanges.java" 2>/dev/null | sed "s/^/${version%.*} /" >>"$file.new"
done
mv "$file.new" "$file"
