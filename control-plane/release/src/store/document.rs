//! Documents as users wrote them, with file and line, so that errors that are found later can still name the place.

use std::{collections::BTreeMap, fmt};

use postern_base::seal::NAME;
use postern_model::File;
use serde::{Deserialize, Serialize};

/// One YAML document of a file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Document {
    /// The path of the file, as the user gave it.
    pub file: String,
    /// The line at which it starts, from 1.
    pub line: usize,
    /// Its bytes, unchanged.
    #[serde(with = "text")]
    pub text: Vec<u8>,
}

impl fmt::Debug for Document {
    /// Omits the content, which can hold credentials.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{} ({} bytes)", self.file, self.line, self.text.len())
    }
}

impl Document {
    /// Its file and line.
    pub(crate) fn key(&self) -> (String, usize) {
        (self.file.clone(), self.line)
    }
}

/// Documents to be appended to a store, optionally [prepared](super::Store::prepare) by it.
#[derive(Debug, Clone)]
pub struct Prepared {
    pub(super) documents: Vec<Document>,
    /// The documents as the store that prepared them keeps them; empty if they were not prepared.
    pub(super) named: Vec<Named>,
}

impl From<Vec<Document>> for Prepared {
    fn from(documents: Vec<Document>) -> Self {
        Self { documents, named: Vec::new() }
    }
}

/// A named document before encryption.
#[derive(Clone)]
pub(super) struct Named {
    pub(super) name: [u8; NAME],
    pub(super) bytes: Vec<u8>,
}

impl fmt::Debug for Named {
    /// Omits the content, which can hold credentials.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({} bytes)", hex::encode(self.name), self.bytes.len())
    }
}

/// Splits files into documents. A line that starts with `---` starts one; YAML allows it nowhere else. Documents
/// without any content are left out.
pub fn split(files: &[File]) -> Vec<Document> {
    let mut documents = Vec::new();
    for file in files {
        let mut current: Option<Document> = None;
        for (index, line) in file.bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            if starts_document(line) {
                documents.extend(current.take());
            }
            match &mut current {
                Some(document) => document.text.extend(line),
                None => current = Some(Document { file: file.name.clone(), line: index + 1, text: line.to_vec() }),
            }
        }
        documents.extend(current);
    }
    documents.retain(|document| document.text.iter().any(|byte| !byte.is_ascii_whitespace()));
    documents.sort();
    documents
}

fn starts_document(line: &[u8]) -> bool {
    line.strip_prefix(b"---").is_some_and(|rest| rest.first().is_none_or(u8::is_ascii_whitespace))
}

/// Rebuilds the files from documents, with every document at its line. Missing documents leave empty lines.
pub fn assemble(documents: &[Document]) -> Vec<File> {
    let mut files: BTreeMap<&str, Vec<&Document>> = BTreeMap::new();
    for document in documents {
        files.entry(&document.file).or_default().push(document);
    }
    let file = |(name, mut documents): (&str, Vec<&Document>)| {
        documents.sort_by_key(|document| document.line);
        let mut bytes = Vec::new();
        let mut line = 1;
        for document in documents {
            while line < document.line {
                bytes.push(b'\n');
                line += 1;
            }
            bytes.extend(&document.text);
            line += document.text.iter().filter(|byte| **byte == b'\n').count();
        }
        File { name: name.to_owned(), bytes }
    };
    files.into_iter().map(file).collect()
}

/// Serializes bytes as text if they are UTF-8, else in hexadecimal. Invalid UTF-8 is reported to users elsewhere.
mod text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Form {
        Text(String),
        Bytes { hex: String },
    }

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(bytes) {
            Ok(text) => text.serialize(serializer),
            Err(_) => Form::Bytes { hex: hex::encode(bytes) }.serialize(serializer),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        match Form::deserialize(deserializer)? {
            Form::Text(text) => Ok(text.into_bytes()),
            Form::Bytes { hex } => hex::decode(hex).map_err(D::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> File {
        File { name: name.to_owned(), bytes: text.as_bytes().to_vec() }
    }

    fn check(text: &str, expect: &[(usize, &str)]) {
        let documents = split(&[file("a.yaml", text)]);
        let found: Vec<_> =
            documents.iter().map(|document| (document.line, std::str::from_utf8(&document.text).unwrap())).collect();
        assert_eq!(found, expect, "for {text:?}");
    }

    #[test]
    fn splits_where_yaml_does() {
        check("a: 1\n---\nb: 2\n", &[(1, "a: 1\n"), (2, "---\nb: 2\n")]);
        check("--- {a: 1}\n---\tx\n", &[(1, "--- {a: 1}\n"), (2, "---\tx\n")]);
        check("a: |\n  ---\n  b\n---c: 1\n", &[(1, "a: |\n  ---\n  b\n---c: 1\n")]);
        check("a: 1", &[(1, "a: 1")]);
        check("", &[]);
        check("\n \n---\na: 1\r\n---\r\nb: 1", &[(3, "---\na: 1\r\n"), (5, "---\r\nb: 1")]);
    }

    #[test]
    fn assembles_what_it_split() {
        let text = "# first\na: 1\n---\n\nb: 2\n---\nc: 3\n";
        let files = [file("b.yaml", "x: 1\n"), file("a.yaml", text)];
        let assembled = assemble(&split(&files));
        let shown: Vec<_> =
            assembled.iter().map(|file| (file.name.as_str(), String::from_utf8(file.bytes.clone()).unwrap())).collect();
        assert_eq!(shown, [("a.yaml", text.to_owned()), ("b.yaml", "x: 1\n".to_owned())]);
    }

    #[test]
    fn keeps_the_lines_of_what_stays() {
        let consumer = |name: &str| format!("apiVersion: postern/v1\nkind: Consumer\nmetadata: {{ name: {name} }}\n");
        let text = format!("{}---\n{}---\n{}", consumer("a"), consumer("b"), consumer("c"));
        let errors = |files: &[File]| postern_model::read(files).unwrap_err().to_string();
        let mut documents = split(&[file("a.yaml", &text)]);
        let before = errors(&assemble(&documents));
        assert!(before.contains("a.yaml:9:1: Consumer `c`: spec: missing required field `spec`"), "{before}");
        documents.remove(1);
        let after = errors(&assemble(&documents));
        assert!(after.contains("a.yaml:9:1: Consumer `c`"), "{after}");
        assert!(!after.contains("Consumer `b`"), "{after}");
    }

    #[test]
    fn keeps_bytes_that_are_no_text() {
        let document = Document { file: "a".to_owned(), line: 1, text: vec![0xff, b'a'] };
        let kept = serde_json::to_string(&document).unwrap();
        assert_eq!(kept, r#"{"file":"a","line":1,"text":{"hex":"ff61"}}"#);
        assert_eq!(serde_json::from_str::<Document>(&kept).unwrap(), document);
    }

    #[test]
    fn shows_no_content() {
        let shown = format!("{:?}", split(&[file("a.yaml", "key: secret")]));
        assert_eq!(shown, "[a.yaml:1 (11 bytes)]");
    }
}
