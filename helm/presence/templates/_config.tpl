{{/* What the binaries are told, as the TOML of their --config. */}}

{{- define "presence.port" -}}
{{- dict "grpc" 4701 "core-admin" 4702 "ws" 4711 "edge-admin" 4712 | dig . 0 -}}
{{- end -}}

{{/* A port of this pod with its address. */}}
{{- define "presence.listener" -}}
{{- $host := .root.Values.listenAddress -}}
{{- if contains ":" $host }}{{ $host = printf "[%s]" $host }}{{ end -}}
{{ $host }}:{{ include "presence.port" .port }}
{{- end -}}

{{- define "presence.toml.scalar" -}}
{{- if kindIs "string" . -}}{{ . | toJson }}
{{- else if kindIs "bool" . -}}{{ . }}
{{- else if kindIs "slice" . -}}
[{{ range $place, $each := . }}{{ if $place }}, {{ end }}{{ include "presence.toml.scalar" $each }}{{ end }}]
{{- else if and (kindIs "float64" .) (ne (. | int64 | float64) .) -}}{{ . }}
{{- else -}}{{ . | int64 }}
{{- end -}}
{{- end -}}

{{- define "presence.toml.key" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . -}}{{ . }}{{ else }}{{ . | toJson }}{{ end -}}
{{- end -}}

{{/* A table, its own keys before its tables. Takes path and table. */}}
{{- define "presence.toml" -}}
{{- $path := .path -}}
{{- range $key, $value := .table -}}
{{- $isTables := and (kindIs "slice" $value) $value (kindIs "map" (first $value)) -}}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value) $isTables) }}
{{ include "presence.toml.key" $key }} = {{ include "presence.toml.scalar" $value }}
{{- end -}}
{{- end -}}
{{- range $key, $value := .table -}}
{{- $own := include "presence.toml.key" $key -}}
{{- $inner := ternary $own (printf "%s.%s" $path $own) (empty $path) -}}
{{- if and (kindIs "map" $value) $value }}

[{{ $inner }}]
{{- include "presence.toml" (dict "path" $inner "table" $value) -}}
{{- else if and (kindIs "slice" $value) $value (kindIs "map" (first $value)) -}}
{{- range $value }}{{ if kindIs "map" . }}

[[{{ $inner }}]]
{{- include "presence.toml" (dict "path" $inner "table" .) -}}
{{- end }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "presence.core.isTls" -}}
{{- if or .Values.core.tls.existingSecret .Values.certManager.enabled }}true{{ end -}}
{{- end -}}

{{- define "presence.core.tlsSecret" -}}
{{- default (printf "%s-core-tls" (include "presence.fullname" .)) .Values.core.tls.existingSecret -}}
{{- end -}}

{{/* Cores that the edges link to, separated by commas. */}}
{{- define "presence.edge.cores" -}}
{{- if .Values.edge.cores -}}{{ join "," .Values.edge.cores }}
{{- else -}}
{{ ternary "https" "http" (eq (include "presence.core.isTls" .) "true") }}://{{ include "presence.coreHost" . }}:{{ include "presence.port" "grpc" }}
{{- end -}}
{{- end -}}

{{- define "presence.edge.coreTlsSecret" -}}
{{- if .Values.edge.coreTls.existingSecret -}}{{ .Values.edge.coreTls.existingSecret }}
{{- else if .Values.certManager.enabled -}}{{ include "presence.fullname" . }}-edge-link-tls
{{- end -}}
{{- end -}}

{{/* By which name in their certificate the cores of this release know its edges; empty: they link elsewhere. */}}
{{- define "presence.edge.certificateName" -}}
{{- if and .Values.edge.enabled .Values.core.enabled (not .Values.edge.cores) -}}
{{- if .Values.edge.coreTls.existingSecret -}}{{ .Values.edge.coreTls.certificateName }}
{{- else if .Values.certManager.enabled -}}{{ include "presence.edge.ownName" . }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The name that cert-manager puts into the certificate of edges. */}}
{{- define "presence.edge.ownName" -}}
{{- default (printf "%s-edge.%s.svc" (include "presence.fullname" .) .Release.Namespace) .Values.edge.coreTls.certificateName -}}
{{- end -}}

