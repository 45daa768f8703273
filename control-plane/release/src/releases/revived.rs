//! Credentials that a change makes valid, compared with what was in force before it. After a rollback, these were revoked
//! or replaced before, and are valid again. Only places are told, never values.

use postern_model::{Bundle, Consumer, Issuer, KeySource, Resource};
use schemars::JsonSchema;
use serde::Serialize;

use crate::catalogue::ResourceKey;

/// A credential that is valid again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct RevivedCredential {
    /// The resource that has it.
    #[serde(flatten)]
    pub resource: ResourceKey,
    /// The field of the resource.
    pub field: String,
}

/// The credentials that `after` accepts and `before` does not, by resource and field.
pub fn revived(before: &Bundle, after: &Bundle) -> Vec<RevivedCredential> {
    let mut found = Vec::new();
    let mut add = |kind: &str, mesh: &str, name: &str, fields: Vec<String>| {
        let resource = ResourceKey { kind: kind.to_owned(), mesh: mesh.to_owned(), name: name.to_owned() };
        found.extend(fields.into_iter().map(|field| RevivedCredential { resource: resource.clone(), field }));
    };
    for consumer in &after.consumers {
        let old = same(&before.consumers, consumer).map(|old| &old.spec);
        add("Consumer", &consumer.mesh, &consumer.name, of_consumer(&consumer.spec, old));
    }
    for issuer in &after.issuers {
        let old = same(&before.issuers, issuer).map(|old| &old.spec);
        add("Issuer", &issuer.mesh, &issuer.name, of_issuer(&issuer.spec, old));
    }
    found.sort();
    found
}

fn same<'b, T>(all: &'b [Resource<T>], wanted: &Resource<T>) -> Option<&'b Resource<T>> {
    all.iter().find(|other| other.name == wanted.name && other.mesh == wanted.mesh)
}

fn of_consumer(consumer: &Consumer, old: Option<&Consumer>) -> Vec<String> {
    let Consumer { api_keys, basic_auth, hmac, .. } = consumer;
    let keys = api_keys.iter().enumerate().filter(|(_, key)| old.is_none_or(|old| !old.api_keys.contains(key)));
    let mut fields: Vec<_> = keys.map(|(index, _)| format!("spec.apiKeys[{index}]")).collect();
    if basic_auth.is_some() && old.is_none_or(|old| old.basic_auth != *basic_auth) {
        fields.push("spec.basicAuth".to_owned());
    }
    let keys = hmac.iter().enumerate().filter(|(_, key)| old.is_none_or(|old| !old.hmac.contains(key)));
    fields.extend(keys.map(|(index, _)| format!("spec.hmac[{index}]")));
    fields
}

fn of_issuer(issuer: &Issuer, old: Option<&Issuer>) -> Vec<String> {
    let same = old.filter(|old| old.issuer == issuer.issuer);
    match (&issuer.keys, same.map(|old| &old.keys)) {
        (KeySource::Inline(keys), old) => {
            let known = |index: &usize| match old {
                Some(KeySource::Inline(old)) => keys.get(*index).is_some_and(|key| old.contains(key)),
                _ => false,
            };
            (0..keys.len()).filter(|index| !known(index)).map(|index| format!("spec.jwks.keys[{index}]")).collect()
        }
        (KeySource::Published { uri, .. }, Some(KeySource::Published { uri: old, .. })) if uri == old => Vec::new(),
        (KeySource::Published { .. }, _) => vec!["spec.jwksUri".to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use postern_model::File;

    use super::*;

    fn bundle(specs: &[(&str, &str)]) -> Bundle {
        let document = |(name, spec): &(&str, &str)| {
            format!("apiVersion: postern/v1\nkind: Consumer\nmetadata: {{ name: {name} }}\nspec: {spec}\n")
        };
        let text = specs.iter().map(document).collect::<Vec<_>>().join("---\n");
        postern_model::read(&[File { name: "c.yaml".to_owned(), bytes: text.into_bytes() }]).unwrap()
    }

    #[test]
    fn are_those_that_were_not_valid_before() {
        let before = bundle(&[
            ("bob", "{ apiKeys: [{ key: new }], basicAuth: { username: b, password: one } }"),
            ("carol", "{ apiKeys: [{ key: c }] }"),
        ]);
        let after = bundle(&[
            ("alice", "{ hmac: [{ keyId: a, secret: 0123456789abcdef }] }"),
            ("bob", "{ apiKeys: [{ key: new }, { key: old }], basicAuth: { username: b, password: two } }"),
            ("carol", "{ apiKeys: [{ key: c }] }"),
        ]);
        let found: Vec<_> = revived(&before, &after).into_iter().map(|it| (it.resource.name, it.field)).collect();
        let expect = [("alice", "spec.hmac[0]"), ("bob", "spec.apiKeys[1]"), ("bob", "spec.basicAuth")];
        assert_eq!(found, expect.map(|(name, field)| (name.to_owned(), field.to_owned())));
    }
}
