{{/* What Kubernetes, or an operator that takes over, would refuse or read otherwise only once all this is applied. */}}

{{- define "presence.forms" -}}
quantity: { form: '^([0-9]+(\.[0-9]*)?|\.[0-9]+)(n|u|m|k|Ki|[MGTPE]i?|[eE][-+]?[0-9]+)?$', rule: "a quantity; examples: 500m, 512Mi" }
secretKey: { form: '^[-_a-zA-Z0-9][-._a-zA-Z0-9]*$', most: 253, rule: "the key of a Secret: letters, digits, hyphens, dots and underscores; example: tls.crt" }
label: { form: '^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$', rule: "the value of a label: at most 63 letters, digits, hyphens, dots and underscores" }
labelKey: { form: '^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$', rule: "the name of a label: at most 63 letters, digits, hyphens, dots and underscores, perhaps behind a domain and a slash; example: example.com/team" }
annotationKey: { form: '^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$', rule: "the name of an annotation: at most 63 letters, digits, hyphens, dots and underscores, perhaps behind a domain and a slash; example: example.com/team" }
host: { form: '^(\*\.)?[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$', most: 253, rule: "a host name in small letters, without scheme or port; example: presence.example" }
network: { form: '^((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3}/([0-9]|[12][0-9]|3[0-2])|[0-9a-fA-F.]*:[0-9a-fA-F:.]+/([0-9]|[1-9][0-9]|1[01][0-9]|12[0-8]))$', rule: "a network; example: 10.0.0.0/8" }
proxy: { form: '^((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3}(/([0-9]|[12][0-9]|3[0-2]))?|[0-9a-fA-F.]*:[0-9a-fA-F:.]+(/([0-9]|[1-9][0-9]|1[01][0-9]|12[0-8]))?)$', rule: "an address, or a network such as 10.0.0.0/8" }
goDuration: { form: '^([0-9]+(\.[0-9]+)?(h|m|s|ms|us|ns))+$', rule: "a duration in h, m and s, as cert-manager takes it; example: 2160h" }
scrapeDuration: { form: '^([0-9]+(ms|s|m|h|d))+$', rule: "a duration as Prometheus takes it; example: 30s" }
routeDuration: { form: '^([0-9]{1,5}(h|m|s|ms)){1,4}$', rule: "a duration as Gateway API takes it; example: 1h" }
{{- end -}}

{{- define "presence.formed" -}}
{{- $form := index (include "presence.forms" . | fromYaml) .kind -}}
{{- if gt (len (toString .value)) (int (default 1000 $form.most)) -}}
{{- include "presence.refuse" (dict "told" .told "line" (printf "%s = %q: must have at most %d characters" .path .value (int $form.most))) -}}
{{- end -}}
{{- include "presence.mustBe" (merge (dict "form" $form.form "rule" $form.rule) .) -}}
{{- end -}}

{{- define "presence.checks.forms" -}}
{{- $told := .told -}}
{{- $values := .root.Values -}}
{{- $keys := dict "jwks.key" $values.jwks.key "jwks.caKey" $values.jwks.caKey "store.passwordKey" $values.store.passwordKey "store.sentinelPasswordKey" $values.store.sentinelPasswordKey "test.tokenKey" $values.test.tokenKey "test.caKey" $values.test.caKey -}}
{{- range $path, $table := dict "store.tls" $values.store.tls "core.tls" $values.core.tls "core.coreTls" $values.core.coreTls "edge.tls" $values.edge.tls "edge.coreTls" $values.edge.coreTls -}}
{{- range $key, $value := $table }}{{ if hasSuffix "Key" $key }}{{ $_ := set $keys (printf "%s.%s" $path $key) $value }}{{ end }}{{ end -}}
{{- end -}}
{{- range $path, $value := $keys -}}
{{- include "presence.formed" (dict "told" $told "kind" "secretKey" "path" $path "value" $value) -}}
{{- end -}}
{{- range $path, $labels := dict "commonLabels" $values.commonLabels "core.podLabels" $values.core.podLabels "edge.podLabels" $values.edge.podLabels -}}
{{- range $key, $value := $labels -}}
{{- include "presence.formed" (dict "told" $told "kind" "labelKey" "path" $path "value" $key) -}}
{{- include "presence.formed" (dict "told" $told "kind" "label" "path" (printf "%s.%s" $path $key) "value" $value) -}}
{{- end -}}
{{- end -}}
{{- range $path, $annotations := dict "commonAnnotations" $values.commonAnnotations "core.podAnnotations" $values.core.podAnnotations "edge.podAnnotations" $values.edge.podAnnotations "serviceAccount.annotations" $values.serviceAccount.annotations "edge.service.annotations" $values.edge.service.annotations "edge.ingress.annotations" $values.edge.ingress.annotations "core.external.annotations" $values.core.external.annotations -}}
{{- range $key, $_ := $annotations }}{{ include "presence.formed" (dict "told" $told "kind" "annotationKey" "path" $path "value" $key) }}{{ end -}}
{{- end -}}
{{- range $path, $hosts := dict "edge.ingress.host" (list $values.edge.ingress.host) "edge.gateway.hostnames" $values.edge.gateway.hostnames "core.external.gateway.hostnames" $values.core.external.gateway.hostnames -}}
{{- range $hosts }}{{ include "presence.formed" (dict "told" $told "kind" "host" "path" $path "value" .) }}{{ end -}}
{{- end -}}
{{- range $path, $networks := dict "edge.service.loadBalancerSourceRanges" $values.edge.service.loadBalancerSourceRanges "core.external.loadBalancerSourceRanges" $values.core.external.loadBalancerSourceRanges -}}
{{- range $networks }}{{ include "presence.formed" (dict "told" $told "kind" "network" "path" $path "value" .) }}{{ end -}}
{{- end -}}
{{- if $values.certManager.enabled -}}
{{- range $key := list "duration" "renewBefore" }}{{ include "presence.formed" (dict "told" $told "kind" "goDuration" "path" (printf "certManager.%s" $key) "value" (index $values.certManager $key)) }}{{ end -}}
{{- end -}}
{{- include "presence.formed" (dict "told" $told "kind" "scrapeDuration" "path" "metrics.serviceMonitor.interval" "value" $values.metrics.serviceMonitor.interval) -}}
{{- include "presence.formed" (dict "told" $told "kind" "routeDuration" "path" "edge.gateway.requestTimeout" "value" $values.edge.gateway.requestTimeout) -}}
{{- end -}}

