{{- define "perdure.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "perdure.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "perdure.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "perdure.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The labels that select the operator's pods. They must never change within a release. */}}
{{- define "perdure.selectorLabels" -}}
app.kubernetes.io/name: {{ include "perdure.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "perdure.labels" -}}
{{- /* The chart's own labels take precedence: a common label of the same name must not break a selector. */ -}}
{{- $own := dict
      "app.kubernetes.io/name" (include "perdure.name" .)
      "app.kubernetes.io/instance" .Release.Name
      "app.kubernetes.io/version" (.Chart.AppVersion | toString)
      "app.kubernetes.io/component" "operator"
      "app.kubernetes.io/managed-by" .Release.Service
      "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") -}}
{{- toYaml (merge $own (.Values.commonLabels | default dict)) }}
{{- end }}

{{/* The number of operators. Releases of earlier charts have the value null. */}}
{{- define "perdure.replicas" -}}
{{- if kindIs "invalid" .Values.replicas }}2{{ else }}{{ int .Values.replicas }}{{ end }}
{{- end }}

{{/* The number of frontends that are processes of their own. Releases of earlier charts have no value for it. */}}
{{- define "perdure.frontendReplicas" -}}
{{- if .Values.temporal.enabled }}{{ dig "frontend" "replicas" 0 .Values.AsMap | int }}{{ else }}0{{ end }}
{{- end }}

{{/* Not empty if frontends are processes of their own. */}}
{{- define "perdure.apart" -}}
{{- if gt (int (include "perdure.frontendReplicas" .)) 0 }}apart{{ end }}
{{- end }}

{{/* Not empty if operators have Leases, so that several can share the work, and frontends of their own find them. */}}
{{- define "perdure.fleet" -}}
{{- if or (gt (int (include "perdure.replicas" .)) 1) (include "perdure.apart" .) }}{{ include "perdure.fullname" . }}{{ end }}
{{- end }}

{{/* Not empty if the archive is a database. */}}
{{- define "perdure.archiveDatabase" -}}
{{- if and .Values.archive.enabled (ne .Values.archive.form "Files") }}yes{{ end }}
{{- end }}

{{/* Not empty if the HTTP API of the frontend reads archived runs. */}}
{{- define "perdure.readsArchive" -}}
{{- if and .Values.archive.enabled .Values.temporal.enabled .Values.temporal.httpApi.enabled }}yes{{ end }}
{{- end }}

{{/* Not empty if a single operator serves SDK workers: then no second one may run at the same time. */}}
{{- define "perdure.alone" -}}
{{- if and .Values.temporal.enabled (not (include "perdure.fleet" .)) }}alone{{ end }}
{{- end }}

{{- define "perdure.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "perdure.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name must be set where serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The Secret with the certificate of the Temporal frontend: yours, cert-manager's, or the operator's own. */}}
{{- define "perdure.temporalTlsSecret" -}}
{{- .Values.temporal.tls.secretName | default (printf "%s-temporal-tls" (include "perdure.fullname" .)) }}
{{- end }}

{{/* Not empty if the operator creates the certificate itself. */}}
{{- define "perdure.temporalTlsOwn" -}}
{{- with .Values.temporal }}
{{- if and .enabled .tls.enabled (not .tls.secretName) (not .tls.certManager.enabled) }}own{{ end }}
{{- end }}
{{- end }}

{{/* Not empty if someone else renews the files of the certificate. */}}
{{- define "perdure.temporalTlsFiles" -}}
{{- with .Values.temporal }}
{{- if and .enabled .tls.enabled (or .tls.secretName .tls.certManager.enabled) }}files{{ end }}
{{- end }}
{{- end }}

{{- define "perdure.temporalDnsNames" -}}
{{- $service := printf "%s-temporal" (include "perdure.fullname" .) }}
{{- $full := printf "%s.%s" $service .Release.Namespace }}
{{- join "," (list $service $full (printf "%s.svc" $full) (printf "%s.svc.cluster.local" $full) "localhost") }}
{{- end }}

{{/* A whole name of an image, from `image`, the default `tag`, and `all`, the registry of all images. */}}
{{- define "perdure.imageName" -}}
{{- $name := .image.repository }}
{{- $registry := .all | default .image.registry }}
{{- /* As in every name of an image: the first part is a registry if it has a dot or a port, or is localhost. */ -}}
{{- if and $registry (not (regexMatch "^([^/]*[.:][^/]*|localhost)/" $name)) }}
{{- $name = printf "%s/%s" (trimSuffix "/" $registry) $name }}
{{- end }}
{{- if .image.digest }}{{ printf "%s@%s" $name .image.digest }}{{ else }}{{ printf "%s:%s" $name (.image.tag | default .tag) }}{{ end }}
{{- end }}

{{- define "perdure.image" -}}
{{- include "perdure.imageName" (dict "image" .Values.image "tag" .Chart.AppVersion "all" .Values.imageRegistry) }}
{{- end }}

{{/* The names in `imagePullSecrets`. */}}
{{- define "perdure.pullSecretNames" -}}
{{- range $index, $each := . }}{{ if $index }},{{ end }}{{ $each.name }}{{ end }}
{{- end }}

{{/* The user and group of a pod; none if the platform sets them. */}}
{{- define "perdure.user" -}}
{{- $root := first . }}{{ $user := last . }}
{{- if not (kindIs "invalid" $root.Values.runAsUser) -}}
runAsUser: {{ int $user }}
runAsGroup: {{ int $user }}
fsGroup: {{ int $user }}
{{- end }}
{{- end }}

{{/* The labels that select the pods of the Web UI; the operator's Services must not select them. */}}
{{- define "perdure.uiSelectorLabels" -}}
app.kubernetes.io/name: {{ include "perdure.name" . }}-ui
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "perdure.uiLabels" -}}
{{- $own := dict "app.kubernetes.io/component" "web-ui" "app.kubernetes.io/version" (.Values.ui.image.tag | toString) -}}
{{- toYaml (merge (include "perdure.uiSelectorLabels" . | fromYaml) $own (include "perdure.labels" . | fromYaml)) }}
{{- end }}

{{/* The labels that select the pods of the console. */}}
{{- define "perdure.consoleSelectorLabels" -}}
app.kubernetes.io/name: {{ include "perdure.name" . }}-console
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "perdure.consoleLabels" -}}
{{- $own := dict "app.kubernetes.io/component" "console" -}}
{{- toYaml (merge (include "perdure.consoleSelectorLabels" . | fromYaml) $own (include "perdure.labels" . | fromYaml)) }}
{{- end }}

