package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"kgw/e2e/internal/security"
)

const limit = 30 * time.Second

type kadmAdmin struct {
	client *kadm.Client
}

func franzGo(server string, properties security.Properties) (admin, error) {
	encrypted, err := properties.TLS()
	if err != nil {
		return nil, err
	}
	name, secret := properties.Login()
	auth := scram.Auth{User: name, Pass: secret}
	mechanism := auth.AsSha512Mechanism()
	if properties.Mechanism() == "SCRAM-SHA-256" {
		mechanism = auth.AsSha256Mechanism()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(server),
		kgo.DialTLSConfig(encrypted),
		kgo.SASL(mechanism),
		kgo.RequestRetries(1),
	)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		client.Close()
		return nil, err
	}
	return kadmAdmin{kadm.NewClient(client)}, nil
}

func (one kadmAdmin) addRules() error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	allowed := kadm.NewACLs().Topics(topicPrefix).ResourcePatternType(kadm.ACLPatternPrefixed).
		Allow("User:alice").AllowHosts().Operations(kadm.OpRead, kadm.OpDescribe)
	denied := kadm.NewACLs().Topics(topicPrefix).ResourcePatternType(kadm.ACLPatternPrefixed).
		Deny("User:bob").DenyHosts(host).Operations(kadm.OpAll)
	for _, rules := range []*kadm.ACLBuilder{allowed, denied} {
		results, err := one.client.CreateACLs(ctx, rules)
		for _, result := range results {
			err = errors.Join(err, result.Err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func ofPrefix() *kadm.ACLBuilder {
	return kadm.NewACLs().Topics(topicPrefix).ResourcePatternType(kadm.ACLPatternPrefixed).
		Allow().AllowHosts().Deny().DenyHosts().Operations(kadm.OpAny)
}

func (one kadmAdmin) rules() ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	results, err := one.client.DescribeACLs(ctx, ofPrefix())
	found := []string{}
	for _, result := range results {
		err = errors.Join(err, result.Err)
		for _, rule := range result.Described {
			found = append(found, fmt.Sprint(
				rule.Type, " ", rule.Name, " ", rule.Pattern, " ", rule.Principal, " ",
				rule.Host, " ", rule.Operation, " ", rule.Permission,
			))
		}
	}
	return found, err
}

func (one kadmAdmin) removeRules() (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	results, err := one.client.DeleteACLs(ctx, ofPrefix())
	removed := 0
	for _, result := range results {
		err = errors.Join(err, result.Err)
		for _, rule := range result.Deleted {
			err = errors.Join(err, rule.Err)
		}
		removed += len(result.Deleted)
	}
	return removed, err
}

func (one kadmAdmin) setUser() error {
	return one.alter(nil, []kadm.UpsertSCRAM{{
		User: user, Mechanism: kadm.ScramSha256, Iterations: iterations, Password: password,
	}})
}

func (one kadmAdmin) removeUser() error {
	return one.alter([]kadm.DeleteSCRAM{{User: user, Mechanism: kadm.ScramSha256}}, nil)
}

func (one kadmAdmin) alter(deletions []kadm.DeleteSCRAM, upsertions []kadm.UpsertSCRAM) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	altered, err := one.client.AlterUserSCRAMs(ctx, deletions, upsertions)
	return errors.Join(err, altered.Error())
}

func (one kadmAdmin) described() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	users, err := one.client.DescribeUserSCRAMs(ctx, user)
	if err != nil {
		return "", err
	}
	credentials := users[user].CredInfos
	if len(credentials) != 1 {
		return "", fmt.Errorf("%d credentials", len(credentials))
	}
	return fmt.Sprint(credentials[0].Mechanism, " ", credentials[0].Iterations), nil
}

func (one kadmAdmin) close() {
	one.client.Close()
}
