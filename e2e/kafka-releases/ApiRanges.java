import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.util.Optional;

/** Prints what the kafka-clients jar on the class path says of each API: its key, first and last version. */
public class ApiRanges {
    public static void main(String[] arguments) throws Exception {
        Class<?> keys = Class.forName("org.apache.kafka.common.protocol.ApiKeys");
        for (Object key : keys.getEnumConstants()) {
            short id = keys.getField("id").getShort(key);
            String range = range(keys, key, id);
            if (range != null) {
                System.out.println(id + " " + range);
            }
        }
    }

    /** Null where no version of the API is for clients. */
    private static String range(Class<?> keys, Object key, short id) throws Exception {
        // Since 3.6: stable versions alone.
        try {
            Object found = keys.getMethod("toApiVersion", boolean.class).invoke(key, false);
            if (found instanceof Optional) {
                if (((Optional<?>) found).isEmpty()) {
                    return null;
                }
                found = ((Optional<?>) found).get();
            }
            Class<?> range = found.getClass();
            return range.getMethod("minVersion").invoke(found) + " " + range.getMethod("maxVersion").invoke(found);
        } catch (NoSuchMethodException older) {
            // Below.
        }
        // Since 0.11.
        try {
            return keys.getMethod("oldestVersion").invoke(key) + " " + keys.getMethod("latestVersion").invoke(key);
        } catch (NoSuchMethodException older) {
            // Below.
        }
        Class<?> protocol = Class.forName("org.apache.kafka.common.protocol.Protocol");
        return version(protocol, "MIN_VERSIONS", id) + " " + version(protocol, "CURR_VERSION", id);
    }

    private static short version(Class<?> protocol, String table, short id) throws Exception {
        Field field = protocol.getDeclaredField(table);
        field.setAccessible(true);
        return Array.getShort(field.get(null), id);
    }
}
