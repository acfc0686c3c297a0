// Package conversation is what sarama leaves to its users: SCRAM itself.
package conversation

import (
	"hash"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// Generator gives sarama a conversation for each login, with the hash of the mechanism.
func Generator(hashed func() hash.Hash) func() sarama.SCRAMClient {
	return func() sarama.SCRAMClient { return &conversation{hashed: hashed} }
}

type conversation struct {
	*scram.ClientConversation
	hashed scram.HashGeneratorFcn
}

func (begun *conversation) Begin(user, password, authorization string) error {
	client, err := begun.hashed.NewClient(user, password, authorization)
	if err == nil {
		begun.ClientConversation = client.NewConversation()
	}
	return err
}
