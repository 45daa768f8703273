//! Gateways for the tests of this module.

use postern_model::{File, Gateway, read};

/// A gateway with these routes, which may use the services `s`, `t` and `u`.
pub(super) fn gateway(routes: &str) -> Gateway {
    gateway_with("", routes)
}

/// Like [`gateway`], with further fields of the gateway.
pub(super) fn gateway_with(fields: &str, routes: &str) -> Gateway {
    let mut text = format!(
        "apiVersion: postern/v1\nkind: Gateway\nmetadata: {{name: g}}\nspec:\n  listeners: [{{name: http, port: 80}}]\n  \
         {fields}\n  routes: {routes}\n"
    );
    for name in ["s", "t", "u"] {
        text += &format!(
            "---\napiVersion: postern/v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{endpoints: [{{address: x, port: \
             1}}]}}\n"
        );
    }
    let mut bundle = read(&[File { name: "f".to_owned(), bytes: text.into_bytes() }]).unwrap();
    bundle.gateways.remove(0).spec.clone()
}
