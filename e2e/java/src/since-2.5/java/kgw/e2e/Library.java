package kgw.e2e;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** What the library does otherwise since Kafka 2.5; before-2.5 has the same for older ones. */
final class Library {
    private Library() {}

    static void setIncrementally(
        AdminClient admin, ConfigResource resource, ConfigEntry entry, long limitS)
        throws Exception {
        AlterConfigOp change = new AlterConfigOp(entry, AlterConfigOp.OpType.SET);
        admin
            .incrementalAlterConfigs(Map.of(resource, List.of(change)))
            .all()
            .get(limitS, TimeUnit.SECONDS);
    }

    static long offsetAt(
        Map<String, Object> settings,
        TopicPartition partition,
        boolean isLatest,
        String isolation,
        long limitS)
        throws Exception {
        IsolationLevel level = IsolationLevel.valueOf(isolation.toUpperCase());
        OffsetSpec spec = isLatest ? OffsetSpec.latest() : OffsetSpec.earliest();
        try (AdminClient admin = AdminClient.create(settings)) {
            return admin
                .listOffsets(Map.of(partition, spec), new ListOffsetsOptions(level))
                .partitionResult(partition)
                .get(limitS, TimeUnit.SECONDS)
                .offset();
        }
    }

    static void sendOffsets(
        Producer<byte[], byte[]> producer,
        Map<TopicPartition, OffsetAndMetadata> offsets,
        KafkaConsumer<byte[], byte[]> consumer,
        String group) {
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
    }

    static void closeAtOnce(Producer<byte[], byte[]> producer) {
        producer.close(Duration.ZERO);
    }
}
