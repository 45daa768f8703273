//! The resources: a gateway with many routes, each guarded by a chain of three steps.

use std::{fmt::Write as _, net::SocketAddr};

use anyhow::Result;
use postern_model::File;

/// The files for this many routes. Each `change` makes them another revision, in every policy.
pub(super) fn files(routes: usize, listener: SocketAddr, change: u32) -> Result<Vec<File>> {
    written(routes, listener, |_| change)
}

/// Like [`files`], but `change` changes only one route's policy.
pub(super) fn one_changed(routes: usize, listener: SocketAddr, change: u32) -> Result<Vec<File>> {
    written(routes, listener, |route| if route == routes / 2 { change } else { 0 })
}

fn written(routes: usize, listener: SocketAddr, change: impl Fn(usize) -> u32) -> Result<Vec<File>> {
    let mut gateway = format!(
        "apiVersion: postern/v1\nkind: Service\nmetadata: {{ name: backend }}\n\
         spec: {{ endpoints: [{{ address: 127.0.0.1, port: 1 }}] }}\n---\n\
         apiVersion: postern/v1\nkind: Consumer\nmetadata: {{ name: bench }}\n\
         spec: {{ apiKeys: [{{ sha256: {} }}] }}\n---\n\
         apiVersion: postern/v1\nkind: Gateway\nmetadata: {{ name: edge }}\nspec:\n  \
         listeners: [{{ name: http, address: {}, port: {} }}]\n  routes:\n",
        "5e".repeat(32),
        listener.ip(),
        listener.port(),
    );
    let mut policies = String::new();
    for route in 0..routes {
        writeln!(gateway, "    - {{ name: r{route}, match: {{ path: {{ exact: /{route} }} }}, service: backend }}")?;
        // Every tenth chain is one of its own, the others share one: somewhere between a fleet's two extremes.
        let own = if route % 10 == 0 { route } else { 0 };
        let change = change(route);
        write!(
            policies,
            "---\napiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: p{route} }}\nspec:\n  \
             targetRef: {{ kind: HTTPRoute, name: r{route} }}\n  request:\n    \
             - {{ policy: apiKeyAuth, params: {{ header: x-api-key }} }}\n    \
             - {{ policy: rateLimit, params: {{ requests: 100, per: 1s }}, when: request.method != 'OPTIONS' }}\n    \
             - {{ policy: headers, params: {{ set: {{ x-change: c{change}, x-chain: c{own} }} }} }}\n"
        )?;
    }
    let file = |name: &str, text: String| File { name: name.to_owned(), bytes: text.into_bytes() };
    Ok(vec![file("gateway.yaml", gateway), file("policies.yaml", policies)])
}
