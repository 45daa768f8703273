//! The resources: gateways of one service each, and a policy for every route.

use std::fmt::Write as _;

use anyhow::Result;
use postern_base::node::NodeIdentity;
use postern_model::File;

use super::{GATEWAYS, NODES};

/// The files for this many policies. `change` makes the first policy another one, and no other.
pub(super) fn files(policies: usize, change: u32) -> Result<Vec<File>> {
    let mut common = format!(
        "apiVersion: postern/v1\nkind: Service\nmetadata: {{ name: backend }}\n\
         spec: {{ endpoints: [{{ address: 127.0.0.1, port: 1 }}] }}\n---\n\
         apiVersion: postern/v1\nkind: Consumer\nmetadata: {{ name: bench }}\n\
         spec: {{ apiKeys: [{{ sha256: {} }}] }}\n---\n\
         apiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: guards }}\n\
         spec: {{ targetRef: {{ kind: Mesh }}, request: [{{ policy: apiKeyAuth, params: {{ header: x-api-key }} }}] }}\n",
        "5e".repeat(32)
    );
    let mut written = String::new();
    for gateway in 0..GATEWAYS {
        write!(
            common,
            "---\napiVersion: postern/v1\nkind: Gateway\nmetadata: {{ name: g{gateway} }}\nspec:\n  \
             targetRef: {{ kind: Service, name: s{gateway} }}\n  listeners: [{{ name: http, port: {} }}]\n  routes:\n",
            10_000 + gateway
        )?;
        for route in (gateway..policies).step_by(GATEWAYS) {
            writeln!(common, "    - {{ name: r{route}, match: {{ path: {{ exact: /{route} }} }}, service: backend }}")?;
        }
    }
    for route in 0..policies {
        let change = if route == 0 { change } else { 0 };
        write!(
            written,
            "---\napiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: p{route} }}\nspec:\n  \
             targetRef: {{ kind: HTTPRoute, name: r{route} }}\n  request:\n    \
             - {{ policy: rateLimit, params: {{ requests: 100, per: 1s }}, when: request.method != 'OPTIONS' }}\n    \
             - {{ policy: headers, params: {{ set: {{ x-change: c{change}, x-route: r{route} }} }} }}\n"
        )?;
    }
    let file = |name: &str, text: String| File { name: name.to_owned(), bytes: text.into_bytes() };
    Ok(vec![file("common.yaml", common), file("policies.yaml", written)])
}

/// The nodes, evenly of every service.
pub(super) fn nodes() -> Vec<NodeIdentity> {
    let node = |index: usize| NodeIdentity {
        id: format!("n{index}"),
        service: format!("s{}", index % GATEWAYS),
        ..NodeIdentity::default()
    };
    (0..NODES).map(node).collect()
}
