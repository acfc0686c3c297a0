package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// shortestSleep bounds how often the sender wakes up; what became due meanwhile is sent together.
const shortestSleep = 100 * time.Microsecond

// sample is one record: when it was due, and how much later something came of it; nanoseconds.
type sample struct{ due, took int64 }

// part is a time of which figures are wanted, from one nanosecond since 1970 until before another.
type part struct {
	name        string
	from, until int64
}

// latency sends records at a fixed rate and reads them back with a consumer of its own. Each value
// begins with the time at which it was *due*, so that a server that holds the sender up does not
// hide what it does: a record that could not be sent in time counts from when it should have been.
func latency(ctx context.Context, chosen *options) (figures, error) {
	found, sent, err := chosen.pace(ctx, chosen.warmSeconds+chosen.seconds, nil)
	if err != nil {
		return nil, err
	}
	warm := time.Duration(chosen.warmSeconds * float64(time.Second))
	sent.addQuantiles(found, part{"", sent.began.Add(warm).UnixNano(), 1<<63 - 1})
	return found, nil
}

// live does the same until its standard input ends, for the chosen seconds at most. It says "begun"
// before the first record is due. Each line that it reads is NAME FROM UNTIL, a part of the time in
// nanoseconds since 1970; the figures of the records that were due in it have the name before theirs.
func live(ctx context.Context, chosen *options) (figures, error) {
	var parts []part
	var failure error
	told := make(chan struct{})
	go func() {
		defer close(told)
		parts, failure = readParts(os.Stdin)
	}()
	found, sent, err := chosen.pace(ctx, chosen.seconds, told)
	if err != nil {
		return nil, err
	}
	<-told
	for _, one := range parts {
		sent.addQuantiles(found, one)
	}
	return found, failure
}

func readParts(from io.Reader) ([]part, error) {
	var parts []part
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		var one part
		if _, err := fmt.Sscan(lines.Text(), &one.name, &one.from, &one.until); err != nil {
			return nil, fmt.Errorf("%q is not NAME FROM UNTIL: %w", lines.Text(), err)
		}
		one.name += "_"
		parts = append(parts, one)
	}
	return parts, lines.Err()
}

// paced is what became of the records that were sent.
type paced struct {
	began                 time.Time
	arrived, acknowledged []sample
}

// pace sends records at the chosen rate until the seconds are over or `stop` is closed, and returns
// once all are acknowledged and read back. With a `stop` it says "begun" before the first is due.
func (chosen *options) pace(
	ctx context.Context, seconds float64, stop <-chan struct{},
) (figures, *paced, error) {
	if chosen.recordBytes < 8 {
		return nil, nil, errors.New("a value holds its time: at least 8 bytes")
	}
	var counted traffic
	producer, err := chosen.client(&counted)
	if err != nil {
		return nil, nil, err
	}
	defer producer.Close()
	starts := make(map[int32]kgo.Offset)
	for partition := range chosen.partitions {
		starts[int32(partition)] = kgo.NewOffset().AtEnd()
	}
	consumer, err := chosen.client(&counted,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{chosen.topic: starts}))
	if err != nil {
		return nil, nil, err
	}
	defer consumer.Close()
	if err := chosen.meet(ctx, producer, consumer); err != nil {
		return nil, nil, err
	}
	if stop != nil {
		fmt.Println("begun")
	}

	interval := float64(chosen.recordBytes) / chosen.bytesPerSecond * 1e9
	var total atomic.Int64
	total.Store(int64(seconds * 1e9 / interval))
	began := time.Now().Add(10 * time.Millisecond)
	sent := &paced{
		began:        began,
		arrived:      make([]sample, 0, total.Load()),
		acknowledged: make([]sample, 0, total.Load()),
	}
	reading := make(chan error, 1)
	go func() { reading <- readBack(ctx, consumer, &total, &sent.arrived) }()

	sending, failure := context.WithCancelCause(ctx)
	defer failure(nil)
	var acknowledgedAll atomic.Int64
	promise := func(record *kgo.Record, err error) {
		if err != nil {
			failure(err)
			return
		}
		due := dueTime(record.Value)
		sent.acknowledged = append(sent.acknowledged, sample{due, time.Now().UnixNano() - due})
		acknowledgedAll.Add(1)
	}
	content, err := chosen.values()
	if err != nil {
		return nil, nil, err
	}
	for number := int64(0); number < total.Load(); {
		select {
		case <-stop:
			// One more: whoever reads has the number by the time that this one comes.
			total.Store(number + 1)
			stop = nil
		default:
		}
		elapsed := time.Since(began)
		if next := time.Duration(float64(number) * interval); next > elapsed {
			time.Sleep(max(shortestSleep, next-elapsed))
			continue
		}
		ready := min(total.Load(), int64(float64(elapsed)/interval)+1)
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
		return nil, nil, errors.Join(err, context.Cause(sending))
	}
	if err := <-reading; err != nil {
		return nil, nil, err
	}
	records := total.Load()
	if acknowledgedAll.Load() != records {
		return nil, nil, errors.Join(
			fmt.Errorf("%d of %d records were acknowledged", acknowledgedAll.Load(), records),
			context.Cause(sending))
	}
	took := since(began)
	return figures{
		"records":   float64(records),
		"bytes":     float64(records) * float64(chosen.recordBytes) * 2, // written, and read
		"requests":  float64(counted.requests.Load()),
		"elapsed_s": took,
		"mb_per_s":  float64(records) * float64(chosen.recordBytes) / took / 1e6,
	}, sent, nil
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

// readBack appends how long after it was due each record came, until all `total` have come.
func readBack(
	ctx context.Context, consumer *kgo.Client, total *atomic.Int64, arrived *[]sample,
) error {
	var seen int64
	for seen < total.Load() {
		fetches := consumer.PollFetches(ctx)
		now := time.Now().UnixNano()
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("%d of %d records came back: %w", seen, total.Load(), err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			due := dueTime(record.Value)
			if due == 0 { // one of those that opened the way
				return
			}
			seen++
			*arrived = append(*arrived, sample{due, now - due})
		})
	}
	return nil
}

func dueTime(value []byte) int64 { return int64(binary.BigEndian.Uint64(value)) }

// addQuantiles adds what became of the records that were due in a part of the time.
func (sent *paced) addQuantiles(found figures, of part) {
	addQuantiles(found, of.name+"end_to_end", of.took(sent.arrived))
	addQuantiles(found, of.name+"produce", of.took(sent.acknowledged))
}

// took is how long it took those samples that were due in the part.
func (of part) took(samples []sample) []int64 {
	var took []int64
	for _, one := range samples {
		if of.from <= one.due && one.due < of.until {
			took = append(took, one.took)
		}
	}
	return took
}

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