{{/* Whether cores speak TLS to those of other regions. */}}
{{- define "presence.core.isPeerTls" -}}
{{- range .Values.core.peerRegions }}{{ if contains "https://" (join "," .cores) }}true{{ end }}{{ end -}}
{{- end -}}

{{/* What they show to those, and whom they trust: of a secret for it, or what they show to all others. */}}
{{- define "presence.core.coreTls" -}}
{{- $tls := .Values.core.coreTls -}}
{{- if $tls.existingSecret -}}
{{- $at := "/etc/presence/core-tls/" -}}
{{- dict "ca_file" (print $at $tls.caKey) "cert_file" (print $at $tls.certKey) "key_file" (print $at $tls.keyKey) | toJson -}}
{{- else if include "presence.core.isTls" . -}}
{{- $own := .Values.core.tls -}}
{{- $at := "/etc/presence/tls/" -}}
{{- dict "ca_file" (print $at $own.clientCaKey) "cert_file" (print $at $own.certKey) "key_file" (print $at $own.keyKey) | toJson -}}
{{- end -}}
{{- end -}}

{{/* Who may call the cores: a file that they follow. */}}
{{- define "presence.core.peers" -}}
{{- $edges := .Values.core.peers.edges -}}
{{- with include "presence.edge.certificateName" . -}}
{{- $names := list (printf "%s-edge-*" (include "presence.fullname" $)) -}}
{{- $edges = prepend $edges (dict "certificate" . "names" $names "regions" (list $.Values.region)) -}}
{{- end -}}
{{- $cores := list -}}
{{- range .Values.core.peerRegions }}{{ $cores = append $cores (dict "certificate" .certificate "regions" (list .region)) }}{{ end -}}
{{- $table := dict -}}
{{- range $kind, $named := dict "edge" $edges "service" .Values.core.peers.services "core" $cores -}}
{{- with $named }}{{ $_ := set $table $kind . }}{{ end -}}
{{- end -}}
{{- include "presence.toml" (dict "path" "" "table" $table) | trim -}}
{{- end -}}

{{/* What both have, as YAML. */}}
{{- define "presence.sharedConfig" -}}
{{- $timing := dict -}}
{{- range $key, $value := .Values.timing }}{{ if $value }}{{ $_ := set $timing $key $value }}{{ end }}{{ end -}}
region: {{ .Values.region | quote }}
{{- $keys := .Values.jwks.urls -}}
{{- if and .Values.jwks.key (or .Values.jwks.existingSecret .Values.jwks.existingConfigMap) }}
{{- $keys = prepend $keys (printf "/etc/presence/jwks/%s" .Values.jwks.key) -}}
{{- end }}
{{- with $keys }}
jwks: {{ ternary (first .) . (eq (len .) 1) | toJson }}
{{- end }}
{{- with .Values.jwks.caKey }}
jwks_ca: {{ printf "/etc/presence/jwks/%s" . | quote }}
{{- end }}
{{- with $timing }}
timing: {{ . | toJson }}
{{- end }}
{{- end -}}

