// Command check reads Kubernetes manifests from standard input, decodes each strictly into the type
// that the API server would decode it into, and prints all of them as JSON. An unknown or repeated
// field, a wrong type, or a kind that it does not know is an error.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

var kinds = map[string]func() any{
	"apps/v1 StatefulSet":                     func() any { return new(appsv1.StatefulSet) },
	"batch/v1 Job":                            func() any { return new(batchv1.Job) },
	"v1 ConfigMap":                            func() any { return new(corev1.ConfigMap) },
	"v1 Pod":                                  func() any { return new(corev1.Pod) },
	"v1 Secret":                               func() any { return new(corev1.Secret) },
	"v1 Service":                              func() any { return new(corev1.Service) },
	"v1 ServiceAccount":                       func() any { return new(corev1.ServiceAccount) },
	"networking.k8s.io/v1 NetworkPolicy":      func() any { return new(networkingv1.NetworkPolicy) },
	"monitoring.coreos.com/v1 PodMonitor":     func() any { return new(monitoringv1.PodMonitor) },
	"monitoring.coreos.com/v1 PrometheusRule": func() any { return new(monitoringv1.PrometheusRule) },
}

var separator = regexp.MustCompile(`(?m)^---\s*$`)

func decode(document []byte) (any, error) {
	var head metav1.TypeMeta
	if err := yaml.Unmarshal(document, &head); err != nil {
		return nil, err
	}
	if head.Kind == "" {
		return nil, nil
	}
	name := head.APIVersion + " " + head.Kind
	make, ok := kinds[name]
	if !ok {
		return nil, fmt.Errorf("%s is not known here", name)
	}
	object := make()
	if err := yaml.UnmarshalStrict(document, object); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return object, nil
}

func run(input io.Reader, output io.Writer) error {
	text, err := io.ReadAll(input)
	if err != nil {
		return err
	}
	objects := []any{}
	for _, document := range separator.Split(string(text), -1) {
		if len(bytes.TrimSpace([]byte(document))) == 0 {
			continue
		}
		object, err := decode([]byte(document))
		if err != nil {
			return err
		}
		if object != nil {
			objects = append(objects, object)
		}
	}
	return json.NewEncoder(output).Encode(objects)
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
