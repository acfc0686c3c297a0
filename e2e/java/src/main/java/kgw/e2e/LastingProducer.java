package kgw.e2e;

import com.google.gson.JsonObject;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A producer that lives between two operations: with a transactional id, or idempotent. */
final class LastingProducer {
    private final Producer<byte[], byte[]> producer;

    /** Returns when it has fenced the others of its id, if it has one. */
    LastingProducer(Map<String, Object> settings, JsonObject operation) {
        boolean isTransactional = !operation.get("transactional_id").isJsonNull();
        if (isTransactional) {
            settings.put("transactional.id", operation.get("transactional_id").getAsString());
            settings.put("transaction.timeout.ms", operation.get("timeout_ms").getAsInt());
        }
        settings.put("enable.idempotence", true);
        settings.put("acks", "all");
        settings.put("reconnect.backoff.max.ms", 500);
        producer =
            new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        if (!isTransactional) {
            return;
        }
        try {
            producer.initTransactions();
        } catch (RuntimeException error) {
            close();
            throw error;
        }
    }

    Producer<byte[], byte[]> producer() {
        return producer;
    }

    void begin() {
        producer.beginTransaction();
    }

    void sendOffsets(Member member) {
        member.sendOffsetsTo(producer);
    }

    void end(boolean commit) {
        if (commit) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    /** Gives up what it has not sent. */
    void close() {
        Library.closeAtOnce(producer);
    }
}
