{{- /* What the schema cannot express: values that contradict each other, or the cluster. Each message begins with the value's name. */ -}}
{{- define "extender.checks" -}}
{{- $v := .Values -}}
{{- $name := include "extender.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) }}
{{- fail (printf "fullnameOverride: %q cannot be the name of a Service, which begins with a letter; set another" $name) }}
{{- end }}
{{- if and $v.rules (not $v.policy) }}
{{- fail "rules: name them in policy, or nothing reads them" }}
{{- end }}
{{- if and $v.policy $v.policyConfigMap }}
{{- fail "policyConfigMap: policy is set too; set one of them" }}
{{- end }}
{{- if and (eq $v.shape "service") (eq (int $v.metrics.port) (int $v.service.port)) }}
{{- fail (printf "metrics.port: %d is service.port too; set another" (int $v.metrics.port)) }}
{{- end }}
{{- if and (eq $v.shape "beside") (has (int $v.metrics.port) (list 8888 10259)) }}
{{- fail (printf "metrics.port: %d is taken in the pod, by %s; set another" (int $v.metrics.port) (ternary "the verbs" "kube-scheduler" (eq (int $v.metrics.port) 8888))) }}
{{- end }}
{{- if and (eq $v.shape "beside") $v.hostNetwork }}
{{- fail "hostNetwork: not in the shape beside, where every process on the node could call the verbs" }}
{{- end }}
{{- if and $v.resourceQuota.enabled (not $v.priorityClassName) }}
{{- fail "resourceQuota.enabled: the quota is for priorityClassName, which is empty" }}
{{- end }}
{{- if and $v.certManager.enabled (gt (len (first $v.service.clientNames)) 64) }}
{{- fail "service.clientNames: the first is the common name of a certificate, which has at most 64 characters" }}
{{- end }}
{{- if and (eq $v.shape "service") (not $v.certManager.enabled) $v.certManager.issuerRef }}
{{- fail "certManager.issuerRef: certManager.enabled is false, so nothing uses it" }}
{{- end }}
{{- if and (ne $v.shape "service") (lookup "coordination.k8s.io/v1" "Lease" .Release.Namespace (include "extender.calledLease" .)) }}
{{- fail (printf "shape: kube-scheduler calls this release, and would wait for it with every pod. Take the entry out of its configuration, then: kubectl -n %s delete lease %s" .Release.Namespace (include "extender.calledLease" .)) }}
{{- end }}
{{- end -}}
