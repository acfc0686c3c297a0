package main

import (
	"errors"
	"time"

	"github.com/IBM/sarama"

	"kgw/e2e/internal/loop"
	"kgw/e2e/internal/members"
	"kgw/e2e/internal/transactions"
)

// producer has a transactional id; what its member reads goes to its transactions.
type producer struct {
	sarama.AsyncProducer
	member *member
}

func openProducer(
	operation loop.Operation, reads members.Member,
) (transactions.Producer, error) {
	config, err := producing(operation)
	if err != nil {
		return nil, err
	}
	config.Producer.Idempotent = true
	config.Producer.Transaction.ID = operation.TransactionalID
	config.Producer.Transaction.Timeout = time.Duration(operation.TimeoutMs) * time.Millisecond
	config.Net.MaxOpenRequests = 1
	opened, err := sarama.NewAsyncProducer([]string{operation.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	reading, _ := reads.(*member)
	return producer{opened, reading}, nil
}

func (opened producer) Begin() error {
	return opened.BeginTxn()
}

func (opened producer) Produce(operation loop.Operation) (loop.Answer, error) {
	return sent(opened.AsyncProducer, operation)
}

func (opened producer) SendOffsets() error {
	reading := opened.member
	reading.lock.Lock()
	defer reading.lock.Unlock()
	if reading.session == nil {
		return errors.New("the group has changed")
	}
	offsets := []*sarama.PartitionOffsetMetadata{}
	for partition, next := range reading.marked {
		offsets = append(offsets, &sarama.PartitionOffsetMetadata{Partition: partition, Offset: next})
	}
	group := sarama.NewConsumerGroupMetadataFromSession(
		reading.session, reading.operation.Group, nil)
	return opened.AddOffsetsToTxnWithGroupMetadata(
		map[string][]*sarama.PartitionOffsetMetadata{reading.operation.Topic: offsets}, group)
}

func (opened producer) End(commit bool) error {
	if commit {
		return opened.CommitTxn()
	}
	return opened.AbortTxn()
}