{{/* What is given of a component's pods beside what the chart has. Takes told, root, component. */}}
{{- define "presence.checks.forms.pods" -}}
{{- $told := .told -}}
{{- $component := .component -}}
{{- $own := index .root.Values $component -}}
{{- $budget := $own.podDisruptionBudget -}}
{{- if and $budget.enabled (not (regexMatch "^([1-9][0-9]*|[1-9][0-9]?%|100%)$" (toString $budget.maxUnavailable))) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "%s.podDisruptionBudget.maxUnavailable = %v: must be at least 1, or a share such as 25%%, else no node can ever be drained" $component $budget.maxUnavailable)) -}}
{{- end -}}
{{- range $kind := list "requests" "limits" -}}
{{- range $resource, $amount := dig $kind dict (default dict $own.resources) -}}
{{- include "presence.formed" (dict "told" $told "kind" "quantity" "path" (printf "%s.resources.%s.%s" $component $kind $resource) "value" (toString $amount)) -}}
{{- end -}}
{{- end -}}
{{- if hasKey (default dict $own.podAnnotations) "checksum/config" -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "%s.podAnnotations.checksum/config: is the chart's own, by which pods are replaced when their configuration changes" $component)) -}}
{{- end -}}
{{- $names := list (ternary "PRESENCE_EDGE__EDGE" "PRESENCE_CORE__NAME" (eq $component "edge")) -}}
{{- range $own.extraEnv -}}
{{- if has .name $names -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "%s.extraEnv: %s is given twice, or is the chart's own" $component .name)) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- $names = list "config" "jwks" "tls" "core-tls" "store" "store-tls" -}}
{{- range $own.extraVolumes -}}
{{- if has .name $names -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "%s.extraVolumes: %s is given twice, or is the name of one of the chart's own: %s" $component .name (join ", " (slice $names 0 6)))) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- $places := list "/etc/presence/config" "/etc/presence/jwks" "/etc/presence/tls" "/etc/presence/core-tls" "/etc/presence/store" "/etc/presence/store-tls" -}}
{{- range $own.extraVolumeMounts -}}
{{- $place := trimSuffix "/" (toString .mountPath) -}}
{{- if has $place $places -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "%s.extraVolumeMounts: %s is given twice, or is where the chart has one of its own" $component $place)) -}}
{{- end -}}
{{- if not (has .name $names) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "%s.extraVolumeMounts: %v is the name of no volume: give it in %s.extraVolumes" $component .name $component)) -}}
{{- end -}}
{{- $places = append $places $place -}}
{{- end -}}
{{- include "presence.checks.forms.lists" (dict "told" $told "path" (printf "%s.config" $component) "table" $own.config) -}}
{{- end -}}

{{/* TOML has lists of tables, and lists of other things. */}}
{{- define "presence.checks.forms.lists" -}}
{{- $told := .told -}}
{{- $path := .path -}}
{{- range $key, $value := .table -}}
{{- $here := printf "%s.%s" $path $key -}}
{{- if kindIs "map" $value -}}
{{- include "presence.checks.forms.lists" (dict "told" $told "path" $here "table" $value) -}}
{{- else if kindIs "slice" $value -}}
{{- $tables := 0 -}}
{{- range $value -}}
{{- if kindIs "map" . }}{{ $tables = add1 $tables }}{{ include "presence.checks.forms.lists" (dict "told" $told "path" $here "table" .) }}{{ end -}}
{{- if kindIs "invalid" . }}{{ include "presence.refuse" (dict "told" $told "line" (printf "%s: has nothing (null) in a list" $here)) }}{{ end -}}
{{- end -}}
{{- if and $tables (ne (int $tables) (len $value)) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "%s: must be a list of tables, or one of other values, not both" $here)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
