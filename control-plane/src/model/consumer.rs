//! `Consumer`: a named caller and its credentials, of which only digests leave this file.

use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    diagnostic::Report,
    kinds::{self, KindSchema, Spec},
    path::Path,
    tree::Node,
};

/// The whole document.
pub(super) const SCHEMA: KindSchema = KindSchema {
    name: "Consumer",
    about: "A named caller and its credentials.",
    document: Object {
        fields: &[
            kinds::API_VERSION,
            kinds::kind(&["Consumer"]),
            kinds::METADATA,
            Field::required("spec", Kind::Object(&SPEC), "How the caller is known."),
        ],
        exactly_one_of: &[],
    },
};

const SPEC: Object = Object {
    fields: &[
        Field::required(
            "apiKeys",
            Kind::List { item: &Kind::Object(&API_KEY), at_least: 1 },
            "The API keys, each of which is enough.",
        ),
        Field::optional(
            "groups",
            Kind::List { item: &Kind::Name, at_least: 0 },
            "The groups that the caller belongs to.",
        ),
    ],
    exactly_one_of: &[],
};

const API_KEY: Object = Object {
    fields: &[
        Field::optional("sha256", Kind::Sha256, "The SHA-256 digest of the key."),
        Field::optional("key", Kind::HeaderValue, "The key itself; only its digest is kept."),
    ],
    exactly_one_of: &["sha256", "key"],
};

/// A named caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Consumer {
    /// The API keys, each of which is enough: at least one.
    pub api_keys: Vec<ApiKey>,
    /// The groups that it belongs to.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// An API key, of which only the digest is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct ApiKey {
    /// The SHA-256 digest of the key.
    pub sha256: [u8; 32],
}

/// What a user may write. It has no `Debug`: it can hold the key itself.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Written {
    Sha256(String),
    Key(String),
}

impl TryFrom<Written> for ApiKey {
    type Error = hex::FromHexError;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let mut sha256 = [0; 32];
        match written {
            Written::Sha256(digits) => hex::decode_to_slice(digits, &mut sha256)?,
            Written::Key(key) => sha256 = Sha256::digest(key).into(),
        }
        Ok(Self { sha256 })
    }
}

impl Spec for Consumer {
    const SCHEMA: &'static KindSchema = &SCHEMA;

    fn rules(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
        let path = path.field("apiKeys");
        let items = spec.get("apiKeys").map_or(&[][..], Node::items);
        for (index, item) in items.iter().enumerate() {
            let Some((node, key)) = item.get("key").and_then(|node| Some((node, node.text()?))) else { continue };
            let message = match key {
                "" => "expected at least 1 character",
                // A receiver strips it (RFC 9110, section 5.5), so such a key could never match.
                _ if key.trim_matches([' ', '\t']) != key => "spaces around a key are lost in a header",
                _ => continue,
            };
            report.error(node.at, &path.item(index).field("key"), message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Bundle, File, read};

    fn read_spec(spec: &str) -> Result<Bundle, String> {
        let bytes =
            format!("apiVersion: postern/v1\nkind: Consumer\nmetadata: {{name: alice}}\nspec: {spec}").into_bytes();
        read(&[File { name: "c".to_owned(), bytes }]).map_err(|errors| errors.to_string())
    }

    fn check(spec: &str, expect: &[&str]) {
        let errors = read_spec(spec).err().unwrap_or_default();
        assert_eq!(errors.lines().collect::<Vec<_>>(), expect);
    }

    #[test]
    fn keeps_only_digests() {
        let digest = hex::encode(Sha256::digest("other"));
        let bundle = read_spec(&format!("{{apiKeys: [{{key: s3cret}}, {{sha256: {digest}}}]}}")).unwrap();
        let keys = &bundle.consumers[0].spec.api_keys;
        assert_eq!(keys[0].sha256, <[u8; 32]>::from(Sha256::digest("s3cret")));
        assert_eq!(keys[1].sha256, <[u8; 32]>::from(Sha256::digest("other")));
        assert!(!format!("{bundle:?}").contains("s3cret"));
    }

    #[test]
    fn wants_one_form_of_each_key() {
        check("{apiKeys: []}", &["c:4:17: Consumer `alice`: spec.apiKeys: expected at least 1 item, found 0"]);
        check(
            "{apiKeys: [{}]}",
            &["c:4:18: Consumer `alice`: spec.apiKeys[0]: expected exactly one of `sha256`, `key`"],
        );
    }

    #[test]
    fn refuses_keys_that_no_header_can_carry() {
        check(
            r#"{apiKeys: [{key: ""}, {key: " a"}, {key: "a\n"}]}"#,
            &[
                "c:4:24: Consumer `alice`: spec.apiKeys[0].key: expected at least 1 character",
                "c:4:35: Consumer `alice`: spec.apiKeys[1].key: spaces around a key are lost in a header",
                r"c:4:48: Consumer `alice`: spec.apiKeys[2].key: control character `\n` is not allowed in a header",
            ],
        );
    }

    #[test]
    fn never_shows_a_key_in_an_error() {
        for spec in [
            "{apiKeys: [s3cret]}",
            "{apiKeys: s3cret}",
            "{apiKeys: [{sha256: s3cret}]}",
            "{apiKeys: [{key: [s3cret]}]}",
            "{apiKeys: [{kee: s3cret}]}",
            "{apiKeys: [{key: s3cret, sha256: s3cret}]}",
            "{apiKeys: [{key: s3cret, key: s3cret}]}",
            "{apiKeys: [{key: !x s3cret}]}",
            r#"{apiKeys: [{key: "s3cret\0"}]}"#,
            "{apiKeys: [{key: ' s3cret'}]}",
            "{apiKeys: [{key: s3cret}, {key: s3cret}]}",
            "{apiKeys: [{key: s3cret}], more: s3cret}",
            "{apiKeys: [{key: s3cret]}",
            "s3cret",
        ] {
            let errors = read_spec(spec).unwrap_err();
            assert!(!errors.contains("s3cret"), "for `{spec}`: {errors}");
        }
    }
}