{{/* The labels that select the pods of frontends; the operator's objects must not select them. */}}
{{- define "perdure.frontendSelectorLabels" -}}
app.kubernetes.io/name: {{ include "perdure.name" . }}-frontend
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "perdure.frontendLabels" -}}
{{- $own := dict "app.kubernetes.io/component" "frontend" -}}
{{- toYaml (merge (include "perdure.frontendSelectorLabels" . | fromYaml) $own (include "perdure.labels" . | fromYaml)) }}
{{- end }}

{{/* The labels of the pods that serve Temporal SDKs: frontends of their own, or operators. */}}
{{- define "perdure.temporalSelectorLabels" -}}
{{- if include "perdure.apart" . }}{{ include "perdure.frontendSelectorLabels" . }}{{ else }}{{ include "perdure.selectorLabels" . }}{{ end }}
{{- end }}

{{/* Variables of the process that serves Temporal SDKs: how it serves callers and authenticates them. */}}
{{- define "perdure.temporalEnvironment" -}}
- {name: PERDURE_TEMPORAL_ADDRESS, value: "[::]:7233"}
# The pod remains until its readiness probe has failed and no node sends connections to it anymore.
- {name: PERDURE_LINGER_SECONDS, value: "6"}
{{- if .Values.temporal.httpApi.enabled }}
- {name: PERDURE_TEMPORAL_HTTP_ADDRESS, value: "[::]:7243"}
{{- if not .Values.temporal.httpApi.webhooks }}
- {name: PERDURE_WEBHOOKS, value: "false"}
{{- end }}
{{- with .Values.temporal.httpApi.nexusHeaders }}
- {name: PERDURE_NEXUS_HEADERS, value: {{ join "," . | quote }}}
{{- end }}
{{- end }}
- {name: PERDURE_TEMPORAL_MAX_CONNECTIONS, value: {{ .Values.temporal.maxConnections | quote }}}
- {name: PERDURE_TEMPORAL_AUDIENCE, value: {{ .Values.temporal.authentication.audience | quote }}}
{{- if .Values.temporal.authentication.acceptClusterTokens }}
- {name: PERDURE_TEMPORAL_ACCEPT_CLUSTER_TOKENS, value: "true"}
{{- end }}
{{- with include "perdure.oidcIssuer" . }}
- {name: PERDURE_TEMPORAL_OIDC_ISSUER, value: {{ . | quote }}}
- {name: PERDURE_TEMPORAL_OIDC_CLIENT_IDS, value: {{ include "perdure.oidcClientIds" $ | quote }}}
{{- end }}
{{- if and .Values.temporal.tls.enabled .Values.temporal.tls.clientCASecretName }}
- {name: PERDURE_TEMPORAL_TLS_CLIENT_CA, value: /temporal-client-ca/ca.crt}
{{- end }}
{{- end }}

