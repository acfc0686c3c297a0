package kgw.e2e;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A consumer in a group, which lives between two operations. */
final class Member {
    private static final Map<String, String> ASSIGNORS =
        Map.of(
            "range", "org.apache.kafka.clients.consumer.RangeAssignor",
            "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
            "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
            "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final String group;
    private final Map<TopicPartition, OffsetAndMetadata> uncommitted = new HashMap<>();

    /** The assignors are left to the library, range and cooperative-sticky, by the name "default". */
    Member(Map<String, Object> settings, JsonObject operation) {
        group = operation.get("group").getAsString();
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", operation.get("isolation").getAsString());
        settings.put("enable.auto.commit", false);
        settings.put("session.timeout.ms", 6000);
        settings.put("heartbeat.interval.ms", 300);
        settings.put("max.poll.interval.ms", 10_000);
        settings.put("reconnect.backoff.max.ms", 500);
        String strategy = operation.get("strategy").getAsString();
        if (!strategy.equals("default")) {
            settings.put("partition.assignment.strategy", ASSIGNORS.get(strategy));
        }
        if (operation.has("instance") && !operation.get("instance").isJsonNull()) {
            settings.put("group.instance.id", operation.get("instance").getAsString());
        }
        consumer =
            new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(operation.get("topic").getAsString()));
    }

    JsonObject poll(Duration timeout) {
        ConsumerRecords<byte[], byte[]> polled = consumer.poll(timeout);
        uncommitted.keySet().retainAll(consumer.assignment());
        JsonArray records = new JsonArray();
        for (ConsumerRecord<byte[], byte[]> read : polled) {
            records.add(position(read.partition(), read.offset()));
            uncommitted.put(
                new TopicPartition(read.topic(), read.partition()),
                new OffsetAndMetadata(read.offset() + 1));
        }
        TreeSet<Integer> partitions = new TreeSet<>();
        consumer.assignment().forEach(one -> partitions.add(one.partition()));
        JsonArray assigned = new JsonArray();
        partitions.forEach(assigned::add);
        JsonObject found = new JsonObject();
        found.add("records", records);
        found.add("assigned", assigned);
        return found;
    }

    /** Tells no offsets where the library wants to be polled first, until a rebalance is over. */
    JsonObject commit() {
        JsonArray committed = new JsonArray();
        try {
            consumer.commitSync(uncommitted);
        } catch (RebalanceInProgressException error) {
            error.printStackTrace();
            return answer(committed);
        }
        uncommitted.forEach(
            (partition, next) -> committed.add(position(partition.partition(), next.offset())));
        uncommitted.clear();
        return answer(committed);
    }

    private static JsonObject answer(JsonArray committed) {
        JsonObject answer = new JsonObject();
        answer.add("committed", committed);
        return answer;
    }

    /** Makes what was read part of a producer's transaction. */
    void sendOffsetsTo(Producer<byte[], byte[]> producer) {
        Library.sendOffsets(producer, uncommitted, consumer, group);
        uncommitted.clear();
    }

    void close() {
        consumer.close();
    }

    private static JsonArray position(int partition, long offset) {
        JsonArray position = new JsonArray();
        position.add(partition);
        position.add(offset);
        return position;
    }
}
