//! `Consumer`: a named caller and its credentials. API keys and passwords become digests when they are read; keys for
//! signatures are kept as [`Secret`].

use postern_base::{
    diagnostic::Path,
    yaml::{Node, Position},
};
use postern_engine::{
    message_signature::decode_secret,
    schema::{Field, Kind, Object},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    kind::{self, Absence, KindSchema, Spec},
    password::PasswordHash,
    report::Report,
    secret::Secret,
    target_ref::Reach,
};

/// The schema of the whole document.
const SCHEMA: KindSchema = KindSchema {
    name: "Consumer",
    about: "A named caller and its credentials.",
    document: Object {
        fields: &[
            kind::API_VERSION,
            kind::kind(&["Consumer"]),
            kind::METADATA,
            Field::required("spec", Kind::Object(&SPEC), "How the caller is known."),
        ],
        exactly_one_of: &[],
    },
    absence: Absence::FailsClosed,
    example: EXAMPLE,
};

const EXAMPLE: &str = "\
apiVersion: postern/v1
kind: Consumer
metadata: { name: mobile-app }
spec:
  apiKeys:
    - sha256: c48a01f49fd0f2cc404bc3cbbc80e91457a3d41bb429a695243de4c61794155c
  groups: [apps]
";

const SPEC: Object = Object {
    fields: &[
        Field::optional(
            "apiKeys",
            Kind::List { item: &Kind::Object(&API_KEY), at_least: 1 },
            "The API keys, each of which is enough.",
        ),
        Field::optional("basicAuth", Kind::Object(&BASIC_AUTH), "The user name and password for `basicAuth`."),
        Field::optional(
            "hmac",
            Kind::List { item: &Kind::Object(&HMAC_KEY), at_least: 1 },
            "The keys for `hmacAuth`, each of which is enough.",
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

const BASIC_AUTH: Object = Object {
    fields: &[
        Field::required("username", Kind::Text, "The user name, of this consumer alone; without colons."),
        Field::optional("passwordHash", Kind::Text, PASSWORD_HASH),
        Field::optional("password", Kind::Text, "The password itself; only its hash, of 1000 rounds, is kept."),
    ],
    exactly_one_of: &["passwordHash", "password"],
};

const HMAC_KEY: Object = Object {
    fields: &[
        Field::required("keyId", Kind::Text, "What a signature calls the key (`keyid`), of this consumer alone."),
        Field::optional(
            "secret",
            Kind::Text,
            "The secret, of at least 16 bytes. It is kept as it is, and shown nowhere.",
        ),
        Field::optional("secretBase64", Kind::Text, "The same in base64, for a secret that is not text."),
    ],
    exactly_one_of: &["secret", "secretBase64"],
};

const PASSWORD_HASH: &str =
    "The hash of the password: `$pbkdf2-sha256$i=<rounds>$<salt>$<hash>`, at most 10000 rounds.";

/// The `spec` of a `Consumer`. Each credential is sufficient to authenticate; without any, nobody can.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Consumer {
    /// API keys.
    #[serde(default)]
    pub api_keys: Vec<ApiKey>,
    /// The user name and password.
    pub basic_auth: Option<BasicAuth>,
    /// Keys for signed requests (`hmacAuth`).
    #[serde(default)]
    pub hmac: Vec<HmacKey>,
    /// Groups, which `roleCheck` and conditions read.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// An API key. Only its digest is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct ApiKey {
    /// The SHA-256 digest of the key.
    pub sha256: [u8; 32],
}

/// The forms that a user may write. No `Debug`: it can hold the key itself.
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

/// A user name, and the hash of its password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenBasicAuth")]
pub struct BasicAuth {
    /// The user name: not empty, without colons and control characters.
    pub username: String,
    /// The hash that passwords are checked against.
    pub password: PasswordHash,
}

/// The forms that a user may write. No `Debug`: it can hold the password itself.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenBasicAuth {
    username: String,
    password_hash: Option<String>,
    password: Option<String>,
}

impl TryFrom<WrittenBasicAuth> for BasicAuth {
    type Error = &'static str;

    fn try_from(written: WrittenBasicAuth) -> Result<Self, Self::Error> {
        let password = match (written.password_hash, written.password) {
            (Some(hash), None) => PasswordHash::parse(&hash)?,
            (None, Some(password)) => PasswordHash::of(&written.username, &password),
            _ => return Err("expected one password"),
        };
        Ok(Self { username: written.username, password })
    }
}

/// A key that a consumer signs requests with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenHmacKey", rename_all = "camelCase")]
pub struct HmacKey {
    /// The key's name in signatures.
    pub key_id: String,
    /// The shared secret.
    pub secret: Secret,
}

/// The form that a user writes. No `Debug`: it holds the secret.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenHmacKey {
    key_id: String,
    secret: Option<String>,
    secret_base64: Option<String>,
}

