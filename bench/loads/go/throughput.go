package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recordsAtOnce is how many records are allocated together and share a timestamp.
const recordsAtOnce = 512

// produce writes records to the partitions in turn, from all connections at once, until the time or
// the number is up, and waits until all are acknowledged.
func produce(ctx context.Context, chosen *options) (figures, error) {
	content, err := chosen.values()
	if err != nil {
		return nil, err
	}
	var counted traffic
	clients, err := chosen.clients(&counted)
	if err != nil {
		return nil, err
	}
	defer closeAll(clients)
	mostRecords := int64(1) << 62
	if chosen.records > 0 {
		mostRecords = chosen.records
	}
	if chosen.maxBytes > 0 {
		mostRecords = min(mostRecords, max(1, chosen.maxBytes/int64(chosen.recordBytes)))
	}

	var taken atomic.Int64
	failures := make([]error, len(clients))
	acknowledged := make([]int64, len(clients))
	began := time.Now()
	deadline := began.Add(time.Duration(chosen.seconds * float64(time.Second)))
	var all sync.WaitGroup
	for number, client := range clients {
		all.Go(func() {
			acknowledged[number], failures[number] = chosen.produceFrom(
				ctx, client, number, *content, deadline, mostRecords, &taken)
		})
	}
	all.Wait()
	elapsed := since(began)
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	var records int64
	for _, count := range acknowledged {
		records += count
	}
	return chosen.rates(records, elapsed, &counted), nil
}

// produceFrom is one connection's part; its partitions begin where those of its neighbour do not.
func (chosen *options) produceFrom(
	ctx context.Context, client *kgo.Client, number int, content values,
	deadline time.Time, mostRecords int64, taken *atomic.Int64,
) (int64, error) {
	// Promises are called one after the other by a client, and Flush returns after the last of them.
	var acknowledged int64
	var failure error
	promise := func(_ *kgo.Record, err error) {
		if err == nil {
			acknowledged++
		} else if failure == nil {
			failure = err
		}
	}
	partition := number * chosen.partitions / chosen.connections
	for {
		now := time.Now()
		if now.After(deadline) {
			break
		}
		first := taken.Add(recordsAtOnce) - recordsAtOnce
		count := min(recordsAtOnce, mostRecords-first)
		if count <= 0 {
			break
		}
		records := make([]kgo.Record, count)
		for index := range records {
			record := &records[index]
			record.Topic = chosen.topic
			record.Partition = int32(partition)
			record.Value = content.next()
			record.Timestamp = now
			if partition++; partition == chosen.partitions {
				partition = 0
			}
			client.Produce(ctx, record, promise)
		}
	}
	if err := client.Flush(ctx); err != nil {
		return 0, fmt.Errorf("not everything was acknowledged: %w", err)
	}
	return acknowledged, failure
}

// consume reads the topic from its start, again and again until the time is up. Each connection
// reads partitions of its own.
func consume(ctx context.Context, chosen *options) (figures, error) {
	if chosen.records <= 0 {
		return nil, errors.New("consume needs -records: how many the topic holds")
	}
	var counted traffic
	var records, valueBytes int64
	began := time.Now()
	deadline := began.Add(time.Duration(chosen.seconds * float64(time.Second)))
	for time.Now().Before(deadline) {
		passRecords, passBytes, err := chosen.consumeOnce(ctx, &counted)
		if err != nil {
			return nil, err
		}
		if passRecords != chosen.records {
			return nil, fmt.Errorf("read %d records where %d are", passRecords, chosen.records)
		}
		records += passRecords
		valueBytes += passBytes
	}
	elapsed := since(began)
	if valueBytes != records*int64(chosen.recordBytes) {
		return nil, fmt.Errorf("read %d bytes in %d records", valueBytes, records)
	}
	return chosen.rates(records, elapsed, &counted), nil
}

// consumeOnce reads all records once.
func (chosen *options) consumeOnce(ctx context.Context, counted *traffic) (int64, int64, error) {
	pass, done := context.WithCancel(ctx)
	defer done()
	var records, valueBytes atomic.Int64
	connections := min(chosen.connections, chosen.partitions)
	failures := make([]error, connections)
	var all sync.WaitGroup
	for number := range connections {
		starts := make(map[int32]kgo.Offset)
		for partition := number; partition < chosen.partitions; partition += connections {
			starts[int32(partition)] = kgo.NewOffset().At(0)
		}
		client, err := chosen.client(counted,
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{chosen.topic: starts}),
			kgo.FetchMinBytes(int32(chosen.minFetchBytes)),
			kgo.FetchMaxWait(100*time.Millisecond),
		)
		if err != nil {
			return 0, 0, err
		}
		all.Go(func() {
			defer client.Close()
			failures[number] = readAll(pass, client, chosen.records, &records, &valueBytes, done)
		})
	}
	all.Wait()
	if records.Load() < chosen.records {
		return 0, 0, errors.Join(append(failures, ctx.Err())...)
	}
	return records.Load(), valueBytes.Load(), nil
}

// readAll counts what comes until all connections together have read `wanted` records.
func readAll(
	ctx context.Context, client *kgo.Client, wanted int64,
	records, valueBytes *atomic.Int64, done context.CancelFunc,
) error {
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		var newRecords, newBytes int64
		fetches.EachRecord(func(record *kgo.Record) {
			newRecords++
			newBytes += int64(len(record.Value))
		})
		valueBytes.Add(newBytes)
		if records.Add(newRecords) >= wanted {
			done()
			return nil
		}
	}
}

func (chosen *options) clients(counted *traffic) ([]*kgo.Client, error) {
	clients := make([]*kgo.Client, 0, chosen.connections)
	for range chosen.connections {
		client, err := chosen.client(counted)
		if err != nil {
			closeAll(clients)
			return nil, err
		}
		clients = append(clients, client)
	}
	return clients, nil
}

func closeAll(clients []*kgo.Client) {
	for _, client := range clients {
		client.Close()
	}
}

func (chosen *options) rates(records int64, elapsed float64, counted *traffic) figures {
	total := float64(records) * float64(chosen.recordBytes)
	return figures{
		"mb_per_s":      total / elapsed / 1e6,
		"records_per_s": float64(records) / elapsed,
		"records":       float64(records),
		"bytes":         total,
		"requests":      float64(counted.requests.Load()),
		"elapsed_s":     elapsed,
	}
}
