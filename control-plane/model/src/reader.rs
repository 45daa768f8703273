//! Reads files like [`read`](super::read), and caches documents by their text: only documents that changed are parsed
//! and checked again.
//!
//! The key of a document is the digest of its text and, if it may name attachments, of these. Documents with errors are
//! not cached. A file is read whole if anything in it is wrong, or if it cannot safely be split by lines, so that
//! errors are the same with and without the cache.

use std::{
    cell::OnceCell,
    fmt, mem,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use memchr::{memchr, memchr_iter, memmem};
use postern_base::{
    diagnostic::Diagnostics,
    digest::Digest,
    yaml::{MAX_BYTES, MAX_NODES, MAX_TEXT, parse},
};
use rustc_hash::{FxBuildHasher, FxHashMap};
use sha2::{Digest as _, Sha256};

use super::{
    Bundle, File,
    attachment::{Attachments, is_attachment},
    reading::{Entry, Reading},
};

/// The SHA-256 digest that a document is cached under.
type Text = [u8; 32];
/// Cached documents. The keys are digests, so a fast hash suffices.
type Documents = FxHashMap<Text, CachedDocument>;

/// The result of reading one document.
#[derive(Clone)]
struct CachedDocument {
    /// The resource. `None` for an empty document.
    entry: Option<Arc<Entry>>,
    /// What the document counts towards the limits of its file.
    nodes: usize,
    text: usize,
}

/// Reads bundles and caches the documents of the last two readings. Can be shared by threads, and holds its lock for
/// lookups only.
#[derive(Default)]
pub struct Reader {
    known: Mutex<Generations>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        write!(formatter, "Reader({} documents)", known.latest.len())
    }
}

/// The documents of the last two readings, so that a refused reading does not empty the cache.
#[derive(Default)]
struct Generations {
    latest: Documents,
    before: Documents,
}

impl Generations {
    fn get(&self, text: &Text) -> Option<&CachedDocument> {
        self.latest.get(text).or_else(|| self.before.get(text))
    }
}

impl Reader {
    /// Reads all files as one bundle, or returns all errors: exactly what [`read`](super::read) returns.
    pub fn read(&self, files: &[File]) -> Result<Bundle, Diagnostics> {
        let mut reading = Reading::new(Attachments::of(files));
        let mut pass = Pass { reader: self, used: self.room(), beside: OnceCell::new() };
        for file in files.iter().filter(|file| !is_attachment(file.name.as_ref())) {
            let name: Arc<str> = file.name.as_str().into();
            match pass.documents(&name, &file.bytes, &reading.attachments) {
                Some(documents) => documents.iter().for_each(|(line, entry)| reading.known(&name, *line, entry)),
                None => reading.file(file),
            }
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.before = mem::replace(&mut known.latest, pass.used);
        drop(known);
        reading.finish()
    }

    /// An empty map with room for as many documents as the last reading had.
    fn room(&self) -> Documents {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).latest.len();
        Documents::with_capacity_and_hasher(known, FxBuildHasher)
    }

    fn remembered(&self, text: &Text) -> Option<CachedDocument> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(text).cloned()
    }
}

/// One reading.
struct Pass<'r> {
    reader: &'r Reader,
    /// The documents of this reading, for the next one.
    used: Documents,
    /// The digest of all attachments, computed on first use.
    beside: OnceCell<Digest>,
}

impl Pass<'_> {
    /// The documents of a file, each with the number of lines before it. `None` if the file must be read whole.
    fn documents(
        &mut self,
        file: &Arc<str>,
        bytes: &[u8],
        attachments: &Attachments<'_>,
    ) -> Option<Vec<(usize, Arc<Entry>)>> {
        let (mut found, mut nodes, mut text) = (Vec::new(), 0_usize, 0_usize);
        for (line, document) in divide(bytes)? {
            // A document that names a file by an escaped `file` finds no attachment, has an error, and so is read
            // whole.
            let names_files = memmem::find(document, b"file").is_some();
            let digest = self.digest(document, file, names_files.then_some(attachments));
            let known = self.used.get(&digest).cloned().or_else(|| self.reader.remembered(&digest));
            let known = match known {
                Some(known) => known,
                None if names_files => read_alone(document, file, attachments)?,
                None => read_alone(document, file, &Attachments::default())?,
            };
            nodes = nodes.saturating_add(known.nodes);
            text = text.saturating_add(known.text);
            found.extend(known.entry.as_ref().map(|entry| (line, Arc::clone(entry))));
            self.used.insert(digest, known);
        }
        (nodes <= MAX_NODES && text <= MAX_TEXT).then_some(found)
    }

    /// The key of a document: its text and, if it may name attachments, these and the document's own file.
    fn digest(&self, document: &[u8], file: &str, beside: Option<&Attachments<'_>>) -> Text {
        let Some(attachments) = beside else { return Sha256::digest(document).into() };
        let folder = Path::new(file).parent().unwrap_or(Path::new("")).as_os_str().as_encoded_bytes();
        let beside = self.beside.get_or_init(|| attachments.digest());
        let text: Text = Sha256::digest(document).into();
        Sha256::new().chain_update(text).chain_update(beside.as_str()).chain_update(folder).finalize().into()
    }
}

