package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"kgw/e2e/internal/loop"
	"kgw/e2e/internal/members"
)

var balancers = map[string]kafka.GroupBalancer{
	"range":      kafka.RangeGroupBalancer{},
	"roundrobin": kafka.RoundRobinGroupBalancer{},
}

// member is a Reader, which does not tell what it was assigned: the group is asked for that. The
// client id tells one member from another. Whatever goes wrong, it logs the error and tries again for
// ever: a refusal is found in what it logs.
type member struct {
	operation loop.Operation
	reader    *kafka.Reader
	last      map[int]kafka.Message
	lock      sync.Mutex
	refusal   error
}

// openMember leaves the assignors to the library, range and then round robin, where the strategy is
// "default". There are no static members.
func openMember(operation loop.Operation) (members.Member, error) {
	if operation.Instance != "" {
		return nil, errors.New("kafka-go has no static members")
	}
	var chosen []kafka.GroupBalancer
	if operation.Strategy != "default" {
		balancer, known := balancers[operation.Strategy]
		if !known {
			return nil, fmt.Errorf("no balancer %s", operation.Strategy)
		}
		chosen = append(chosen, balancer)
	}
	dialer, err := newDialer(operation)
	if err != nil {
		return nil, err
	}
	opened := &member{operation: operation, last: map[int]kafka.Message{}}
	opened.reader = kafka.NewReader(kafka.ReaderConfig{
		Brokers:           []string{operation.Bootstrap},
		GroupID:           operation.Group,
		Topic:             operation.Topic,
		Dialer:            dialer,
		GroupBalancers:    chosen,
		StartOffset:       kafka.FirstOffset,
		MaxBytes:          10_000_000,
		MaxWait:           200 * time.Millisecond,
		SessionTimeout:    members.SessionTimeout,
		RebalanceTimeout:  members.RebalanceTimeout,
		HeartbeatInterval: members.HeartbeatInterval,
		// Five seconds by default, after anything that went wrong.
		JoinGroupBackoff: 200 * time.Millisecond,
		ErrorLogger:      kafka.LoggerFunc(opened.note),
	})
	return opened, nil
}

func (opened *member) note(text string, values ...any) {
	fmt.Fprintf(os.Stderr, text+"\n", values...)
	opened.lock.Lock()
	defer opened.lock.Unlock()
	for _, value := range values {
		if err, is := value.(error); is && isRefused(err) {
			opened.refusal = err
		}
	}
}

// refused gives the refusal, once.
func (opened *member) refused() error {
	opened.lock.Lock()
	defer opened.lock.Unlock()
	refusal := opened.refusal
	opened.refusal = nil
	return refusal
}

func (opened *member) Poll(ctx context.Context) ([]members.Position, error) {
	records := []members.Position{}
	for {
		read, err := opened.reader.FetchMessage(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			return records, opened.refused()
		}
		if err != nil {
			return records, err
		}
		records = append(records, members.Position{int64(read.Partition), read.Offset})
		opened.last[read.Partition] = read
	}
}

func (opened *member) Assigned(ctx context.Context) ([]int32, error) {
	client, closeClient, err := newClient(opened.operation)
	if err != nil {
		return nil, err
	}
	defer closeClient()
	response, err := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{
		GroupIDs: []string{opened.operation.Group},
	})
	if err != nil {
		return nil, err
	}
	group := response.Groups[0]
	if group.Error != nil || group.GroupState != "Stable" {
		return nil, group.Error
	}
	assigned := []int32{}
	for _, one := range group.Members {
		if one.ClientID != opened.operation.Member {
			continue
		}
		for _, topic := range one.MemberAssignments.Topics {
			for _, partition := range topic.Partitions {
				assigned = append(assigned, int32(partition))
			}
		}
	}
	return assigned, nil
}

// Commit tries again, as a program must: the library's own three tries are over before a server has
// been restarted. What belongs to others by now is theirs to read and to commit.
func (opened *member) Commit(ctx context.Context) ([]members.Position, error) {
	for {
		committed := []members.Position{}
		assigned, err := opened.Assigned(ctx)
		if err == nil {
			chosen := []kafka.Message{}
			for partition, message := range opened.last {
				if slices.Contains(assigned, int32(partition)) {
					chosen = append(chosen, message)
					next := members.Position{int64(partition), message.Offset + 1}
					committed = append(committed, next)
				}
			}
			err = opened.reader.CommitMessages(ctx, chosen...)
		}
		if err == nil {
			clear(opened.last)
			return committed, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		fmt.Fprintln(os.Stderr, "commit once more:", err)
		time.Sleep(100 * time.Millisecond)
	}
}

func (opened *member) Close() error {
	return opened.reader.Close()
}
