//! Checks the page that says where each section of the five documents is in the code, and what proves it. A row that names
//! nothing, a path, test or case that does not exist, and a section without a row are findings.

use std::collections::BTreeSet;
use std::path::Path;

use super::finding::Finding;
use super::test_names;
use super::tree::Tree;

/// The page.
pub(crate) const PAGE: &str = "docs/specifications.md";
/// How many documents it has a table for.
const DOCUMENTS: usize = 5;
/// What a list of sections starts with.
const SECTIONS: &str = "**Sections:**";
/// What stands in place of a test: we differ, we have not built it, or the section asks for nothing.
const REASONS: [&str; 3] = [POSTERN, "**Not yet:**", "**No rule:**"];
/// A reason that needs a link to where it is explained.
const POSTERN: &str = "**Postern:**";

/// What is wrong with the page.
pub(crate) fn check(page: &str, tree: &Tree, text: &dyn Fn(&Path) -> String) -> Vec<Finding> {
    let tables = tables(page);
    let mut findings: Vec<_> = tables.iter().flat_map(|table| table.check(tree, text)).collect();
    if tables.len() != DOCUMENTS {
        let message = format!("{} lists of sections, and there are {DOCUMENTS} documents", tables.len());
        findings.push(Finding::new(PAGE, 0, message));
    }
    findings
}

/// The sections of a document, and the rows about them.
#[derive(Debug)]
struct Table<'a> {
    /// The line of the list.
    line: usize,
    sections: BTreeSet<&'a str>,
    rows: Vec<Row<'a>>,
}

/// A row: the sections, the requirement, where it is, and what proves it.
#[derive(Debug)]
struct Row<'a> {
    line: usize,
    cells: Vec<&'a str>,
}

/// A table for each list of sections. A list goes on to the next empty line.
fn tables(page: &str) -> Vec<Table<'_>> {
    let (mut tables, mut in_list): (Vec<Table<'_>>, bool) = (Vec::new(), false);
    for (index, line) in page.lines().enumerate() {
        let list = line.strip_prefix(SECTIONS);
        if list.is_some() {
            tables.push(Table { line: index + 1, sections: BTreeSet::new(), rows: Vec::new() });
        }
        in_list = list.is_some() || (in_list && !line.is_empty());
        let Some(table) = tables.last_mut() else { continue };
        match line.strip_prefix("| ") {
            _ if in_list => table.sections.extend(numbers(list.unwrap_or(line))),
            Some(row) if !row.starts_with("section |") => {
                let cells = row.trim_end().trim_end_matches('|').split('|').map(str::trim).collect();
                table.rows.push(Row { line: index + 1, cells });
            }
            _ => {}
        }
    }
    tables
}

/// The numbers in a part of a list: "4 Configuration; 4.1 Schema;".
fn numbers(list: &str) -> impl Iterator<Item = &str> {
    list.split(';').filter_map(|entry| entry.split_whitespace().next())
}

impl Table<'_> {
    fn check(&self, tree: &Tree, text: &dyn Fn(&Path) -> String) -> Vec<Finding> {
        let covered: BTreeSet<_> = self.rows.iter().flat_map(Row::sections).collect();
        let bare = self.sections.difference(&covered);
        let bare = bare.map(|section| Finding::new(PAGE, self.line, format!("section {section} has no row")));
        let rows = self.rows.iter().flat_map(|row| {
            let messages = row.check(&self.sections, tree, text);
            messages.into_iter().map(|message| Finding::new(PAGE, row.line, message))
        });
        bare.chain(rows).collect()
    }
}

impl Row<'_> {
    /// The numbers in its first cell: "4, 4.1".
    fn sections(&self) -> impl Iterator<Item = &str> {
        self.cells.first().into_iter().flat_map(|cell| cell.split(", "))
    }

    fn check(&self, sections: &BTreeSet<&str>, tree: &Tree, text: &dyn Fn(&Path) -> String) -> Vec<String> {
        let [_, requirement, place, proof] = self.cells.as_slice() else {
            return vec![format!("{} cells, and a row has 4", self.cells.len())];
        };
        let unlisted = self.sections().filter(|section| !sections.contains(section));
        let mut wrong: Vec<_> = unlisted.map(|section| format!("section {section} is not in the list")).collect();
        if requirement.is_empty() {
            wrong.push("it does not say what is required".to_owned());
        }
        let places: Vec<_> = quoted(place).filter(|name| is_path(name)).collect();
        wrong.extend(places.iter().filter_map(|path| missing_place(path, tree)));
        let proofs: Vec<_> = quoted(proof).filter(|name| is_proof(name)).collect();
        wrong.extend(proofs.iter().filter_map(|proof| missing_proof(proof, tree, text)));
        wrong.extend(lacks(proof, places.is_empty(), proofs.is_empty()).map(str::to_owned));
        wrong
    }
}

