// Package loop is the conversation that every driver has with the tests.
// tests/interop/drivers/loop.py describes it: one JSON object a line in, one out.
package loop

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"kgw/e2e/internal/security"
)

// Header is a name and a value, which may be null; in JSON it is a list of the two.
type Header struct {
	Name  string
	Value *[]byte
}

// MarshalJSON writes a header as [name, value].
func (header Header) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{header.Name, header.Value})
}

// UnmarshalJSON reads a header from [name, value].
func (header *Header) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&header.Name, &header.Value})
}

// Record is one to send, or one that was read. Pointers tell null from empty.
type Record struct {
	Key         *[]byte  `json:"key"`
	Value       *[]byte  `json:"value"`
	Headers     []Header `json:"headers"`
	TimestampMs int64    `json:"timestamp_ms"`
	Offset      int64    `json:"offset"`
}

// Operation is what a test asks for.
type Operation struct {
	Do          string   `json:"do"`
	Bootstrap   string   `json:"bootstrap"` // host:port, several with commas
	Topic       string   `json:"topic"`
	Partition   int32    `json:"partition"`
	Partitions  int32    `json:"partitions"`
	Codec       string   `json:"codec"`
	Idempotent  bool     `json:"idempotent"`
	Offset      int64    `json:"offset"`
	Count       int      `json:"count"`
	TimestampMs int64    `json:"timestamp_ms"`
	Records     []Record `json:"records"`
	Name        string   `json:"name"`
	Value       string   `json:"value"`
	Incremental bool     `json:"incremental"`
	Member      string   `json:"member"`
	Members     []string `json:"members"`
	Group       string   `json:"group"`
	Strategy    string   `json:"strategy"`
	Instance    string   `json:"instance"`
	TimeoutS    float64  `json:"timeout_s"`
	Isolation   string   `json:"isolation"`
	Producer    string   `json:"producer"`
	// TransactionalID is what producers fence each other by.
	TransactionalID string `json:"transactional_id"`
	TimeoutMs       int64  `json:"timeout_ms"`
	Commit          bool   `json:"commit"`
	// Security is how connections are protected; empty for those in plain text.
	Security security.Properties `json:"security"`
}

// Servers are where the client connects first.
func (operation Operation) Servers() []string {
	return strings.Split(operation.Bootstrap, ",")
}

// ReadsCommitted tells whether the operation asks for committed records alone.
func (operation Operation) ReadsCommitted() bool {
	return operation.Isolation == "read_committed"
}

// Answer is what a driver says to it.
type Answer map[string]any

// Operations are a driver's, by name.
type Operations map[string]func(Operation) (Answer, error)

// OrNil gives the bytes, or nil for null.
func OrNil(data *[]byte) []byte {
	if data == nil {
		return nil
	}
	if *data == nil {
		return []byte{}
	}
	return *data
}

// OrNull gives null for nil, and the bytes otherwise.
func OrNull(data []byte) *[]byte {
	if data == nil {
		return nil
	}
	return &data
}

// Found is the answer to offset_for_time: negative offsets mean that there is none.
func Found(offset int64) Answer {
	if offset < 0 {
		return Answer{"offset": nil}
	}
	return Answer{"offset": offset}
}

// Serve answers operations until standard input ends.
func Serve(operations Operations) {
	input := bufio.NewReader(os.Stdin)
	output := json.NewEncoder(os.Stdout)
	for {
		line, err := input.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err := output.Encode(answer(operations, line)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func answer(operations Operations, line []byte) Answer {
	var operation Operation
	if err := json.Unmarshal(line, &operation); err != nil {
		return Answer{"error": err.Error()}
	}
	run, known := operations[operation.Do]
	if !known {
		return Answer{"error": "unknown operation " + operation.Do}
	}
	result, err := run(operation)
	if err != nil {
		return Answer{"error": err.Error()}
	}
	return result
}
