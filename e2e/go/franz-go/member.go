package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kgw/e2e/internal/loop"
	"kgw/e2e/internal/members"
)

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"roundrobin":         kgo.RoundRobinBalancer(),
	"sticky":             kgo.StickyBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

type member struct {
	client *kgo.Client
	// transactions is nil unless the member produces what it makes of the records.
	transactions *kgo.GroupTransactSession
	lock         sync.Mutex
	assigned     map[int32]bool
}

// openMember leaves the assignor to the library where the strategy is "default". With a transactional
// id it opens a session that reads and produces.
func openMember(operation loop.Operation) (members.Member, error) {
	opened := &member{assigned: map[int32]bool{}}
	options, err := connection(operation)
	if err != nil {
		return nil, err
	}
	options = append(options,
		isolation(operation),
		kgo.ConsumerGroup(operation.Group),
		kgo.ConsumeTopics(operation.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(members.SessionTimeout),
		kgo.RebalanceTimeout(members.RebalanceTimeout),
		kgo.HeartbeatInterval(members.HeartbeatInterval),
		kgo.OnPartitionsAssigned(opened.note(true)),
		kgo.OnPartitionsRevoked(opened.note(false)),
		kgo.OnPartitionsLost(opened.note(false)),
	)
	if operation.Strategy != "default" {
		balancer, known := balancers[operation.Strategy]
		if !known {
			return nil, fmt.Errorf("no balancer %s", operation.Strategy)
		}
		options = append(options, kgo.Balancers(balancer))
	}
	if operation.Instance != "" {
		options = append(options, kgo.InstanceID(operation.Instance))
	}
	if operation.TransactionalID != "" {
		session, err := kgo.NewGroupTransactSession(append(options, transactional(operation)...)...)
		if err != nil {
			return nil, err
		}
		opened.client, opened.transactions = session.Client(), session
		return opened, nil
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	opened.client = client
	return opened, checkLogin(operation, client)
}

func (opened *member) note(has bool) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
		opened.lock.Lock()
		defer opened.lock.Unlock()
		for _, partitions := range topics {
			for _, partition := range partitions {
				if has {
					opened.assigned[partition] = true
				} else {
					delete(opened.assigned, partition)
				}
			}
		}
	}
}

func (opened *member) Poll(ctx context.Context) ([]members.Position, error) {
	fetches := opened.client.PollFetches(ctx)
	records := []members.Position{}
	fetches.EachRecord(func(read *kgo.Record) {
		records = append(records, members.Position{int64(read.Partition), read.Offset})
	})
	for _, failed := range fetches.Errors() {
		// The library joins again by itself after it has told that it could not, also where it may not.
		var session *kgo.ErrGroupSession
		if errors.Is(failed.Err, kerr.GroupAuthorizationFailed) {
			return records, failed.Err
		} else if errors.As(failed.Err, &session) {
			fmt.Fprintln(os.Stderr, failed.Err)
		} else if !errors.Is(failed.Err, context.DeadlineExceeded) {
			return records, failed.Err
		}
	}
	return records, nil
}

func (opened *member) Assigned(context.Context) ([]int32, error) {
	opened.lock.Lock()
	defer opened.lock.Unlock()
	assigned := []int32{}
	for partition := range opened.assigned {
		assigned = append(assigned, partition)
	}
	return assigned, nil
}

func (opened *member) Commit(ctx context.Context) ([]members.Position, error) {
	committed := []members.Position{}
	for _, partitions := range opened.client.UncommittedOffsets() {
		for partition, next := range partitions {
			committed = append(committed, members.Position{int64(partition), next.Offset})
		}
	}
	return committed, opened.client.CommitUncommittedOffsets(ctx)
}

func (opened *member) Close() error {
	opened.client.Close()
	return nil
}
