{{/* What the pods of cores, edges and the test have in common, and the Deployment of a component. */}}

{{- define "presence.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
{{- with .Values.runAsUser }}
  runAsUser: {{ . | int64 }}
  runAsGroup: {{ . | int64 }}
  fsGroup: {{ . | int64 }}
{{- end }}
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "presence.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* How long a drain takes at most beyond the sleep before it: an edge moves its clients in 30 s, and has 10 s for
everything else; a core waits 10 s for edges and watchers, and has 10 s as well. */}}
{{- define "presence.drainSeconds" -}}
{{- dict "edge" 40 "core" 20 | dig . 0 -}}
{{- end -}}

{{/* With 5 s to spare. */}}
{{- define "presence.terminationGrace" -}}
{{- $own := index .root.Values .component -}}
{{- default (add $own.preStopSeconds (include "presence.drainSeconds" .component) 5) $own.terminationGracePeriodSeconds | int64 -}}
{{- end -}}

{{/* Volumes with their mounts: each item has name, at, and source as YAML. */}}
{{- define "presence.volumes" -}}
{{- $full := include "presence.fullname" .root -}}
{{- $values := .root.Values -}}
items:
  - name: config
    at: /etc/presence/config
    source: { configMap: { name: {{ $full }}-{{ .component }} } }
{{- if $values.jwks.existingSecret }}
  - name: jwks
    at: /etc/presence/jwks
    source: { secret: { secretName: {{ $values.jwks.existingSecret | quote }}, defaultMode: 0440 } }
{{- else if $values.jwks.existingConfigMap }}
  - name: jwks
    at: /etc/presence/jwks
    source: { configMap: { name: {{ $values.jwks.existingConfigMap | quote }} } }
{{- end }}
{{- $secrets := dict -}}
{{- if eq .component "core" -}}
{{- if include "presence.core.isTls" .root }}{{ $_ := set $secrets "tls" (include "presence.core.tlsSecret" .root) }}{{ end -}}
{{- with $values.core.coreTls.existingSecret }}{{ $_ := set $secrets "core-tls" . }}{{ end -}}
{{- with $values.store.existingSecret }}{{ $_ := set $secrets "store" . }}{{ end -}}
{{- with $values.store.tls.existingSecret }}{{ $_ := set $secrets "store-tls" . }}{{ end -}}
{{- else -}}
{{- with $values.edge.tls.existingSecret }}{{ $_ := set $secrets "tls" . }}{{ end -}}
{{- with include "presence.edge.coreTlsSecret" .root }}{{ $_ := set $secrets "core-tls" . }}{{ end -}}
{{- end -}}
{{- range $name, $secret := $secrets }}
  - name: {{ $name }}
    at: /etc/presence/{{ $name }}
    source: { secret: { secretName: {{ $secret | quote }}, defaultMode: 0440 } }
{{- end }}
{{- end -}}

{{/* Takes root, component (`core`, `edge`), listener (the name of its port) and nameVariable, which tells a pod its name. */}}
{{- define "presence.deployment" -}}
{{- $root := .root -}}
{{- $component := .component -}}
{{- $own := index $root.Values $component -}}
{{- $full := include "presence.fullname" $root -}}
{{- $scaled := and (eq $component "edge") $root.Values.edge.autoscaling.enabled -}}
{{- $alone := and (eq $component "core") (eq $root.Values.store.url "memory") -}}
{{- $volumes := (include "presence.volumes" . | fromYaml).items -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $full }}-{{ $component }}
  labels: {{- include "presence.labels" . | nindent 4 }}
{{- include "presence.annotations" (dict "root" .root) }}
spec:
{{- if not $scaled }}
  replicas: {{ $own.replicas }}
{{- end }}
  revisionHistoryLimit: 5
{{- if $alone }}
  strategy:
    type: Recreate
{{- else }}
  # The next pod goes once everybody has heard of the new one: edges look for cores every 5 s.
  minReadySeconds: 10
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
{{- end }}
  selector:
    matchLabels: {{- include "presence.selector" . | nindent 6 }}
  template:
    metadata:
      # No versions: a chart that only says something else about itself restarts nobody.
      labels: {{- merge (include "presence.selector" . | fromYaml) $own.podLabels $root.Values.commonLabels | toYaml | nindent 8 }}
      annotations:
        checksum/config: {{ include (printf "presence.%s.config" $component) $root | sha256sum }}
{{- with $own.podAnnotations }}{{ toYaml . | nindent 8 }}{{ end }}
    spec:
      serviceAccountName: {{ include "presence.serviceAccount" $root | quote }}
      {{- include "presence.podSecurity" $root | nindent 6 }}
      terminationGracePeriodSeconds: {{ include "presence.terminationGrace" . }}
      containers:
        - name: {{ $component }}
          image: {{ include "presence.image" (dict "image" $root.Values.image "tag" $root.Chart.AppVersion) | quote }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy | quote }}
          command: [/usr/local/bin/presence-{{ $component }}]
          args:
            - --config=/etc/presence/config/{{ $component }}.toml
            - --log-format={{ $root.Values.log.format }}
{{- with $root.Values.log.filter }}
            - {{ printf "--log=%s" . | quote }}
{{- end }}
          env:
            - name: {{ .nameVariable }}
              valueFrom:
                fieldRef:
                  fieldPath: metadata.name
{{- with $own.extraEnv }}{{ toYaml . | nindent 12 }}{{ end }}
          ports:
            - name: {{ .listener }}
              containerPort: {{ include "presence.port" .listener }}
            - name: admin
              containerPort: {{ include "presence.port" (printf "%s-admin" $component) }}
          startupProbe:
            httpGet: { path: /livez, port: admin }
            periodSeconds: 2
            failureThreshold: 150
          livenessProbe:
            httpGet: { path: /livez, port: admin }
            periodSeconds: 10
            timeoutSeconds: 3
            failureThreshold: 6
          readinessProbe:
            httpGet: { path: /readyz, port: admin }
            periodSeconds: 2
            timeoutSeconds: 2
            failureThreshold: 2
{{- with int64 $own.preStopSeconds }}
          lifecycle:
            preStop:
              sleep:
                seconds: {{ . }}
{{- end }}
          resources: {{- toYaml $own.resources | nindent 12 }}
          {{- include "presence.containerSecurity" . | nindent 10 }}
          volumeMounts:
{{- range $volumes }}
            - { name: {{ .name }}, mountPath: {{ .at }}, readOnly: true }
{{- end }}
{{- with $own.extraVolumeMounts }}{{ toYaml . | nindent 12 }}{{ end }}
      volumes:
{{- range $volumes }}
        - name: {{ .name }}
          {{- .source | toYaml | nindent 10 }}
{{- end }}
{{- with $own.extraVolumes }}{{ toYaml . | nindent 8 }}{{ end }}
{{- with $own.topologySpread }}
{{- if .enabled }}
      topologySpreadConstraints:
        - maxSkew: {{ .maxSkew }}
          topologyKey: {{ .topologyKey }}
          whenUnsatisfiable: {{ .whenUnsatisfiable }}
          labelSelector:
            matchLabels: {{- include "presence.selector" (dict "root" $root "component" $component) | nindent 14 }}
          matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end }}
{{- range $key, $value := pick $own "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- if $value }}
      {{ $key }}: {{- ternary (print " " (toJson $value)) (toYaml $value | nindent 8) (kindIs "string" $value) }}
{{- end }}
{{- end }}
{{- end -}}
