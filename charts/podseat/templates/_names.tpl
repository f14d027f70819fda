{{- define "extender.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (default .Chart.Name .Values.nameOverride) .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name (default .Chart.Name .Values.nameOverride) | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "extender.account" -}}
{{ default (ternary (include "extender.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name }}
{{- end -}}

{{- define "extender.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "extender.labels" -}}
{{ include "extender.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "extender.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end -}}
{{- end -}}

{{- /* The folder of the documentation, in the chart's home if it has one. */ -}}
{{- define "extender.docs" -}}
{{ with .Chart.Home }}{{ . }}/blob/HEAD/{{ end }}docs
{{- end -}}

{{- /* The kube-scheduler's tag; without one the cluster's version, less what a provider adds to it. */ -}}
{{- define "extender.kubeSchedulerTag" -}}
{{ default (regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version) .Values.kubeScheduler.image.tag }}
{{- end -}}
