package kgw.e2e;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.AlterConfigsResult;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Driver of Java's client library: tests/interop/drivers/loop.py describes the conversation, one JSON
 * object a line in, one out.
 */
public final class Driver {
    private static final long LIMIT_S = 30;
    private static final Gson GSON = new GsonBuilder().serializeNulls().create();

    private static final Map<String, Member> MEMBERS = new HashMap<>();
    private static final Map<String, LastingProducer> PRODUCERS = new HashMap<>();
    private static final ExecutorService THREADS = Executors.newCachedThreadPool(Driver::daemon);

    private final JsonObject operation;
    private final TopicPartition partition;

    private Driver(JsonObject operation) {
        this.operation = operation;
        this.partition =
            operation.has("partition")
                ? new TopicPartition(text("topic"), operation.get("partition").getAsInt())
                : null;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonObject answer;
            try {
                answer = new Driver(GSON.fromJson(line, JsonObject.class)).run();
            } catch (Exception error) {
                error.printStackTrace();
                answer = new JsonObject();
                answer.addProperty("error", error.toString());
            }
            answers.println(GSON.toJson(answer));
        }
    }

    private JsonObject run() throws Exception {
        switch (text("do")) {
            case "create_topic":
                return createTopic();
            case "produce":
                return produce();
            case "consume":
                return consume();
            case "bounds":
                return bounds();
            case "offset_for_time":
                return offsetForTime();
            case "create_partitions":
                return createPartitions();
            case "delete_topic":
                return deleteTopic();
            case "delete_records":
                return deleteRecords();
            case "topic_config":
                return topicConfig();
            case "set_topic_config":
                return setTopicConfig();
            case "open_member":
                MEMBERS.put(text("member"), new Member(settings(), operation));
                return new JsonObject();
            case "open_producer":
                return openProducer();
            case "begin":
                producer().begin();
                return new JsonObject();
            case "send_offsets":
                producer().sendOffsets(MEMBERS.get(text("producer")));
                return new JsonObject();
            case "end":
                producer().end(operation.get("commit").getAsBoolean());
                return new JsonObject();
            case "close_producer":
                return closeProducer();
            case "poll_members":
                return pollMembers();
            case "commit_member":
                return MEMBERS.get(text("member")).commit();
            case "close_member":
                MEMBERS.remove(text("member")).close();
                return new JsonObject();
            default:
                throw new IllegalArgumentException("unknown operation " + text("do"));
        }
    }

    private static Thread daemon(Runnable task) {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
    }

    /** All at the same time: a round of one waits for the others to poll. */
    private JsonObject pollMembers() throws Exception {
        Duration timeout =
            Duration.ofMillis((long) (operation.get("timeout_s").getAsDouble() * 1000));
        Map<String, Future<JsonObject>> polls = new HashMap<>();
        for (JsonElement name : operation.getAsJsonArray("members")) {
            Member member = MEMBERS.get(name.getAsString());
            polls.put(name.getAsString(), THREADS.submit(() -> member.poll(timeout)));
        }
        JsonObject members = new JsonObject();
        for (Map.Entry<String, Future<JsonObject>> poll : polls.entrySet()) {
            members.add(poll.getKey(), poll.getValue().get(LIMIT_S, TimeUnit.SECONDS));
        }
        return answer("members", members);
    }

    private JsonObject createTopic() throws Exception {
        try (AdminClient admin = AdminClient.create(settings())) {
            NewTopic topic =
                new NewTopic(text("topic"), operation.get("partitions").getAsInt(), (short) 1);
            admin.createTopics(List.of(topic)).all().get(LIMIT_S, TimeUnit.SECONDS);
        }
        return new JsonObject();
    }

    private JsonObject createPartitions() throws Exception {
        try (AdminClient admin = AdminClient.create(settings())) {
            NewPartitions wanted = NewPartitions.increaseTo(operation.get("partitions").getAsInt());
            admin
                .createPartitions(Map.of(text("topic"), wanted))
                .all()
                .get(LIMIT_S, TimeUnit.SECONDS);
        }
        return new JsonObject();
    }

    private JsonObject deleteTopic() throws Exception {
        try (AdminClient admin = AdminClient.create(settings())) {
            admin.deleteTopics(List.of(text("topic"))).all().get(LIMIT_S, TimeUnit.SECONDS);
        }
        return new JsonObject();
    }

    private JsonObject deleteRecords() throws Exception {
        try (AdminClient admin = AdminClient.create(settings())) {
            RecordsToDelete wanted =
                RecordsToDelete.beforeOffset(operation.get("offset").getAsLong());
            long start =
                admin
                    .deleteRecords(Map.of(partition, wanted))
                    .lowWatermarks()
                    .get(partition)
                    .get(LIMIT_S, TimeUnit.SECONDS)
                    .lowWatermark();
            return answer("log_start_offset", new JsonPrimitive(start));
        }
    }

    private JsonObject topicConfig() throws Exception {
        try (AdminClient admin = AdminClient.create(settings())) {
            Config config =
                admin
                    .describeConfigs(List.of(topicResource()))
                    .all()
                    .get(LIMIT_S, TimeUnit.SECONDS)
                    .get(topicResource());
            return answer("value", new JsonPrimitive(config.get(text("name")).value()));
        }
    }

    private JsonObject setTopicConfig() throws Exception {
        ConfigEntry entry = new ConfigEntry(text("name"), text("value"));
        try (AdminClient admin = AdminClient.create(settings())) {
            if (operation.get("incremental").getAsBoolean()) {
                Library.setIncrementally(admin, topicResource(), entry, LIMIT_S);
            } else {
                // Gone from the library's version 4: found by name, so that one source serves both.
                AlterConfigsResult result =
                    (AlterConfigsResult)
                        AdminClient.class
                            .getMethod("alterConfigs", Map.class)
                            .invoke(admin, Map.of(topicResource(), new Config(List.of(entry))));
                result.all().get(LIMIT_S, TimeUnit.SECONDS);
            }
        }
        return new JsonObject();
    }

    private ConfigResource topicResource() {
        return new ConfigResource(ConfigResource.Type.TOPIC, text("topic"));
    }

    private JsonObject openProducer() {
        String name = text("producer");
        if (!operation.get("group").isJsonNull()) {
            MEMBERS.put(name, new Member(settings(), operation));
        }
        PRODUCERS.put(name, new LastingProducer(settings(), operation));
        return new JsonObject();
    }

    private LastingProducer producer() {
        return PRODUCERS.get(text("producer"));
    }

    private JsonObject closeProducer() {
        String name = text("producer");
        PRODUCERS.remove(name).close();
        Member member = MEMBERS.remove(name);
        if (member != null) {
            member.close();
        }
        return new JsonObject();
    }

    private JsonObject produce() throws Exception {
        if (!operation.get("producer").isJsonNull()) {
            return sent(producer().producer());
        }
        Map<String, Object> settings = settings();
        settings.put("compression.type", text("codec"));
        settings.put("enable.idempotence", operation.get("idempotent").getAsBoolean());
        settings.put("acks", "all");
        settings.put("linger.ms", 5);
        try (Producer<byte[], byte[]> producer =
            new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            return sent(producer);
        }
    }

    private JsonObject sent(Producer<byte[], byte[]> producer) throws Exception {
        JsonArray offsets = new JsonArray();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonElement element : operation.getAsJsonArray("records")) {
            sent.add(producer.send(recordToSend(element.getAsJsonObject())));
        }
        for (Future<RecordMetadata> future : sent) {
            offsets.add(future.get(LIMIT_S, TimeUnit.SECONDS).offset());
        }
        return answer("offsets", offsets);
    }

    private JsonObject consume() {
        int count = operation.get("count").getAsInt();
        JsonArray records = new JsonArray();
        try (Consumer<byte[], byte[]> consumer = assignedConsumer()) {
            consumer.seek(partition, operation.get("offset").getAsLong());
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_S);
            while (records.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> read : consumer.poll(Duration.ofSeconds(1))) {
                    records.add(recordRead(read));
                }
            }
        }
        return answer("records", records);
    }

    private JsonObject bounds() throws Exception {
        JsonObject answer = new JsonObject();
        for (boolean isLatest : new boolean[] {false, true}) {
            long offset =
                Library.offsetAt(settings(), partition, isLatest, isolation(), LIMIT_S);
            answer.addProperty(isLatest ? "latest" : "earliest", offset);
        }
        return answer;
    }

    private JsonObject offsetForTime() {
        long timestampMs = operation.get("timestamp_ms").getAsLong();
        try (Consumer<byte[], byte[]> consumer = assignedConsumer()) {
            OffsetAndTimestamp found =
                consumer.offsetsForTimes(Map.of(partition, timestampMs)).get(partition);
            return answer(
                "offset", found == null ? JsonNull.INSTANCE : new JsonPrimitive(found.offset()));
        }
    }

    private Consumer<byte[], byte[]> assignedConsumer() {
        Map<String, Object> settings = settings();
        settings.put("auto.offset.reset", "none");
        settings.put("isolation.level", isolation());
        Consumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.assign(List.of(partition));
        return consumer;
    }

    private String isolation() {
        return operation.has("isolation") ? text("isolation") : "read_uncommitted";
    }

    private ProducerRecord<byte[], byte[]> recordToSend(JsonObject fields) {
        ProducerRecord<byte[], byte[]> record =
            new ProducerRecord<>(
                partition.topic(),
                partition.partition(),
                fields.get("timestamp_ms").getAsLong(),
                bytes(fields.get("key")),
                bytes(fields.get("value")));
        Headers headers = record.headers();
        for (JsonElement element : fields.getAsJsonArray("headers")) {
            JsonArray header = element.getAsJsonArray();
            headers.add(header.get(0).getAsString(), bytes(header.get(1)));
        }
        return record;
    }

    private static JsonObject recordRead(ConsumerRecord<byte[], byte[]> read) {
        JsonObject fields = new JsonObject();
        fields.add("key", base64(read.key()));
        fields.add("value", base64(read.value()));
        JsonArray headers = new JsonArray();
        for (Header header : read.headers()) {
            JsonArray pair = new JsonArray();
            pair.add(header.key());
            pair.add(base64(header.value()));
            headers.add(pair);
        }
        fields.add("headers", headers);
        fields.addProperty("timestamp_ms", read.timestamp());
        fields.addProperty("offset", read.offset());
        return fields;
    }

    private Map<String, Object> settings() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", text("bootstrap"));
        if (operation.has("security")) {
            Security.add(settings, operation.getAsJsonObject("security"));
        }
        return settings;
    }

    private String text(String field) {
        return operation.get(field).getAsString();
    }

    private static JsonObject answer(String name, JsonElement value) {
        JsonObject answer = new JsonObject();
        answer.add(name, value);
        return answer;
    }

    private static byte[] bytes(JsonElement text) {
        return text.isJsonNull() ? null : Base64.getDecoder().decode(text.getAsString());
    }

    private static JsonElement base64(byte[] data) {
        return data == null
            ? JsonNull.INSTANCE
            : new JsonPrimitive(Base64.getEncoder().encodeToString(data));
    }
}
