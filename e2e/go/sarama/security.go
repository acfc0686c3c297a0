package main

import (
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"slices"

	"github.com/IBM/sarama"

	"kgw/e2e/internal/conversation"
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

// tokens gives the token of OAUTHBEARER to each connection.
type tokens struct{ properties security.Properties }

func (given tokens) Token() (*sarama.AccessToken, error) {
	text, err := given.properties.Token()
	return &sarama.AccessToken{Token: text}, err
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
		config.Net.SASL.SCRAMClientGeneratorFunc = conversation.Generator(sha256.New)
	case sarama.SASLTypeSCRAMSHA512:
		config.Net.SASL.SCRAMClientGeneratorFunc = conversation.Generator(sha512.New)
	case sarama.SASLTypeOAuth:
		config.Net.SASL.TokenProvider = tokens{properties}
	default:
		return properties.UnknownMechanism()
	}
	return nil
}
