//! Removes credentials from resources before they are shown, wherever users may write them.

use postern_model::CREDENTIAL_HEADERS;
use serde_json::Value;

/// The text that replaces a hidden value.
const HIDDEN: &str = "(hidden)";

/// Fields that hold a credential, in whatever object they are.
const FIELDS: [&str; 9] = [
    "password",
    "passwordHash",
    "secret",
    "secretBase64",
    "inline_string",
    "inlineString",
    "inline_bytes",
    "inlineBytes",
    "token",
];
/// Fields that hold a credential in one object only: the object's name, then the field's.
const NESTED: [(&str, &str); 3] = [("apiKeys", "key"), ("certificates", "key"), ("tls", "key")];
/// Private members of a JSON Web Key (RFC 7518, 6.2.2, 6.3.2 and 6.4).
const KEY_MEMBERS: [&str; 8] = ["d", "dp", "dq", "k", "oth", "p", "q", "qi"];

/// Replaces every credential in a resource as it was written. The shape is kept: only scalars are replaced.
pub(crate) fn hide(value: &mut Value) {
    walk(value, "", false);
}

/// Replaces every credential in the value of one field, which is identified by the last part of its path.
pub fn hide_field(path: &str, value: &mut Value) {
    let name = path.rsplit(['.', '"']).find(|part| !part.is_empty() && *part != "]").unwrap_or_default();
    let mut written = Value::Object([(name.to_owned(), value.take())].into_iter().collect());
    hide(&mut written);
    *value = written.get_mut(name).map(Value::take).unwrap_or_default();
}

/// Whether the value of a header, or of another field of this name, is hidden.
fn hides(name: &str) -> bool {
    FIELDS.contains(&name) || CREDENTIAL_HEADERS.iter().any(|header| header.eq_ignore_ascii_case(name))
}

/// Walks a value. `within` is the name of the nearest enclosing field; list indices do not count.
fn walk(value: &mut Value, within: &str, keys: bool) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let nested = NESTED.iter().any(|(parent, field)| *parent == within && field == name);
                let member = keys && KEY_MEMBERS.contains(&name.as_str());
                if member || nested || (hides(name) && !names_a_place(value)) {
                    scalars(value);
                } else {
                    walk(value, name, keys || name == "jwks");
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, within, keys)),
        // A key set can be JSON in a string, and a key can be PEM.
        Value::String(text) if (keys && within == "jwks") || text.contains("PRIVATE KEY-----") => {
            HIDDEN.clone_into(text);
        }
        _ => {}
    }
}

/// Whether a value under such a name is no credential: a list, such as the names of headers that a policy removes, a
/// boolean or null.
fn names_a_place(value: &Value) -> bool {
    matches!(value, Value::Array(_) | Value::Bool(_) | Value::Null)
}

fn scalars(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(scalars),
        Value::Array(items) => items.iter_mut().for_each(scalars),
        value => *value = HIDDEN.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(mut value: Value, expect: &Value) {
        hide(&mut value);
        assert_eq!(value, *expect);
    }

    #[test]
    fn hides_what_proves_a_consumer() {
        check(
            json!({ "spec": { "apiKeys": [{ "key": "k" }, { "sha256": "00" }], "basicAuth": { "username": "u", "password": "p" },
                    "hmac": [{ "keyId": "i", "secret": "s" }, { "keyId": "j", "secretBase64": "s" }] } }),
            &json!({ "spec": { "apiKeys": [{ "key": "(hidden)" }, { "sha256": "00" }],
                     "basicAuth": { "username": "u", "password": "(hidden)" },
                     "hmac": [{ "keyId": "i", "secret": "(hidden)" }, { "keyId": "j", "secretBase64": "(hidden)" }] } }),
        );
    }

    #[test]
    fn hides_keys_and_leaves_what_is_public() {
        let pem = "-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n";
        check(
            json!({ "jwks": { "keys": [{ "kty": "oct", "k": "x", "kid": "a" }] }, "tls": { "certificate": "c", "key": "file:k.pem" }, "x": pem }),
            &json!({ "jwks": { "keys": [{ "kty": "oct", "k": "(hidden)", "kid": "a" }] },
                     "tls": { "certificate": "c", "key": "(hidden)" }, "x": "(hidden)" }),
        );
        check(json!({ "jwks": "{\"keys\": []}" }), &json!({ "jwks": "(hidden)" }));
    }

    #[test]
    fn hides_headers_that_carry_credentials_but_not_the_keys_of_rate_limits() {
        check(
            json!({ "params": { "key": "consumer.name", "set": { "Authorization": "Basic x", "x-a": "b" }, "remove": ["x-api-key"] } }),
            &json!({ "params": { "key": "consumer.name", "set": { "Authorization": "(hidden)", "x-a": "b" }, "remove": ["x-api-key"] } }),
        );
        check(json!({ "header": "x-api-key" }), &json!({ "header": "x-api-key" }));
    }
}
