{{- define "extender.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (default .Chart.Name .Values.nameOverride) .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name (default .Chart.Name .Values.nameOverride) | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- /* Objects without a namespace have it in their name, so that a release of the same name may be in each namespace. */ -}}
{{- define "extender.clusterName" -}}
{{ .Release.Namespace }}:{{ include "extender.fullname" . }}
{{- end -}}

{{- define "extender.schedulerName" -}}
{{ default (printf "%s-scheduler" (include "extender.fullname" . | trimSuffix "-scheduler")) .Values.schedulerName }}
{{- end -}}

{{- /* The name under which the release places pods: in the shape scheduler, a policy names it. */ -}}
{{- define "extender.placedName" -}}
{{- $profile := first (default (list dict) .Values.policy.profiles) -}}
{{- if and (eq .Values.shape "scheduler") .Values.policy -}}
{{ default "default-scheduler" $profile.schedulerName }}
{{- else -}}
{{ include "extender.schedulerName" . }}
{{- end -}}
{{- end -}}

{{- /* The Secret of the server. `extender certs` names it like this after the Service. */ -}}
{{- define "extender.tlsSecret" -}}
{{ default (printf "%s-tls" (include "extender.fullname" .)) .Values.service.secretName }}
{{- end -}}

{{- /* The Lease that a leader creates when kube-scheduler calls it. */ -}}
{{- define "extender.calledLease" -}}
{{ include "extender.fullname" . }}-called-by-kube-scheduler
{{- end -}}

{{- define "extender.policyConfigMap" -}}
{{ default (ternary (printf "%s-policy" (include "extender.fullname" .)) "" (not (empty .Values.policy))) .Values.policyConfigMap }}
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
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
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

{{- /* kube-scheduler's image; without a tag, of the cluster's version, less what a provider adds to it. */ -}}
{{- define "extender.kubeSchedulerImage" -}}
{{- with .Values.kubeScheduler.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ default (regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" $.Capabilities.KubeVersion.Version) .tag }}{{ end }}
{{- end -}}
{{- end -}}

{{- define "extender.featureGates" -}}
{{- $gates := list -}}
{{- range $gate, $value := .Values.featureGates }}{{ $gates = append $gates (printf "%s=%t" $gate $value) }}{{ end -}}
{{ with $gates }}- --feature-gates={{ join "," . }}{{ end }}
{{- end -}}
