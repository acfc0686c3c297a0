import java.io.ByteArrayOutputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.TimestampType;
import org.xerial.snappy.Snappy;
import org.xerial.snappy.SnappyOutputStream;

/** Writes what snappy-java and Java's Kafka client make of some contents, as lines of JSON. */
public class SnappyBytes {
    private static int state = 1;

    private static int next(int bound) {
        // Numbers that are the same everywhere: xorshift.
        state ^= state << 13;
        state ^= state >>> 17;
        state ^= state << 5;
        return Integer.remainderUnsigned(state, bound);
    }

    private static byte[] words(int size) {
        StringBuilder text = new StringBuilder();
        while (text.length() < size) {
            text.append("word").append(next(60)).append(' ');
        }
        return text.substring(0, size).getBytes(StandardCharsets.US_ASCII);
    }

    private static byte[] noise(int size) {
        byte[] bytes = new byte[size];
        for (int i = 0; i < size; i++) {
            bytes[i] = (byte) next(256);
        }
        return bytes;
    }

    private static byte[] stream(byte[] content, int blockBytes) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        OutputStream stream = new SnappyOutputStream(out, blockBytes);
        stream.write(content);
        stream.close();
        return out.toByteArray();
    }

    private static byte[] records(byte magic) {
        ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            buffer, magic, Compression.snappy().build(), TimestampType.CREATE_TIME, 0L);
        for (int i = 0; i < 100; i++) {
            byte[] key = ("key" + i % 7).getBytes(StandardCharsets.US_ASCII);
            byte[] value = ("value " + i + " of a hundred").getBytes(StandardCharsets.US_ASCII);
            long time = magic == 0 ? -1L : 1_700_000_000_000L + i;
            Header[] headers = {new RecordHeader("number", new byte[] {(byte) i})};
            if (magic < 2) {
                builder.append(time, key, value);
            } else {
                builder.append(time, key, value, headers);
            }
        }
        ByteBuffer built = builder.build().buffer();
        byte[] bytes = new byte[built.remaining()];
        built.get(bytes);
        return bytes;
    }

    private static void write(String form, String content, byte[] plain, byte[] made)
            throws Exception {
        StringBuilder hash = new StringBuilder();
        for (byte one : MessageDigest.getInstance("SHA-256").digest(plain)) {
            hash.append(String.format("%02x", one));
        }
        System.out.printf(
            "{\"form\": \"%s\", \"content\": \"%s\", \"size\": %d, \"sha256\": \"%s\", \"bytes\": \"%s\"}%n",
            form, content, plain.length, hash, Base64.getEncoder().encodeToString(made));
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, byte[]> contents = new LinkedHashMap<>();
        contents.put("empty", new byte[0]);
        contents.put("one byte", new byte[] {7});
        contents.put("words", words(35_000));
        contents.put("zeros", new byte[100_000]);
        contents.put("noise", noise(3_000));
        for (Map.Entry<String, byte[]> one : contents.entrySet()) {
            byte[] plain = one.getValue();
            write("block", one.getKey(), plain, Snappy.compress(plain));
            write("stream of 32 KB", one.getKey(), plain, stream(plain, 32 << 10));
            write("stream of 1 KB", one.getKey(), plain, stream(plain, 1 << 10));
        }
        for (byte magic = 0; magic <= 2; magic++) {
            write("records", "format " + magic, new byte[0], records(magic));
        }
    }
}