impl TryFrom<WrittenHmacKey> for HmacKey {
    type Error = &'static str;

    fn try_from(written: WrittenHmacKey) -> Result<Self, Self::Error> {
        let secret = match (written.secret, written.secret_base64) {
            (Some(secret), None) => secret.into_bytes(),
            (None, Some(text)) => decode_secret(&text).ok_or(NOT_BASE64)?,
            _ => return Err("expected one secret"),
        };
        Ok(Self { key_id: written.key_id, secret: Secret(secret) })
    }
}

const NOT_BASE64: &str = "expected base64 with its padding";
/// The shortest secret, in bytes: too long for a dictionary attack.
const SHORTEST_SECRET: usize = 16;

fn hmac_rules(items: &[Node], path: &Path<'_>, report: &mut Report<'_>) {
    for (index, item) in items.iter().enumerate() {
        let path = path.item(index);
        let text = |name| item.get(name).and_then(|node| Some((node.at, node.text()?)));
        if let Some((at, id)) = text("keyId") {
            let fits = !id.is_empty() && id.bytes().all(|byte| matches!(byte, b' '..=b'~'));
            let message = (!fits).then_some("expected at least 1 character, and ASCII only");
            report_some(at, &path.field("keyId"), message, report);
        }
        let short = |size: usize| (size < SHORTEST_SECRET).then_some("expected at least 16 bytes");
        if let Some((at, secret)) = text("secret") {
            report_some(at, &path.field("secret"), short(secret.len()), report);
        }
        if let Some((at, secret)) = text("secretBase64") {
            let message = decode_secret(secret).map_or(Some(NOT_BASE64), |secret| short(secret.len()));
            report_some(at, &path.field("secretBase64"), message, report);
        }
    }
}

impl Spec for Consumer {
    const SCHEMA: KindSchema = SCHEMA;

    fn reach(&self) -> Reach<'_> {
        Reach::Mesh
    }

    fn rules(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
        api_key_rules(spec.get("apiKeys").map_or(&[][..], Node::items), &path.field("apiKeys"), report);
        hmac_rules(spec.get("hmac").map_or(&[][..], Node::items), &path.field("hmac"), report);
        if let Some(basic_auth) = spec.get("basicAuth") {
            basic_auth_rules(basic_auth, &path.field("basicAuth"), report);
        }
    }
}

