{{/* Which regions cores keep, which they watch elsewhere, and that each end lets the other in. */}}
{{- define "presence.checks.regions" -}}
{{- $told := .told -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
{{- $core := $values.core -}}
{{- $isTls := include "presence.core.isTls" $root -}}
{{- $kept := list $values.region -}}
{{- range $core.edgeRegions -}}
{{- if has . $kept -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "core.edgeRegions = %q: is named twice, or is region itself: name each further region once" .)) -}}
{{- end -}}
{{- $kept = append $kept . -}}
{{- end -}}
{{- $linked := list -}}
{{- $ownCertificate := include "presence.edge.certificateName" $root -}}
{{- range $entry := $core.peers.edges -}}
{{- if and $ownCertificate (eq .certificate $ownCertificate) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "core.peers.edges: %s is the certificate of this release's own edges, which are known without: give those elsewhere another, else all of them are the same to these cores" .certificate)) -}}
{{- end -}}
{{- $linked = concat $linked .regions -}}
{{- range .regions -}}
{{- if not (has . $kept) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "core.peers.edges: %s may link for %q, which these cores do not keep: name it in core.edgeRegions" $entry.certificate .)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $core.edgeRegions -}}
{{- if and $isTls (not (has . $linked)) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "core.edgeRegions = %q: nobody may link for it: name its edges in core.peers.edges; example: [{certificate: edges.%s.example, names: [edge-*], regions: [%s]}]" . . .)) -}}
{{- end -}}
{{- end -}}
{{- $known := list -}}
{{- range $peer := $core.peerRegions -}}
{{- include "presence.mustBe" (dict "told" $told "path" "core.peerRegions" "value" .region "form" `^[^=, ]+$` "rule" "the name of a region as its cores have it, without = , and spaces") -}}
{{- if has .region $kept -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "core.peerRegions = %q: is kept by these cores themselves, by region or core.edgeRegions: name those of others only" .region)) -}}
{{- else if has .region $known -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "core.peerRegions = %q: is named twice: give all its cores in one entry" .region)) -}}
{{- end -}}
{{- $known = append $known .region -}}
{{- range .cores -}}
{{- if and (hasPrefix "http://" .) (not $core.insecure) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "core.peerRegions = %q: must begin with https://, as whoever is on the way could tell of people who are not there; http:// goes with core.insecure only" .)) -}}
{{- else -}}
{{- include "presence.mustBe" (dict "told" $told "path" "core.peerRegions" "value" . "form" `^https?://(\[[0-9a-fA-F:.]+\]|[^]/:,@ []+):[0-9]+$` "rule" "https://host:port and nothing else; example: https://core.us-east.example:4701") -}}
{{- end -}}
{{- end -}}
{{- if and $isTls (not .certificate) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "core.peerRegions: %s has no certificate: give the DNS name or URI in what its cores show to these, else they are let in by nobody" .region)) -}}
{{- else if and .certificate (not $isTls) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "core.peerRegions: the certificate %s of %s is of no use while cores ask for no certificates" .certificate .region)) -}}
{{- end -}}
{{- end -}}
{{- if gt (add (len $kept) (len $known)) 64 -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "core.edgeRegions, core.peerRegions: are, with region, %d regions: at most 64, which a cursor can name" (add (len $kept) (len $known)))) -}}
{{- end -}}
{{- if and $core.coreTls.existingSecret (not (include "presence.core.isPeerTls" $root)) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "core.coreTls.existingSecret = %q: is of no use while no core of core.peerRegions is https://" $core.coreTls.existingSecret)) -}}
{{- end -}}
{{- include "presence.checks.regions.ways" . -}}
{{- end -}}

{{/* How those elsewhere get here. */}}
{{- define "presence.checks.regions.ways" -}}
{{- $told := .told -}}
{{- $values := .root.Values -}}
{{- $external := $values.core.external -}}
{{- $policy := $values.networkPolicy -}}
{{- if and $values.core.peerRegions $policy.enabled (not $external.enabled) (not $policy.coreFrom) -}}
{{- include "presence.refuse" (dict "told" $told "line" "networkPolicy.coreFrom = []: say from where the cores of core.peerRegions come, or core.external.enabled, else they never get here; example: [{ipBlock: {cidr: 10.2.0.0/16}}]") -}}
{{- end -}}
{{- if and $external.gateway.enabled (not $external.enabled) -}}
{{- include "presence.refuse" (dict "told" $told "line" "core.external.gateway.enabled = true: leads to the service of core.external: give core.external.enabled, and ClusterIP for its type if nobody else needs it") -}}
{{- end -}}
{{- if and $external.gateway.enabled (not $external.gateway.parentRefs) -}}
{{- include "presence.refuse" (dict "told" $told "line" "core.external.gateway.parentRefs = []: name the gateways that those elsewhere come by; example: [{name: regions, namespace: gateways, sectionName: tls}]") -}}
{{- end -}}
{{- if and $external.gateway.enabled (not $external.gateway.hostnames) -}}
{{- include "presence.refuse" (dict "told" $told "line" "core.external.gateway.hostnames = []: give the names that those elsewhere connect to, as TLS is passed through by name; example: [core.eu-west.example]") -}}
{{- end -}}
{{- if and (ne $external.type "LoadBalancer") (or $external.loadBalancerClass $external.loadBalancerSourceRanges) -}}
{{- include "presence.refuse" (dict "told" $told "line" (printf "core.external.loadBalancerClass, core.external.loadBalancerSourceRanges: are of no use while core.external.type is %s" $external.type)) -}}
{{- end -}}
{{- end -}}
