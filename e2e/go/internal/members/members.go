// Package members keeps the members of groups that a driver has open between two operations.
package members

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"kgw/e2e/internal/loop"
)

// Limit is how long a commit may take, a restart of the server included.
const Limit = 30 * time.Second

// Times of every member: heartbeats often enough that a test need not wait for a rebalance.
const (
	SessionTimeout    = 6 * time.Second
	RebalanceTimeout  = 10 * time.Second
	HeartbeatInterval = 300 * time.Millisecond
)

// Position is a record that was read: its partition and offset.
type Position [2]int64

// Member is a consumer in a group.
type Member interface {
	// Poll gives what can be read until the context ends, which is no error.
	Poll(ctx context.Context) ([]Position, error)
	// Assigned gives the partitions that the member has now.
	Assigned(ctx context.Context) ([]int32, error)
	// Commit commits what Poll gave, and tells the offsets that the server has acknowledged: by
	// partition, where the next record is.
	Commit(ctx context.Context) ([]Position, error)
	// Close leaves the group, unless the member is static.
	Close() error
}

type found struct {
	Records  []Position `json:"records"`
	Assigned []int32    `json:"assigned"`
}

func poll(member Member, timeout time.Duration) (found, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	records, err := member.Poll(ctx)
	if err != nil {
		return found{}, err
	}
	asking, stop := context.WithTimeout(context.Background(), Limit)
	defer stop()
	assigned, err := member.Assigned(asking)
	slices.Sort(assigned)
	return found{append([]Position{}, records...), append([]int32{}, assigned...)}, err
}

// Opened are the members that a driver has, by name.
type Opened map[string]Member

// Add puts the operations on members beside the driver's others, and keeps those that are open.
func Add(
	operations loop.Operations, opened Opened, open func(loop.Operation) (Member, error),
) loop.Operations {
	operations["open_member"] = func(operation loop.Operation) (loop.Answer, error) {
		member, err := open(operation)
		if err == nil {
			opened[operation.Member] = member
		}
		return loop.Answer{}, err
	}

	operations["poll_members"] = func(operation loop.Operation) (loop.Answer, error) {
		answers := map[string]found{}
		var failure error
		var lock sync.Mutex
		var polls sync.WaitGroup
		timeout := time.Duration(operation.TimeoutS * float64(time.Second))
		for _, name := range operation.Members {
			member, known := opened[name]
			if !known {
				return nil, fmt.Errorf("no member %s", name)
			}
			polls.Go(func() {
				answer, err := poll(member, timeout)
				lock.Lock()
				defer lock.Unlock()
				answers[name] = answer
				if err != nil {
					failure = fmt.Errorf("%s: %w", name, err)
				}
			})
		}
		polls.Wait()
		return loop.Answer{"members": answers}, failure
	}

	operations["commit_member"] = func(operation loop.Operation) (loop.Answer, error) {
		ctx, cancel := context.WithTimeout(context.Background(), Limit)
		defer cancel()
		committed, err := opened[operation.Member].Commit(ctx)
		return loop.Answer{"committed": append([]Position{}, committed...)}, err
	}

	operations["close_member"] = func(operation loop.Operation) (loop.Answer, error) {
		member := opened[operation.Member]
		delete(opened, operation.Member)
		return loop.Answer{}, member.Close()
	}
	return operations
}
