package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"kgw/e2e/internal/loop"
	"kgw/e2e/internal/members"
)

var strategies = map[string]func() sarama.BalanceStrategy{
	"range":              sarama.NewBalanceStrategyRange,
	"roundrobin":         sarama.NewBalanceStrategyRoundRobin,
	"sticky":             sarama.NewBalanceStrategySticky,
	"cooperative-sticky": sarama.NewBalanceStrategyCooperativeSticky,
}

// member is a consumer group's handler that keeps what it is given until it is polled.
type member struct {
	operation loop.Operation
	group     sarama.ConsumerGroup
	cancel    context.CancelFunc
	ended     sync.WaitGroup

	lock     sync.Mutex
	refusal  error
	session  sarama.ConsumerGroupSession
	assigned map[int32]bool
	arrived  []*sarama.ConsumerMessage
	marked   map[int32]int64
	came     chan struct{}
}

// openMember leaves the assignor to the library, range, where the strategy is "default".
func openMember(operation loop.Operation) (members.Member, error) {
	config, err := settings(operation)
	if err != nil {
		return nil, err
	}
	config.ClientID = operation.Member
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.IsolationLevel = isolation(operation)
	config.Consumer.Group.Session.Timeout = members.SessionTimeout
	config.Consumer.Group.Heartbeat.Interval = members.HeartbeatInterval
	config.Consumer.Group.Rebalance.Timeout = members.RebalanceTimeout
	// Two seconds by default, after anything that went wrong.
	config.Consumer.Group.Rebalance.Retry.Backoff = 200 * time.Millisecond
	config.Consumer.Group.InstanceId = operation.Instance
	if operation.Strategy != "default" {
		strategy, known := strategies[operation.Strategy]
		if !known {
			return nil, fmt.Errorf("no strategy %s", operation.Strategy)
		}
		config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy()}
	}
	group, err := sarama.NewConsumerGroup([]string{operation.Bootstrap}, operation.Group, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	opened := &member{
		operation: operation,
		group:     group,
		cancel:    cancel,
		assigned:  map[int32]bool{},
		marked:    map[int32]int64{},
		came:      make(chan struct{}, 1),
	}
	opened.ended.Go(func() {
		for err := range group.Errors() {
			opened.note(err)
			fmt.Fprintln(os.Stderr, operation.Member, err)
		}
	})
	opened.ended.Go(func() {
		for ctx.Err() == nil {
			err := group.Consume(ctx, []string{operation.Topic}, opened)
			if err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) {
				opened.note(err)
				fmt.Fprintln(os.Stderr, operation.Member, "once more:", err)
				time.Sleep(100 * time.Millisecond)
			}
		}
	})
	return opened, nil
}

// note keeps a refusal for the next poll: the library would try again for ever.
func (opened *member) note(err error) {
	if isRefused(err) {
		opened.lock.Lock()
		defer opened.lock.Unlock()
		opened.refusal = err
	}
}

// Setup is called at the beginning of a session.
func (opened *member) Setup(session sarama.ConsumerGroupSession) error {
	opened.lock.Lock()
	defer opened.lock.Unlock()
	opened.session = session
	return nil
}

// Cleanup is called at its end.
func (opened *member) Cleanup(sarama.ConsumerGroupSession) error {
	opened.lock.Lock()
	defer opened.lock.Unlock()
	opened.session = nil
	return nil
}

// ConsumeClaim runs as long as the member has a partition. What it was given and nobody polled is for
// the partition's next owner.
func (opened *member) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	partition := claim.Partition()
	opened.lock.Lock()
	opened.assigned[partition] = true
	opened.lock.Unlock()
	defer func() {
		opened.lock.Lock()
		defer opened.lock.Unlock()
		delete(opened.assigned, partition)
		delete(opened.marked, partition)
		opened.arrived = slices.DeleteFunc(opened.arrived, func(one *sarama.ConsumerMessage) bool {
			return one.Partition == partition
		})
	}()
	for {
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			opened.lock.Lock()
			opened.arrived = append(opened.arrived, message)
			opened.lock.Unlock()
			select {
			case opened.came <- struct{}{}:
			default:
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (opened *member) Poll(ctx context.Context) ([]members.Position, error) {
	select {
	case <-opened.came:
	case <-ctx.Done():
	}
	opened.lock.Lock()
	defer opened.lock.Unlock()
	records := []members.Position{}
	for _, message := range opened.arrived {
		records = append(records, members.Position{int64(message.Partition), message.Offset})
		if opened.session != nil {
			opened.session.MarkMessage(message, "")
			opened.marked[message.Partition] = message.Offset + 1
		}
	}
	opened.arrived = nil
	refusal := opened.refusal
	opened.refusal = nil
	return records, refusal
}

func (opened *member) Assigned(context.Context) ([]int32, error) {
	opened.lock.Lock()
	defer opened.lock.Unlock()
	return slices.Collect(maps.Keys(opened.assigned)), nil
}

// Commit asks the group what it has, because the library's Commit does not tell whether it succeeded.
func (opened *member) Commit(ctx context.Context) ([]members.Position, error) {
	var problem error
	for ctx.Err() == nil {
		opened.lock.Lock()
		session, wanted := opened.session, maps.Clone(opened.marked)
		opened.lock.Unlock()
		if len(wanted) == 0 {
			return nil, nil
		}
		if session != nil {
			session.Commit()
		}
		problem = opened.checkCommitted(wanted)
		if problem == nil {
			committed := []members.Position{}
			for partition, offset := range wanted {
				committed = append(committed, members.Position{int64(partition), offset})
			}
			return committed, nil
		}
		fmt.Fprintln(os.Stderr, opened.operation.Member, "commit once more:", problem)
		time.Sleep(100 * time.Millisecond)
	}
	return nil, problem
}

func (opened *member) checkCommitted(wanted map[int32]int64) error {
	topic := opened.operation.Topic
	_, err := administer(opened.operation, func(admin sarama.ClusterAdmin) (loop.Answer, error) {
		partitions := map[string][]int32{topic: slices.Collect(maps.Keys(wanted))}
		committed, err := admin.ListConsumerGroupOffsets(opened.operation.Group, partitions)
		if err != nil {
			return nil, err
		}
		for partition, offset := range wanted {
			block := committed.GetBlock(topic, partition)
			if block == nil || block.Err != sarama.ErrNoError || block.Offset < offset {
				return nil, fmt.Errorf("partition %d: %v is not %d", partition, block, offset)
			}
		}
		return loop.Answer{}, nil
	})
	return err
}

func (opened *member) Close() error {
	opened.cancel()
	err := opened.group.Close()
	opened.ended.Wait()
	return err
}
