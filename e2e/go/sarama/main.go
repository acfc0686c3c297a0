// Driver of sarama.
package main

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"kgw/e2e/internal/loop"
	"kgw/e2e/internal/members"
	"kgw/e2e/internal/transactions"
)

const limit = 30 * time.Second

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

// settings leaves sarama's idea of the server's version alone, 2.8 at the time of writing, with which
// all but a few users run it, unless the driver is started with another one.
func settings(operation loop.Operation) (*sarama.Config, error) {
	config := sarama.NewConfig()
	if err := protect(config, operation.Security); err != nil {
		return nil, err
	}
	if len(os.Args) > 1 {
		version, err := sarama.ParseKafkaVersion(os.Args[1])
		if err != nil {
			panic(err)
		}
		config.Version = version
	}
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.MaxMessageBytes = 1_048_588
	config.Consumer.Return.Errors = true
	return config, nil
}

func isolation(operation loop.Operation) sarama.IsolationLevel {
	if operation.ReadsCommitted() {
		return sarama.ReadCommitted
	}
	return sarama.ReadUncommitted
}

// producing are those of a producer that is to live through a restart of the server.
func producing(operation loop.Operation) (*sarama.Config, error) {
	config, err := settings(operation)
	if err != nil {
		return nil, err
	}
	if len(operation.Security) > 0 {
		// What is wrong with a login is told after the last try.
		return config, nil
	}
	// The default of three tries, 100 ms apart, is over before a server has been restarted.
	config.Producer.Retry.Max = 100
	// It looks for the leader with tries of their own, 250 ms apart: three would be over, too.
	config.Metadata.Retry.Max = 40
	return config, nil
}

func newAdmin(operation loop.Operation) (sarama.ClusterAdmin, error) {
	config, err := settings(operation)
	if err != nil {
		return nil, err
	}
	return sarama.NewClusterAdmin([]string{operation.Bootstrap}, config)
}

// administer makes an admin client for one call.
func administer(
	operation loop.Operation, call func(sarama.ClusterAdmin) (loop.Answer, error),
) (loop.Answer, error) {
	admin, err := newAdmin(operation)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	return call(admin)
}

func createTopic(operation loop.Operation) (loop.Answer, error) {
	return administer(operation, func(admin sarama.ClusterAdmin) (loop.Answer, error) {
		detail := sarama.TopicDetail{NumPartitions: operation.Partitions, ReplicationFactor: 1}
		return loop.Answer{}, admin.CreateTopic(operation.Topic, &detail, false)
	})
}

// nullable encodes bytes, and null as sarama has it: no encoder at all.
func nullable(data *[]byte) sarama.Encoder {
	if data == nil {
		return nil
	}
	return sarama.ByteEncoder(loop.OrNil(data))
}

