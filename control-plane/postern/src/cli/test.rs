//! `postern test`: runs users' own tests on the filter's wasm.

use std::{fmt::Write as _, fs, path::PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use postern_model::directory;
use postern_tools::user_test::{self, Mismatch, Outcome, Suite};

use super::filter::FilterOptions;

#[derive(Debug, Args)]
pub(super) struct Test {
    /// The directory with `.yaml` files of tests
    directory: PathBuf,
    /// Write the results for a build server
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    filter: FilterOptions,
}

/// The result of one test.
struct Verdict {
    suite: String,
    test: String,
    mismatches: Vec<Mismatch>,
    decided: String,
}

impl Test {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let suites = directory::read(&self.directory)?.iter().map(Suite::read).collect::<Result<Vec<_>, _>>()?;
        let code = self.filter.read(None, None)?;
        let filter = code.gate().filter().context("the filter cannot be run")?;
        let mut verdicts = Vec::new();
        for suite in &suites {
            let results = user_test::run(suite, &code, filter).with_context(|| suite.name.clone())?;
            verdicts.extend(results.into_iter().map(|Outcome { test, mismatches, decided }| Verdict {
                suite: suite.name.clone(),
                test: test.name.clone(),
                mismatches,
                decided,
            }));
        }
        for Verdict { suite, test, mismatches, decided } in &verdicts {
            println!("{}  {suite}: {test}", if mismatches.is_empty() { "ok  " } else { "FAIL" });
            mismatches.iter().for_each(|mismatch| println!("        {mismatch}"));
            if !mismatches.is_empty() {
                println!("        decided: {decided}");
            }
        }
        if let Some(path) = &self.junit {
            fs::write(path, junit(&verdicts)?).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let failed = verdicts.iter().filter(|verdict| !verdict.mismatches.is_empty()).count();
        println!("{} passed, {failed} failed", verdicts.len() - failed);
        match (verdicts.is_empty(), failed) {
            (true, _) => bail!("{}: there are no tests", self.directory.display()),
            (false, 0) => Ok(()),
            (false, _) => bail!("tests failed"),
        }
    }
}

fn junit(verdicts: &[Verdict]) -> Result<String, std::fmt::Error> {
    let failed = verdicts.iter().filter(|verdict| !verdict.mismatches.is_empty()).count();
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    writeln!(text, "<testsuite name=\"postern\" tests=\"{}\" failures=\"{failed}\">", verdicts.len())?;
    for Verdict { suite, test, mismatches, decided } in verdicts {
        write!(text, "  <testcase classname=\"{}\" name=\"{}\"", escaped(suite), escaped(test))?;
        if mismatches.is_empty() {
            writeln!(text, "/>")?;
        } else {
            let decided = format!("decided: {decided}");
            let lines: Vec<_> = mismatches.iter().map(ToString::to_string).chain([decided]).collect();
            writeln!(text, ">\n    <failure>{}</failure>\n  </testcase>", escaped(&lines.join("\n")))?;
        }
    }
    writeln!(text, "</testsuite>")?;
    Ok(text)
}

/// Escapes text for XML; characters that XML does not allow become question marks.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(character),
            control if control.is_control() => escaped.push('?'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_results_for_a_build_server() {
        let mismatch = Mismatch { what: "status".to_owned(), expected: Some("200".to_owned()), found: None };
        let verdict = |test: &str, mismatches| {
            let (suite, test, decided) = ("a.yaml".to_owned(), test.to_owned(), "deny, status 401".to_owned());
            Verdict { suite, test, mismatches, decided }
        };
        let text = junit(&[verdict("good", vec![]), verdict("a < \"b\"", vec![mismatch])]).unwrap();
        let expect = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"postern\" tests=\"2\" failures=\"1\">\n  \
                      <testcase classname=\"a.yaml\" name=\"good\"/>\n  <testcase classname=\"a.yaml\" name=\"a &lt; &quot;b&quot;\">\n    \
                      <failure>status: expected `200`, got nothing\ndecided: deny, status 401</failure>\n  </testcase>\n</testsuite>\n";
        assert_eq!(text, expect);
    }
}