{{/* Rules of a NetworkPolicy for the pods that serve Temporal SDKs. */}}
{{- define "perdure.temporalIngress" -}}
# Workers and clients of Temporal SDKs.
- ports:
  - {port: temporal, protocol: TCP}
  {{- if .Values.temporal.httpApi.enabled }}
  - {port: temporal-http, protocol: TCP}
  {{- end }}
  from: {{- toYaml (default (list (dict "namespaceSelector" dict)) .Values.networkPolicy.temporalIngressFrom) | nindent 2 }}
{{- if and .Values.console.enabled (include "perdure.readsArchive" .) }}
- ports:
  - {port: temporal-http, protocol: TCP}
  from:
  - podSelector:
      matchLabels: {{- include "perdure.consoleSelectorLabels" . | nindent 8 }}
{{- end }}
{{- if .Values.ui.enabled }}
- ports:
  - {port: temporal, protocol: TCP}
  from:
  - podSelector:
      matchLabels: {{- include "perdure.uiSelectorLabels" . | nindent 8 }}
{{- end }}
{{- end }}

{{/* The rule of a NetworkPolicy for the port at which operators call each other, and frontends call operators. */}}
{{- define "perdure.peerIngress" -}}
- ports:
  - {port: peers, protocol: TCP}
  from:
  - podSelector:
      matchLabels: {{- include "perdure.selectorLabels" . | nindent 8 }}
  {{- if include "perdure.apart" . }}
  - podSelector:
      matchLabels: {{- include "perdure.frontendSelectorLabels" . | nindent 8 }}
  {{- end }}
{{- end }}

{{- define "perdure.uiImage" -}}
{{- include "perdure.imageName" (dict "image" .Values.ui.image "tag" "" "all" .Values.imageRegistry) }}
{{- end }}

{{/* CEL: the definition in an object of Perdure, `old` or `new`; null if it has none. */}}
{{- define "perdure.definitionOf" -}}
request.resource.resource in ['workflows', 'workflowdefaults'] ? variables.{{ . }}.?spec.orValue(null)
: request.resource.resource == 'schedules' ? variables.{{ . }}.?spec.?workflowRunTemplate.?spec.?inline.orValue(null)
: request.resource.resource in ['deadletters', 'workflowrevisions'] ? variables.{{ . }}.?spec.?definition.orValue(null)
: request.?subResource.orValue('') == 'status' ? variables.{{ . }}.?status.?definition.orValue(null)
: variables.{{ . }}.?spec.?inline.orValue(null)
{{- end }}

