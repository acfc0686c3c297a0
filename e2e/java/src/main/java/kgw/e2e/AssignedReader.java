package kgw.e2e;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads partitions from their starts, without a group, and says when it got what.
 *
 * <p>Arguments: host:port, for how many seconds, and TOPIC:PARTITIONS of each topic. Each line that it
 * prints is a topic, a partition, an offset behind what was read, and the milliseconds since the first
 * poll.
 */
public final class AssignedReader {
    private AssignedReader() {}

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("request.timeout.ms", "30000");
        settings.put("auto.offset.reset", "none");
        settings.put("enable.auto.commit", "false");
        long lastsMs = Long.parseLong(arguments[1]) * 1000;
        List<TopicPartition> partitions = new ArrayList<>();
        for (int number = 2; number < arguments.length; number++) {
            String[] parts = arguments[number].split(":");
            for (int partition = 0; partition < Integer.parseInt(parts[1]); partition++) {
                partitions.add(new TopicPartition(parts[0], partition));
            }
        }
        try (KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(partitions);
            for (TopicPartition partition : partitions) {
                consumer.seek(partition, 0);
            }
            long began = System.nanoTime();
            long elapsedMs = 0;
            while (elapsedMs < lastsMs) {
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(100));
                elapsedMs = (System.nanoTime() - began) / 1_000_000;
                for (TopicPartition partition : polled.partitions()) {
                    List<ConsumerRecord<byte[], byte[]>> records = polled.records(partition);
                    long end = records.get(records.size() - 1).offset() + 1;
                    System.out.println(
                        partition.topic()
                            + " "
                            + partition.partition()
                            + " "
                            + end
                            + " "
                            + elapsedMs);
                }
            }
        }
    }
}
