// Driver of franz-go.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"kgw/e2e/internal/loop"
	"kgw/e2e/internal/members"
	"kgw/e2e/internal/transactions"
)

const limit = 30 * time.Second

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

// newClient makes a client that connects as the operation says.
func newClient(operation loop.Operation, options ...kgo.Opt) (*kgo.Client, error) {
	connecting, err := connection(operation)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(connecting, options...)...)
	if err != nil {
		return nil, err
	}
	return client, checkLogin(operation, client)
}

// checkLogin asks whether the server lets the client in. Records that are produced, and a group that is
// joined, wait for as long as it does not.
func checkLogin(operation loop.Operation, client *kgo.Client) error {
	if len(operation.Security) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := client.Ping(ctx)
	if err != nil {
		client.Close()
	}
	return err
}

// connection are the options that say where and how a client connects.
func connection(operation loop.Operation) ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.SeedBrokers(operation.Servers()...)}
	encrypted, err := operation.Security.TLS()
	if err != nil {
		return nil, err
	}
	if encrypted != nil {
		options = append(options, kgo.DialTLSConfig(encrypted))
	}
	user, password := operation.Security.Login()
	hashed := scram.Auth{User: user, Pass: password}
	switch operation.Security.Mechanism() {
	case "":
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(hashed.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(hashed.AsSha512Mechanism()))
	case "OAUTHBEARER":
		login := oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := operation.Security.Token()
			return oauth.Auth{Token: token}, err
		})
		options = append(options, kgo.SASL(login))
	default:
		return nil, operation.Security.UnknownMechanism()
	}
	return options, nil
}

// administer makes an admin client for one call.
func administer(
	operation loop.Operation,
	call func(context.Context, *kadm.Client) (loop.Answer, error),
) (loop.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client, err := newClient(operation)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return call(ctx, kadm.NewClient(client))
}

func createTopic(operation loop.Operation) (loop.Answer, error) {
	return administer(operation, func(ctx context.Context, admin *kadm.Client) (loop.Answer, error) {
		_, err := admin.CreateTopic(ctx, operation.Partitions, 1, nil, operation.Topic)
		return loop.Answer{}, err
	})
}

func produce(operation loop.Operation) (loop.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	options := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[operation.Codec]),
		kgo.ProducerBatchMaxBytes(1_048_588),
		kgo.RequiredAcks(kgo.AllISRAcks()),
	}
	if !operation.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := newClient(operation, options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return sent(ctx, client, operation)
}

// sent does what produce does, with a client that is there.
func sent(
	ctx context.Context, client *kgo.Client, operation loop.Operation,
) (loop.Answer, error) {
	records := make([]*kgo.Record, len(operation.Records))
	for index, record := range operation.Records {
		headers := make([]kgo.RecordHeader, len(record.Headers))
		for place, header := range record.Headers {
			headers[place] = kgo.RecordHeader{Key: header.Name, Value: loop.OrNil(header.Value)}
		}
		records[index] = &kgo.Record{
			Topic:     operation.Topic,
			Partition: operation.Partition,
			Key:       loop.OrNil(record.Key),
			Value:     loop.OrNil(record.Value),
			Headers:   headers,
			Timestamp: time.UnixMilli(record.TimestampMs),
		}
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	offsets := make([]int64, len(records))
	for index, record := range records {
		offsets[index] = record.Offset
	}
	return loop.Answer{"offsets": offsets}, nil
}

func isolation(operation loop.Operation) kgo.Opt {
	if operation.ReadsCommitted() {
		return kgo.FetchIsolationLevel(kgo.ReadCommitted())
	}
	return kgo.FetchIsolationLevel(kgo.ReadUncommitted())
}

func consume(operation loop.Operation) (loop.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	start := kgo.NewOffset().At(operation.Offset)
	client, err := newClient(
		operation,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
			operation.Topic: {operation.Partition: start},
		}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		isolation(operation),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := []loop.Record{}
	for len(records) < operation.Count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(read *kgo.Record) {
			headers := []loop.Header{}
			for _, header := range read.Headers {
				headers = append(headers, loop.Header{Name: header.Key, Value: loop.OrNull(header.Value)})
			}
			records = append(records, loop.Record{
				Key:         loop.OrNull(read.Key),
				Value:       loop.OrNull(read.Value),
				Headers:     headers,
				TimestampMs: read.Timestamp.UnixMilli(),
				Offset:      read.Offset,
			})
		})
	}
	return loop.Answer{"records": records}, nil
}

// listed asks an admin client for the offset of the operation's partition.
func listed(
	operation loop.Operation,
	list func(context.Context, *kadm.Client) (kadm.ListedOffsets, error),
) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client, err := newClient(operation)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	answers, err := list(ctx, kadm.NewClient(client))
	if err != nil {
		return 0, err
	}
	offset, _ := answers.Lookup(operation.Topic, operation.Partition)
	return offset.Offset, offset.Err
}

