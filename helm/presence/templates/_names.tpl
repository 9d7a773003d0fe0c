{{/* Names, labels and the image. */}}

{{/* The beginning of all names: short enough for what Kubernetes appends to the names of pods. What is cut ends in a sum
of the whole, as two releases may begin alike. */}}
{{- define "presence.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := .Values.fullnameOverride -}}
{{- if not $full -}}
{{- $full = ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- end -}}
{{- if gt (len $full) 40 -}}
{{- $full = printf "%s-%s" ($full | trunc 31 | trimSuffix "-") (sha256sum $full | trunc 8) -}}
{{- end -}}
{{- $full | trimSuffix "-" -}}
{{- end -}}

{{- define "presence.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{- define "presence.labels" -}}
{{- $own := include "presence.selector" . | fromYaml -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- $_ := set $own "app.kubernetes.io/part-of" "presence" -}}
{{- with .root.Chart.AppVersion }}{{ $_ := set $own "app.kubernetes.io/version" (. | replace "+" "_" | trunc 63 | trimSuffix "-") }}{{ end -}}
{{- merge $own .root.Values.commonLabels | toYaml -}}
{{- end -}}

{{/* The annotations of an object: its own, and those of everything. */}}
{{- define "presence.annotations" -}}
{{- with merge (dict) (default dict .own) .root.Values.commonAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
{{- end }}
{{- end -}}

{{- define "presence.serviceAccount" -}}
{{- if .Values.serviceAccount.name }}{{ .Values.serviceAccount.name }}
{{- else if .Values.serviceAccount.create }}{{ include "presence.fullname" . }}
{{- else }}default{{ end -}}
{{- end -}}

{{/* An image by digest if there is one. Takes image, and the tag that stands for none. */}}
{{- define "presence.image" -}}
{{- $name := .image.repository -}}
{{- with .image.registry }}{{ $name = printf "%s/%s" . $name }}{{ end -}}
{{- if .image.digest }}{{ printf "%s@%s" $name .image.digest }}{{ else }}{{ printf "%s:%s" $name (default .tag .image.tag) }}{{ end -}}
{{- end -}}

{{/* Where edges find the cores of this release: one name for all their addresses. */}}
{{- define "presence.coreHost" -}}
{{ include "presence.fullname" . }}-core.{{ .Release.Namespace }}.svc
{{- end -}}
