//! What the server serves: a hundred services, which are a hundred clusters, behind one gateway with one policy.

use std::{fmt::Write as _, path::Path};

use anyhow::Result;

use crate::site::write_whole;

/// How many clusters every stream wants.
const CLUSTERS: usize = 100;
/// The file with the service that changes.
const CHANGING: &str = "changing.yaml";
/// What a change is recognised by, with its number behind it and a dot behind that: a part of a host name, so that it is
/// found in the encoded cluster as it is.
pub(super) const MARK: &[u8] = b"bench-change-";

/// Writes everything, before any change.
pub(super) fn write(directory: &Path) -> Result<()> {
    let mut text = String::from(
        "apiVersion: postern/v1\nkind: RoutePolicy\nmetadata: { name: bench }\nspec:\n  \
         targetRef: { kind: HTTPRoute, name: changing }\n  request:\n    - policy: headers\n      \
         params: { set: { x-guarded-by: postern } }\n---\n\
         apiVersion: postern/v1\nkind: Gateway\nmetadata: { name: edge }\nspec:\n  \
         listeners: [{ name: http, port: 10000 }]\n  routes:\n    - { name: changing, service: changing }\n",
    );
    for number in 1..CLUSTERS {
        write!(text, "---\n{}", service(&format!("service-{number}"), &format!("service-{number}.bench.test")))?;
    }
    write_whole(directory, "services.yaml", &text)?;
    change(directory, 0)
}

/// Puts a change of one cluster in force.
pub(super) fn change(directory: &Path, number: u32) -> Result<()> {
    let mark = String::from_utf8_lossy(MARK);
    write_whole(directory, CHANGING, &service("changing", &format!("{mark}{number}.bench.test")))
}

/// A service whose address is a name: it is a part of the cluster, so that no endpoints come beside it.
fn service(name: &str, address: &str) -> String {
    format!(
        "apiVersion: postern/v1\nkind: Service\nmetadata: {{ name: {name} }}\n\
         spec: {{ endpoints: [{{ address: {address}, port: 8080 }}] }}\n"
    )
}
