//! Reads files into a bundle: reads each document by its kind, collects all errors, and links the resources.

use std::sync::Arc;

use postern_base::{
    diagnostic::{Diagnostic, Diagnostics, Path, quote, suggestion_or_all},
    node::DEFAULT_MESH,
    yaml::{Document, Fault, Node, Value, parse},
};
use postern_engine::schema::{Field, Kind};

use super::{
    File,
    attachment::Attachments,
    check, hidden, kind,
    kinds::{self, AnyResource, Bundle},
    links::{self, ServiceNames},
    report::{Lacking, Report},
};

/// A bundle that is being read.
pub(super) struct Reading<'f> {
    pub(super) attachments: Attachments<'f>,
    bundle: Bundle,
    services: ServiceNames,
    found: Vec<Diagnostic>,
    /// Parameters that steps lack, and that other steps of their name may have.
    lacking: Vec<Lacking>,
}

impl<'f> Reading<'f> {
    pub(super) fn new(attachments: Attachments<'f>) -> Self {
        Self {
            attachments,
            bundle: Bundle::default(),
            services: ServiceNames::default(),
            found: Vec::new(),
            lacking: Vec::new(),
        }
    }

    pub(super) fn file(&mut self, file: &File) {
        let name: Arc<str> = file.name.as_str().into();
        let parsed = parse(&file.bytes);
        if !parsed.broken.is_empty() {
            self.services.unknown();
            let mut report = Report::new(&name, None);
            faults(parsed.broken, &mut report);
            self.found.extend(report.into_found());
        }
        for document in parsed.documents {
            self.document(&name, document);
        }
    }

    pub(super) fn finish(mut self) -> Result<Bundle, Diagnostics> {
        self.found.extend(links::check(&mut self.bundle, &self.services));
        self.found.extend(links::unmet(&self.bundle, self.lacking));
        Diagnostics::reject(self.found)?;
        Ok(self.bundle)
    }

    /// Adds a cached, valid document at `lines_before` lines below the start of a file.
    pub(super) fn known(&mut self, file: &Arc<str>, lines_before: usize, entry: &Entry) {
        let Entry { resource, lacking } = entry;
        self.add(resource.placed(file, lines_before));
        self.lacking.extend(lacking.iter().map(|lacking| lacking.placed(file, lines_before)));
    }

    fn document(&mut self, file: &Arc<str>, document: Document) {
        let mut report = Report::new(file, label(&document.root));
        let (root, resource) = read_document(file, document, &self.attachments, &mut report);
        match resource {
            Some(resource) => self.add(resource),
            // Records its name although it is invalid, so that routes to it are not reported too.
            None => self.declare(&root),
        }
        self.lacking.extend(report.take_lacking());
        self.found.extend(report.into_found());
    }

    fn add(&mut self, resource: AnyResource) {
        if let AnyResource::Service(service) = &resource {
            self.services.add(&service.mesh, &service.name);
        }
        self.bundle.add(resource);
    }

    /// Records the name of an invalid service, or that there may be one with an unknown name.
    fn declare(&mut self, root: &Node) {
        match (kind(root), mesh(root), name(root)) {
            (Some("Service"), Some(mesh), Some(name)) => self.services.add(mesh, name),
            (Some(kind), ..) if kind != "Service" && is_kind(kind) => {}
            _ => self.services.unknown(),
        }
    }
}

/// A document that is valid by itself, apart from links to other resources.
pub(super) struct Entry {
    resource: AnyResource,
    lacking: Vec<Lacking>,
}

impl Entry {
    /// Reads a document as if it were alone in its file. `None` if it has errors.
    pub(super) fn read(file: &Arc<str>, document: Document, attachments: &Attachments<'_>) -> Option<Self> {
        let mut report = Report::new(file, label(&document.root));
        let (_, resource) = read_document(file, document, attachments, &mut report);
        let lacking = report.take_lacking();
        if !report.is_empty() {
            return None;
        }
        Some(Self { resource: resource?, lacking })
    }
}

/// Reads one document with its attachments. Returns its tree, and its resource if it has no errors.
fn read_document(
    file: &Arc<str>,
    Document { mut root, faults: found }: Document,
    attachments: &Attachments<'_>,
    report: &mut Report<'_>,
) -> (Node, Option<AnyResource>) {
    faults(found, report);
    let Some(schema) = kind(&root).and_then(kinds::schema) else {
        unknown_kind(&root, report);
        return (root, None);
    };
    // `postern get` shows it beside a resource. What is shown can be applied again.
    if let Value::Map(entries) = &mut root.value {
        entries.retain(|(key, _)| key.name != "status");
    }
    hidden::refuse(&root, "", &Path::Root, report);
    attachments.resolve(&mut root, &schema.document, file, report);
    let read = AnyResource::read(schema.name, file, &root, report);
    (root, read)
}

/// Reports an unknown kind, and faults of the fields that all kinds share.
fn unknown_kind(root: &Node, report: &mut Report<'_>) {
    const SHARED: &[Field] =
        &[kind::API_VERSION, Field::required("kind", Kind::Text, "The kind of the resource."), kind::METADATA];
    check::open_object(root, SHARED, &Path::Root, report);
    let Some((node, kind)) = root.get("kind").and_then(|node| Some((node, node.text()?))) else { return };
    let known: Vec<_> = kinds::SCHEMAS.iter().map(|schema| schema.name).collect();
    let message = format!("unknown kind {}{}", quote(kind), suggestion_or_all(kind, &known));
    report.error(node.at, &Path::Root.field("kind"), message);
}

