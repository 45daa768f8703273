//! The tutorials, as their readers follow them: files are written, commands run in a shell, and what they print is what the
//! page shows. Only ports differ, so that other tests can run beside.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use postern_tests::{process::Process, site::free_port, wait};
use tempfile::TempDir;

/// The tutorials that tests below follow.
const FOLLOWED: [&str; 3] = ["gateway.md", "overlay.md", "without-envoy.md"];
/// The ports that the pages use.
const PORTS: [&str; 5] = ["18000", "18001", "10000", "9901", "9000"];
/// Commands that change nothing: what they show may be a moment in coming.
const LOOKS: [&str; 6] = ["curl ", "tail ", "postern nodes", "postern status", "postern simulate", "postern validate"];

/// A part of a page that a reader acts on.
#[derive(Debug)]
enum Block {
    /// A file to write.
    File { path: String, text: String },
    /// A command to run, and what it shows.
    Command { text: String, shows: String },
}

fn tutorials() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tutorials")
}

/// The blocks of a page: ` ```yaml PATH ` is a file, and ` ```console ` has commands after `$ `.
fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else { continue };
        let body: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
        match kind.split_once(' ') {
            Some((_, path)) => blocks.push(Block::File { path: path.to_owned(), text: body.join("\n") + "\n" }),
            None if kind == "console" => blocks.extend(commands(&body)),
            None => panic!("a block of `{kind}` that nobody acts on"),
        }
    }
    blocks
}

fn commands(lines: &[&str]) -> Vec<Block> {
    let mut commands: Vec<(String, Vec<&str>)> = Vec::new();
    for line in lines {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), Vec::new())),
            (None, Some((_, shows))) => shows.push(line),
            (None, None) => panic!("output without a command: {line}"),
        }
    }
    commands.into_iter().map(|(text, shows)| Block::Command { text, shows: shows.join("\n") }).collect()
}

/// Whether a text is what a page shows, where `…` stands for anything.
fn is_shown(page: &str, text: &str) -> bool {
    let mut parts = page.trim_end().split('…');
    let Some(mut rest) = parts.next().and_then(|first| text.trim_end().strip_prefix(first)) else { return false };
    let mut parts: Vec<_> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// A reader at a terminal, in a directory of their own.
struct Reader {
    directory: TempDir,
    ports: Vec<(&'static str, String)>,
    running: Vec<Process>,
}

impl Reader {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let programs = directory.path().join("bin");
        fs::create_dir(&programs).unwrap();
        let known = |variable: &str| std::env::var(variable).unwrap_or_else(|_| panic!("`{variable}` is not set"));
        symlink(known("POSTERN_BIN"), programs.join("postern")).unwrap();
        // Virtual environments find themselves by the path of their program.
        let script = |name: &str, line: String| {
            let path = programs.join(name);
            fs::write(&path, format!("#!/bin/sh\n{line}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        script("python3", format!("exec '{}' \"$@\"", known("POSTERN_GRPC_PYTHON")));
        // Two Envoys on one machine need ids of their own.
        script("envoy", format!("exec '{}' --use-dynamic-base-id \"$@\"", known("POSTERN_ENVOY")));
        let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/grpc/discovery.py");
        fs::copy(client, directory.path().join("discovery.py")).unwrap();
        let ports = PORTS.map(|port| (port, free_port().unwrap().to_string())).to_vec();
        assert_eq!(ports.iter().map(|(_, port)| port).collect::<BTreeSet<_>>().len(), PORTS.len(), "{ports:?}");
        Self { directory, ports, running: Vec::new() }
    }

    /// The text with this reader's ports.
    fn here(&self, text: &str) -> String {
        let marked =
            self.ports.iter().fold(text.to_owned(), |text, (port, _)| text.replace(port, &format!("<{port}>")));
        self.ports.iter().fold(marked, |text, (port, own)| text.replace(&format!("<{port}>"), own))
    }

    fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("bash");
        let path = format!("{}:{}", self.directory.path().join("bin").display(), std::env::var("PATH").unwrap());
        let (xds, http) = (self.here("127.0.0.1:18000"), self.here("127.0.0.1:18001"));
        shell.args(["-c", command]).current_dir(self.directory.path()).env("PATH", path);
        shell.env("POSTERN_XDS", xds).env("POSTERN_HTTP", &http).env("POSTERN_SERVER", http);
        shell
    }

    fn follow(&mut self, block: Block) {
        match block {
            Block::File { path, text } => {
                let path = self.directory.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, self.here(&text)).unwrap();
            }
            Block::Command { text, shows } => match text.strip_suffix(" &") {
                Some(command) => {
                    assert_eq!(shows, "", "`{text}` runs beside the others");
                    let command = self.here(&format!("exec {command}"));
                    self.running.push(Process::start(&text, &mut self.shell(&command)).unwrap());
                }
                None => self.run(&text, &self.here(&shows)),
            },
        }
    }

    fn run(&self, command: &str, shows: &str) {
        let mut last = String::new();
        let mut run = || {
            let mut shell = self.shell(&self.here(&format!("{{ {command}; }} 2>&1")));
            let output = shell.output()?;
            last = String::from_utf8_lossy(&output.stdout).into_owned();
            Ok(is_shown(shows, &last))
        };
        let done = if LOOKS.iter().any(|look| command.starts_with(look)) {
            wait::until_true(command, run).is_ok()
        } else {
            run().unwrap()
        };
        let running: Vec<_> =
            self.running.iter().flat_map(|process| [process.stdout(), process.stderr()].concat()).collect();
        assert!(done, "$ {command}\nthe page shows:\n{shows}\nit printed:\n{last}\n{}", running.join("\n"));
    }
}

#[track_caller]
fn follow(name: &str) {
    let page = fs::read_to_string(tutorials().join(name)).unwrap();
    let mut reader = Reader::new();
    for block in blocks(&page) {
        reader.follow(block);
    }
}

#[test]
fn a_gateway_from_nothing() {
    follow("gateway.md");
}

#[test]
fn policies_for_an_envoy_that_is_there_already() {
    follow("overlay.md");
}

#[test]
fn enforcement_without_envoy() {
    follow("without-envoy.md");
}

#[test]
fn every_tutorial_is_followed() {
    let names = fs::read_dir(tutorials()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.collect::<BTreeSet<_>>(), FOLLOWED.map(str::to_owned).into());
}

#[test]
fn an_ellipsis_stands_for_anything_and_nothing_else_does() {
    assert!(is_shown("a…c\n", "abbc\n") && is_shown("…", "") && is_shown("", "") && is_shown("a…b…", "a1b2"));
    assert!(!is_shown("a…c", "abbcd") && !is_shown("a", "ab") && !is_shown("", "a") && !is_shown("b…", "ab"));
}
