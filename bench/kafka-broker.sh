#!/usr/bin/env bash
# Runs one Apache Kafka broker (KRaft, broker and controller in one process) on 127.0.0.1, from its
# Maven artefacts: what kgw is measured beside. It becomes the broker, so that signals reach it.
# Needs a JDK 17 and Maven; nothing else of the project does, and nothing installs it by itself.
#   bench/kafka-broker.sh CACHE_DIR DATA_DIR PORT CONTROLLER_PORT [KEY=VALUE...]
# KAFKA_VERSION chooses the version (4.4.0), KAFKA_HEAP_OPTS the heap (-Xmx1G -Xms1G, as Kafka's own
# start script has it). With CACHE_DIR alone it fetches the jars, says Kafka's version and Java's, and
# ends.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache_dir=${1:?usage: kafka-broker.sh CACHE_DIR [DATA_DIR PORT CONTROLLER_PORT [KEY=VALUE...]]}
version=${KAFKA_VERSION:-4.4.0}
jars=$cache_dir/kafka-broker-$version

if [[ ! -e $jars/complete ]]; then
    mkdir -p "$jars"
    mvn --batch-mode --quiet --file "$here/kafka-broker/pom.xml" "-Dkafka.version=$version" \
        dependency:copy-dependencies "-DoutputDirectory=$(cd "$jars" && pwd)" \
        -DincludeScope=runtime >&2
    touch "$jars/complete"
fi
if [[ $# == 1 ]]; then
    printf '%s\n' "$version"
    java -version 2>&1 | sed -n '/ version /p'
    exit 0
fi
data_dir=$2 port=$3 controller_port=$4
shift 4

# Kafka's config/server.properties as it is shipped, but for the addresses and the folder.
mkdir -p "$data_dir"
{
    cat <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller_port
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller_port
advertised.listeners=PLAINTEXT://127.0.0.1:$port
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=$data_dir/logs
num.network.threads=3
num.io.threads=8
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
PROPERTIES
    printf '%s\n' "$@"
} >"$data_dir/server.properties"

if [[ ! -e $data_dir/logs/meta.properties ]]; then
    java -cp "$jars/*" kafka.tools.StorageTool format --ignore-formatted \
        --cluster-id AAAAAAAAQACAAAAAAAAAAQ --config "$data_dir/server.properties" >&2
fi
[[ -z ${FORMAT_ONLY:-} ]] || exit 0
# The JVM's options are those of Kafka's own bin/kafka-run-class.sh.
# shellcheck disable=SC2086 # options are words
exec java ${KAFKA_HEAP_OPTS:--Xmx1G -Xms1G} -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 \
    -XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent \
    -XX:MaxInlineLevel=15 -Djava.awt.headless=true \
    -cp "$jars/*" kafka.Kafka "$data_dir/server.properties"