fn faults(faults: Vec<Fault>, report: &mut Report<'_>) {
    for Fault { at, field, message } in faults {
        report.error_in(at, field, message);
    }
}

fn kind(root: &Node) -> Option<&str> {
    root.get("kind")?.text()
}

fn name(root: &Node) -> Option<&str> {
    root.get("metadata")?.get("name")?.text()
}

/// The mesh of a document, by default [`DEFAULT_MESH`]. `None` if it is not a string.
fn mesh(root: &Node) -> Option<&str> {
    let written = root.get("metadata").and_then(|metadata| metadata.get("mesh"));
    written.map_or(Some(DEFAULT_MESH), Node::text)
}

fn is_kind(kind: &str) -> bool {
    kinds::schema(kind).is_some()
}

/// "Gateway `edge`", or "Gateway" without a name. `None` for an unknown kind.
fn label(root: &Node) -> Option<String> {
    let kind = kind(root).filter(|kind| is_kind(kind))?;
    Some(name(root).map_or_else(|| kind.to_owned(), |name| format!("{kind} {}", quote(name))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read;

    fn check(documents: &str, expect: &[&str]) {
        let outcome = read(&[File { name: "f".to_owned(), bytes: documents.as_bytes().to_vec() }]);
        let errors = outcome.err().map(|errors| errors.to_string()).unwrap_or_default();
        assert_eq!(errors.lines().collect::<Vec<_>>(), expect);
    }

    #[test]
    fn wants_mappings() {
        check("- a", &["f:1:1: expected a mapping, found a list"]);
        check("text", &["f:1:1: expected a mapping, found a string"]);
    }

    #[test]
    fn wants_the_shared_fields() {
        check(
            "a: b",
            &[
                "f:1:1: apiVersion: missing required field `apiVersion`",
                "f:1:1: kind: missing required field `kind`",
                "f:1:1: metadata: missing required field `metadata`",
            ],
        );
        check(
            "apiVersion: postern/v2\nkind: Service\nmetadata: {name: a b, labels: {x: 1}, more: 2}",
            &[
                "f:1:1: Service `a b`: spec: missing required field `spec`",
                "f:1:13: Service `a b`: apiVersion: expected `postern/v1`, found `postern/v2`",
                "f:3:18: Service `a b`: metadata.name: expected a name of at most 253 letters, digits, `.`, `_` and `-` that \
                 starts with a letter or digit, found `a b`",
                "f:3:35: Service `a b`: metadata.labels.x: expected a string, found a number: put it in quotes",
                "f:3:39: Service `a b`: metadata.more: unknown field `more`",
            ],
        );
    }

    #[test]
    fn names_the_kind_alone_if_there_is_no_name() {
        check(
            "{apiVersion: postern/v1, kind: Service, metadata: {}, spec: {endpoints: [{address: a, port: 1}]}}",
            &["f:1:51: Service: metadata.name: missing required field `name`"],
        );
    }

    #[test]
    fn suggests_kinds() {
        let document = |kind| format!("{{kind: {kind}, apiVersion: postern/v1, metadata: {{name: a}}, spec: {{}}}}");
        check(&document("Gatway"), &["f:1:8: kind: unknown kind `Gatway`: did you mean `Gateway`?"]);
        check(
            &document("Ingress"),
            &["f:1:8: kind: unknown kind `Ingress`: expected one of `Gateway`, `Service`, `EnvoyResource`, \
                 `Consumer`, `Issuer`, `Agent`, `RoutePolicy`, `TrafficPermission`, `Timeout`, `CircuitBreaker`, `Retry`, \
                 `HealthCheck`, `VirtualOutbound`, `AccessLog`, `Tracing`, `Settings`"],
        );
        check(&document("3"), &["f:1:8: kind: expected a string, found a number: put it in quotes"]);
    }

    #[test]
    fn names_the_resource_of_a_fault_in_its_yaml() {
        check(
            "apiVersion: postern/v1\nkind: Service\nmetadata: {name: a}\nspec:\n  endpoints: [{address: a, port: 1, port: 2}]",
            &["f:5:37: Service `a`: spec.endpoints[0]: duplicate key `port`: first on line 5"],
        );
    }

    #[test]
    fn reports_the_errors_of_all_documents_and_the_syntax_error_that_ends_the_file() {
        check(
            "kind: Service\n---\nkind: Consumer\n---\n{",
            &[
                "f:1:1: Service: apiVersion: missing required field `apiVersion`",
                "f:1:1: Service: metadata: missing required field `metadata`",
                "f:1:1: Service: spec: missing required field `spec`",
                "f:3:1: Consumer: apiVersion: missing required field `apiVersion`",
                "f:3:1: Consumer: metadata: missing required field `metadata`",
                "f:3:1: Consumer: spec: missing required field `spec`",
                "f:6:1: not valid YAML: while parsing a node, did not find expected node content",
            ],
        );
    }
}
