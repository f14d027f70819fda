{{- define "extender.container" -}}
name: extender
image: {{ include "extender.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
{{- include "extender.args" . | nindent 0 }}
{{- if and .Values.preemptForRules (ne .Values.shape "scheduler") }}
- --preempt-for-rules
{{- end }}
{{- if ne .Values.onRuleFailure "fail" }}
- --on-rule-failure={{ .Values.onRuleFailure }}
{{- end }}
{{- if and .Values.coscheduling (ne .Values.shape "scheduler") }}
- --coscheduling
{{- end }}
{{- with .Values.extraArgs }}
{{- toYaml . | nindent 0 }}
{{- end }}
env:
- name: EXTENDER_OWN_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- if eq .Values.shape "service" }}
- name: EXTENDER_OWN_ADDRESS
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- end }}
{{- with .Values.extraEnv }}
{{- toYaml . | nindent 0 }}
{{- end }}
ports:
{{- if eq .Values.shape "service" }}
- {name: https, containerPort: {{ .Values.service.port }}}
{{- end }}
- {name: metrics, containerPort: {{ .Values.metrics.port }}}
{{- $probe := dict "port" "metrics" }}
{{- if include "extender.scrapers" . }}
{{- $_ := set $probe "scheme" "HTTPS" }}
{{- end }}
{{- $live := dict "httpGet" (merge (dict "path" "/livez") $probe) }}
{{- $ready := dict "httpGet" (merge (dict "path" "/readyz") $probe) }}
{{- /* The first list of a large cluster takes a while; a kube-scheduler beside is started when it is over. */}}
startupProbe:
{{- $startup := deepCopy (ternary $ready $live (eq .Values.shape "beside")) }}
{{- toYaml (mergeOverwrite $startup (dict "periodSeconds" 1 "failureThreshold" 300) .Values.probes.startup) | nindent 2 }}
livenessProbe:
{{- toYaml (mergeOverwrite $live (dict "periodSeconds" 10 "timeoutSeconds" 5) .Values.probes.liveness) | nindent 2 }}
readinessProbe:
{{- toYaml (mergeOverwrite $ready (dict "periodSeconds" 2 "timeoutSeconds" 2) .Values.probes.readiness) | nindent 2 }}
resources:
{{- toYaml .Values.resources | nindent 2 }}
securityContext:
{{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
- {name: tmp, mountPath: /tmp}
{{- if include "extender.policyConfigMap" . }}
- {name: policy, mountPath: /etc/extender/policy, readOnly: true}
{{- end }}
{{- if eq .Values.shape "service" }}
- {name: tls, mountPath: /etc/extender/tls, readOnly: true}
{{- if include "extender.scrapers" . }}
- {name: scrapers, mountPath: /etc/extender/scrapers, readOnly: true}
{{- end }}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{- /* The Secret with the authority of those who scrape; "" where anybody may. */ -}}
{{- define "extender.scrapers" -}}
{{- if eq .Values.shape "service" -}}
{{ .Values.metrics.clientCASecret }}
{{- end -}}
{{- end -}}

{{- define "extender.args" -}}
{{- if eq .Values.shape "scheduler" -}}
- schedule
- --bind={{ .Values.listenAddress }}:{{ .Values.metrics.port }}
- --leader-elect
- --lease-namespace=$(EXTENDER_OWN_NAMESPACE)
- --lease-name={{ include "extender.fullname" . }}
{{- if not (include "extender.policyConfigMap" .) }}
- --scheduler-name={{ include "extender.schedulerName" . }}
{{- end }}
{{- else -}}
- serve
- --metrics-bind={{ .Values.listenAddress }}:{{ .Values.metrics.port }}
{{- range $key, $value := include "extender.selector" . | fromYaml }}
- --own-labels={{ $key }}={{ $value }}
{{- end }}
{{- if eq .Values.shape "beside" }}
- --bind=127.0.0.1:8888
- --drain-seconds=0 # kube-scheduler has ended before
- --leader-elect
- --lease-name={{ include "extender.fullname" . }}
- --lease-follows-calls
{{- else }}
- --bind={{ .Values.listenAddress }}:{{ .Values.service.port }}
- --tls-cert=/etc/extender/tls/tls.crt
- --tls-key=/etc/extender/tls/tls.key
- --client-ca=/etc/extender/tls/ca.crt
{{- range .Values.service.clientNames }}
- --client-names={{ . }}
{{- end }}
{{- if include "extender.scrapers" . }}
- --metrics-client-ca=/etc/extender/scrapers/ca.crt
{{- end }}
- --leader-elect
- --lease-name={{ include "extender.fullname" . }}
- --leader-service={{ include "extender.fullname" . }}
{{- end }}
{{- end }}
{{- with include "extender.featureGates" . }}
{{ . }}
{{- end }}
{{- if ne .Values.kubernetesVersion "auto" }}
- --kubernetes-version={{ .Values.kubernetesVersion }}
{{- end }}
{{- if include "extender.policyConfigMap" . }}
- --policy=/etc/extender/policy/policy.yaml
{{- end }}
{{- end -}}
