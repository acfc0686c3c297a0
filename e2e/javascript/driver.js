// Driver of KafkaJS: tests/interop/drivers/loop.py describes the conversation, one JSON object a line
// in, one out. It does what the test of the whole system asks for: produce and open_producer without
// a transactional id, members of groups, create_topic. Anything else is an unknown operation, but for
// what e2e/test_kafkajs.py asks of this library alone:
//
//     reset_offsets  group, topic, earliest  -> {offsets}: pairs of partition and offset

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

import kafkajs from "kafkajs";

const { AssignerProtocol, CompressionTypes, Kafka, logLevel } = kafkajs;

const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP };

const bytes = (text) => (text === null ? null : Buffer.from(text, "base64"));

/** The library's settings for the security of an operation: properties with the names of Java's. */
const securityOf = ({ security }) => {
  if (!security) {
    return {};
  }
  const file = (name) => (security[name] ? readFileSync(security[name], "utf8") : undefined);
  const own = file("ssl.keystore.location");
  const settings = { ssl: { ca: file("ssl.truststore.location"), key: own, cert: own } };
  const mechanism = security["sasl.mechanism"];
  if (mechanism === "OAUTHBEARER") {
    const token = new URL(security["sasl.oauthbearer.token.endpoint.url"]);
    settings.sasl = {
      mechanism: "oauthbearer",
      oauthBearerProvider: async () => ({ value: readFileSync(token, "utf8") }),
    };
  } else if (mechanism) {
    settings.sasl = {
      mechanism: mechanism.toLowerCase(),
      username: security["sasl.username"],
      password: security["sasl.password"],
    };
  }
  return settings;
};

const clientOf = (operation) =>
  new Kafka({
    brokers: operation.bootstrap.split(","),
    ...securityOf(operation),
    logLevel: logLevel.WARN,
    // Standard output is for answers.
    logCreator: () => ({ log }) => console.error(JSON.stringify(log)),
    // Through a restart of the server. What is wrong with TLS is one more failed connection to the
    // library: with security it is told sooner.
    retry: { initialRetryTime: 100, maxRetryTime: 500, retries: operation.security ? 10 : 60 },
  });

/** Kafka's range assignor, which KafkaJS does not bring: what members of all libraries agree upon. */
export const rangeAssignment = (memberIds, partitionsByTopic) => {
  const members = [...memberIds].sort();
  const assignment = Object.fromEntries(members.map((member) => [member, {}]));
  for (const [topic, partitions] of Object.entries(partitionsByTopic)) {
    const sorted = [...partitions].sort((one, other) => one - other);
    const each = Math.floor(sorted.length / members.length);
    const more = sorted.length % members.length;
    members.forEach((member, index) => {
      const start = each * index + Math.min(index, more);
      const own = sorted.slice(start, start + each + (index < more ? 1 : 0));
      if (own.length) {
        assignment[member][topic] = own;
      }
    });
  }
  return assignment;
};

const range = ({ cluster }) => ({
  name: "range",
  version: 0,
  async assign({ members, topics }) {
    const partitions = (topic) =>
      cluster.findTopicPartitionMetadata(topic).map((one) => one.partitionId);
    const assignment = rangeAssignment(
      members.map((one) => one.memberId),
      Object.fromEntries(topics.map((topic) => [topic, partitions(topic)])),
    );
    return Object.entries(assignment).map(([memberId, topicsOfIt]) => ({
      memberId,
      memberAssignment: AssignerProtocol.MemberAssignment.encode({
        version: this.version,
        assignment: topicsOfIt,
      }),
    }));
  },
  protocol({ topics }) {
    const metadata = AssignerProtocol.MemberMetadata.encode({ version: this.version, topics });
    return { name: this.name, metadata };
  },
});

/** A consumer in a group, which the library runs: what it is given waits here to be polled. */
class Member {
  #consumer;
  #topic;
  #assigned = [];
  #waiting = [];
  #wake = () => {};
  #uncommitted = new Map();
  /** What has ended the consumer: the library does not start it again. */
  #failure = null;

  static async open(operation) {
    if (operation.strategy !== "range" || operation.instance) {
      throw new Error("this driver has dynamic members with the strategy range alone");
    }
    const member = new Member();
    await member.#start(operation);
    return member;
  }

