package main

import (
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"strings"

	"github.com/IBM/sarama"

	"kgw/e2e/internal/conversation"
	"kgw/e2e/internal/security"
)

type saramaAdmin struct {
	sarama.ClusterAdmin
}

func clusterAdmin(server string, properties security.Properties) (admin, error) {
	encrypted, err := properties.TLS()
	if err != nil {
		return nil, err
	}
	config := sarama.NewConfig()
	config.Metadata.Retry.Max = 0
	config.Net.TLS.Enable, config.Net.TLS.Config = true, encrypted
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = sarama.SASLMechanism(properties.Mechanism())
	config.Net.SASL.User, config.Net.SASL.Password = properties.Login()
	hashed := sha512.New
	if properties.Mechanism() == sarama.SASLTypeSCRAMSHA256 {
		hashed = sha256.New
	}
	config.Net.SASL.SCRAMClientGeneratorFunc = conversation.Generator(hashed)
	opened, err := sarama.NewClusterAdmin([]string{server}, config)
	if err != nil {
		return nil, err
	}
	return saramaAdmin{opened}, nil
}

func (one saramaAdmin) addRules() error {
	return one.CreateACLs([]*sarama.ResourceAcls{{
		Resource: sarama.Resource{
			ResourceType:        sarama.AclResourceTopic,
			ResourceName:        topicPrefix,
			ResourcePatternType: sarama.AclPatternPrefixed,
		},
		Acls: []*sarama.Acl{
			{
				Principal: "User:alice", Host: "*", Operation: sarama.AclOperationRead,
				PermissionType: sarama.AclPermissionAllow,
			},
			{
				Principal: "User:alice", Host: "*", Operation: sarama.AclOperationDescribe,
				PermissionType: sarama.AclPermissionAllow,
			},
			{
				Principal: "User:bob", Host: host, Operation: sarama.AclOperationAll,
				PermissionType: sarama.AclPermissionDeny,
			},
		},
	}})
}

func filter() sarama.AclFilter {
	name := topicPrefix
	return sarama.AclFilter{
		ResourceType:              sarama.AclResourceTopic,
		ResourceName:              &name,
		ResourcePatternTypeFilter: sarama.AclPatternPrefixed,
		Operation:                 sarama.AclOperationAny,
		PermissionType:            sarama.AclPermissionAny,
	}
}

func (one saramaAdmin) rules() ([]string, error) {
	listed, err := one.ListAcls(filter())
	found := []string{}
	for _, of := range listed {
		for _, rule := range of.Acls {
			found = append(found, strings.Join([]string{
				strings.ToUpper(of.ResourceType.String()), of.ResourceName,
				strings.ToUpper(of.ResourcePatternType.String()), rule.Principal, rule.Host,
				strings.ToUpper(rule.Operation.String()),
				strings.ToUpper(rule.PermissionType.String()),
			}, " "))
		}
	}
	return found, err
}

func (one saramaAdmin) removeRules() (int, error) {
	removed, err := one.DeleteACL(filter(), false)
	for _, rule := range removed {
		err = errors.Join(err, problem(rule.Err))
	}
	return len(removed), err
}

// problem gives nil for the code of no error, which sarama takes for an error.
func problem(code sarama.KError) error {
	if errors.Is(code, sarama.ErrNoError) {
		return nil
	}
	return code
}

func (one saramaAdmin) setUser() error {
	return altered(one.UpsertUserScramCredentials([]sarama.AlterUserScramCredentialsUpsert{{
		Name: user, Mechanism: sarama.SCRAM_MECHANISM_SHA_256, Iterations: iterations,
		Salt: []byte("salt of the user"), Password: []byte(password),
	}}))
}

func (one saramaAdmin) removeUser() error {
	return altered(one.DeleteUserScramCredentials([]sarama.AlterUserScramCredentialsDelete{{
		Name: user, Mechanism: sarama.SCRAM_MECHANISM_SHA_256,
	}}))
}

func altered(results []*sarama.AlterUserScramCredentialsResult, err error) error {
	for _, result := range results {
		err = errors.Join(err, problem(result.ErrorCode))
	}
	return err
}

func (one saramaAdmin) described() (string, error) {
	users, err := one.DescribeUserScramCredentials([]string{user})
	if err != nil {
		return "", err
	}
	if len(users) != 1 || len(users[0].CredentialInfos) != 1 {
		return "", fmt.Errorf("%d users", len(users))
	}
	credential := users[0].CredentialInfos[0]
	return fmt.Sprint(credential.Mechanism, " ", credential.Iterations), nil
}

func (one saramaAdmin) close() {
	_ = one.Close()
}
