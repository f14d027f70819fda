{{- /* The extender's entry under `extenders`: named by node names, for in-tree scores are wrong without (kubernetes#141781). */ -}}
{{- define "extender.entry" -}}
filterVerb: filter
prioritizeVerb: prioritize
preemptVerb: preempt
bindVerb: bind
weight: 1
nodeCacheCapable: true
httpTimeout: 5s
ignorable: false
{{- if eq .Values.shape "beside" }}
urlPrefix: http://127.0.0.1:8888/scheduler
{{- else }}
urlPrefix: https://{{ include "extender.fullname" . }}.{{ .Release.Namespace }}.svc:{{ .Values.service.port }}/scheduler
enableHTTPS: true
tlsConfig:
  caFile: /etc/extender/tls/ca.crt
  serverName: {{ include "extender.fullname" . }}.{{ .Release.Namespace }}.svc
  certFile: /etc/extender/tls/tls.crt
  keyFile: /etc/extender/tls/tls.key
{{- end }}
{{- end -}}

{{- define "extender.kubeSchedulerConfiguration" -}}
{{- $entry := mergeOverwrite (include "extender.entry" . | fromYaml) .Values.kubeScheduler.extender }}
{{- $configuration := dict
  "apiVersion" "kubescheduler.config.k8s.io/v1"
  "kind" "KubeSchedulerConfiguration"
  "percentageOfNodesToScore" 100
  "leaderElection" (dict "leaderElect" true "resourceNamespace" .Release.Namespace "resourceName" (printf "%s-kube-scheduler" (include "extender.fullname" .)))
  "profiles" (list (dict "schedulerName" (include "extender.schedulerName" .)))
  "extenders" (list $entry) }}
{{- if eq .Values.shape "service" }}
{{- $_ := set $configuration "leaderElection" (dict "leaderElect" true) }}
{{- $_ := unset $configuration "profiles" }}
{{- end }}
{{- toYaml (mergeOverwrite $configuration .Values.kubeScheduler.configuration) }}
{{- end -}}