  async #start(operation) {
    this.#topic = operation.topic;
    this.#consumer = clientOf(operation).consumer({
      groupId: operation.group,
      partitionAssigners: [range],
      sessionTimeout: 6000,
      rebalanceTimeout: 10000,
      heartbeatInterval: 300,
      maxWaitTimeInMs: 200,
      allowAutoTopicCreation: false,
      readUncommitted: operation.isolation !== "read_committed",
    });
    const { GROUP_JOIN, REBALANCING, CRASH } = this.#consumer.events;
    this.#consumer.on(REBALANCING, () => this.#forget([]));
    this.#consumer.on(GROUP_JOIN, ({ payload }) =>
      this.#forget(payload.memberAssignment[this.#topic] ?? []),
    );
    this.#consumer.on(CRASH, ({ payload }) => {
      console.error(payload.error);
      if (!payload.restart) {
        this.#failure = payload.error;
        this.#wake();
      }
    });
    await this.#consumer.connect();
    await this.#consumer.subscribe({ topics: [this.#topic], fromBeginning: true });
    await this.#consumer.run({
      autoCommit: false,
      eachBatch: async ({ batch, resolveOffset }) => this.#take(batch, resolveOffset),
    });
  }

  /** What was read before a rebalance and not committed is read again, here or elsewhere. */
  #forget(assigned) {
    this.#assigned = [...assigned].sort((one, other) => one - other);
    this.#waiting = [];
    this.#uncommitted.clear();
  }

  #take(batch, resolveOffset) {
    if (!this.#assigned.includes(batch.partition)) {
      return;
    }
    for (const message of batch.messages) {
      this.#waiting.push([batch.partition, Number(message.offset)]);
      resolveOffset(message.offset);
    }
    this.#wake();
  }

  async poll(timeoutMs) {
    if (!this.#waiting.length && !this.#failure) {
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, timeoutMs);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    if (this.#failure) {
      throw this.#failure;
    }
    const records = this.#waiting;
    this.#waiting = [];
    for (const [partition, offset] of records) {
      this.#uncommitted.set(partition, offset + 1);
    }
    return { records, assigned: this.#assigned };
  }

  async commit() {
    const committed = [...this.#uncommitted];
    const offsets = committed.map(([partition, offset]) => ({
      topic: this.#topic,
      partition,
      offset: String(offset),
    }));
    if (offsets.length) {
      await this.#consumer.commitOffsets(offsets);
    }
    // A rebalance may have come meanwhile: of what came since, nothing is forgotten.
    for (const [partition, offset] of committed) {
      if (this.#uncommitted.get(partition) === offset) {
        this.#uncommitted.delete(partition);
      }
    }
    return { committed };
  }

  async close() {
    await this.#consumer.disconnect();
  }
}

const messageOf = (record, partition) => {
  const headers = {};
  for (const [name, value] of record.headers) {
    headers[name] = [...(headers[name] ?? []), bytes(value)];
  }
  return {
    key: bytes(record.key),
    value: bytes(record.value),
    headers,
    partition,
    timestamp: String(record.timestamp_ms),
  };
};

const sent = async (producer, operation) => {
  const codec = operation.codec ?? "none";
  if (!(codec in CODECS)) {
    throw new Error(`KafkaJS brings no ${codec}`);
  }
  const answers = await producer.send({
    topic: operation.topic,
    acks: -1,
    compression: CODECS[codec],
    messages: operation.records.map((one) => messageOf(one, operation.partition)),
  });
  // All of them are for one partition, and travel as one batch.
  if (answers.length !== 1) {
    throw new Error(`${answers.length} answers to one batch`);
  }
  const base = Number(answers[0].baseOffset);
  return { offsets: operation.records.map((_, index) => base + index) };
};

const openedProducer = async (operation, idempotent) => {
  const producer = clientOf(operation).producer({
    allowAutoTopicCreation: false,
    idempotent,
    // The library promises an order, and no record twice, with one request under way alone.
    maxInFlightRequests: 1,
    createPartitioner: kafkajs.Partitioners.DefaultPartitioner,
  });
  await producer.connect();
  return producer;
};

const withAdmin = async (operation, act) => {
  const admin = clientOf(operation).admin();
  await admin.connect();
  try {
    return await act(admin);
  } finally {
    await admin.disconnect();
  }
};

const members = new Map();
const producers = new Map();

const operations = {
  async create_topic(operation) {
    const topic = { topic: operation.topic, numPartitions: operation.partitions };
    await withAdmin(operation, async (admin) => {
      if (!(await admin.createTopics({ topics: [topic] }))) {
        throw new Error(`${operation.topic} is there already`);
      }
    });
    return {};
  },

  async reset_offsets({ group: groupId, topic, earliest, ...operation }) {
    return withAdmin(operation, async (admin) => {
      await admin.resetOffsets({ groupId, topic, earliest });
      const asked = { groupId, topics: [topic], resolveOffsets: true };
      const [{ partitions }] = await admin.fetchOffsets(asked);
      return { offsets: partitions.map((one) => [one.partition, Number(one.offset)]) };
    });
  },

  async produce(operation) {
    if (operation.producer) {
      return sent(producers.get(operation.producer), operation);
    }
    const producer = await openedProducer(operation, operation.idempotent);
    try {
      return await sent(producer, operation);
    } finally {
      await producer.disconnect();
    }
  },

  async open_producer(operation) {
    if (operation.transactional_id) {
      throw new Error("this driver has no transactional producers");
    }
    producers.set(operation.producer, await openedProducer(operation, true));
    return {};
  },

  async close_producer(operation) {
    const producer = producers.get(operation.producer);
    producers.delete(operation.producer);
    await producer.disconnect();
    return {};
  },

  async open_member(operation) {
    members.set(operation.member, await Member.open(operation));
    return {};
  },

  async poll_members(operation) {
    const found = operation.members.map(async (name) => [
      name,
      await members.get(name).poll(operation.timeout_s * 1000),
    ]);
    return { members: Object.fromEntries(await Promise.all(found)) };
  },

  async commit_member(operation) {
    return members.get(operation.member).commit();
  },

  async close_member(operation) {
    const member = members.get(operation.member);
    members.delete(operation.member);
    await member.close();
    return {};
  },
};

const serve = async () => {
  for await (const line of createInterface({ input: process.stdin })) {
    let answer;
    try {
      const operation = JSON.parse(line);
      if (!Object.hasOwn(operations, operation.do)) {
        throw new Error(`unknown operation ${operation.do}`);
      }
      answer = await operations[operation.do](operation);
    } catch (error) {
      console.error(error);
      // Some errors hold one for each topic.
      answer = { error: [error, ...(error.errors ?? [])].map(String).join("; ") };
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
  }
  // Clients that are still open keep the process alive.
  process.exit(0);
};

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  await serve();
}
