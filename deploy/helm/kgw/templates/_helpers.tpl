{{- define "kgw.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "kgw.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "kgw.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "kgw.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "kgw.selectorLabels" -}}
app.kubernetes.io/name: {{ include "kgw.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kgw.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "kgw.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "kgw.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}

{{- define "kgw.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "kgw.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "kgw.tokenSecret" -}}
{{- default (printf "%s-admin" (include "kgw.fullname" .)) .Values.admin.existingSecret }}
{{- end }}

{{- define "kgw.host" -}}
{{ include "kgw.fullname" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{- /* What clients outside are told to connect to. */ -}}
{{- define "kgw.externalPort" -}}
{{- if eq .Values.external.type "NodePort" }}{{ .Values.external.nodePort }}{{ else }}{{ .Values.external.port }}{{ end }}
{{- end }}

{{- /* How a command of the chart connects. */ -}}
{{- define "kgw.client" -}}
- --bootstrap={{ include "kgw.host" . }}:{{ .Values.service.port }}
- --command-config=/etc/kgw-client/client.properties
{{- end }}

{{- define "kgw.hasTls" -}}
{{- if has .Values.security.protocol (list "SSL" "SASL_SSL") }}yes{{ end }}
{{- end }}

{{- define "kgw.hasLogin" -}}
{{- if has .Values.security.protocol (list "SASL_PLAINTEXT" "SASL_SSL") }}yes{{ end }}
{{- end }}

{{- /* The settings of TLS, logins and rules, as a list in YAML. */ -}}
{{- define "kgw.security" -}}
{{- $protocol := .Values.security.protocol }}
{{- $names := list "INTERNAL" }}
{{- if .Values.external.enabled }}{{ $names = append $names "EXTERNAL" }}{{ end }}
{{- $mapped := list }}
{{- range $names }}{{ $mapped = append $mapped (printf "%s:%s" . $protocol) }}{{ end }}
{{- $settings := list (printf "listener.security.protocol.map=%s" (join "," $mapped)) }}
{{- /* The image says true. Where a login is asked for, a slip must not open a listener. */ -}}
{{- $isOpen := not (or (include "kgw.hasLogin" .) .Values.security.superUsers) }}
{{- if and (eq $protocol "SSL") (eq .Values.security.tls.clientAuth "required") }}{{ $isOpen = false }}{{ end }}
{{- $settings = append $settings (printf "kgw.listeners.without.login=%v" $isOpen) }}
{{- with .Values.security.tls }}
{{- if include "kgw.hasTls" $ }}
{{- $settings = append $settings (printf "ssl.keystore.location=/etc/kgw-tls/%s" .secretKey) }}
{{- if ne .clientAuth "none" }}
{{- $settings = append $settings (printf "ssl.client.auth=%s" .clientAuth) }}
{{- $settings = append $settings (printf "ssl.truststore.location=/etc/kgw-tls/%s" .caKey) }}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.security.superUsers }}
{{- $settings = append $settings (printf "super.users=%s" (join ";" .Values.security.superUsers)) }}
{{- end }}
{{- toYaml $settings }}
{{- end }}

{{- /* Settings as TOML: a JSON string, number, boolean or list of strings is TOML, too. */ -}}
{{- define "kgw.toml" -}}
{{- range $name, $value := .Values.settings }}
{{ toJson $name }} = {{ toJson $value }}
{{- end }}
{{- end }}

{{- /* What would be installed and not work as it looks is refused here. */ -}}
{{- define "kgw.check" -}}
{{- if ne (int .Values.replicas) 1 }}
{{- fail "replicas: one server serves what it keeps; with more than one, clients would find different records (docs/kubernetes.md)" }}
{{- end }}
{{- range list "listeners" "advertised.listeners" "log.dirs" "log.dir" "kgw.backend" "kgw.admin.listeners" "kgw.admin.token.file" "listener.security.protocol.map" "ssl.keystore.location" "ssl.truststore.location" "ssl.client.auth" "super.users" "kgw.listeners.without.login" }}
{{- if hasKey $.Values.settings . }}
{{- fail (printf "settings: %s is given by the chart itself; see service, external, persistence, backend, admin and security" .) }}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.settings }}
{{- if kindIs "map" $value }}
{{- fail (printf "settings: %s is no value; write names in full, as in num.partitions" $name) }}
{{- end }}
{{- if kindIs "invalid" $value }}
{{- fail (printf "settings: %s has no value" $name) }}
{{- end }}
{{- end }}
{{- with .Values.security }}
{{- if and (include "kgw.hasTls" $) (not .tls.existingSecret) }}
{{- fail (printf "security.tls.existingSecret is needed with %s: the private key and the certificates" .protocol) }}
{{- end }}
{{- if and .users.names (not .users.existingSecret) }}
{{- fail "security.users.existingSecret is needed with security.users.names: the passwords" }}
{{- end }}
{{- if and .users.names (not (include "kgw.hasLogin" $)) }}
{{- fail (printf "security.users.names: with %s nobody logs in" .protocol) }}
{{- end }}
{{- if and .users.names $.Values.backend }}
{{- fail "security.users.names: with a backend there is no volume to set users in; add them with kgw users" }}
{{- end }}
{{- if and (include "kgw.hasLogin" $) (not .users.names) (not $.Values.backend) }}
{{- fail (printf "security.users.names is needed with %s: nobody could log in" .protocol) }}
{{- end }}
{{- if and .rules (not (and .superUsers .clientSecret)) }}
{{- fail "security.rules: security.superUsers switches access rules on, and security.clientSecret says how one of them logs in" }}
{{- end }}
{{- end }}
{{- if has (int .Values.admin.port) (list 9092 9094) }}
{{- fail (printf "admin.port: %v is a port of Kafka's clients in the pod" .Values.admin.port) }}
{{- end }}
{{- $drain := index .Values.settings "kgw.shutdown.timeout.ms" | default 10000 }}
{{- if kindIs "string" $drain }}
{{- fail "settings: kgw.shutdown.timeout.ms has to be a number of milliseconds here: the time that the pod has is compared with it" }}
{{- end }}
{{- if lt (mul (int .Values.terminationGracePeriodSeconds) 1000) (add (int64 $drain) 15000) }}
{{- fail "terminationGracePeriodSeconds: kgw.shutdown.timeout.ms and 15 seconds more are needed" }}
{{- end }}
{{- if .Values.external.enabled }}
{{- if not .Values.external.host }}
{{- fail "external.host is needed: the name or address that clients outside are told to connect to" }}
{{- end }}
{{- if and (eq .Values.external.type "NodePort") (not .Values.external.nodePort) }}
{{- fail "external.nodePort is needed with NodePort: clients are told of it" }}
{{- end }}
{{- end }}
{{- end }}
