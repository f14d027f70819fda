{{- /* (context, kind, name, kind of role, role, namespace) */ -}}
{{- define "extender.binding" }}
{{- $ := index . 0 }}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ index . 1 }}
metadata:
  name: {{ index . 2 }}
  {{- with index . 5 }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "extender.labels" $ | nindent 4 }}
  annotations:
    {{- include "extender.kept" $ | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ index . 3 }}
  name: {{ index . 4 | quote }}
subjects:
- kind: ServiceAccount
  name: {{ include "extender.account" $ }}
  namespace: {{ $.Release.Namespace }}
{{- end }}

{{- /* What the pods need until they have ended, which is after helm has deleted the release. */ -}}
{{- define "extender.kept" -}}
helm.sh/resource-policy: keep
{{- end -}}
