package kgw.e2e;

import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

/** Gives the library a token from a file: before 3.1 it has no such handler of its own. */
public final class TokenFile implements AuthenticateCallbackHandler {
    private static final long HOUR_MS = 3_600_000;

    private Path file;

    @Override
    public void configure(
        Map<String, ?> settings, String mechanism, List<AppConfigurationEntry> entries) {
        file = Path.of(URI.create(entries.get(0).getOptions().get("url").toString()));
    }

    @Override
    public void handle(Callback[] callbacks) throws IOException, UnsupportedCallbackException {
        for (Callback callback : callbacks) {
            // The other one asks for extensions, of which there are none.
            if (callback instanceof OAuthBearerTokenCallback) {
                ((OAuthBearerTokenCallback) callback).token(new Token(Files.readString(file)));
            }
        }
    }

    @Override
    public void close() {}

    private static final class Token implements OAuthBearerToken {
        private final String text;
        private final long start = System.currentTimeMillis();

        Token(String text) {
            this.text = text;
        }

        @Override
        public String value() {
            return text;
        }

        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public long lifetimeMs() {
            return start + HOUR_MS;
        }

        @Override
        public String principalName() {
            return "";
        }

        @Override
        public Long startTimeMs() {
            return start;
        }
    }
}
