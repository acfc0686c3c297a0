// Access rules and users of franz-go (kadm) and sarama (ClusterAdmin) on SASL_SSL: an administrator
// adds two rules and a user, lists them and removes them again. The user tries to add rules, too.
// Without the user, and with a wrong password, nobody is let in.
//
//	rules LIBRARY SERVER CA_FILE ADMIN PASSWORD
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"kgw/e2e/internal/security"
)

const (
	topicPrefix = "orders-"
	host        = "192.0.2.1"
	user        = "carol"
	password    = "pencil"
	iterations  = 8192
)

// admin is what both libraries can do. Each call but close ends with an error where one item fails.
type admin interface {
	// addRules lets alice read and describe topics of a prefix, and denies bob everything there.
	addRules() error
	// rules gives the rules for that prefix, each as TYPE NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION.
	rules() ([]string, error)
	// removeRules gives how many there were.
	removeRules() (int, error)
	// setUser gives the user a password for SCRAM-SHA-256.
	setUser() error
	// described gives the mechanism and the iterations of the user.
	described() (string, error)
	removeUser() error
	close()
}

// login opens an admin client, and fails where the server does not let the user in.
type login func(server string, properties security.Properties) (admin, error)

var libraries = map[string]login{"franz-go": franzGo, "sarama": clusterAdmin}

func properties(trusted, name, secret, mechanism string) security.Properties {
	return security.Properties{
		"ssl.truststore.location": trusted,
		"sasl.mechanism":          mechanism,
		"sasl.username":           name,
		"sasl.password":           secret,
	}
}

func refusal(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// tryAs gives why the user is not let in, and why it adds no rules.
func tryAs(open login, server string, given security.Properties) (string, string) {
	opened, err := open(server, given)
	if err != nil {
		return refusal(err), ""
	}
	defer opened.close()
	return "", refusal(opened.addRules())
}

func run(open login, server, trusted, administrator, secret string) (map[string]any, error) {
	opened, err := open(server, properties(trusted, administrator, secret, "SCRAM-SHA-512"))
	if err != nil {
		return nil, err
	}
	defer opened.close()
	if err := opened.addRules(); err != nil {
		return nil, err
	}
	added, err := opened.rules()
	if err != nil {
		return nil, err
	}
	slices.Sort(added)
	if err := opened.setUser(); err != nil {
		return nil, err
	}
	described, err := opened.described()
	if err != nil {
		return nil, err
	}
	good := properties(trusted, user, password, "SCRAM-SHA-256")
	entry, right := tryAs(open, server, good)
	if entry != "" {
		return nil, fmt.Errorf("the new user: %s", entry)
	}
	wrong, _ := tryAs(open, server, properties(trusted, user, "pen", "SCRAM-SHA-256"))
	removed, err := opened.removeRules()
	if err != nil {
		return nil, err
	}
	left, err := opened.rules()
	if err != nil {
		return nil, err
	}
	if err := opened.removeUser(); err != nil {
		return nil, err
	}
	gone, _ := tryAs(open, server, good)
	return map[string]any{
		"added": added, "removed": removed, "left": len(left), "described": described,
		"right": right, "wrong": wrong, "gone": gone,
	}, nil
}

func main() {
	result, err := run(libraries[os.Args[1]], os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(result)
}
