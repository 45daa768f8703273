//! The reference of the kinds of resources, `docs/resources.md`.

use postern_engine::schema::{Kind, Object};
use postern_model::{KindSchema, SCHEMAS};

use super::table::{fields, first_sentence, one_of, push, row};

const INTRODUCTION: &str = "\
<!-- Written by `cargo xtask docs` from the schemas in control-plane/model/src. Do not edit. -->

# The resources

What you write are YAML files, each with any number of documents. A document is one resource: its `kind`, its `metadata`, and a `spec` that
depends on the kind. Fields that are not listed here are errors, and all errors of all files are reported at once. `postern schema` prints
a JSON Schema of all kinds for your editor; `postern validate DIR` checks a directory.

Where a field takes PEM, it is the text itself or `{ file: NAME }`: the file of that name beside the resource's own, or in a folder
below the directory that is served. Its name ends in `.pem`, `.crt` or `.key`.
";

/// The whole page, as Markdown.
pub fn resources() -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str("\n| kind | what it is |\n|---|---|\n");
    for KindSchema { name, about, .. } in SCHEMAS {
        row(&mut page, &[&format!("[`{name}`](#{})", name.to_ascii_lowercase()), &first_sentence(about)]);
    }
    page.push_str("\n## Every resource\n");
    if let Some(any) = SCHEMAS.first() {
        table(&mut page, "metadata", &any.document);
    }
    for schema in SCHEMAS {
        push(&mut page, format_args!("\n## {}\n\n{}\n", schema.name, schema.about));
        table(&mut page, "spec", &schema.document);
        push(&mut page, format_args!("\n```yaml\n{}```\n", schema.example));
    }
    page
}

/// Appends a table of the fields of one part of a document.
fn table(page: &mut String, part: &'static str, document: &Object) {
    let field = document.fields.iter().find(|field| field.name == part);
    let Some(Kind::Object(object)) = field.map(|field| &field.kind) else { return };
    page.push_str("\n| field | type | default | meaning |\n|---|---|---|---|\n");
    fields(page, object, &format!("{part}."));
    one_of(page, object, part);
}
