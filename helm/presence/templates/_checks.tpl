{{/* Values that are well formed one by one, and do not go together. All mistakes are told at once, each with its value,
the rule and what to do; the schema has judged types and names before. */}}

{{- define "presence.refuse" -}}
{{- $_ := set .told "mistakes" (append .told.mistakes .line) -}}
{{- end -}}

{{/* Whether a value is of a form. Takes told, path, value, form, rule. */}}
{{- define "presence.mustBe" -}}
{{- if and .value (not (regexMatch .form .value)) -}}
{{- include "presence.refuse" (dict "told" .told "line" (printf "%s = %q: must be %s" .path .value .rule)) -}}
{{- end -}}
{{- end -}}

{{- define "presence.checks.store" -}}
{{- $told := .told -}}
{{- $store := .root.Values.store -}}
{{- $url := $store.url -}}
{{- $scheme := regexFind "^[a-z+]+(://)?" $url | trimSuffix "://" -}}
{{- $isMemory := eq $url "memory" -}}
{{- $schemes := list "redis" "rediss" "redis+sentinel" "rediss+sentinel" "redis+cluster" "rediss+cluster" -}}
{{- $rest := regexReplaceAll "^[a-z+]+://" $url "" -}}
{{- $hosts := splitList "/" $rest | first -}}
{{- $path := trimPrefix $hosts $rest | trimPrefix "/" -}}
{{- if not $url -}}
{{- include "presence.refuse" (dict "told" $told "line" "store.url = (not set): say where leases are kept; example: redis://redis.data:6379, or memory for a single core whose data go with it") -}}
{{- else if contains "@" $url -}}
{{- include "presence.refuse" (dict "told" $told "line" "store.url = (hidden): must not hold a user or password, as everybody may read a ConfigMap: give store.user, and store.existingSecret with the password") -}}
{{- else if and (not $isMemory) (not (and (has $scheme $schemes) (contains "://" $url) $hosts)) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "store.url = %q: must be memory, or begin with %s:// and name a host; example: redis://redis.data:6379" $url (join "://, " $schemes))) -}}
{{- else if and (hasSuffix "+sentinel" $scheme) (not (regexMatch "^[^/?#]+$" $path)) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "store.url = %q: must end with the master's name; example: redis+sentinel://s-0:26379,s-1:26379/mymaster" $url)) -}}
{{- else if and (not (hasSuffix "+sentinel" $scheme)) $path -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "store.url = %q: must end after the addresses: databases are not chosen, keys have a prefix (store.prefix)" $url)) -}}
{{- else if and (has $scheme (list "redis" "rediss")) (contains "," $hosts) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "store.url = %q: must hold one address, or be redis+sentinel:// or redis+cluster://" $url)) -}}
{{- end -}}
{{- if and $isMemory (gt (int .root.Values.core.replicas) 1) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "core.replicas = %d: must be 1 while store.url is memory, as each core would keep a list of its own: give a Redis for more" (int .root.Values.core.replicas))) -}}
{{- end -}}
{{- $isTls := hasPrefix "rediss" $scheme -}}
{{- if and $store.tls.existingSecret (not $isTls) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "store.tls.existingSecret = %q: is of no use while store.url does not begin with rediss" $store.tls.existingSecret)) -}}
{{- end -}}
{{- if ne (empty $store.tls.certKey) (empty $store.tls.keyKey) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "store.tls.certKey = %q: a certificate and its key go together: give store.tls.keyKey and store.tls.certKey, or neither" $store.tls.certKey)) -}}
{{- end -}}
{{- if and $isMemory (or $store.user $store.existingSecret) -}}
{{- include "presence.refuse" (dict "told" $told "line" "store.user, store.existingSecret: are of no use while store.url is memory") -}}
{{- end -}}
{{- if and $store.user (not (and $store.existingSecret $store.passwordKey)) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "store.user = %q: goes with a password: give store.existingSecret and store.passwordKey" $store.user)) -}}
{{- end -}}
{{- if and $store.sentinelPasswordKey (not (hasSuffix "+sentinel" $scheme)) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "store.sentinelPasswordKey = %q: is of no use while store.url is not redis+sentinel://" $store.sentinelPasswordKey)) -}}
{{- end -}}
{{- if and $store.sentinelPasswordKey (not $store.existingSecret) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "store.sentinelPasswordKey = %q: say in which secret, with store.existingSecret" $store.sentinelPasswordKey)) -}}
{{- end -}}
{{- end -}}

