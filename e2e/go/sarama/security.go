package main

import (
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"hash"
	"slices"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"kgw/e2e/internal/security"
)

var refusals = []sarama.KError{
	sarama.ErrSASLAuthenticationFailed,
	sarama.ErrTopicAuthorizationFailed,
	sarama.ErrGroupAuthorizationFailed,
	sarama.ErrClusterAuthorizationFailed,
}

// isRefused tells whether the server does not want this user.
func isRefused(err error) bool {
	return slices.ContainsFunc(refusals, func(one sarama.KError) bool { return errors.Is(err, one) })
}

// protect sets what a client is told of TLS and of its login.
func protect(config *sarama.Config, properties security.Properties) error {
	encrypted, err := properties.TLS()
	if err != nil {
		return err
	}
	config.Net.TLS.Enable = encrypted != nil
	config.Net.TLS.Config = encrypted
	mechanism := properties.Mechanism()
	if mechanism == "" {
		return nil
	}
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = sarama.SASLMechanism(mechanism)
	config.Net.SASL.User, config.Net.SASL.Password = properties.Login()
	switch mechanism {
	case sarama.SASLTypePlaintext:
	case sarama.SASLTypeSCRAMSHA256:
		config.Net.SASL.SCRAMClientGeneratorFunc = conversations(sha256.New)
	case sarama.SASLTypeSCRAMSHA512:
		config.Net.SASL.SCRAMClientGeneratorFunc = conversations(sha512.New)
	default:
		return properties.UnknownMechanism()
	}
	return nil
}

func conversations(hashed func() hash.Hash) func() sarama.SCRAMClient {
	return func() sarama.SCRAMClient { return &conversation{hashed: hashed} }
}

// conversation is what sarama leaves to its users: SCRAM itself.
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