fn api_key_rules(items: &[Node], path: &Path<'_>, report: &mut Report<'_>) {
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

/// Reports user names and passwords that RFC 7617, section 2, does not allow.
fn basic_auth_rules(node: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    let text = |name| node.get(name).and_then(|node| Some((node.at, node.text()?)));
    if let Some((at, username)) = text("username") {
        let message = match username {
            "" => Some("expected at least 1 character"),
            _ if username.contains(':') => Some("a user name ends at its first colon, so it can have none"),
            _ if username.contains(char::is_control) => Some("control characters are not allowed in a user name"),
            _ => None,
        };
        report_some(at, &path.field("username"), message, report);
    }
    if let Some((at, password)) = text("password") {
        let message = match password {
            "" => Some("expected at least 1 character"),
            _ if password.contains(char::is_control) => Some("control characters are not allowed in a password"),
            _ => None,
        };
        report_some(at, &path.field("password"), message, report);
    }
    if let Some((at, hash)) = text("passwordHash") {
        report_some(at, &path.field("passwordHash"), PasswordHash::parse(hash).err(), report);
    }
}

fn report_some(at: Position, path: &Path<'_>, message: Option<&str>, report: &mut Report<'_>) {
    if let Some(message) = message {
        report.error(at, path, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bundle, File, read};

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
    fn keeps_only_hashes_of_passwords() {
        let bundle = read_spec("{basicAuth: {username: alice, password: s3cret}}").unwrap();
        let basic_auth = bundle.consumers[0].spec.basic_auth.clone().unwrap();
        // Python: hashlib.pbkdf2_hmac("sha256", b"s3cret", hashlib.sha256(b"postern password salt:alice").digest()[:16], 1000)
        let expect = "cba7be901ba89839fd31b037351f63d5f957b6e32c6aefc79a71d90cdadf98bc";
        assert_eq!(hex::encode(basic_auth.password.hash), expect);
        assert!(!format!("{bundle:?}").contains("s3cret"));
    }

    #[test]
    fn reads_hashes_of_passwords() {
        let salt = "c2FsdHNhbHQ";
        let hash = "A".repeat(43);
        let bundle = read_spec(&format!(
            "{{basicAuth: {{username: a, passwordHash: '$pbkdf2-sha256$i=3,l=32${salt}${hash}'}}}}"
        ));
        let password = bundle.unwrap().consumers[0].spec.basic_auth.clone().unwrap().password;
        assert_eq!(password, PasswordHash { salt: b"saltsalt".to_vec(), iterations: 3, hash: [0; 32] });
    }

    #[test]
    fn keeps_secrets_of_signatures_out_of_sight() {
        let bundle = read_spec(
            "{hmac: [{keyId: a, secret: s3cret-s3cret-s3cret}, {keyId: b, secretBase64: czNjcmV0LXMzY3JldC1zM2NyZXQ=}]}",
        )
        .unwrap();
        let keys = &bundle.consumers[0].spec.hmac;
        assert_eq!((keys[0].key_id.as_str(), &keys[0].secret), ("a", &keys[1].secret));
        assert!(!format!("{bundle:?}").contains("s3cret"));
        assert!(!serde_json::to_string(keys).unwrap().contains("s3cret"));
    }

    #[test]
    fn refuses_secrets_that_are_short_or_not_base64() {
        let place = "Consumer `alice`: spec.hmac[0]";
        check("{hmac: [{keyId: a, secret: short}]}", &[&format!("c:4:34: {place}.secret: expected at least 16 bytes")]);
        check(
            "{hmac: [{keyId: '', secretBase64: c2hvcnQ}]}",
            &[
                &format!("c:4:23: {place}.keyId: expected at least 1 character, and ASCII only"),
                &format!("c:4:41: {place}.secretBase64: expected base64 with its padding"),
            ],
        );
        check("{hmac: [{keyId: a}]}", &[&format!("c:4:15: {place}: expected exactly one of `secret`, `secretBase64`")]);
    }

    #[test]
    fn may_have_no_credential() {
        check("{groups: [a]}", &[]);
    }

    #[test]
    fn refuses_what_is_no_hash_of_a_password() {
        let form = "expected `$pbkdf2-sha256$i=<rounds>$<salt>$<hash>`, salt and hash in base64 without padding";
        let (salt, hash) = ("c2FsdHNhbHQ", "A".repeat(43));
        for (text, expect) in [
            ("", form),
            ("s3cret", form),
            ("$2y$10$abcdefghijklmnopqrstuv", form),
            (&format!("$pbkdf2-sha512$i=1${salt}${hash}"), form),
            (&format!("$pbkdf2-sha256$l=32${salt}${hash}"), form),
            (&format!("$pbkdf2-sha256$i=1,i=2${salt}${hash}"), form),
            (&format!("$pbkdf2-sha256$i=-1${salt}${hash}"), form),
            (&format!("$pbkdf2-sha256$i=1${salt}=${hash}"), form),
            (&format!("$pbkdf2-sha256$i=1$AAAA${hash}"), "expected a salt of 8 to 64 bytes"),
            (&format!("$pbkdf2-sha256$i=1${salt}$AAAA"), "expected a hash of 32 bytes"),
            (
                &format!("$pbkdf2-sha256$i=600000${salt}${hash}"),
                "expected 1 to 10000 rounds: every request with a wrong password pays for them",
            ),
        ] {
            check(
                &format!("{{basicAuth: {{username: a, passwordHash: '{text}'}}}}"),
                &[&format!("c:4:47: Consumer `alice`: spec.basicAuth.passwordHash: {expect}")],
            );
        }
    }

    #[test]
    fn refuses_user_names_and_passwords_that_cannot_be_sent() {
        let place = "c:4:30: Consumer `alice`: spec.basicAuth";
        check(
            r#"{basicAuth: {username: "a:b", password: x}}"#,
            &[&format!("{place}.username: a user name ends at its first colon, so it can have none")],
        );
        check(
            r#"{basicAuth: {username: "", password: ""}}"#,
            &[
                &format!("{place}.username: expected at least 1 character"),
                "c:4:44: Consumer `alice`: spec.basicAuth.password: expected at least 1 character",
            ],
        );
        check(
            r"{basicAuth: {username: a}}",
            &["c:4:19: Consumer `alice`: spec.basicAuth: expected exactly one of `passwordHash`, `password`"],
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
            "{basicAuth: {username: a, password: [s3cret]}}",
            "{basicAuth: {username: a, password: s3cret, passwordHash: s3cret}}",
            "{basicAuth: {username: a, passwordHash: s3cret}}",
            r#"{basicAuth: {username: a, password: "s3cret\0"}}"#,
            "{basicAuth: s3cret}",
            "{hmac: [{keyId: a, secret: s3cret}]}",
            "{hmac: [{keyId: a, secretBase64: 's3cret'}]}",
            "{hmac: [{keyId: a, secret: s3cret, secretBase64: s3cret}]}",
            "{hmac: [{keyId: a, secret: [s3cret]}]}",
            "{hmac: [{secret: s3cret-that-is-long-enough}]}",
            "{hmac: s3cret}",
            "s3cret",
        ] {
            let errors = read_spec(spec).unwrap_err();
            assert!(!errors.contains("s3cret"), "for `{spec}`: {errors}");
        }
    }
}
