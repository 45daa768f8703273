//! Files next to resources: a field that takes PEM may name a file instead of holding the text. Only files that were
//! read together with the resources can be named, so that a resource cannot make a program read a file that its author
//! must not read.

use std::{
    collections::BTreeMap,
    path::{Component, Path as FilePath, PathBuf},
};

use postern_base::{
    diagnostic::{Path, quote, suggestion},
    digest::Digest,
    yaml::{Node, Value},
};
use postern_engine::schema::{Field, Kind, Object};

use super::{File, report::Report};

/// The extensions of files that are attachments, and not resources.
const EXTENSIONS: [&str; 3] = ["pem", "crt", "key"];
/// The largest attachment, in bytes. A chain of certificates has a few kilobytes.
const LARGEST: usize = 1 << 20;

/// The mapping that names a file, in place of the text.
pub(crate) const REFERENCE: Object = Object {
    fields: &[Field::required("file", Kind::Text, "The file that holds it, relative to the resource's own file.")],
    exactly_one_of: &[],
};

/// Whether a file with this name is an attachment, to be named by resources.
pub fn is_attachment(name: &FilePath) -> bool {
    name.extension().is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known))
}

/// The normalized path of a file that a document names, relative to the folder of the document's own file.
pub fn named_from(file: &str, name: &str) -> PathBuf {
    plain(&FilePath::new(file).parent().unwrap_or(FilePath::new("")).join(name))
}

/// The attachments of one reading, by normalized path.
#[derive(Default)]
pub(super) struct Attachments<'f>(BTreeMap<PathBuf, &'f [u8]>);

impl<'f> Attachments<'f> {
    pub(super) fn of(files: &'f [File]) -> Self {
        let attachments = files.iter().filter(|file| is_attachment(file.name.as_ref()));
        Self(attachments.map(|file| (plain(file.name.as_ref()), file.bytes.as_slice())).collect())
    }

    /// The digest of all attachments with their paths.
    pub(super) fn digest(&self) -> Digest {
        let part = |(name, bytes): (&'_ PathBuf, &&'f [u8])| {
            Digest::of_parts([name.as_os_str().as_encoded_bytes(), *bytes]).as_str().to_owned()
        };
        let parts: Vec<_> = self.0.iter().map(part).collect();
        Digest::of_parts(parts.iter().map(String::as_bytes))
    }

    /// Replaces each mapping that names an attachment by the attachment's text. Reports files that do not exist, are
    /// too large, or are not text. `file` is the document's own file: paths are relative to its folder.
    pub(super) fn resolve(&self, root: &mut Node, schema: &'static Object, file: &str, report: &mut Report<'_>) {
        let folder = FilePath::new(file).parent().unwrap_or(FilePath::new(""));
        Resolving { attachments: self, folder, report }.object(root, schema, &Path::Root);
    }

    fn read(&self, folder: &FilePath, name: &str) -> Result<String, String> {
        let Some(bytes) = self.0.get(&plain(&folder.join(name))) else {
            let near = suggestion(name, self.beside(folder));
            let known = "only files in the directory of the resources are read, and only `.pem`, `.crt` and `.key`";
            let hint = if near.is_empty() { format!(": {known}") } else { near };
            return Err(format!("there is no file {}{hint}", quote(name)));
        };
        if bytes.len() > LARGEST {
            return Err(format!("{} is too large: {} bytes, at most {LARGEST} are read", quote(name), bytes.len()));
        }
        String::from_utf8(bytes.to_vec()).map_err(|_| format!("{} is not PEM: it is not text", quote(name)))
    }

    /// The paths of all attachments in a folder and its subfolders, relative to the folder.
    fn beside(&self, folder: &FilePath) -> impl Iterator<Item = &str> {
        let folder = plain(folder);
        self.0.keys().filter_map(move |path| path.strip_prefix(&folder).ok()?.to_str())
    }
}

struct Resolving<'a, 'f, 'r> {
    attachments: &'a Attachments<'f>,
    folder: &'a FilePath,
    report: &'a mut Report<'r>,
}

