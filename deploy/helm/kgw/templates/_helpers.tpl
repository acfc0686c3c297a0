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
{{- range list "listeners" "advertised.listeners" "log.dirs" "log.dir" "kgw.backend" "kgw.admin.listeners" "kgw.admin.token.file" "kgw.listeners.without.login" }}
{{- if hasKey $.Values.settings . }}
{{- fail (printf "settings: %s is given by the chart itself; see service, external, persistence, backend and admin" .) }}
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