{{- define "presence.core.config" -}}
{{- $config := include "presence.sharedConfig" . | fromYaml -}}
{{- $_ := set $config "grpc" (include "presence.listener" (dict "root" . "port" "grpc")) -}}
{{- $_ := set $config "admin" (include "presence.listener" (dict "root" . "port" "core-admin")) -}}
{{- if .Values.core.insecure }}{{ $_ := set $config "insecure" true }}{{ end -}}
{{- if include "presence.core.isTls" . -}}
{{- $at := "/etc/presence/tls/" -}}
{{- $tls := .Values.core.tls -}}
{{- $_ := set $config "tls" (dict "cert_file" (print $at $tls.certKey) "key_file" (print $at $tls.keyKey) "client_ca_file" (print $at $tls.clientCaKey) "client_auth" $tls.clientAuth) -}}
{{- $_ := set $config "peers" "/etc/presence/config/peers.toml" -}}
{{- end -}}
{{- with .Values.core.edgeRegions }}{{ $_ := set $config "edge_regions" . }}{{ end -}}
{{- $peers := list -}}
{{- range $peer := .Values.core.peerRegions -}}
{{- range .cores }}{{ $peers = append $peers (printf "%s=%s" $peer.region .) }}{{ end -}}
{{- end -}}
{{- with $peers }}{{ $_ := set $config "peer" . }}{{ end -}}
{{- if include "presence.core.isPeerTls" . -}}
{{- with include "presence.core.coreTls" . }}{{ $_ := set $config "core_tls" (fromJson .) }}{{ end -}}
{{- end -}}
{{- $store := dict "url" .Values.store.url "prefix" .Values.store.prefix "shards" .Values.store.shards -}}
{{- with .Values.store.user }}{{ $_ := set $store "user" . }}{{ end -}}
{{- if .Values.store.existingSecret -}}
{{- with .Values.store.passwordKey }}{{ $_ := set $store "password_file" (print "/etc/presence/store/" .) }}{{ end -}}
{{- with .Values.store.sentinelPasswordKey }}{{ $_ := set $store "sentinel_password_file" (print "/etc/presence/store/" .) }}{{ end -}}
{{- end -}}
{{- if .Values.store.tls.existingSecret -}}
{{- range $setting, $key := dict "ca_file" .Values.store.tls.caKey "cert_file" .Values.store.tls.certKey "key_file" .Values.store.tls.keyKey -}}
{{- if $key }}{{ $_ := set $store $setting (print "/etc/presence/store-tls/" $key) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $_ := set $config "store" $store -}}
{{- include "presence.toml" (dict "path" "" "table" (mustMergeOverwrite $config (deepCopy .Values.core.config))) | trim -}}
{{- end -}}

{{- define "presence.edge.config" -}}
{{- $config := include "presence.sharedConfig" . | fromYaml -}}
{{- $_ := set $config "listen" (include "presence.listener" (dict "root" . "port" "ws")) -}}
{{- $_ := set $config "admin" (include "presence.listener" (dict "root" . "port" "edge-admin")) -}}
{{- $_ := set $config "core" (splitList "," (include "presence.edge.cores" .)) -}}
{{- $_ := set $config "client_address" .Values.edge.clientAddress -}}
{{- $_ := set $config "connections_max" .Values.edge.connectionsMax -}}
{{- with .Values.edge.origins }}{{ $_ := set $config "origins" . }}{{ end -}}
{{- with .Values.edge.trustedProxies }}{{ $_ := set $config "trusted_proxies" . }}{{ end -}}
{{- if .Values.edge.insecure }}{{ $_ := set $config "insecure" true }}{{ end -}}
{{- if .Values.edge.tls.existingSecret -}}
{{- $at := "/etc/presence/tls/" -}}
{{- $_ := set $config "tls" (dict "cert_file" (print $at .Values.edge.tls.certKey) "key_file" (print $at .Values.edge.tls.keyKey)) -}}
{{- end -}}
{{- if include "presence.edge.coreTlsSecret" . -}}
{{- $tls := dict -}}
{{- range $setting, $key := dict "ca_file" .Values.edge.coreTls.caKey "cert_file" .Values.edge.coreTls.certKey "key_file" .Values.edge.coreTls.keyKey -}}
{{- if $key }}{{ $_ := set $tls $setting (print "/etc/presence/core-tls/" $key) }}{{ end -}}
{{- end -}}
{{- $_ := set $config "core_tls" $tls -}}
{{- end -}}
{{- include "presence.toml" (dict "path" "" "table" (mustMergeOverwrite $config (deepCopy .Values.edge.config))) | trim -}}
{{- end -}}
