// Package transactions keeps the transactional producers that a driver has open between two operations.
package transactions

import (
	"fmt"

	"kgw/e2e/internal/loop"
	"kgw/e2e/internal/members"
)

// Producer is one with a transactional id.
type Producer interface {
	Begin() error
	// Produce sends the operation's records, and tells their offsets when they are acknowledged.
	Produce(operation loop.Operation) (loop.Answer, error)
	// SendOffsets makes what the producer's member has read part of the transaction.
	SendOffsets() error
	// End commits or aborts; it fails where it did not do as it was told.
	End(commit bool) error
	// Close leaves the producer's member open.
	Close() error
}

// Add puts the operations on producers beside the driver's others, which have members already. A
// producer with a group is opened with its member, which is nil for one without.
func Add(
	operations loop.Operations,
	opened members.Opened,
	open func(loop.Operation, members.Member) (Producer, error),
) loop.Operations {
	producers := map[string]Producer{}
	produce := operations["produce"]

	onProducer := func(call func(loop.Operation, Producer) (loop.Answer, error)) func(
		loop.Operation,
	) (loop.Answer, error) {
		return func(operation loop.Operation) (loop.Answer, error) {
			producer, known := producers[operation.Producer]
			if !known {
				return nil, fmt.Errorf("no producer %s", operation.Producer)
			}
			return call(operation, producer)
		}
	}

	operations["open_producer"] = func(operation loop.Operation) (loop.Answer, error) {
		if operation.Group != "" {
			operation.Member = operation.Producer
			if _, err := operations["open_member"](operation); err != nil {
				return nil, err
			}
		}
		producer, err := open(operation, opened[operation.Member])
		if err == nil {
			producers[operation.Producer] = producer
		}
		return loop.Answer{}, err
	}

	inTransaction := onProducer(func(operation loop.Operation, producer Producer) (loop.Answer, error) {
		return producer.Produce(operation)
	})
	operations["produce"] = func(operation loop.Operation) (loop.Answer, error) {
		if operation.Producer == "" {
			return produce(operation)
		}
		return inTransaction(operation)
	}

	operations["begin"] = onProducer(func(_ loop.Operation, producer Producer) (loop.Answer, error) {
		return loop.Answer{}, producer.Begin()
	})

	operations["send_offsets"] = onProducer(
		func(_ loop.Operation, producer Producer) (loop.Answer, error) {
			return loop.Answer{}, producer.SendOffsets()
		})

	operations["end"] = onProducer(func(operation loop.Operation, producer Producer) (loop.Answer, error) {
		return loop.Answer{}, producer.End(operation.Commit)
	})

	operations["close_producer"] = onProducer(
		func(operation loop.Operation, producer Producer) (loop.Answer, error) {
			delete(producers, operation.Producer)
			err := producer.Close()
			if _, has := opened[operation.Producer]; !has || err != nil {
				return loop.Answer{}, err
			}
			operation.Member = operation.Producer
			return operations["close_member"](operation)
		})
	return operations
}
