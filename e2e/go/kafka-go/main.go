// Driver of segmentio's kafka-go.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"kgw/e2e/internal/loop"
	"kgw/e2e/internal/members"
)

const limit = 30 * time.Second

var codecs = map[string]kafka.Compression{
	"none":   0,
	"gzip":   kafka.Gzip,
	"snappy": kafka.Snappy,
	"lz4":    kafka.Lz4,
	"zstd":   kafka.Zstd,
}

// newClient gives a client with connections of its own. The library's default keeps them in a pool for
// the whole process, and the first request after a restart of the server fails on a dead one.
func newClient(operation loop.Operation) (*kafka.Client, func(), error) {
	encrypted, login, err := protection(operation)
	if err == nil {
		err = checkLogin(operation)
	}
	if err != nil {
		return nil, nil, err
	}
	transport := &kafka.Transport{TLS: encrypted, SASL: login}
	client := &kafka.Client{Addr: kafka.TCP(operation.Bootstrap), Transport: transport}
	return client, transport.CloseIdleConnections, nil
}

// checkLogin asks whether the server lets the client in. What is wrong with a login a dialer tells; the
// client tries again until its context ends, and tells that alone.
func checkLogin(operation loop.Operation) error {
	if len(operation.Security) == 0 {
		return nil
	}
	dialer, err := newDialer(operation)
	if err != nil {
		return err
	}
	connection, err := dialer.Dial("tcp", operation.Bootstrap)
	if err != nil {
		return err
	}
	defer connection.Close()
	// With TLS 1.3 a client reads last whether its certificate is refused.
	_, err = connection.ApiVersions()
	return err
}

// protection gives what transports and dialers are told alike.
func protection(operation loop.Operation) (*tls.Config, sasl.Mechanism, error) {
	encrypted, err := operation.Security.TLS()
	if err != nil {
		return nil, nil, err
	}
	user, password := operation.Security.Login()
	var login sasl.Mechanism
	switch operation.Security.Mechanism() {
	case "":
	case "PLAIN":
		login = plain.Mechanism{Username: user, Password: password}
	case "SCRAM-SHA-256":
		login, err = scram.Mechanism(scram.SHA256, user, password)
	case "SCRAM-SHA-512":
		login, err = scram.Mechanism(scram.SHA512, user, password)
	default:
		err = operation.Security.UnknownMechanism()
	}
	return encrypted, login, err
}

func newDialer(operation loop.Operation) (*kafka.Dialer, error) {
	encrypted, login, err := protection(operation)
	dialer := &kafka.Dialer{
		ClientID: operation.Member, Timeout: 10 * time.Second, TLS: encrypted, SASLMechanism: login,
	}
	return dialer, err
}

var refusals = []kafka.Error{
	kafka.SASLAuthenticationFailed,
	kafka.UnsupportedSASLMechanism,
	kafka.TopicAuthorizationFailed,
	kafka.GroupAuthorizationFailed,
	kafka.ClusterAuthorizationFailed,
}

// isRefused tells whether the server does not want this user, or the client does not want this server.
func isRefused(err error) bool {
	var untrusted *tls.CertificateVerificationError
	return errors.As(err, &untrusted) ||
		slices.ContainsFunc(refusals, func(one kafka.Error) bool { return errors.Is(err, one) })
}

func createTopic(operation loop.Operation) (loop.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client, closeClient, err := newClient(operation)
	if err != nil {
		return nil, err
	}
	defer closeClient()
	response, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{
			Topic:             operation.Topic,
			NumPartitions:     int(operation.Partitions),
			ReplicationFactor: 1,
		}},
	})
	if err != nil {
		return nil, err
	}
	return loop.Answer{}, response.Errors[operation.Topic]
}