/// What a row lacks: without a reason it needs a place and a proof, and a reason needs words.
fn lacks(proof: &str, no_place: bool, no_proof: bool) -> Option<&'static str> {
    let reason = REASONS.iter().find_map(|word| Some((word, proof.split_once(word)?.1)));
    match reason {
        Some((_, words)) if words.trim().is_empty() => Some("its reason has no words"),
        Some((word, words)) if *word == POSTERN && !words.contains("](") => Some("its reason has no link"),
        Some(_) => None,
        None if no_place => Some("it names no place in the code"),
        None if no_proof => Some("it names no test, and gives no reason"),
        None => None,
    }
}

/// Each text in backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Whether a text in backticks is a file or folder, and not an item of the code.
fn is_path(name: &str) -> bool {
    !name.contains([' ', ':']) && (name.ends_with('/') || Path::new(name).extension().is_some())
}

/// Whether a text in backticks is a test, a case, or a file of cases.
fn is_proof(name: &str) -> bool {
    name.contains(".rs::") || name.contains(".yaml::") || (name.starts_with("tests/cases/") && name.ends_with(".yaml"))
}

fn missing_place(path: &str, tree: &Tree) -> Option<String> {
    if path.ends_with('/') {
        let found = tree.has_ending(Path::new(path));
        return (!found).then(|| format!("`{path}` does not exist"));
    }
    find(path, tree).err()
}

fn missing_proof(proof: &str, tree: &Tree, text: &dyn Fn(&Path) -> String) -> Option<String> {
    let (path, name) = proof.split_once("::").unwrap_or((proof, ""));
    let file = match find(path, tree) {
        Ok(file) => file,
        Err(message) => return Some(message),
    };
    let found = match file.extension().is_some_and(|extension| extension == "rs") {
        true => test_names::read(&text(file)).contains(name),
        false => name.is_empty() || has_case(&text(file), name),
    };
    (!found).then(|| format!("`{path}` has no test or case `{name}`"))
}

/// Whether a file of cases has one with this note.
fn has_case(cases: &str, note: &str) -> bool {
    let notes = cases.lines().filter_map(|line| line.trim().strip_prefix("- note: "));
    notes.map(|found| found.trim_matches('"')).any(|found| found == note)
}

