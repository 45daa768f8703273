//! The reference of the kinds of resources, `docs/resources.md`.

use postern_engine::schema::{Kind, Object};

use super::table::{fields, first_sentence, one_of, push, row};
use crate::model::{KindSchema, SCHEMAS};

const INTRODUCTION: &str = "\
<!-- Written by `cargo xtask docs` from the schemas in control-plane/src/model. Do not edit. -->

# The resources

What you write are YAML files, each with any number of documents. A document is one resource: its `kind`, its `metadata`, and a `spec` that
depends on the kind. Fields that are not listed here are errors, and all errors of all files are reported at once. `postern schema` prints
a JSON Schema of all kinds for your editor; `postern validate DIR` checks a directory.

Where a field takes PEM, it is the text itself or `{ file: NAME }`: the file of that name beside the resource's own, or in a folder
below the directory that is served. Its name ends in `.pem`, `.crt` or `.key`.
";

/// A whole resource of each kind, by the kind's name. Together they are a bundle that is admitted.
pub const EXAMPLES: &[(&str, &str)] = &[
    (
        "Gateway",
        "\
apiVersion: postern/v1
kind: Gateway
metadata: { name: edge }
spec:
  listeners:
    - name: https
      address: 0.0.0.0
      port: 8443
      tls:
        certificate: { file: edge.crt }
        key: { file: edge.key }
        clientCa: { file: ca.crt }
  routes:
    - name: user
      hosts: [api.example.com]
      match:
        path: { template: \"/users/{id}\" }
        methods: [GET]
        headers: [{ name: x-preview, present: false }]
      services:
        - { service: users, weight: 95 }
        - { service: users-next, weight: 5 }
      retries: { on: [connectFailure, gatewayError], attempts: 2, perTryTimeout: 500ms }
",
    ),
    (
        "Service",
        "\
apiVersion: postern/v1
kind: Service
metadata: { name: users }
spec:
  protocol: http2
  endpoints:
    - { address: 10.0.0.1, port: 8443, tags: { version: v1 } }
    - { address: 10.0.0.2, port: 8443, tags: { version: v1 } }
  tls:
    ca: { file: ca.crt }
    certificate: { file: edge.crt }
    key: { file: edge.key }
  healthCheck:
    http: { path: /healthz }
    interval: 5s
---
apiVersion: postern/v1
kind: Service
metadata: { name: users-next }
spec:
  endpoints:
    - { address: users-next.internal, port: 8080 }
",
    ),
    (
        "EnvoyResource",
        "\
apiVersion: postern/v1
kind: EnvoyResource
metadata: { name: legacy }
spec:
  targetRef: { kind: Service, name: edge }
  resource:
    \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster
    name: legacy
    type: STRICT_DNS
    connect_timeout: 1s
    load_assignment:
      cluster_name: legacy
      endpoints:
        - lb_endpoints:
            - endpoint: { address: { socket_address: { address: legacy.internal, port_value: 8080 } } }
",
    ),
    (
        "Consumer",
        "\
apiVersion: postern/v1
kind: Consumer
metadata: { name: mobile-app }
spec:
  apiKeys:
    - sha256: c48a01f49fd0f2cc404bc3cbbc80e91457a3d41bb429a695243de4c61794155c
  groups: [apps]
",
    ),
    (
        "Issuer",
        "\
apiVersion: postern/v1
kind: Issuer
metadata: { name: accounts }
spec:
  issuer: https://accounts.example.com
  audiences: [users-api]
  jwksUri: https://accounts.example.com/jwks
",
    ),
    (
        "Agent",
        "\
apiVersion: postern/v1
kind: Agent
metadata: { name: risk }
spec:
  address: unix:/run/risk.sock
  timeout: 250ms
",
    ),
    (
        "RoutePolicy",
        "\
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: user-api }
spec:
  targetRef: { kind: HTTPRoute, name: user }
  request:
    - policy: apiKeyAuth
      params: { header: x-api-key }
    - policy: rateLimit
      params: { requests: 100, per: 1s, burst: 20, key: consumer.name }
      when: request.method != 'OPTIONS'
  response:
    - policy: securityHeaders
",
    ),
    (
        "TrafficPermission",
        "\
apiVersion: postern/v1
kind: TrafficPermission
metadata: { name: users-callers }
spec:
  targetRef: { kind: Service, name: users }
  from:
    - { targetRef: { kind: ServiceSubset, name: web, tags: { version: v1 } }, action: DENY }
    - { targetRef: { kind: Service, name: web }, action: ALLOW }
",
    ),
    (
        "Timeout",
        "\
apiVersion: postern/v1
kind: Timeout
metadata: { name: patience }
spec:
  targetRef: { kind: Mesh }
  to:
    - targetRef: { kind: Mesh }
      connectTimeout: 2s
      http: { requestTimeout: 5s, streamIdleTimeout: 1h }
    - targetRef: { kind: Service, name: users }
      http: { idleTimeout: 0s }
",
    ),
    (
        "AccessLog",
        "\
apiVersion: postern/v1
kind: AccessLog
metadata: { name: logs }
spec:
  targetRef: { kind: Mesh }
  to:
    - { targetRef: { kind: Service, name: users }, backends: [{ name: audit }] }
    - { targetRef: { kind: Mesh }, backends: [{ name: stdout }] }
",
    ),
    (
        "Settings",
        "\
apiVersion: postern/v1
kind: Settings
metadata: { name: default }
spec:
  agentUnavailable: { status: 503, headers: { retry-after: \"5\" }, body: try again soon }
  logBackends: [{ name: audit, file: { path: /var/log/envoy/audit.json } }]
  logSampling: 10
  retention: { revisions: 50 }
  rollout:
    steps:
      - { tags: { stage: canary }, pause: 1m }
      - { share: 25, pause: 5m }
",
    ),
];

/// The whole page.
pub fn resources() -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str("\n| kind | what it is |\n|---|---|\n");
    for KindSchema { name, about, .. } in SCHEMAS {
        row(&mut page, &[&format!("[`{name}`](#{})", name.to_ascii_lowercase()), &first_sentence(about)]);
    }
    page.push_str("\n## Every resource\n");
    if let Some(any) = SCHEMAS.first() {
        table(&mut page, "metadata", &any.document);
    }
    for schema in SCHEMAS {
        push(&mut page, format_args!("\n## {}\n\n{}\n", schema.name, schema.about));
        table(&mut page, "spec", &schema.document);
        for (_, example) in EXAMPLES.iter().filter(|(kind, _)| *kind == schema.name) {
            push(&mut page, format_args!("\n```yaml\n{example}```\n"));
        }
    }
    page
}

/// The fields of one part of a document.
fn table(page: &mut String, part: &'static str, document: &Object) {
    let field = document.fields.iter().find(|field| field.name == part);
    let Some(Kind::Object(object)) = field.map(|field| &field.kind) else { return };
    page.push_str("\n| field | type | default | meaning |\n|---|---|---|---|\n");
    fields(page, object, &format!("{part}."));
    one_of(page, object, part);
}
