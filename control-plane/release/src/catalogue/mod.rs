//! The resources of a revision as users wrote them, by kind, mesh and name, to be shown, compared and removed. It reads
//! what was admitted before, and validates nothing.

mod hidden;
mod returned;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use postern_base::{digest::Digest, node::DEFAULT_MESH};
use postern_model::{
    Bundle, Declaration, File,
    attachment::{is_attachment, named_from},
    read_document,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::hidden::hide;
pub use self::{hidden::hide_field, returned::restore};
use crate::store::{Document, Store, StoreError};

/// The number of catalogues that are cached: those of the revisions in force, and of two that are being compared.
const AT_HAND: usize = 4;

/// What tells a resource from all others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ResourceKey {
    /// Its kind, such as `RoutePolicy`.
    pub kind: String,
    /// Its mesh.
    pub mesh: String,
    /// Its name.
    pub name: String,
}

impl ResourceKey {
    /// How errors name it: "RoutePolicy `users-api`".
    pub fn label(&self) -> String {
        format!("{} `{}`", self.kind, self.name)
    }
}

impl From<Declaration<'_>> for ResourceKey {
    fn from(Declaration { kind, mesh, name, .. }: Declaration<'_>) -> Self {
        Self { kind: kind.to_owned(), mesh: mesh.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.label())?;
        if self.mesh == DEFAULT_MESH { Ok(()) } else { write!(formatter, " of mesh `{}`", self.mesh) }
    }
}

/// One resource as it was written. It has no `Debug`, because it can hold a credential.
#[derive(Clone)]
pub struct Entry {
    /// The file that it is in.
    pub file: String,
    /// The line at which it starts.
    pub line: usize,
    written: Value,
}

impl Entry {
    /// The resource as written, without credentials.
    pub fn shown(&self) -> Value {
        let mut value = self.written.clone();
        hide(&mut value);
        value
    }

    /// The resource as written, with credentials: for comparison, never for display.
    pub fn written(&self) -> &Value {
        &self.written
    }
}

/// All resources of a revision.
#[derive(Default)]
pub struct Catalogue(BTreeMap<ResourceKey, Entry>);

impl fmt::Debug for Catalogue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}

impl Catalogue {
    /// The catalogue of these documents. Documents that are no resources, such as certificates, are left out.
    pub fn of(documents: &[Document]) -> Self {
        Self(documents.iter().filter_map(entry).collect())
    }

    /// The resource with this key, or `None`.
    pub fn get(&self, key: &ResourceKey) -> Option<&Entry> {
        self.0.get(key)
    }

    /// All resources, sorted by kind, mesh and name.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceKey, &Entry)> {
        self.0.iter()
    }
}

/// The documents without those of one resource, or `None` if the resource is not among them.
pub fn without(documents: Vec<Document>, key: &ResourceKey) -> Option<Vec<Document>> {
    let before = documents.len();
    let others = |document: &Document| entry(document).is_none_or(|(found, _)| found != *key);
    let left: Vec<_> = documents.into_iter().filter(others).collect();
    (left.len() < before).then_some(left)
}

/// The resource that a document declares; `None` if it declares none, or cannot be read.
pub fn key_of(document: &Document) -> Option<ResourceKey> {
    entry(document).map(|(key, _)| key)
}

/// The line at which the content of a document starts.
pub(crate) fn line_of(document: &Document) -> usize {
    document.line.saturating_add(lines_before(&document.text))
}

/// The paths, normalized, of the files that a document names in place of a text. `None` if it declares no resource.
pub(crate) fn files_of(document: &Document) -> Option<BTreeSet<PathBuf>> {
    Some(named_by(document)?.iter().map(|name| named_from(&document.file, name)).collect())
}

/// The files that a document names in place of a text, as it names them. `None` if it declares no resource.
pub fn named_by(document: &Document) -> Option<BTreeSet<String>> {
    fn walk(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("file").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| walk(value, found));
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
            _ => {}
        }
    }
    let (_, found) = entry(document)?;
    let mut names = BTreeSet::new();
    walk(&found.written, &mut names);
    Some(names)
}

/// Whether a document is part of an attachment at one of these normalized paths.
pub(crate) fn is_one_of(document: &Document, files: &BTreeSet<PathBuf>) -> bool {
    is_attachment(document.file.as_ref()) && files.contains(&named_from("", &document.file))
}