/// The file of this path, or else the one file whose path ends so.
fn find<'t>(path: &str, tree: &'t Tree) -> Result<&'t Path, String> {
    if let Some(file) = tree.files().find(|file| *file == Path::new(path)) {
        return Ok(file);
    }
    let mut found = tree.files().filter(|file| file.ends_with(path));
    match (found.next(), found.next()) {
        (None, _) => Err(format!("`{path}` does not exist")),
        (Some(file), None) => Ok(file),
        (Some(_), Some(_)) => Err(format!("`{path}` may be one of several files")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "| 1 | it works | `engine/src/plan.rs` (`Plan`) | `tests/plan.rs::loads` |";

    /// The findings of a page whose first table has these rows, below the line number 8.
    fn said(rows: &[&str]) -> Vec<String> {
        let list =
            "**Sections:** 1 First; 2.1 Second\n\n| section | requirement | where | proof |\n|---|---|---|---|\n";
        let other = format!("\n{list}{ROW}\n| 2.1 | nothing | | **No rule:** it is prose |\n");
        let page = format!("# Page\n\n## One\n\n{list}{}\n{}", rows.join("\n"), other.repeat(DOCUMENTS - 1));
        shown(&page)
    }

    fn shown(page: &str) -> Vec<String> {
        let files = ["engine/src/plan.rs", "engine/tests/plan.rs", "filter/tests/plan.rs", "tests/plan.rs"];
        let files = files.into_iter().chain(["tests/cases/a.yaml", "a/b.rs", "c/b.rs"]);
        let text = |file: &Path| match file.extension().is_some_and(|extension| extension == "rs") {
            true => "#[test]\nfn loads() {}\nfn helper() {}".to_owned(),
            false => "cases:\n  - note: admits a key\n  - note: \"is quoted\"\n".to_owned(),
        };
        check(page, &files.collect(), &text).iter().map(ToString::to_string).collect()
    }

    const SECOND: &str = "| 2.1 | it is kept | `engine/src/` | `tests/cases/a.yaml` |";

    fn check_row(row: &str, expect: &[&str]) {
        let expect: Vec<_> = expect.iter().map(|message| format!("{PAGE}:9: {message}")).collect();
        assert_eq!(said(&[row, SECOND]), expect, "{row}");
    }

    #[test]
    fn takes_what_exists() {
        check_row("| 1 | a | `engine/src/plan.rs` | `engine/tests/plan.rs::loads` |", &[]);
        check_row("| 1 | a | `engine/src/plan.rs` | `tests/cases/a.yaml::admits a key` |", &[]);
        check_row("| 1 | a | `engine/src/plan.rs` | `tests/cases/a.yaml::is quoted` |", &[]);
        check_row("| 1 | a | | **Postern:** we differ ([why](rules.md)) |", &[]);
        check_row("| 1 | a | | **Not yet:** nobody needs it |", &[]);
    }

    #[test]
    fn finds_a_section_without_a_row_and_a_row_without_a_section() {
        let row = "| 1 | a | `engine/src/plan.rs` | `engine/tests/plan.rs::loads` |";
        assert_eq!(said(&[row]), [format!("{PAGE}:5: section 2.1 has no row")]);
        check_row(&row.replace("| 1 |", "| 1, 3 |"), &["section 3 is not in the list"]);
        assert!(said(&[&row.replace("| 1 |", "| 1, 2.1 |")]).is_empty(), "a row may be about several");
    }

    #[test]
    fn finds_what_does_not_exist() {
        check_row(
            "| 1 | a | `engine/src/gone.rs` | `engine/tests/plan.rs::loads` |",
            &["`engine/src/gone.rs` does not exist"],
        );
        check_row("| 1 | a | `gone/` | `engine/tests/plan.rs::loads` |", &["`gone/` does not exist"]);
        check_row("| 1 | a | `engine/src/plan.rs` | `tests/gone.rs::loads` |", &["`tests/gone.rs` does not exist"]);
        check_row("| 1 | a | `engine/src/plan.rs` | `tests/cases/b.yaml` |", &["`tests/cases/b.yaml` does not exist"]);
        let no_test = "`engine/tests/plan.rs` has no test or case `helper`";
        check_row("| 1 | a | `engine/src/plan.rs` | `engine/tests/plan.rs::helper` |", &[no_test]);
        let no_case = "`tests/cases/a.yaml` has no test or case `admits`";
        check_row("| 1 | a | `engine/src/plan.rs` | `tests/cases/a.yaml::admits` |", &[no_case]);
    }

    #[test]
    fn finds_a_path_that_says_too_little() {
        check_row("| 1 | a | `b.rs` | `engine/tests/plan.rs::loads` |", &["`b.rs` may be one of several files"]);
    }

    #[test]
    fn finds_a_row_that_proves_nothing() {
        check_row("| 1 | a | `engine/src/plan.rs` | it is obvious |", &["it names no test, and gives no reason"]);
        check_row("| 1 | a | `Plan` | `engine/tests/plan.rs::loads` |", &["it names no place in the code"]);
        check_row(
            "| 1 | | `engine/src/plan.rs` | `engine/tests/plan.rs::loads` |",
            &["it does not say what is required"],
        );
        check_row("| 1 | a | | **Not yet:** |", &["its reason has no words"]);
        check_row("| 1 | a | | **Postern:** we differ |", &["its reason has no link"]);
        check_row("| 1 | a | `engine/src/plan.rs` |", &["3 cells, and a row has 4"]);
    }

    #[test]
    fn finds_a_document_without_a_table() {
        assert_eq!(shown("# Page\n"), [format!("{PAGE}: 0 lists of sections, and there are 5 documents")]);
    }
}
