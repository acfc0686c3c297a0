// Driver of segmentio's kafka-go.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"kgw/e2e/internal/loop"
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
func newClient(operation loop.Operation) (*kafka.Client, func()) {
	transport := &kafka.Transport{}
	client := &kafka.Client{Addr: kafka.TCP(operation.Bootstrap), Transport: transport}
	return client, transport.CloseIdleConnections
}

func createTopic(operation loop.Operation) (loop.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client, closeClient := newClient(operation)
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

// produce uses the client's Produce call, which unlike the library's Writer tells the base offset.
// The library has no idempotent producer: the operation says so.
func produce(operation loop.Operation) (loop.Answer, error) {
	if operation.Idempotent {
		return nil, errors.New("kafka-go has no idempotent producer")
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client, closeClient := newClient(operation)
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
		records := make([]kafka.Record, 0, end-start)
		for _, record := range operation.Records[start:end] {
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
		response, err := client.Produce(ctx, &kafka.ProduceRequest{
			Topic:        operation.Topic,
			Partition:    int(operation.Partition),
			RequiredAcks: kafka.RequireAll,
			Compression:  codecs[operation.Codec],
			Records:      kafka.NewRecordReader(records...),
		})
		if err != nil {
			return nil, err
		}
		if response.Error != nil {
			return nil, response.Error
		}
		for index := range records {
			offsets = append(offsets, response.BaseOffset+int64(index))
		}
		start = end
	}
	return loop.Answer{"offsets": offsets}, nil
}

func consume(operation loop.Operation) (loop.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:   []string{operation.Bootstrap},
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
	client, closeClient := newClient(operation)
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

func main() {
	loop.Serve(loop.Operations{
		"create_topic":    createTopic,
		"produce":         produce,
		"consume":         consume,
		"bounds":          bounds,
		"offset_for_time": offsetForTime,
	})
}
