package kgw.e2e;

import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** What the library did otherwise before Kafka 2.5; since-2.5 has the same for newer ones. */
final class Library {
    private Library() {}

    static void setIncrementally(
        AdminClient admin, ConfigResource resource, ConfigEntry entry, long limitS) {
        throw new UnsupportedOperationException("there is no incrementalAlterConfigs");
    }

    /** Asked of a consumer: the library's administration knows no offsets. */
    static long offsetAt(
        Map<String, Object> settings,
        TopicPartition partition,
        boolean isLatest,
        String isolation,
        long limitS) {
        settings.put("isolation.level", isolation);
        try (KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> wanted = List.of(partition);
            Map<TopicPartition, Long> found =
                isLatest ? consumer.endOffsets(wanted) : consumer.beginningOffsets(wanted);
            return found.get(partition);
        }
    }

    static void sendOffsets(
        Producer<byte[], byte[]> producer,
        Map<TopicPartition, OffsetAndMetadata> offsets,
        KafkaConsumer<byte[], byte[]> consumer,
        String group) {
        producer.sendOffsetsToTransaction(offsets, group);
    }

    static void closeAtOnce(Producer<byte[], byte[]> producer) {
        producer.close(0, TimeUnit.MILLISECONDS);
    }
}
