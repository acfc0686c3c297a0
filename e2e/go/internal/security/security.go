// Package security reads the security of connections: properties with the names of Java's clients,
// and files in PEM. tests/interop/drivers/loop.py describes them.
package security

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
)

// Properties are those of an operation; without any, connections are in plain text.
type Properties map[string]string

// Mechanism is the mechanism of SASL, or nothing where there is no login.
func (properties Properties) Mechanism() string {
	return properties["sasl.mechanism"]
}

// Login gives the name of the user and the password.
func (properties Properties) Login() (string, string) {
	return properties["sasl.username"], properties["sasl.password"]
}

// Token reads the token of OAUTHBEARER from the file that the properties name.
func (properties Properties) Token() (string, error) {
	location, err := url.Parse(properties["sasl.oauthbearer.token.endpoint.url"])
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(location.Path)
	return string(text), err
}

// TLS gives the settings of encrypted connections, and nil for those in plain text. Where names are
// checked, the library has to add the name of the server.
func (properties Properties) TLS() (*tls.Config, error) {
	trusted, given := properties["ssl.truststore.location"]
	if !given {
		return nil, nil
	}
	text, err := os.ReadFile(trusted)
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", trusted)
	}
	config := &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
	if own, given := properties["ssl.keystore.location"]; given {
		certificate, err := tls.LoadX509KeyPair(own, own)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}

// UnknownMechanism is the error of a driver whose library does not have the mechanism.
func (properties Properties) UnknownMechanism() error {
	return fmt.Errorf("no mechanism %s", properties.Mechanism())
}