func produce(operation loop.Operation) (loop.Answer, error) {
	config, err := producing(operation)
	if err != nil {
		return nil, err
	}
	config.Producer.Compression = codecs[operation.Codec]
	config.Producer.Idempotent = operation.Idempotent
	// One request in flight: what sarama asks for when idempotent, and what keeps the order otherwise.
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewAsyncProducer([]string{operation.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	answer, failure := sent(producer, operation)
	if err := producer.Close(); err != nil {
		return nil, err
	}
	return answer, failure
}

// sent does what produce does, with a producer that is there.
func sent(producer sarama.AsyncProducer, operation loop.Operation) (loop.Answer, error) {
	offsets := make([]int64, len(operation.Records))
	var failure error
	var collected sync.WaitGroup
	collected.Add(1)
	go func() {
		defer collected.Done()
		for range operation.Records {
			select {
			case sent := <-producer.Successes():
				offsets[sent.Metadata.(int)] = sent.Offset
			case failed := <-producer.Errors():
				failure = failed
			}
		}
	}()
	for index, record := range operation.Records {
		headers := make([]sarama.RecordHeader, len(record.Headers))
		for place, header := range record.Headers {
			headers[place] = sarama.RecordHeader{
				Key: []byte(header.Name), Value: loop.OrNil(header.Value),
			}
		}
		producer.Input() <- &sarama.ProducerMessage{
			Topic:     operation.Topic,
			Partition: operation.Partition,
			Key:       nullable(record.Key),
			Value:     nullable(record.Value),
			Headers:   headers,
			Timestamp: time.UnixMilli(record.TimestampMs),
			Metadata:  index,
		}
	}
	collected.Wait()
	return loop.Answer{"offsets": offsets}, failure
}

func consume(operation loop.Operation) (loop.Answer, error) {
	config, err := settings(operation)
	if err != nil {
		return nil, err
	}
	config.Consumer.IsolationLevel = isolation(operation)
	consumer, err := sarama.NewConsumer([]string{operation.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(operation.Topic, operation.Partition, operation.Offset)
	if err != nil {
		return nil, err
	}
	defer partition.AsyncClose()
	records := []loop.Record{}
	timeout := time.After(limit)
	for len(records) < operation.Count {
		select {
		case read := <-partition.Messages():
			headers := []loop.Header{}
			for _, header := range read.Headers {
				headers = append(headers, loop.Header{
					Name: string(header.Key), Value: loop.OrNull(header.Value),
				})
			}
			records = append(records, loop.Record{
				Key:         loop.OrNull(read.Key),
				Value:       loop.OrNull(read.Value),
				Headers:     headers,
				TimestampMs: read.Timestamp.UnixMilli(),
				Offset:      read.Offset,
			})
		case failed := <-partition.Errors():
			return nil, failed
		case <-timeout:
			return nil, fmt.Errorf("%d of %d records after %v", len(records), operation.Count, limit)
		}
	}
	return loop.Answer{"records": records}, nil
}

func offsetAt(operation loop.Operation, times ...int64) ([]int64, error) {
	config, err := settings(operation)
	if err != nil {
		return nil, err
	}
	client, err := sarama.NewClient([]string{operation.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	offsets := make([]int64, len(times))
	for index, time := range times {
		offsets[index], err = client.GetOffset(operation.Topic, operation.Partition, time)
		if err != nil {
			return nil, err
		}
	}
	return offsets, nil
}

func bounds(operation loop.Operation) (loop.Answer, error) {
	offsets, err := offsetAt(operation, sarama.OffsetOldest, sarama.OffsetNewest)
	if err != nil {
		return nil, err
	}
	if operation.ReadsCommitted() {
		offsets[1], err = lastStableOffset(operation)
	}
	return loop.Answer{"earliest": offsets[0], "latest": offsets[1]}, err
}

// lastStableOffset asks the admin client, since others cannot choose the isolation.
func lastStableOffset(operation loop.Operation) (int64, error) {
	admin, err := newAdmin(operation)
	if err != nil {
		return 0, err
	}
	defer admin.Close()
	answers, err := admin.ListOffsets(
		map[string]map[int32]int64{operation.Topic: {operation.Partition: sarama.OffsetNewest}},
		&sarama.ListOffsetsOptions{IsolationLevel: sarama.ReadCommitted})
	if err != nil {
		return 0, err
	}
	answer := answers[operation.Topic][operation.Partition]
	if answer.Err != nil && !errors.Is(answer.Err, sarama.ErrNoError) {
		return 0, answer.Err
	}
	return answer.Offset, nil
}

func offsetForTime(operation loop.Operation) (loop.Answer, error) {
	offsets, err := offsetAt(operation, operation.TimestampMs)
	if err != nil {
		return nil, err
	}
	return loop.Found(offsets[0]), nil
}

func createPartitions(operation loop.Operation) (loop.Answer, error) {
	return administer(operation, func(admin sarama.ClusterAdmin) (loop.Answer, error) {
		return loop.Answer{}, admin.CreatePartitions(operation.Topic, operation.Partitions, nil, false)
	})
}

func deleteTopic(operation loop.Operation) (loop.Answer, error) {
	return administer(operation, func(admin sarama.ClusterAdmin) (loop.Answer, error) {
		return loop.Answer{}, admin.DeleteTopic(operation.Topic)
	})
}

// deleteRecords asks for the log start by itself: sarama keeps what the server answered.
func deleteRecords(operation loop.Operation) (loop.Answer, error) {
	return administer(operation, func(admin sarama.ClusterAdmin) (loop.Answer, error) {
		wanted := map[int32]int64{operation.Partition: operation.Offset}
		if err := admin.DeleteRecords(operation.Topic, wanted); err != nil {
			return nil, err
		}
		offsets, err := offsetAt(operation, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		return loop.Answer{"log_start_offset": offsets[0]}, nil
	})
}

func topicConfig(operation loop.Operation) (loop.Answer, error) {
	return administer(operation, func(admin sarama.ClusterAdmin) (loop.Answer, error) {
		resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: operation.Topic}
		entries, err := admin.DescribeConfig(resource)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			if entry.Name == operation.Name {
				return loop.Answer{"value": entry.Value}, nil
			}
		}
		return nil, fmt.Errorf("no setting %s", operation.Name)
	})
}

func setTopicConfig(operation loop.Operation) (loop.Answer, error) {
	return administer(operation, func(admin sarama.ClusterAdmin) (loop.Answer, error) {
		if operation.Incremental {
			entries := map[string]sarama.IncrementalAlterConfigsEntry{
				operation.Name: {
					Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &operation.Value,
				},
			}
			return loop.Answer{}, admin.IncrementalAlterConfig(
				sarama.TopicResource, operation.Topic, entries, false)
		}
		entries := map[string]*string{operation.Name: &operation.Value}
		return loop.Answer{}, admin.AlterConfig(sarama.TopicResource, operation.Topic, entries, false)
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
