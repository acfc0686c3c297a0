import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.security.authorizer.AclEntry;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Prints what Kafka's own StandardAuthorizer answers to the cases that cases.py writes.
 *
 * It reads the cases from the standard input and prints one line a question: 1 or 0 for allowed or
 * denied, or the 32-bit field of the allowed operations. No broker runs.
 */
public class StandardAuthorizerVerdicts {

    /** The client of one question. */
    private record Client(KafkaPrincipal principal, InetAddress clientAddress)
            implements AuthorizableRequestContext {

        @Override
        public String listenerName() {
            return "PLAINTEXT";
        }

        @Override
        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.SASL_PLAINTEXT;
        }

        @Override
        public int requestType() {
            return 0;
        }

        @Override
        public int requestVersion() {
            return 0;
        }

        @Override
        public String clientId() {
            return "oracle";
        }

        @Override
        public int correlationId() {
            return 0;
        }
    }

    /** A set of rules whose authorizer is made when the first question comes. */
    private static final class RuleSet {
        private final Map<String, String> settings = new HashMap<>();
        private final boolean snapshot;
        private final Map<Uuid, StandardAcl> added = new LinkedHashMap<>();
        private final List<Uuid> ids = new ArrayList<>();
        private final List<Uuid> removed = new ArrayList<>();
        private StandardAuthorizer authorizer;

        RuleSet(String allowIfNoRule, String snapshot, String superUsers) {
            settings.put(StandardAuthorizer.ALLOW_EVERYONE_IF_NO_ACL_IS_FOUND_CONFIG, allowIfNoRule);
            settings.put(StandardAuthorizer.SUPER_USERS_CONFIG, superUsers);
            this.snapshot = Boolean.parseBoolean(snapshot);
        }

        void add(StandardAcl acl) {
            Uuid id = Uuid.randomUuid();
            ids.add(id);
            added.put(id, acl);
        }

        void remove(int number) {
            removed.add(ids.get(number));
        }

        StandardAuthorizer authorizer() {
            if (authorizer == null) {
                authorizer = new StandardAuthorizer();
                authorizer.configure(settings);
                authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                if (snapshot) {
                    Map<Uuid, StandardAcl> stay = new LinkedHashMap<>(added);
                    stay.keySet().removeAll(removed);
                    authorizer.loadSnapshot(stay);
                } else {
                    added.forEach(authorizer::addAcl);
                    removed.forEach(authorizer::removeAcl);
                }
                authorizer.completeInitialLoad();
            }
            return authorizer;
        }
    }

    private static boolean allowed(
            StandardAuthorizer authorizer, Client client, AclOperation operation,
            ResourceType type, String name) {
        ResourcePattern resource = new ResourcePattern(type, name, PatternType.LITERAL);
        Action action = new Action(operation, resource, 1, false, false);
        return authorizer.authorize(client, List.of(action)).get(0) == AuthorizationResult.ALLOWED;
    }

    private static int answer(StandardAuthorizer authorizer, String[] fields) throws Exception {
        String[] principal = fields[2].split(":", 2);
        Client client = new Client(
            new KafkaPrincipal(principal[0], principal[1]), InetAddress.getByName(fields[3]));
        AclOperation operation = AclOperation.valueOf(fields[4]);
        ResourceType type = ResourceType.valueOf(fields[5]);
        String name = fields[6];
        switch (fields[1]) {
            case "allowed":
                return allowed(authorizer, client, operation, type, name) ? 1 : 0;
            case "any":
                return authorizer.authorizeByResourceType(client, operation, type)
                    == AuthorizationResult.ALLOWED ? 1 : 0;
            default:
                Set<Byte> codes = new HashSet<>();
                for (AclOperation supported : AclEntry.supportedOperations(type)) {
                    if (allowed(authorizer, client, supported, type, name)) {
                        codes.add(supported.code());
                    }
                }
                return Utils.to32BitField(codes);
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        RuleSet rules = null;
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] fields = line.split("\t", -1);
            switch (fields[0]) {
                case "S":
                    rules = new RuleSet(fields[1], fields[2], fields[3]);
                    break;
                case "A":
                    rules.add(new StandardAcl(
                        ResourceType.valueOf(fields[1]), fields[2], PatternType.valueOf(fields[3]),
                        fields[4], fields[5], AclOperation.valueOf(fields[6]),
                        AclPermissionType.valueOf(fields[7])));
                    break;
                case "R":
                    rules.remove(Integer.parseInt(fields[1]));
                    break;
                default:
                    output.println(answer(rules.authorizer(), fields));
            }
        }
        output.flush();
    }
}