impl Resolving<'_, '_, '_> {
    fn object(&mut self, node: &mut Node, schema: &'static Object, path: &Path<'_>) {
        let Value::Map(entries) = &mut node.value else { return };
        for (key, node) in entries {
            if let Some(field) = schema.fields.iter().find(|field| field.name == key.name) {
                self.value(node, &field.kind, &path.field(field.name));
            }
        }
    }

    fn value(&mut self, node: &mut Node, kind: &'static Kind, path: &Path<'_>) {
        match (kind, &mut node.value) {
            (Kind::Object(schema), _) => self.object(node, schema, path),
            (Kind::List { item, .. }, Value::List(nodes)) => {
                for (index, node) in nodes.iter_mut().enumerate() {
                    self.value(node, item, &path.item(index));
                }
            }
            (Kind::Pem, _) => self.pem(node, path),
            _ => {}
        }
    }

    fn pem(&mut self, node: &mut Node, path: &Path<'_>) {
        // All other faults of the mapping are reported by the schema's check.
        let Some(name) = node.get("file").and_then(Node::text) else { return };
        match self.attachments.read(self.folder, name) {
            Ok(text) => node.value = Value::Text(text),
            Err(message) => self.report.error(node.at, &path.field("file"), message),
        }
    }
}

/// The normalized path: without `.`, and without `..` where a parent is known. Equal for all spellings of a path.
fn plain(path: &FilePath) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => drop(plain.pop()),
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read;

    const SERVICE: &str = "apiVersion: postern/v1\nkind: Service\nmetadata: {name: s}\nspec:\n  \
        endpoints: [{address: a, port: 1}]\n  tls:\n    ca: ";

    fn check(ca: &str, expect: &[&str]) {
        let file = |name: &str, text: &[u8]| File { name: name.to_owned(), bytes: text.to_vec() };
        let files = [
            file("dir/sub/service.yaml", format!("{SERVICE}{ca}\n").as_bytes()),
            file("dir/sub/near.pem", b"-"),
            file("dir/above.crt", b"-"),
            file("dir/sub/binary.key", b"\xff"),
            file("dir/sub/large.pem", &vec![b'-'; LARGEST + 1]),
        ];
        let errors = read(&files).unwrap_err().to_string();
        assert_eq!(errors.lines().collect::<Vec<_>>(), expect, "for `{ca}`");
    }

    #[test]
    fn reads_files_relative_to_the_resource() {
        // The schema only wants a text. That `-` is not a certificate is found by the kind's rules.
        let found = "dir/sub/service.yaml:7:9: Service `s`: spec.tls.ca: expected certificates in PEM";
        for name in ["near.pem", "./near.pem", "../above.crt", "../sub/near.pem"] {
            check(&format!("{{file: {name}}}"), &[found]);
        }
    }

    #[test]
    fn names_a_file_that_is_not_there() {
        let place = "dir/sub/service.yaml:7:9: Service `s`: spec.tls.ca.file";
        check("{file: naer.pem}", &[&format!("{place}: there is no file `naer.pem`: did you mean `near.pem`?")]);
        check(
            "{file: /etc/ssl/ca.pem}",
            &[&format!(
                "{place}: there is no file `/etc/ssl/ca.pem`: only files in the directory of the resources are read, \
                 and only `.pem`, `.crt` and `.key`"
            )],
        );
        check("{file: binary.key}", &[&format!("{place}: `binary.key` is not PEM: it is not text")]);
        check(
            "{file: large.pem}",
            &[&format!("{place}: `large.pem` is too large: 1048577 bytes, at most 1048576 are read")],
        );
    }

    #[test]
    fn wants_a_text_or_a_file() {
        let place = "dir/sub/service.yaml:7:9: Service `s`: spec.tls.ca";
        check("[]", &[&format!("{place}: expected PEM in a string, or a mapping with `file`, found a list")]);
        check(
            "{fil: near.pem}",
            &[
                &format!("{place}.file: missing required field `file`"),
                "dir/sub/service.yaml:7:10: Service `s`: spec.tls.ca.fil: unknown field `fil`: did you mean `file`?",
            ],
        );
    }
}
