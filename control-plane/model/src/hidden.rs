//! The text that replaces a credential wherever resources are shown. It is never a value: what reads resources refuses
//! it, so that what was shown cannot become a credential that everybody knows.

use postern_base::{
    diagnostic::Path,
    yaml::{Node, Value},
};

use super::{report::Report, secret::CREDENTIAL_HEADERS};

/// The text that replaces a hidden value.
pub const HIDDEN: &str = "(hidden)";

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

/// Whether a field, or a header, of this name holds a credential.
pub fn holds_a_credential(name: &str) -> bool {
    FIELDS.contains(&name) || CREDENTIAL_HEADERS.iter().any(|header| header.eq_ignore_ascii_case(name))
}

/// Like [`holds_a_credential`], with fields that hold one in some objects only.
fn is_secret(name: &str) -> bool {
    holds_a_credential(name) || name == "key"
}

/// Reports every value that stands for a hidden one.
pub(super) fn refuse(node: &Node, name: &str, path: &Path<'_>, report: &mut Report<'_>) {
    match &node.value {
        Value::Map(entries) => {
            for (key, node) in entries {
                refuse(node, &key.name, &path.field(&key.name), report);
            }
        }
        Value::List(items) => {
            for (index, node) in items.iter().enumerate() {
                refuse(node, name, &path.item(index), report);
            }
        }
        Value::Text(text) if text.trim() == HIDDEN || (is_secret(name) && text.contains(HIDDEN)) => {
            let message = format!(
                "`{HIDDEN}` stands for a value that is not shown, and is never a value: write the value itself \
                 (`postern apply` and `sync` keep a value of the same resource that comes back as it was shown)"
            );
            report.error(node.at, path, message);
        }
        _ => {}
    }
}
