package kgw.e2e;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;

/** The security of connections: an operation's properties have this library's names, but for the user. */
final class Security {
    private static final String MODULES = "org.apache.kafka.common.security.";
    private static final String TOKEN = "sasl.oauthbearer.token.endpoint.url";

    /** The library's own: since 3.4, and before that since 3.1. */
    private static final List<String> TOKEN_HANDLERS =
        List.of(
            MODULES + "oauthbearer.OAuthBearerLoginCallbackHandler",
            MODULES + "oauthbearer.secured.OAuthBearerLoginCallbackHandler");

    private Security() {}

    static void add(Map<String, Object> settings, JsonObject properties) {
        for (Map.Entry<String, JsonElement> property : properties.entrySet()) {
            settings.put(property.getKey(), property.getValue().getAsString());
        }
        if (properties.has("ssl.truststore.location")) {
            settings.put("ssl.truststore.type", "PEM");
        }
        // Not as a file: 2.8 wants a password for its private key.
        Object keystore = settings.remove("ssl.keystore.location");
        if (keystore != null) {
            String text = text(keystore.toString());
            settings.put("ssl.keystore.type", "PEM");
            settings.put("ssl.keystore.key", text);
            settings.put("ssl.keystore.certificate.chain", text);
        }
        Object user = settings.remove("sasl.username");
        Object password = settings.remove("sasl.password");
        if (user != null) {
            String module =
                settings.get("sasl.mechanism").equals("PLAIN")
                    ? "plain.PlainLoginModule"
                    : "scram.ScramLoginModule";
            String login = " required username=" + quoted(user) + " password=" + quoted(password) + ";";
            settings.put("sasl.jaas.config", MODULES + module + login);
        }
        if (properties.has(TOKEN)) {
            addToken(settings, properties.get(TOKEN).getAsString());
        }
    }

    private static void addToken(Map<String, Object> settings, String url) {
        // Since 3.9 the library reads no other URLs.
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", url);
        settings.put("sasl.login.callback.handler.class", tokenHandler());
        settings.put(
            "sasl.jaas.config",
            MODULES + "oauthbearer.OAuthBearerLoginModule required url=" + quoted(url) + ";");
    }

    private static Class<?> tokenHandler() {
        for (String name : TOKEN_HANDLERS) {
            try {
                return Class.forName(name);
            } catch (ClassNotFoundException error) {
                // An older library.
            }
        }
        return TokenFile.class;
    }

    private static String text(String path) {
        try {
            return Files.readString(Path.of(path));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static String quoted(Object text) {
        return '"' + text.toString().replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }
}
