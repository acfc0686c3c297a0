package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// shortestSleep bounds how often the sender wakes up; what became due meanwhile is sent together.
const shortestSleep = 100 * time.Microsecond

// latency sends records at a fixed rate and reads them back with a consumer of its own. Each value
// begins with the time at which it was *due*, so that a server that holds the sender up does not
// hide what it does: a record that could not be sent in time counts from when it should have been.
func latency(ctx context.Context, chosen *options) (figures, error) {
	if chosen.recordBytes < 8 {
		return nil, errors.New("a value holds its time: at least 8 bytes")
	}
	var counted traffic
	producer, err := chosen.client(&counted)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	starts := make(map[int32]kgo.Offset)
	for partition := range chosen.partitions {
		starts[int32(partition)] = kgo.NewOffset().AtEnd()
	}
	consumer, err := chosen.client(&counted,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{chosen.topic: starts}))
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	if err := chosen.meet(ctx, producer, consumer); err != nil {
		return nil, err
	}

	wholeSeconds := chosen.warmSeconds + chosen.seconds
	interval := float64(chosen.recordBytes) / chosen.bytesPerSecond * 1e9
	total := int64(wholeSeconds * 1e9 / interval)
	began := time.Now().Add(10 * time.Millisecond)
	counts := began.Add(time.Duration(chosen.warmSeconds * float64(time.Second))).UnixNano()

	reading := make(chan error, 1)
	arrived := make([]int64, 0, total)
	go func() { reading <- readBack(ctx, consumer, total, counts, &arrived) }()

	acknowledged := make([]int64, 0, total)
	sending, failure := context.WithCancelCause(ctx)
	defer failure(nil)
	var acknowledgedAll atomic.Int64
	promise := func(record *kgo.Record, err error) {
		if err != nil {
			failure(err)
			return
		}
		if due := dueTime(record.Value); due >= counts {
			acknowledged = append(acknowledged, time.Now().UnixNano()-due)
		}
		acknowledgedAll.Add(1)
	}
	content, err := chosen.values()
	if err != nil {
		return nil, err
	}
	for number := int64(0); number < total; {
		elapsed := time.Since(began)
		if next := time.Duration(float64(number) * interval); next > elapsed {
			time.Sleep(max(shortestSleep, next-elapsed))
			continue
		}
		ready := min(total, int64(float64(elapsed)/interval)+1)
		for ; number < ready; number++ {
			value := slices.Clone(content.next())
			due := began.Add(time.Duration(float64(number) * interval))
			binary.BigEndian.PutUint64(value, uint64(due.UnixNano()))
			producer.Produce(sending, &kgo.Record{
				Topic: chosen.topic, Partition: int32(number) % int32(chosen.partitions), Value: value,
			}, promise)
		}
	}
	if err := producer.Flush(sending); err != nil {
		return nil, errors.Join(err, context.Cause(sending))
	}
	if err := <-reading; err != nil {
		return nil, err
	}
	if acknowledgedAll.Load() != total {
		return nil, errors.Join(
			fmt.Errorf("%d of %d records were acknowledged", acknowledgedAll.Load(), total),
			context.Cause(sending))
	}
	took := since(began)
	found := figures{
		"records":   float64(total),
		"bytes":     float64(total) * float64(chosen.recordBytes) * 2, // written, and read
		"requests":  float64(counted.requests.Load()),
		"elapsed_s": took,
		"mb_per_s":  float64(total) * float64(chosen.recordBytes) / took / 1e6,
	}
	addQuantiles(found, "end_to_end", arrived)
	addQuantiles(found, "produce", acknowledged)
	return found, nil
}

// meet has one record of each partition go the whole way, so that both ends are connected.
func (chosen *options) meet(ctx context.Context, producer, consumer *kgo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	seen := make(map[int32]bool)
	for len(seen) < chosen.partitions {
		// A consumer at the end may ask for it after the record was written: so one more, until one comes.
		for partition := range chosen.partitions {
			record := &kgo.Record{
				Topic: chosen.topic, Partition: int32(partition), Value: make([]byte, 8),
			}
			if err := producer.ProduceSync(ctx, record).FirstErr(); err != nil {
				return err
			}
		}
		poll, done := context.WithTimeout(ctx, 200*time.Millisecond)
		fetches := consumer.PollFetches(poll)
		done()
		fetches.EachRecord(func(record *kgo.Record) { seen[record.Partition] = true })
		if ctx.Err() != nil {
			return fmt.Errorf("the consumer saw %d of %d partitions: %w",
				len(seen), chosen.partitions, errors.Join(fetches.Err(), ctx.Err()))
		}
	}
	return nil
}

// readBack appends how long after it was due each record came, of those due at `counts` or later,
// until all `total` have come.
func readBack(
	ctx context.Context, consumer *kgo.Client, total, counts int64, arrived *[]int64,
) error {
	var seen int64
	for seen < total {
		fetches := consumer.PollFetches(ctx)
		now := time.Now().UnixNano()
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("%d of %d records came back: %w", seen, total, err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			due := dueTime(record.Value)
			if due == 0 { // one of those that opened the way
				return
			}
			seen++
			if due >= counts {
				*arrived = append(*arrived, now-due)
			}
		})
	}
	return nil
}

func dueTime(value []byte) int64 { return int64(binary.BigEndian.Uint64(value)) }

// addQuantiles adds p50, p99, p99.9 and the largest, in milliseconds.
func addQuantiles(found figures, name string, nanoseconds []int64) {
	if len(nanoseconds) == 0 {
		return
	}
	slices.Sort(nanoseconds)
	at := func(share float64) float64 {
		return float64(nanoseconds[int(share*float64(len(nanoseconds)-1))]) / 1e6
	}
	found[name+"_p50_ms"] = at(0.5)
	found[name+"_p99_ms"] = at(0.99)
	found[name+"_p999_ms"] = at(0.999)
	found[name+"_max_ms"] = at(1)
}
