//! Finds commands of the README that no test runs. A command counts as run if a test file has its subcommand and all of
//! its options as words.

use std::path::Path;

use super::finding::Finding;

/// What the test run does itself, beside the tests.
const RUN_BY_XTASK: [(&str, &str); 3] = [
    ("cargo xtask test", "the test run"),
    ("cargo xtask build-filter", "every test run builds the filter first"),
    ("cargo build --release -p postern", "cargo's own; every test run builds the package"),
];

/// The commands of the console blocks that no test has.
pub(crate) fn check(readme: &str, tests: &[(&Path, String)]) -> Vec<Finding> {
    let commands = commands(readme).filter(|(_, command)| !RUN_BY_XTASK.iter().any(|(known, _)| known == command));
    let unrun = commands.filter(|(_, command)| !tests.iter().any(|(_, text)| runs(text, &words(command))));
    unrun.map(|(line, command)| Finding::new("README.md", line, format!("no test runs `{command}`"))).collect()
}

/// The lines of console blocks that start with `$`.
fn commands(readme: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut console = false;
    readme.lines().enumerate().filter_map(move |(index, line)| {
        if line.starts_with("```") {
            console = line == "```console";
        }
        line.strip_prefix("$ ").filter(|_| console).map(|command| (index + 1, command))
    })
}

/// What a test must say to run a command: its subcommand and its options. The demo has a program of its own.
fn words(command: &str) -> Vec<&str> {
    if command == "cargo xtask demo" {
        return vec!["postern-demo"];
    }
    let options = command.split(' ').filter(|word| word.starts_with('-') && word.len() > 1);
    command.split(' ').nth(1).into_iter().chain(options).collect()
}

fn runs(test: &str, words: &[&str]) -> bool {
    let says = |word: &&str| test.contains(&format!("\"{word}\"")) || test.contains(&format!("_{word}\""));
    !words.is_empty() && words.iter().all(says)
}

#[cfg(test)]
mod tests {
    use super::*;

    const README: &str =
        "# A\n```console\n$ postern diff a --wait\nsays\n$ cargo xtask test\n```\n```text\n$ postern no\n```\n";

    #[test]
    fn finds_a_command_that_no_test_runs() {
        let tests = |text: &str| [(Path::new("tests/a.rs"), text.to_owned())];
        assert!(check(README, &tests("run(&[\"diff\", \"x\", \"--wait\"])")).is_empty());
        let findings = check(README, &tests("run(&[\"diff\", \"x\"])"));
        let shown: Vec<_> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["README.md:3: no test runs `postern diff a --wait`"]);
    }
}
