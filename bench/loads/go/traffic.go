package main

import (
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The API keys of the requests that carry records.
const (
	keyProduce = 0
	keyFetch   = 1
)

// traffic counts the requests that carry records, over all clients of the process.
type traffic struct {
	requests atomic.Int64
}

// OnBrokerE2E is called once a request, when its answer was read.
func (counted *traffic) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, _ kgo.BrokerE2E) {
	if key == keyProduce || key == keyFetch {
		counted.requests.Add(1)
	}
}

func since(began time.Time) float64 { return time.Since(began).Seconds() }
