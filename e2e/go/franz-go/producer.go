package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kgw/e2e/internal/loop"
	"kgw/e2e/internal/members"
	"kgw/e2e/internal/transactions"
)

// producer has a transactional id and no group, or is idempotent without a transactional id.
type producer struct {
	client *kgo.Client
}

// transactional are the options of whatever produces in transactions, or of an idempotent producer
// where there is no transactional id: the library makes every producer idempotent by itself.
func transactional(operation loop.Operation) []kgo.Opt {
	options := []kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner())}
	if operation.TransactionalID == "" {
		// The library's default is snappy, which not every library reads.
		return append(options, kgo.ProducerBatchCompression(codecs["none"]))
	}
	return append(options,
		kgo.TransactionalID(operation.TransactionalID),
		kgo.TransactionTimeout(time.Duration(operation.TimeoutMs)*time.Millisecond),
	)
}

// openProducer gives the member itself where there is one: the library's session is both.
func openProducer(
	operation loop.Operation, reads members.Member,
) (transactions.Producer, error) {
	opened, is := reads.(*member)
	if is {
		return session{opened}, initialise(opened.client)
	}
	client, err := newClient(operation, transactional(operation)...)
	if err != nil {
		return nil, err
	}
	return producer{client}, initialise(client)
}

// initialise asks for the producer id at once, which fences the others of a transactional id; the
// library would only do so when it sends the first record.
func initialise(client *kgo.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, _, err := client.ProducerID(ctx)
	return err
}

func (opened producer) Begin() error {
	return opened.client.BeginTransaction()
}

func (opened producer) Produce(operation loop.Operation) (loop.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return sent(ctx, opened.client, operation)
}

func (opened producer) SendOffsets() error {
	return errors.New("a producer without a group has no offsets")
}

func (opened producer) End(commit bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if !commit {
		if err := opened.client.AbortBufferedRecords(ctx); err != nil {
			return err
		}
	}
	return opened.client.EndTransaction(ctx, kgo.TransactionEndTry(commit))
}

func (opened producer) Close() error {
	opened.client.Close()
	return nil
}

// session reads in a group and produces what it makes of it.
type session struct {
	*member
}

func (opened session) Begin() error {
	return opened.transactions.Begin()
}

func (opened session) Produce(operation loop.Operation) (loop.Answer, error) {
	return producer{opened.client}.Produce(operation)
}

// SendOffsets does nothing: End sends them, when it commits.
func (opened session) SendOffsets() error {
	return nil
}

func (opened session) End(commit bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	committed, err := opened.transactions.End(ctx, kgo.TransactionEndTry(commit))
	if err == nil && committed != commit {
		err = errors.New("the session aborted, since its group has changed")
	}
	return err
}

// Close leaves everything to the member.
func (opened session) Close() error {
	return nil
}
