// Delegation tokens of franz-go: an admin client creates, lists, renews and expires one, and a
// client logs in with it.
//
//	tokens SERVER MECHANISM USER PASSWORD TOPIC
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const limit = 30 * time.Second

func mechanism(name string, auth scram.Auth) sasl.Mechanism {
	if name == "SCRAM-SHA-256" {
		return auth.AsSha256Mechanism()
	}
	return auth.AsSha512Mechanism()
}

// passOn produces a record as the owner of the token, and reads the first record of the topic.
func passOn(ctx context.Context, server, topic string, login sasl.Mechanism) (string, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(server),
		kgo.SASL(login),
		kgo.DefaultProduceTopic(topic),
		kgo.ConsumeTopics(topic),
		kgo.RequestRetries(1),
	)
	if err != nil {
		return "", err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return "", err
	}
	if err := client.ProduceSync(ctx, kgo.StringRecord("with a token")).FirstErr(); err != nil {
		return "", err
	}
	fetches := client.PollFetches(ctx)
	if err := fetches.Err(); err != nil {
		return "", err
	}
	return string(fetches.Records()[0].Value), nil
}

func run(server, name, user, password, topic string) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	admin, err := kadm.NewOptClient(
		kgo.SeedBrokers(server),
		kgo.SASL(mechanism(name, scram.Auth{User: user, Pass: password})),
	)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	token, err := admin.CreateDelegationToken(ctx, kadm.CreateDelegationToken{
		Renewers:    []kadm.Principal{{Type: "User", Name: "bob"}},
		MaxLifetime: -time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	described, err := admin.DescribeDelegationTokens(ctx)
	if err != nil {
		return nil, err
	}
	renewed, err := admin.RenewDelegationToken(ctx, token.HMAC, time.Hour)
	if err != nil {
		return nil, err
	}
	login := mechanism(name, scram.Auth{
		User:    token.TokenID,
		Pass:    base64.StdEncoding.EncodeToString(token.HMAC),
		IsToken: true,
	})
	value, err := passOn(ctx, server, topic, login)
	if err != nil {
		return nil, err
	}
	if _, err = admin.ExpireDelegationToken(ctx, token.HMAC, -time.Millisecond); err != nil {
		return nil, err
	}
	refusal := ""
	if _, err = passOn(ctx, server, topic, login); err != nil {
		refusal = err.Error()
	}
	return map[string]any{
		"owner":     token.Owner.Name,
		"described": len(described),
		"is_sooner": renewed.Before(token.ExpiryTimestamp),
		"value":     value,
		"refusal":   refusal,
	}, nil
}

func main() {
	result, err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(result)
}