fn entry(document: &Document) -> Option<(ResourceKey, Entry)> {
    if is_attachment(document.file.as_ref()) {
        return None;
    }
    let file = File { name: document.file.clone(), bytes: document.text.clone() };
    // What was admitted can be read; what only an older version could read is not shown.
    let mut written = read_document(&file).ok()?;
    // It is ignored, and may be what `postern get` showed of an earlier revision.
    written.as_object_mut().map(|fields| fields.remove("status"));
    let text = |place: &str| written.pointer(place).and_then(Value::as_str).map(str::to_owned);
    let (kind, name) = (text("/kind")?, text("/metadata/name")?);
    let mesh = text("/metadata/mesh").unwrap_or_else(|| DEFAULT_MESH.to_owned());
    let line = line_of(document);
    Some((ResourceKey { kind, mesh, name }, Entry { file: document.file.clone(), line, written }))
}

/// The number of lines before the first line with content.
fn lines_before(text: &[u8]) -> usize {
    let says_nothing = |line: &&[u8]| {
        let line = line.trim_ascii();
        line.is_empty() || line.starts_with(b"#") || line == b"---"
    };
    text.split(|byte| *byte == b'\n').take_while(says_nothing).count()
}

/// A cache of the catalogues that were asked for last. Revisions are immutable, and parsing one is slow.
#[derive(Debug, Default)]
pub struct Catalogues(Mutex<VecDeque<(u64, Arc<Catalogue>)>>);

impl Catalogues {
    /// Forgets revisions, because their documents have changed.
    pub fn forget(&self, numbers: &[u64]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(held, _)| !numbers.contains(held));
    }

    /// The catalogue of a revision, or `None` if the store no longer has the revision.
    pub fn get(&self, store: &dyn Store, number: u64) -> Result<Option<Arc<Catalogue>>, StoreError> {
        let kept = |held: &VecDeque<(u64, Arc<Catalogue>)>| {
            held.iter().find(|(held, _)| *held == number).map(|(_, catalogue)| Arc::clone(catalogue))
        };
        if let Some(catalogue) = kept(&self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(Some(catalogue));
        }
        let Some(documents) = store.documents(number)? else { return Ok(None) };
        let catalogue = Arc::new(Catalogue::of(&documents));
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept(&held).is_none() {
            held.truncate(AT_HAND - 1);
            held.push_front((number, Arc::clone(&catalogue)));
        }
        Ok(Some(catalogue))
    }
}

/// The digest of every resource. It depends on the resource's meaning, not on its formatting.
pub fn digests(bundle: &Bundle) -> BTreeMap<ResourceKey, Digest> {
    bundle.iter().map(|resource| (ResourceKey::from(resource), resource.digest.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::split;

    fn documents() -> Vec<Document> {
        let text = "apiVersion: postern/v1\nkind: Consumer\nmetadata: { name: a }\nspec: { apiKeys: [{ key: secret-1 }] }\n---\n\
                    apiVersion: postern/v1\nkind: Consumer\nmetadata: { name: a, mesh: other }\nspec: {}\n";
        let file = |name: &str, text: &str| File { name: name.to_owned(), bytes: text.as_bytes().to_vec() };
        split(&[file("a.yaml", text), file("key.pem", "-----BEGIN PRIVATE KEY-----\n")])
    }

    fn key(mesh: &str) -> ResourceKey {
        ResourceKey { kind: "Consumer".to_owned(), mesh: mesh.to_owned(), name: "a".to_owned() }
    }

    #[test]
    fn lists_resources_by_kind_mesh_and_name() {
        let catalogue = Catalogue::of(&documents());
        let found: Vec<_> = catalogue.iter().map(|(key, entry)| (key.to_string(), entry.line)).collect();
        assert_eq!(found, [("Consumer `a`".to_owned(), 1), ("Consumer `a` of mesh `other`".to_owned(), 6)]);
    }

    #[test]
    fn shows_no_credential() {
        let catalogue = Catalogue::of(&documents());
        let shown = catalogue.get(&key("default")).unwrap().shown().to_string();
        assert!(!shown.contains("secret-1") && shown.contains("(hidden)"), "{shown}");
    }

    #[test]
    fn takes_one_resource_out_and_leaves_files_that_others_need() {
        let left = without(documents(), &key("other")).unwrap();
        let files: Vec<_> = left.iter().map(|document| (document.file.as_str(), document.line)).collect();
        assert_eq!(files, [("a.yaml", 1), ("key.pem", 1)]);
        assert!(without(documents(), &key("none")).is_none());
    }
}