/// Reads a document as if it were alone in its file. `None` if it has errors and must not be cached.
fn read_alone(document: &[u8], file: &Arc<str>, attachments: &Attachments<'_>) -> Option<CachedDocument> {
    let parsed = parse(document);
    if !parsed.broken.is_empty() || parsed.documents.len() > 1 {
        return None;
    }
    let (nodes, text) = (parsed.nodes, parsed.text);
    let entry = match parsed.documents.into_iter().next() {
        Some(document) => Some(Arc::new(Entry::read(file, document, attachments)?)),
        None => None,
    };
    Some(CachedDocument { entry, nodes, text })
}

/// Splits a file into documents, each with the number of lines before it. A line that starts with `---` always starts a
/// document: YAML has no other use for it. `None` if there are directives, which may apply to several documents, or
/// other line ends.
fn divide(bytes: &[u8]) -> Option<Vec<(usize, &[u8])>> {
    if bytes.len() > MAX_BYTES || bytes.starts_with("\u{feff}".as_bytes()) {
        return None;
    }
    let (mut documents, mut start, mut first, mut at) = (Vec::new(), 0, 0, 0);
    let has_returns = memchr(b'\r', bytes).is_some();
    // The ends of lines, and of a last line without one.
    let ends = memchr_iter(b'\n', bytes).map(|end| end.saturating_add(1));
    let last = (!bytes.is_empty() && !bytes.ends_with(b"\n")).then_some(bytes.len());
    for (number, end) in ends.chain(last).enumerate() {
        let line = bytes.get(at..end)?;
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if text.starts_with(b"%") || has_returns && text.contains(&b'\r') {
            return None;
        }
        if number > 0 && text.strip_prefix(b"---").is_some_and(|rest| matches!(rest.first(), None | Some(b' ' | b'\t')))
        {
            documents.push((first, bytes.get(start..at)?));
            (start, first) = (at, number);
        }
        at = end;
    }
    documents.push((first, bytes.get(start..)?));
    Some(documents)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::read;

    fn file(name: &str, text: impl Into<Vec<u8>>) -> File {
        File { name: name.to_owned(), bytes: text.into() }
    }

    /// A reading as text: resources with their positions, or the errors.
    fn shown(read: Result<Bundle, Diagnostics>) -> String {
        read.map_or_else(
            |errors| errors.to_string(),
            |bundle| {
                let services = bundle.services.iter().map(|service| service.diagnose("spec.endpoints[0].port", "here"));
                let policies = bundle.route_policies.iter().map(|policy| policy.diagnose("spec.request[0]", "here"));
                let places: Vec<_> = services.chain(policies).map(|place| place.to_string()).collect();
                format!("{bundle:?}\n{}", places.join("\n"))
            },
        )
    }

    #[track_caller]
    fn check(reader: &Reader, files: &[File]) {
        // In the first round everything is new, in the second nothing.
        for _ in 0..2 {
            assert_eq!(shown(reader.read(files)), shown(read(files)));
        }
    }

    const HEAD: &str = "apiVersion: postern/v1\nkind:";

    fn service(name: &str) -> String {
        format!(
            "{HEAD} Service\nmetadata: {{ name: {name} }}\nspec:\n  endpoints:\n    - {{ address: a.test, port: 80 }}\n"
        )
    }

    fn policy(name: &str, params: &str) -> String {
        format!(
            "{HEAD} RoutePolicy\nmetadata: {{ name: {name} }}\nspec:\n  targetRef: {{ kind: HTTPRoute, name: {name} }}\n  \
             request:\n    - {{ policy: rateLimit, params: {params} }}\n"
        )
    }

    #[test]
    fn says_where_a_document_stands_now() {
        let reader = Reader::default();
        let (a, b) = (service("a"), service("b"));
        check(&reader, &[file("1.yaml", format!("{a}---\n{b}"))]);
        check(&reader, &[file("1.yaml", format!("# a line more\n\n---\n{a}---\n# and another\n{b}"))]);
        check(&reader, &[file("1.yaml", format!("---\n{b}")), file("2.yaml", a.clone())]);
        // A duplicate is an error that names both positions.
        check(&reader, &[file("1.yaml", format!("{a}---\n{b}---\n{a}")), file("2.yaml", b)]);
    }

    #[test]
    fn says_what_is_missing_where_the_step_stands_now() {
        let reader = Reader::default();
        let (whole, part) = (policy("a", "{ requests: 5, per: 1s }"), policy("b", "{ burst: 5 }"));
        check(&reader, &[file("1.yaml", format!("{whole}---\n{part}"))]);
        check(&reader, &[file("1.yaml", format!("# more\n{whole}---\n# more\n{part}"))]);
        check(&reader, &[file("2.yaml", part)]);
    }

    #[test]
    fn reads_a_file_beside_a_document_again_when_it_changes() {
        let reader = Reader::default();
        let text = format!("{}  tls:\n    ca: {{ file: ca.pem }}\n", service("a"));
        let escaped = text.replace("{ file:", "{ \"\\x66ile\":");
        for text in [text, escaped] {
            for pem in ["-", "+", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
                check(&reader, &[file("d/1.yaml", text.clone()), file("d/ca.pem", pem)]);
                check(&reader, &[file("e/1.yaml", text.clone()), file("d/ca.pem", pem)]);
            }
        }
    }

    #[test]
    fn reads_whole_what_yaml_may_divide_elsewhere() {
        let reader = Reader::default();
        let (a, b) = (service("a"), service("b"));
        for text in [
            format!("%YAML 1.2\n---\n{a}...\n---\n{b}"),
            format!("%TAG ! tag:x,2000:\n---\n{a}"),
            format!("{a}...\n{b}"),
            format!("{}\r---\r{}", a.replace('\n', "\r"), b.replace('\n', "\r")),
            format!("{}---\r\n{}", a.replace('\n', "\r\n"), b.replace('\n', "\r\n")),
            format!("\u{feff}{a}---\n{b}"),
            format!("{a}--- # with a comment\n{b}---\n---\n"),
            format!("{a}---x: 1\n---\n{b}"),
            format!("{a}labels: \"\n---\n\"\n---\n{b}"),
            format!("x: &x 1\n---\n{a}---\ny: *x\n"),
            format!("{a}---\n{{\n---\n{b}"),
            "---".to_owned(),
            String::new(),
        ] {
            check(&reader, &[file("1.yaml", text)]);
        }
        check(&reader, &[file("1.yaml", [a.as_bytes(), b"---\n\xff"].concat())]);
    }

    #[test]
    fn counts_all_documents_of_a_file_together() {
        let reader = Reader::default();
        let mut aliases = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..5 {
            let alias = format!("*a{}, ", level - 1).repeat(10);
            aliases.push_str(&format!("a{level}: &a{level} [{alias}]\n"));
        }
        let document = format!("{HEAD} Settings\nmetadata: {{ name: s }}\nspec: {{}}\n{aliases}");
        let text = vec![document; 6].join("---\n");
        assert!(shown(reader.read(&[file("1.yaml", text.clone())])).contains("more than 1000000 values"));
        check(&reader, &[file("1.yaml", text)]);
    }

    #[test]
    fn parses_only_what_changed_and_forgets_what_is_gone() {
        let reader = Reader::default();
        let files = |count: u32| {
            let all: Vec<_> = (0..count).map(|number| service(&format!("s{number}"))).collect();
            [file("1.yaml", all.join("---\n"))]
        };
        let first = reader.read(&files(10)).unwrap();
        let second = reader.read(&files(11)).unwrap();
        let shared = |one: &Bundle, other: &Bundle| {
            let same = |service: &&super::super::Resource<_>| {
                other.services.iter().any(|other| std::ptr::eq(&raw const ***service, &raw const **other))
            };
            one.services.iter().filter(same).count()
        };
        assert_eq!(shared(&first, &second), 10);
        reader.read(&files(1)).unwrap();
        reader.read(&files(1)).unwrap();
        let known = reader.known.lock().unwrap();
        assert_eq!((known.latest.len(), known.before.len()), (1, 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        /// For any texts and any history, a reader returns what reading without a cache returns.
        #[test]
        fn reads_as_if_everything_were_new(
            texts in prop::collection::vec(prop::collection::vec(0_usize..14, 0..6), 1..5),
        ) {
            let reader = Reader::default();
            let parts = [
                service("a"), service("b"), policy("a", "{ requests: 5, per: 1s }"), policy("b", "{ burst: 5 }"),
                "---\n".to_owned(), "--- ".to_owned(), "...\n".to_owned(), "# file\n".to_owned(), "\n".to_owned(),
                "%YAML 1.2\n".to_owned(), "x: [\n".to_owned(), "'\n".to_owned(), "\r".to_owned(), "kind: Service\n".to_owned(),
            ];
            for text in texts {
                let text: String = text.into_iter().map(|part| parts[part].as_str()).collect();
                let files = [file("1.yaml", text), file("2.yaml", service("c"))];
                prop_assert_eq!(shown(reader.read(&files)), shown(read(&files)));
            }
        }
    }
}