func bounds(operation loop.Operation) (loop.Answer, error) {
	earliest, err := listed(operation,
		func(ctx context.Context, admin *kadm.Client) (kadm.ListedOffsets, error) {
			return admin.ListStartOffsets(ctx, operation.Topic)
		})
	if err != nil {
		return nil, err
	}
	latest, err := listed(operation,
		func(ctx context.Context, admin *kadm.Client) (kadm.ListedOffsets, error) {
			if operation.ReadsCommitted() {
				return admin.ListCommittedOffsets(ctx, operation.Topic)
			}
			return admin.ListEndOffsets(ctx, operation.Topic)
		})
	return loop.Answer{"earliest": earliest, "latest": latest}, err
}

// offsetForTime undoes what kadm adds: where no record is new enough, it asks for the end offset
// instead and returns that without a timestamp.
func offsetForTime(operation loop.Operation) (loop.Answer, error) {
	none := false
	offset, err := listed(operation,
		func(ctx context.Context, admin *kadm.Client) (kadm.ListedOffsets, error) {
			answers, err := admin.ListOffsetsAfterMilli(ctx, operation.TimestampMs, operation.Topic)
			found, _ := answers.Lookup(operation.Topic, operation.Partition)
			none = found.Timestamp < 0
			return answers, err
		})
	if none {
		offset = -1
	}
	return loop.Found(offset), err
}

func createPartitions(operation loop.Operation) (loop.Answer, error) {
	return administer(operation, func(ctx context.Context, admin *kadm.Client) (loop.Answer, error) {
		answers, err := admin.UpdatePartitions(ctx, int(operation.Partitions), operation.Topic)
		if err != nil {
			return nil, err
		}
		return loop.Answer{}, answers.Error()
	})
}

func deleteTopic(operation loop.Operation) (loop.Answer, error) {
	return administer(operation, func(ctx context.Context, admin *kadm.Client) (loop.Answer, error) {
		_, err := admin.DeleteTopic(ctx, operation.Topic)
		return loop.Answer{}, err
	})
}

func deleteRecords(operation loop.Operation) (loop.Answer, error) {
	return administer(operation, func(ctx context.Context, admin *kadm.Client) (loop.Answer, error) {
		wanted := kadm.Offsets{}
		wanted.AddOffset(operation.Topic, operation.Partition, operation.Offset, -1)
		answers, err := admin.DeleteRecords(ctx, wanted)
		if err != nil {
			return nil, err
		}
		answer, _ := answers.Lookup(operation.Topic, operation.Partition)
		return loop.Answer{"log_start_offset": answer.LowWatermark}, answer.Err
	})
}

func topicConfig(operation loop.Operation) (loop.Answer, error) {
	return administer(operation, func(ctx context.Context, admin *kadm.Client) (loop.Answer, error) {
		answers, err := admin.DescribeTopicConfigs(ctx, operation.Topic)
		if err != nil {
			return nil, err
		}
		resource, err := answers.On(operation.Topic, nil)
		if err != nil {
			return nil, err
		}
		if resource.Err != nil {
			return nil, resource.Err
		}
		for _, config := range resource.Configs {
			if config.Key == operation.Name {
				return loop.Answer{"value": config.Value}, nil
			}
		}
		return nil, fmt.Errorf("no setting %s", operation.Name)
	})
}

func setTopicConfig(operation loop.Operation) (loop.Answer, error) {
	return administer(operation, func(ctx context.Context, admin *kadm.Client) (loop.Answer, error) {
		set := admin.AlterTopicConfigsState
		if operation.Incremental {
			set = admin.AlterTopicConfigs
		}
		configs := []kadm.AlterConfig{
			{Op: kadm.SetConfig, Name: operation.Name, Value: &operation.Value},
		}
		answers, err := set(ctx, configs, operation.Topic)
		if err != nil {
			return nil, err
		}
		answer, err := answers.On(operation.Topic, nil)
		if err != nil {
			return nil, err
		}
		return loop.Answer{}, answer.Err
	})
}

func main() {
	opened := members.Opened{}
	operations := loop.Operations{
		"create_topic":      createTopic,
		"produce":           produce,
		"consume":           consume,
		"bounds":            bounds,
		"offset_for_time":   offsetForTime,
		"create_partitions": createPartitions,
		"delete_topic":      deleteTopic,
		"delete_records":    deleteRecords,
		"topic_config":      topicConfig,
		"set_topic_config":  setTopicConfig,
	}
	members.Add(operations, opened, openMember)
	loop.Serve(transactions.Add(operations, opened, openProducer))
}