// recordsToSend makes a reader of records, which can be read once: each try needs a new one.
func recordsToSend(chosen []loop.Record) kafka.RecordReader {
	records := make([]kafka.Record, 0, len(chosen))
	for _, record := range chosen {
		headers := make([]kafka.Header, len(record.Headers))
		for place, header := range record.Headers {
			headers[place] = kafka.Header{Key: header.Name, Value: loop.OrNil(header.Value)}
		}
		records = append(records, kafka.Record{
			Key:     kafka.NewBytes(loop.OrNil(record.Key)),
			Value:   kafka.NewBytes(loop.OrNil(record.Value)),
			Headers: headers,
			Time:    time.UnixMilli(record.TimestampMs),
		})
	}
	return kafka.NewRecordReader(records...)
}

// produceWithRetries sends one batch until it is answered: Produce itself tries once. A batch whose
// answer was lost is stored a second time.
func produceWithRetries(
	ctx context.Context, client *kafka.Client, operation loop.Operation, start, end int,
) (*kafka.ProduceResponse, error) {
	for {
		response, err := client.Produce(ctx, &kafka.ProduceRequest{
			Topic:        operation.Topic,
			Partition:    int(operation.Partition),
			RequiredAcks: kafka.RequireAll,
			Compression:  codecs[operation.Codec],
			Records:      recordsToSend(operation.Records[start:end]),
		})
		if err == nil && response.Error != nil {
			return nil, response.Error
		}
		if err == nil || ctx.Err() != nil || isRefused(err) {
			return response, err
		}
		fmt.Fprintln(os.Stderr, "once more:", err)
		time.Sleep(100 * time.Millisecond)
	}
}

// produce uses the client's Produce call, which unlike the library's Writer tells the base offset.
// The library has no idempotent producer: the operation says so.
func produce(operation loop.Operation) (loop.Answer, error) {
	if operation.Idempotent {
		return nil, errors.New("kafka-go has no idempotent producer")
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client, closeClient, err := newClient(operation)
	if err != nil {
		return nil, err
	}
	defer closeClient()
	offsets := []int64{}
	// Batches of at most ten records; the large record leaves no room for another in its batch.
	for start := 0; start < len(operation.Records); {
		end, size := start, 0
		for end < len(operation.Records) && end < start+10 {
			size += len(loop.OrNil(operation.Records[end].Value)) + 1000
			if end > start && size > 1_000_000 {
				break
			}
			end++
		}
		response, err := produceWithRetries(ctx, client, operation, start, end)
		if err != nil {
			return nil, err
		}
		for index := range end - start {
			offsets = append(offsets, response.BaseOffset+int64(index))
		}
		start = end
	}
	return loop.Answer{"offsets": offsets}, nil
}

func consume(operation loop.Operation) (loop.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	dialer, err := newDialer(operation)
	if err != nil {
		return nil, err
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:   []string{operation.Bootstrap},
		Dialer:    dialer,
		Topic:     operation.Topic,
		Partition: int(operation.Partition),
		MaxBytes:  10_000_000,
		MaxWait:   500 * time.Millisecond,
	})
	defer reader.Close()
	if err := reader.SetOffset(operation.Offset); err != nil {
		return nil, err
	}
	records := []loop.Record{}
	for len(records) < operation.Count {
		read, err := reader.ReadMessage(ctx)
		if err != nil {
			return nil, fmt.Errorf("after %d of %d records: %w", len(records), operation.Count, err)
		}
		headers := []loop.Header{}
		for _, header := range read.Headers {
			headers = append(headers, loop.Header{Name: header.Key, Value: loop.OrNull(header.Value)})
		}
		records = append(records, loop.Record{
			Key:         loop.OrNull(read.Key),
			Value:       loop.OrNull(read.Value),
			Headers:     headers,
			TimestampMs: read.Time.UnixMilli(),
			Offset:      read.Offset,
		})
	}
	return loop.Answer{"records": records}, nil
}

func listed(operation loop.Operation, question kafka.OffsetRequest) (kafka.PartitionOffsets, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client, closeClient, err := newClient(operation)
	if err != nil {
		return kafka.PartitionOffsets{}, err
	}
	defer closeClient()
	response, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{operation.Topic: {question}},
	})
	if err != nil {
		return kafka.PartitionOffsets{}, err
	}
	answer := response.Topics[operation.Topic][0]
	return answer, answer.Error
}

