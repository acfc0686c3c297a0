package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ended is what became of the transactions of one or more producers.
type ended struct {
	transactions int64
	committing   []sample // from EndTxn to its answer
	whole        []sample // from the first record to the answer to EndTxn
}

// transact writes transactions, one after the other from each connection, until the time or the
// bytes are up. A transaction has the chosen number of records, over all partitions in turn; all of
// them are acknowledged before it is committed. With -transactional=false the same records are
// written and acknowledged in the same groups by idempotent producers.
//
// With -read a consumer of committed records reads them back. A transaction, and whatever is in it,
// is due when its first record is made.
func transact(ctx context.Context, chosen *options) (figures, error) {
	if chosen.transactionRecords <= 0 || chosen.recordBytes < 8 {
		return nil, errors.New("a transaction has a record, which holds its time: at least 8 bytes")
	}
	var counted traffic
	clients, err := chosen.transactors(&counted)
	if err != nil {
		return nil, err
	}
	defer closeAll(clients)
	content, err := chosen.values()
	if err != nil {
		return nil, err
	}
	found := make([]ended, len(clients))
	failures := make([]error, len(clients))
	each := func(goOn func() bool) error {
		var all sync.WaitGroup
		for number, client := range clients {
			all.Go(func() {
				failures[number] = chosen.transactFrom(ctx, client, number, *content, goOn, &found[number])
			})
		}
		all.Wait()
		return errors.Join(failures...)
	}

	// Each producer gets its id, and finds the partitions, before the clock starts.
	var begun atomic.Int64
	if err := each(func() bool { return begun.Add(1) <= int64(len(clients)) }); err != nil {
		return nil, err
	}
	clear(found)
	arrived, stopReading, err := chosen.readCommitted(ctx)
	if err != nil {
		return nil, err
	}
	most := int64(1) << 62
	perTransaction := int64(chosen.transactionRecords) * int64(chosen.recordBytes)
	if chosen.maxBytes > 0 {
		most = max(1, chosen.maxBytes/perTransaction)
	}
	counted.requests.Store(0)
	begun.Store(0)
	began := time.Now()
	deadline := began.Add(time.Duration(chosen.seconds * float64(time.Second)))
	err = each(func() bool { return begun.Add(1) <= most && time.Now().Before(deadline) })
	elapsed := since(began)
	if err != nil {
		return nil, err
	}

	var all ended
	for _, one := range found {
		all.transactions += one.transactions
		all.committing = append(all.committing, one.committing...)
		all.whole = append(all.whole, one.whole...)
	}
	records := all.transactions * int64(chosen.transactionRecords)
	result := chosen.rates(records, elapsed, &counted)
	result["transactions"] = float64(all.transactions)
	result["transactions_per_s"] = float64(all.transactions) / elapsed
	counting := part{"", began.UnixNano(), 1<<63 - 1}
	addQuantiles(result, "commit", counting.took(all.committing))
	addQuantiles(result, "transaction", counting.took(all.whole))
	if chosen.read {
		read, err := arrived(began, records)
		if err != nil {
			return nil, err
		}
		addQuantiles(result, "end_to_end", counting.took(read))
	}
	stopReading()
	return result, nil
}

// transactors makes the producers. Nothing is sent before all records of a group are there: Flush
// does not linger.
func (chosen *options) transactors(counted *traffic) ([]*kgo.Client, error) {
	clients := make([]*kgo.Client, 0, chosen.connections)
	for number := range chosen.connections {
		extra := []kgo.Opt{
			kgo.ProducerLinger(time.Minute),
			// What is refused while the transaction before ends is sent again after that, not after 5 s.
			kgo.MetadataMinAge(10 * time.Millisecond),
		}
		if chosen.transactional {
			id := fmt.Sprintf("%s-%d", chosen.topic, number)
			extra = append(extra, kgo.TransactionalID(id), kgo.TransactionTimeout(time.Minute))
		}
		client, err := chosen.client(counted, extra...)
		if err != nil {
			closeAll(clients)
			return nil, err
		}
		clients = append(clients, client)
	}
	return clients, nil
}

// transactFrom is one producer's part; its partitions begin where those of its neighbour do not.
func (chosen *options) transactFrom(
	ctx context.Context, client *kgo.Client, number int, content values, goOn func() bool, found *ended,
) error {
	var failure error
	promise := func(_ *kgo.Record, err error) {
		if failure == nil {
			failure = err
		}
	}
	partition := number * chosen.partitions / chosen.connections
	for goOn() {
		due := time.Now()
		if chosen.transactional {
			if err := client.BeginTransaction(); err != nil {
				return err
			}
		}
		records := make([]kgo.Record, chosen.transactionRecords)
		for index := range records {
			record := &records[index]
			record.Topic = chosen.topic
			record.Partition = int32(partition)
			record.Value = content.next()
			record.Timestamp = due
			if chosen.read {
				record.Value = slices.Clone(record.Value)
				binary.BigEndian.PutUint64(record.Value, uint64(due.UnixNano()))
			}
			if partition++; partition == chosen.partitions {
				partition = 0
			}
			client.Produce(ctx, record, promise)
		}
		if err := client.Flush(ctx); err != nil {
			return fmt.Errorf("not everything was acknowledged: %w", err)
		}
		if failure != nil {
			return failure
		}
		if chosen.transactional {
			ending := time.Now()
			if err := client.EndTransaction(ctx, kgo.TryCommit); err != nil {
				return fmt.Errorf("not committed: %w", err)
			}
			found.committing = append(found.committing,
				sample{due.UnixNano(), int64(time.Since(ending))})
		}
		found.whole = append(found.whole, sample{due.UnixNano(), int64(time.Since(due))})
		found.transactions++
	}
	return nil
}

// readCommitted begins to read what is committed, if that is wanted, and returns once something has
// come; the topic must hold something. What it returns waits until so many records that were due from
// a time on have come, and says when each of them did; and lets the consumer go.
func (chosen *options) readCommitted(ctx context.Context) (
	arrived func(from time.Time, records int64) ([]sample, error), stop func(), err error,
) {
	if !chosen.read {
		return nil, func() {}, nil
	}
	starts := make(map[int32]kgo.Offset)
	for partition := range chosen.partitions {
		starts[int32(partition)] = kgo.NewOffset().AtStart()
	}
	consumer, err := chosen.client(nil,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{chosen.topic: starts}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return nil, nil, err
	}
	seen := make(chan sample, 1<<20)
	reading, stop := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() {
		defer consumer.Close()
		for {
			fetches := consumer.PollFetches(reading)
			now := time.Now().UnixNano()
			if err := fetches.Err(); err != nil {
				failed <- err
				return
			}
			fetches.EachRecord(func(record *kgo.Record) {
				due := dueTime(record.Value)
				seen <- sample{due, now - due}
			})
		}
	}()
	next := func() (sample, error) {
		select {
		case one := <-seen:
			return one, nil
		case err := <-failed:
			return sample{}, err
		}
	}
	if _, err := next(); err != nil {
		stop()
		return nil, nil, err
	}
	arrived = func(from time.Time, records int64) ([]sample, error) {
		samples := make([]sample, 0, records)
		for int64(len(samples)) < records {
			one, err := next()
			if err != nil {
				return nil, fmt.Errorf("%d of %d records came back: %w", len(samples), records, err)
			}
			if one.due >= from.UnixNano() {
				samples = append(samples, one)
			}
		}
		return samples, nil
	}
	return arrived, stop, nil
}