{{/* CEL: the name of the Workflow that an object of Perdure, `old` or `new`, runs; empty if it names none. */}}
{{- define "perdure.workflowOf" -}}
request.resource.resource == 'schedules' ? variables.{{ . }}.?spec.?workflowRunTemplate.?spec.?workflow.?name.orValue('')
: request.resource.resource == 'workflowruns' ? variables.{{ . }}.?spec.?workflow.?name.orValue('') : ''
{{- end }}

{{/* CEL: the owner references of an object, `old` or `new`, that Perdure relies on. */}}
{{- define "perdure.ownersOf" -}}
variables.{{ . }}.metadata.?ownerReferences.orValue([]).filter(owner,
owner.apiVersion.startsWith('perdure.dev/') && owner.kind in ['Schedule', 'WorkflowRun', 'DeadLetter'])
{{- end }}

{{/* CEL: whether a value of any type has a text with an expression; the arguments are the value and how many levels are searched. */}}
{{- define "perdure.hasExpression" -}}
{{- $value := index . 0 -}}
{{- $levels := index . 1 | int -}}
{{- $key := printf "key%d" $levels -}}
{{- $item := printf "item%d" $levels -}}
type({{ $value }}) == string ? string({{ $value }}).matches(variables.expression)
{{- if $levels }} : type({{ $value }}) == map ? dyn({{ $value }}).exists({{ $key }}, {{ include "perdure.hasExpression" (list (printf "dyn(%s)[%s]" $value $key) (sub $levels 1)) }}) : type({{ $value }}) == list ? dyn({{ $value }}).exists({{ $item }}, {{ include "perdure.hasExpression" (list $item (sub $levels 1)) }})
{{- end }} : false
{{- end }}

{{/* A condition of a policy: ignore namespaces that another release may serve. */}}
{{- define "perdure.notExcluded" }}
{{- with .Values.excludeNamespaces }}
  - name: not-in-an-excluded-namespace
    expression: "!request.namespace.matches('^({{ join "|" . | replace "*" ".*" }})$')"
{{- end }}
{{- end }}

{{/* Annotations of an object of `helm test`, by its weight: objects of a lower one are created first. */}}
{{- define "perdure.testHook" -}}
helm.sh/hook: test
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* The OIDC provider whose tokens the frontend accepts; empty for none. */}}
{{- define "perdure.oidcIssuer" -}}
{{- $ui := ternary .Values.ui.oidc.providerUrl "" .Values.ui.enabled | default "" -}}
{{- $other := (.Values.temporal.authentication.oidc | default dict).issuerUrl | default "" -}}
{{- if and $ui $other (ne (trimSuffix "/" $ui) (trimSuffix "/" $other)) -}}
{{- fail "temporal.authentication.oidc.issuerUrl and ui.oidc.providerUrl must be the same: the frontend accepts tokens of one OIDC provider" -}}
{{- end -}}
{{- $other | default $ui -}}
{{- end }}

{{/* The clients for which it issues these tokens. */}}
{{- define "perdure.oidcClientIds" -}}
{{- $ids := (.Values.temporal.authentication.oidc | default dict).clientIds | default list -}}
{{- if and .Values.ui.enabled .Values.ui.oidc.providerUrl -}}
{{- $ids = append $ids .Values.ui.oidc.clientId -}}
{{- end -}}
{{- if not $ids -}}
{{- fail "temporal.authentication.oidc.clientIds must name a client: otherwise no token is accepted" -}}
{{- end -}}
{{- $ids | uniq | join "," -}}
{{- end }}

{{/* Whether the operator runs workers. Releases of earlier charts have no value for it. */}}
{{- define "perdure.runsWorkers" -}}
{{- if and .Values.temporal.enabled (dig "workerDeployments" "enabled" true .Values.AsMap) }}true{{ end }}
{{- end }}