func bounds(operation loop.Operation) (loop.Answer, error) {
	first, err := listed(operation, kafka.FirstOffsetOf(int(operation.Partition)))
	if err != nil {
		return nil, err
	}
	last, err := listed(operation, kafka.LastOffsetOf(int(operation.Partition)))
	return loop.Answer{"earliest": first.FirstOffset, "latest": last.LastOffset}, err
}

func offsetForTime(operation loop.Operation) (loop.Answer, error) {
	at := time.UnixMilli(operation.TimestampMs)
	answer, err := listed(operation, kafka.TimeOffsetOf(int(operation.Partition), at))
	if err != nil {
		return nil, err
	}
	for offset := range answer.Offsets {
		return loop.Found(offset), nil
	}
	return loop.Found(-1), nil
}

func createPartitions(operation loop.Operation) (loop.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client, closeClient, err := newClient(operation)
	if err != nil {
		return nil, err
	}
	defer closeClient()
	response, err := client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: operation.Topic, Count: operation.Partitions}},
	})
	if err != nil {
		return nil, err
	}
	return loop.Answer{}, response.Errors[operation.Topic]
}

func deleteTopic(operation loop.Operation) (loop.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client, closeClient, err := newClient(operation)
	if err != nil {
		return nil, err
	}
	defer closeClient()
	response, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{
		Topics: []string{operation.Topic},
	})
	if err != nil {
		return nil, err
	}
	return loop.Answer{}, response.Errors[operation.Topic]
}

func topicConfig(operation loop.Operation) (loop.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client, closeClient, err := newClient(operation)
	if err != nil {
		return nil, err
	}
	defer closeClient()
	response, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic,
			ResourceName: operation.Topic,
			ConfigNames:  []string{operation.Name},
		}},
	})
	if err != nil {
		return nil, err
	}
	resource := response.Resources[0]
	if resource.Error != nil {
		return nil, resource.Error
	}
	if len(resource.ConfigEntries) != 1 {
		return nil, fmt.Errorf("%d settings instead of %s", len(resource.ConfigEntries), operation.Name)
	}
	return loop.Answer{"value": resource.ConfigEntries[0].ConfigValue}, nil
}

func setTopicConfig(operation loop.Operation) (loop.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client, closeClient, err := newClient(operation)
	if err != nil {
		return nil, err
	}
	defer closeClient()
	if operation.Incremental {
		response, err := client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
			Resources: []kafka.IncrementalAlterConfigsRequestResource{{
				ResourceType: kafka.ResourceTypeTopic,
				ResourceName: operation.Topic,
				Configs: []kafka.IncrementalAlterConfigsRequestConfig{{
					Name:            operation.Name,
					Value:           operation.Value,
					ConfigOperation: kafka.ConfigOperationSet,
				}},
			}},
		})
		if err != nil {
			return nil, err
		}
		return loop.Answer{}, response.Resources[0].Error
	}
	response, err := client.AlterConfigs(ctx, &kafka.AlterConfigsRequest{
		Resources: []kafka.AlterConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic,
			ResourceName: operation.Topic,
			Configs:      []kafka.AlterConfigRequestConfig{{Name: operation.Name, Value: operation.Value}},
		}},
	})
	if err != nil {
		return nil, err
	}
	for _, failed := range response.Errors {
		if failed != nil {
			return nil, failed
		}
	}
	return loop.Answer{}, nil
}

func main() {
	loop.Serve(members.Add(loop.Operations{
		"create_topic":      createTopic,
		"produce":           produce,
		"consume":           consume,
		"bounds":            bounds,
		"offset_for_time":   offsetForTime,
		"create_partitions": createPartitions,
		"delete_topic":      deleteTopic,
		"topic_config":      topicConfig,
		"set_topic_config":  setTopicConfig,
	}, members.Opened{}, openMember))
}
