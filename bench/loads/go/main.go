// Load generator on franz-go: one measurement a process.
//
//	load create  -bootstrap HOST:PORT -topic T -partitions N
//	load delete  -bootstrap HOST:PORT -topic T
//	load produce -bootstrap HOST:PORT -topic T -partitions N -seconds 2 -record-bytes 1024 ...
//	load consume -bootstrap HOST:PORT -topic T -partitions N -seconds 2 -records 500000
//	load latency -bootstrap HOST:PORT -topic T -partitions N -seconds 3 -bytes-per-second 1000000
//	load transact -bootstrap HOST:PORT -topic T -partitions N -seconds 2 -transaction-records 100 ...
//	load live    -bootstrap HOST:PORT -topic T -partitions N -seconds 60 -bytes-per-second 1000000
//
// The figures go to standard output as one JSON object. Whatever goes wrong, a record that is not
// acknowledged or does not come back included, ends it with a message and status 1.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// answerLimit is how long anything may take beyond its seconds before it counts as hanging.
const answerLimit = 60 * time.Second

type options struct {
	bootstrap      string
	topic          string
	partitions     int
	connections    int
	seconds        float64
	recordBytes    int
	batchBytes     int
	linger         time.Duration
	codec          string
	payload        string
	records        int64
	maxBytes       int64
	bytesPerSecond float64
	warmSeconds    float64
	minFetchBytes  int

	transactionRecords int
	transactional      bool
	read               bool
}

// figures is what a measurement gives; every value is a number.
type figures map[string]float64

var commands = map[string]func(context.Context, *options) (figures, error){
	"create":   create,
	"delete":   remove,
	"produce":  produce,
	"consume":  consume,
	"latency":  latency,
	"live":     live,
	"transact": transact,
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 0 || commands[arguments[0]] == nil {
		return fmt.Errorf("the first argument is one of create, delete, produce, consume, latency, live, transact")
	}
	var chosen options
	flags := flag.NewFlagSet(arguments[0], flag.ExitOnError)
	flags.StringVar(&chosen.bootstrap, "bootstrap", "127.0.0.1:9092", "the server")
	flags.StringVar(&chosen.topic, "topic", "load", "the topic")
	flags.IntVar(&chosen.partitions, "partitions", 1, "its partitions, each used in turn")
	flags.IntVar(&chosen.connections, "connections", 1, "clients, each with a connection of its own")
	flags.Float64Var(&chosen.seconds, "seconds", 2, "how long to go on")
	flags.IntVar(&chosen.recordBytes, "record-bytes", 1024, "size of a record's value")
	flags.IntVar(&chosen.batchBytes, "batch-bytes", 16384, "most bytes of a batch")
	flags.DurationVar(&chosen.linger, "linger", 0, "how long a batch that is not full waits")
	flags.StringVar(&chosen.codec, "codec", "none", "none, gzip, snappy, lz4 or zstd")
	flags.StringVar(&chosen.payload, "payload", "random", "random (incompressible) or text")
	flags.Int64Var(&chosen.records, "records", 0,
		"produce: stop after so many; consume: how many there are, read again from the start")
	flags.Int64Var(&chosen.maxBytes, "max-bytes", 0, "stop after so many bytes of values")
	flags.Float64Var(&chosen.bytesPerSecond, "bytes-per-second", 1e6, "rate of latency and live")
	flags.Float64Var(&chosen.warmSeconds, "warm-seconds", 0.5, "first part of it, not counted")
	flags.IntVar(&chosen.minFetchBytes, "min-fetch-bytes", 1, "fetch.min.bytes")
	flags.IntVar(&chosen.transactionRecords, "transaction-records", 1, "records of a transaction")
	flags.BoolVar(&chosen.transactional, "transactional", true, "whether transact writes transactions")
	flags.BoolVar(&chosen.read, "read", false, "whether transact reads back what is committed")
	if err := flags.Parse(arguments[1:]); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is not an option", flags.Arg(0))
	}
	// The generator shares the machine with the server: collecting less often leaves more of it.
	debug.SetGCPercent(800)
	limit := time.Duration(chosen.seconds*float64(time.Second)) + answerLimit
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	found, err := commands[arguments[0]](ctx, &chosen)
	if err != nil {
		return err
	}
	found["client_cpu_s"] = cpuSeconds()
	return json.NewEncoder(os.Stdout).Encode(found)
}

// create makes the topic and returns once each partition has a leader.
func create(ctx context.Context, chosen *options) (figures, error) {
	client, err := chosen.client(nil)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(ctx, int32(chosen.partitions), 1, nil, chosen.topic); err != nil {
		return nil, err
	}
	for {
		topics, err := admin.ListTopics(ctx, chosen.topic)
		if err != nil {
			return nil, err
		}
		led := 0
		for _, partition := range topics[chosen.topic].Partitions {
			if partition.Err == nil && partition.Leader >= 0 {
				led++
			}
		}
		if led == chosen.partitions {
			return figures{}, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d partitions have a leader", led, chosen.partitions)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// remove deletes the topic.
func remove(ctx context.Context, chosen *options) (figures, error) {
	client, err := chosen.client(nil)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	_, err = kadm.NewClient(client).DeleteTopic(ctx, chosen.topic)
	return figures{}, err
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

// client makes one with what all measurements share; extra options come last.
func (chosen *options) client(traffic *traffic, extra ...kgo.Opt) (*kgo.Client, error) {
	codec, known := codecs[chosen.codec]
	if !known {
		return nil, fmt.Errorf("there is no codec %q", chosen.codec)
	}
	all := []kgo.Opt{
		kgo.SeedBrokers(chosen.bootstrap),
		kgo.Dialer(dialer),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(int32(chosen.batchBytes)),
		kgo.ProducerLinger(chosen.linger),
		kgo.ProducerBatchCompression(codec),
		kgo.MaxBufferedRecords(1 << 20),
		// What is buffered when the time is up is still to be sent: enough for a full batch in
		// flight and one being filled, in each of many partitions.
		kgo.MaxBufferedBytes(32 << 20),
		kgo.RecordDeliveryTimeout(answerLimit),
	}
	if traffic != nil {
		all = append(all, kgo.WithHooks(traffic))
	}
	return kgo.NewClient(append(all, extra...)...)
}

func dialer(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, address)
}

// contentBytes is how much there is to take values from.
const contentBytes = 1 << 20

// values gives one value after the other, each from another place of the same content.
type values struct {
	content     []byte
	recordBytes int
	place       int
}

// values makes their content: bytes that no codec makes smaller, or lines like a log's.
func (chosen *options) values() (*values, error) {
	size := contentBytes + chosen.recordBytes
	content := make([]byte, 0, size+128)
	switch chosen.payload {
	case "random":
		for len(content) < size {
			content = binary.LittleEndian.AppendUint64(content, rand.Uint64())
		}
	case "text":
		for len(content) < size {
			content = fmt.Appendf(content, "level=info request=%08x user=%d path=/orders/%d took_ms=%d\n",
				rand.Uint32(), rand.IntN(10_000), rand.IntN(1_000_000), rand.IntN(500))
		}
	default:
		return nil, fmt.Errorf("there is no payload %q", chosen.payload)
	}
	return &values{content, chosen.recordBytes, 0}, nil
}

// next is a value of the chosen size; the content is shared, so it must not be written to.
func (from *values) next() []byte {
	value := from.content[from.place : from.place+from.recordBytes]
	if from.place += from.recordBytes; from.place >= contentBytes {
		from.place -= contentBytes
	}
	return value
}

// cpuSeconds is the processor time of this process so far.
func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}