{{/* Who may connect to what, and by which certificates. */}}
{{- define "presence.checks.trust" -}}
{{- $told := .told -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
{{- $isPlainTaken := and (or $values.core.insecure (not $values.core.enabled)) (or $values.edge.insecure (not $values.edge.enabled)) -}}
{{- range $values.jwks.urls -}}
{{- if and (hasPrefix "http://" .) (not $isPlainTaken) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "jwks.urls = %q: must begin with https://, as these keys decide who is let in; http:// goes with core.insecure and edge.insecure only" .)) -}}
{{- else -}}
{{- include "presence.mustBe" (dict "told" $told "path" "jwks.urls" "value" . "form" `^https?://[^/@ ]+(/.*)?$` "rule" "a URL; example: https://login.example/.well-known/jwks.json") -}}
{{- end -}}
{{- end -}}
{{- $mounted := or $values.jwks.existingSecret $values.jwks.existingConfigMap -}}
{{- if and $values.jwks.caKey (not (and $mounted $values.jwks.urls)) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "jwks.caKey = %q: goes with jwks.urls, and with jwks.existingSecret or jwks.existingConfigMap, which it is in" $values.jwks.caKey)) -}}
{{- end -}}
{{- if and $values.jwks.existingSecret $values.jwks.existingConfigMap -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "jwks.existingConfigMap = %q: give it or jwks.existingSecret, not both" $values.jwks.existingConfigMap)) -}}
{{- else if not (or (and $mounted $values.jwks.key) $values.jwks.urls) -}}
{{- include "presence.refuse" (dict "told" $told "line" "jwks.existingSecret = (not set): give the keys that verify tokens, in a Secret, with jwks.existingConfigMap or by jwks.urls; `presence keys DIR` makes a pair, and `kubectl create secret generic presence-jwks --from-file=DIR/jwks.json` the Secret") -}}
{{- end -}}
{{- if $values.core.enabled -}}
{{- $isTls := include "presence.core.isTls" $root -}}
{{- if and $values.core.insecure $isTls -}}
{{- include "presence.refuse" (dict "told" $told "line" "core.insecure = true: is of no use while cores have certificates: leave it out") -}}
{{- else if not (or $values.core.insecure $isTls) -}}
{{- include "presence.refuse" (dict "told" $told "line" "core.tls.existingSecret = (not set): cores listen in the cluster, so give them a certificate, or certManager.enabled, or write core.insecure: true, which trusts anybody who reaches them") -}}
{{- end -}}
{{- if and $values.core.external.enabled (not $isTls) -}}
{{- include "presence.refuse" (dict "told" $told "line" "core.external.enabled = true: needs core.tls.existingSecret or certManager.enabled: whoever reaches a core without certificates may evict people") -}}
{{- end -}}
{{- $known := include "presence.edge.certificateName" $root -}}
{{- $others := concat $values.core.peers.edges $values.core.peers.services -}}
{{- if and $isTls (not $known) (not $others) (or $values.edge.cores (not $values.edge.enabled)) -}}
{{- include "presence.refuse" (dict "told" $told "line" "core.peers.edges = []: say which edges may link, as there are none in this release that do; example: [{certificate: edges.example, names: [edge-*], regions: [eu-west]}]") -}}
{{- end -}}
{{- if and $others (not $isTls) -}}
{{- include "presence.refuse" (dict "told" $told "line" "core.peers: is of no use while cores ask for no certificates") -}}
{{- end -}}
{{- if and $values.core.tls.dnsNames (or (not $values.certManager.enabled) $values.core.tls.existingSecret) -}}
{{- include "presence.refuse" (dict "told" $told "line" "core.tls.dnsNames: is of no use while cert-manager does not make the certificate of cores") -}}
{{- end -}}
{{- end -}}
{{- if and $values.certManager.enabled (not $values.certManager.issuerRef.name) -}}
{{- include "presence.refuse" (dict "told" $told "line" "certManager.issuerRef.name = (not set): name the issuer that signs for cores and edges") -}}
{{- end -}}
{{- if $values.edge.enabled -}}
{{- if and $values.edge.insecure $values.edge.tls.existingSecret -}}
{{- include "presence.refuse" (dict "told" $told "line" "edge.insecure = true: is of no use while edges have a certificate: leave it out") -}}
{{- else if not (or $values.edge.insecure $values.edge.tls.existingSecret) -}}
{{- include "presence.refuse" (dict "told" $told "line" "edge.tls.existingSecret = (not set): tokens travel to edges, so give them a certificate, or write edge.insecure: true if TLS ends before them, at an ingress or load balancer") -}}
{{- end -}}
{{- $cores := include "presence.edge.cores" $root -}}
{{- if not (or $values.core.enabled $values.edge.cores) -}}
{{- include "presence.refuse" (dict "told" $told "line" "edge.cores = []: name the cores to link to, as core.enabled is false; example: https://core.example:4701") -}}
{{- end -}}
{{- range $values.edge.cores -}}
{{- include "presence.mustBe" (dict "told" $told "path" "edge.cores" "value" . "form" `^https?://(\[[0-9a-fA-F:.]+\]|[^]/:,@ []+):[0-9]+$` "rule" "http://host:port or https://host:port and nothing else") -}}
{{- end -}}
{{- $secret := include "presence.edge.coreTlsSecret" $root -}}
{{- if and $secret (not (contains "https://" $cores)) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "edge.coreTls.existingSecret = %q: is of no use while no core is https://" $secret)) -}}
{{- end -}}
{{- if and (not $secret) $values.core.enabled (not $values.edge.cores) (contains "https://" $cores) -}}
{{- include "presence.refuse" (dict "told" $told "line" "edge.coreTls.existingSecret = (not set): cores ask edges for a certificate: give one with its key and the authority of cores, or certManager.enabled") -}}
{{- end -}}
{{- if and $values.core.enabled (not $values.edge.cores) $values.edge.coreTls.existingSecret (not $values.edge.coreTls.certificateName) -}}
{{- include "presence.refuse" (dict "told" $told "line" "edge.coreTls.certificateName = (not set): give the DNS name or URI in the certificate of edges, as cores let nobody in whom they do not know by it") -}}
{{- end -}}
{{- $isMade := and $values.certManager.enabled (not $values.edge.coreTls.existingSecret) -}}
{{- if and $isMade $values.edge.cores (not $values.edge.coreTls.certificateName) -}}
{{- include "presence.refuse" (dict "told" $told "line" "edge.coreTls.certificateName = (not set): edges that link to cores elsewhere need a name of their own in their certificate, else those of another cluster are the same to these cores; example: edges.eu-west.example") -}}
{{- else if $isMade -}}
{{- include "presence.formed" (dict "told" $told "kind" "host" "path" "edge.coreTls.certificateName" "value" $values.edge.coreTls.certificateName) -}}
{{- end -}}
{{- if ne (empty $values.edge.coreTls.certKey) (empty $values.edge.coreTls.keyKey) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "edge.coreTls.certKey = %q: a certificate and its key go together: give edge.coreTls.keyKey and edge.coreTls.certKey, or neither" $values.edge.coreTls.certKey)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* How clients come. */}}
{{- define "presence.checks.clients" -}}
{{- $told := .told -}}
{{- $edge := .root.Values.edge -}}
{{- if and (eq $edge.clientAddress "peer") $edge.trustedProxies -}}
{{- include "presence.refuse" (dict "told" $told "line" "edge.trustedProxies: is of no use while edge.clientAddress is peer: say who tells where clients are") -}}
{{- else if and (ne $edge.clientAddress "peer") (not $edge.trustedProxies) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "edge.trustedProxies = []: name the proxies that are believed, as edge.clientAddress is %s; example: 10.0.0.0/8" $edge.clientAddress)) -}}
{{- end -}}
{{- range $edge.trustedProxies -}}
{{- include "presence.formed" (dict "told" $told "kind" "proxy" "path" "edge.trustedProxies" "value" .) -}}
{{- end -}}
{{- range $edge.origins -}}
{{- include "presence.mustBe" (dict "told" $told "path" "edge.origins" "value" . "form" `^(\*|[a-z][a-z0-9+.-]*://[^/ A-Z*@]+)$` "rule" "the origin of a page: scheme://host, small letters, a port only if it is not the scheme's own; or * for all") -}}
{{- end -}}
{{- if and $edge.ingress.enabled (not $edge.ingress.host) -}}
{{- include "presence.refuse" (dict "told" $told "line" "edge.ingress.host = (not set): give the name that clients know") -}}
{{- end -}}
{{- if and $edge.gateway.enabled (not $edge.gateway.parentRefs) -}}
{{- include "presence.refuse" (dict "told" $told "line" "edge.gateway.parentRefs = []: name the gateways that clients come by; example: [{name: public, namespace: gateways}]") -}}
{{- end -}}
{{- $type := $edge.service.type -}}
{{- if and (eq $type "ClusterIP") $edge.service.externalTrafficPolicy -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "edge.service.externalTrafficPolicy = %q: is of no use while edge.service.type is ClusterIP" $edge.service.externalTrafficPolicy)) -}}
{{- end -}}
{{- if and (ne $type "LoadBalancer") (or $edge.service.loadBalancerClass $edge.service.loadBalancerSourceRanges) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "edge.service.loadBalancerClass, edge.service.loadBalancerSourceRanges: are of no use while edge.service.type is %s" $type)) -}}
{{- end -}}
{{- $scaling := $edge.autoscaling -}}
{{- if $scaling.enabled -}}
{{- if gt (int $scaling.minReplicas) (int $scaling.maxReplicas) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "edge.autoscaling.minReplicas = %d: must be at most edge.autoscaling.maxReplicas, which is %d" (int $scaling.minReplicas) (int $scaling.maxReplicas))) -}}
{{- end -}}
{{- if not (or (int $scaling.targetConnections) (int $scaling.targetCPUUtilizationPercentage)) -}}
{{- include "presence.refuse" (dict "told" $told "line" "edge.autoscaling.targetConnections = 0: give it or edge.autoscaling.targetCPUUtilizationPercentage, else there is nothing to follow") -}}
{{- end -}}
{{- if gt (int $scaling.targetConnections) (int $edge.connectionsMax) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "edge.autoscaling.targetConnections = %d: must be at most edge.connectionsMax, which is %d, else pods are full before there are more of them" (int $scaling.targetConnections) (int $edge.connectionsMax))) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Pods of one component: their end, their interruptions, and what the chart itself settles. */}}
{{- define "presence.checks.component" -}}
{{- $told := .told -}}
{{- $component := .component -}}
{{- $own := index .root.Values $component -}}
{{- $needed := add $own.preStopSeconds (include "presence.drainSeconds" $component) -}}
{{- $grace := include "presence.terminationGrace" (dict "root" .root "component" $component) | int -}}
{{- if lt $grace (int $needed) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "%s.terminationGracePeriodSeconds = %d: must be at least %d: %d s of %s.preStopSeconds and %s s to drain; leave it out to have it follow" $component $grace $needed (int $own.preStopSeconds) $component (include "presence.drainSeconds" $component))) -}}
{{- end -}}
{{- include "presence.checks.forms.pods" . -}}
{{- $settled := dict "grpc" "the chart settles ports" "listen" "the chart settles ports" "admin" "the chart settles ports" "region" "use region" "name" "it is that of the pod" "edge" "it is that of the pod" "core" "use edge.cores" "insecure" (printf "use %s.insecure" $component) "tls" (printf "use %s.tls" $component) "peers" "use core.peers" "jwks" "use jwks" "jwks_ca" "use jwks.caKey" "core_tls" (printf "use %s.coreTls" $component) "edge_regions" "use core.edgeRegions" "peer" "use core.peerRegions" "store" "use store" "timing" "use timing" "client_address" "use edge.clientAddress" "trusted_proxies" "use edge.trustedProxies" "connections_max" "use edge.connectionsMax" "origins" "use edge.origins" -}}
{{- range $key, $_ := $own.config -}}
{{- if and (hasKey $settled $key) (not (and (eq $component "core") (eq $key "connections_max"))) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "%s.config.%s: is settled elsewhere: %s" $component $key (index $settled $key))) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "presence.checks.rest" -}}
{{- $told := .told -}}
{{- $values := .root.Values -}}
{{- if not (or $values.core.enabled $values.edge.enabled) -}}
{{- include "presence.refuse" (dict "told" $told "line" "core.enabled, edge.enabled = false: at least one of them has to run") -}}
{{- end -}}
{{- include "presence.mustBe" (dict "told" $told "path" "fullnameOverride or the name of the release" "value" (include "presence.fullname" .root) "form" `^[a-z]([a-z0-9-]*[a-z0-9])?$` "rule" "small letters, digits and hyphens, and begin with a letter, as services do") -}}
{{- if and (eq $values.image.tag "latest") (not $values.image.digest) -}}
{{- include "presence.refuse" (dict "told" $told "line" "image.tag = \"latest\": stands for another image each time: give a version, or image.digest") -}}
{{- end -}}
{{- include "presence.mustBe" (dict "told" $told "path" "image.digest" "value" $values.image.digest "form" `^sha256:[0-9a-f]{64}$` "rule" "sha256: and 64 hexadecimal digits") -}}
{{- range $key, $span := $values.timing -}}
{{- include "presence.mustBe" (dict "told" $told "path" (printf "timing.%s" $key) "value" $span "form" `^[0-9]+(ms|s|m|min|h)( ?[0-9]+(ms|s|m|min|h))*$` "rule" "a duration with a unit; example: 15s") -}}
{{- end -}}
{{- include "presence.mustBe" (dict "told" $told "path" "listenAddress" "value" $values.listenAddress "form" `^[0-9a-fA-F:.]+$` "rule" "an address such as 0.0.0.0 or ::") -}}
{{- $egress := $values.networkPolicy.egress -}}
{{- if and $values.networkPolicy.enabled $egress.enabled -}}
{{- if and $values.jwks.urls (not $egress.extra) -}}
{{- include "presence.refuse" (dict "told" $told "line" "networkPolicy.egress.extra = []: say where jwks.urls are, else no key is ever fetched; example: [{to: [{ipBlock: {cidr: 0.0.0.0/0}}], ports: [{port: 443}]}]") -}}
{{- end -}}
{{- if and $values.core.enabled (ne $values.store.url "memory") (not $egress.storeTo) -}}
{{- include "presence.refuse" (dict "told" $told "line" "networkPolicy.egress.storeTo = []: say where the store is, else cores never reach it; example: [{to: [{podSelector: {matchLabels: {app: redis}}}], ports: [{port: 6379}]}]") -}}
{{- end -}}
{{- if and $values.edge.enabled $values.edge.cores (not $egress.coresTo) -}}
{{- include "presence.refuse" (dict "told" $told "line" "networkPolicy.egress.coresTo = []: say where edge.cores are, else edges never reach them; example: [{to: [{ipBlock: {cidr: 10.1.0.0/16}}], ports: [{port: 4701}]}]") -}}
{{- end -}}
{{- if and $values.core.enabled $values.core.peerRegions (not $egress.peersTo) -}}
{{- include "presence.refuse" (dict "told" $told "line" "networkPolicy.egress.peersTo = []: say where the cores of core.peerRegions are, else these never hear them; example: [{to: [{ipBlock: {cidr: 10.2.0.0/16}}], ports: [{port: 4701}]}]") -}}
{{- end -}}
{{- end -}}
{{- if and $values.test.existingSecret (not $values.edge.enabled) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "test.existingSecret = %q: the test joins by an edge, and edge.enabled is false" $values.test.existingSecret)) -}}
{{- end -}}
{{- include "presence.mustBe" (dict "told" $told "path" "test.url" "value" $values.test.url "form" `^wss?://[^/@ ]+/` "rule" "a WebSocket with its path; example: wss://presence.example/v1/ws") -}}
{{- end -}}

{{- define "presence.checks" -}}
{{- $told := dict "mistakes" list -}}
{{- $given := dict "told" $told "root" . -}}
{{- include "presence.checks.rest" $given -}}
{{- include "presence.checks.forms" $given -}}
{{- if .Values.core.enabled }}{{ include "presence.checks.store" $given }}{{ include "presence.checks.regions" $given }}{{ end -}}
{{- include "presence.checks.trust" $given -}}
{{- if .Values.edge.enabled }}{{ include "presence.checks.clients" $given }}{{ end -}}
{{- range $component := list "core" "edge" -}}
{{- if (index $.Values $component).enabled -}}
{{- include "presence.checks.component" (merge (dict "component" $component) $given) -}}
{{- end -}}
{{- end -}}
{{- with $told.mistakes -}}
{{- fail (printf "\n\nThese values do not go together:\n\n  %s\n" (join "\n  " .)) -}}
{{- end -}}
{{- end -}}
