//! Where options come from beside the command line: an environment variable for every flag of `serve`, and a file. The
//! command line goes first, then the environment, then the file, then the default.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use clap::{Arg, ArgAction, Command, builder::BoolishValueParser};
use postern_base::{
    diagnostic::{quote, suggestion},
    yaml::{self, Key, Node, Value},
};

const PREFIX: &str = "POSTERN_";
const COMMAND: &str = "serve";
/// The flag that names the file.
const FILE: &str = "config-file";

/// The commands with an environment variable for every flag of `serve`: `POSTERN_` and the flag in upper case.
pub(super) fn with_environment(command: Command) -> Command {
    command.mut_subcommand(COMMAND, |serve| serve.mut_args(with_variable))
}

fn with_variable(arg: Arg) -> Arg {
    let Some(flag) = arg.get_long().map(str::to_owned) else { return arg };
    if ["help", "version"].contains(&flag.as_str()) {
        return arg;
    }
    let arg = match arg.get_action() {
        // `1` and `yes` are true as well.
        ArgAction::SetTrue => arg.value_parser(BoolishValueParser::new()),
        // A variable has several values with commas between them.
        ArgAction::Append => arg.value_delimiter(','),
        _ => arg,
    };
    let known = arg.get_env().is_some();
    if known { arg } else { arg.env(variable(&flag)) }
}

fn variable(flag: &str) -> String {
    format!("{PREFIX}{}", flag.to_ascii_uppercase().replace('-', "_"))
}

/// The arguments with those that a file of `serve` adds. `command` knows the flags.
pub(super) fn with_file(arguments: Vec<OsString>, command: &Command) -> anyhow::Result<Vec<OsString>> {
    let is_serve = |argument: &OsString| argument == COMMAND;
    let Some(place) = arguments.iter().skip(1).take(1).position(is_serve) else { return Ok(arguments) };
    let given: Vec<_> = arguments.iter().skip(2).cloned().collect();
    let Some(path) = file_of(&given) else { return Ok(arguments) };
    let Some(serve) = command.find_subcommand(COMMAND) else { return Ok(arguments) };
    let added = read(&path, serve, &given)?;
    let after = place.saturating_add(2);
    let mut all = arguments;
    drop(all.splice(after..after, added));
    Ok(all)
}

/// The path of the file, by the flag or the environment.
fn file_of(given: &[OsString]) -> Option<PathBuf> {
    let flag = format!("--{FILE}");
    let mut rest = given.iter();
    while let Some(argument) = rest.next() {
        if *argument == *flag {
            return rest.next().map(PathBuf::from);
        }
        if let Some(path) = argument.to_str().and_then(|text| text.strip_prefix(&format!("{flag}="))) {
            return Some(path.into());
        }
    }
    env::var_os(variable(FILE)).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// What the file says, as arguments, except what is given already.
fn read(path: &Path, serve: &Command, given: &[OsString]) -> anyhow::Result<Vec<OsString>> {
    let name = path.display();
    let bytes = fs::read(path).with_context(|| format!("{name}"))?;
    let parsed = yaml::parse(&bytes);
    let faults = parsed.broken.iter().chain(parsed.documents.iter().flat_map(|document| &document.faults));
    if let Some(fault) = faults.into_iter().next() {
        bail!("{name}:{}:{}: {}", fault.at.line, fault.at.column, fault.message);
    }
    let [document] = parsed.documents.as_slice() else {
        bail!("{name}: expected one YAML document with flags of `serve`")
    };
    ensure!(
        matches!(document.root.value, Value::Map(_)),
        "{name}: expected flags of `serve`, such as `xds: 127.0.0.1:18000`"
    );
    let mut added = Vec::new();
    for (key, value) in document.root.entries() {
        let at = |message: String| anyhow::anyhow!("{name}:{}:{}: {message}", key.at.line, key.at.column);
        let flag = flag(serve, key).map_err(at)?;
        let values = values(value).map_err(at)?;
        if is_given(flag, given) {
            continue;
        }
        let long = flag.get_long().unwrap_or_default();
        if matches!(flag.get_action(), ArgAction::SetTrue) {
            match values.as_slice() {
                [truth] if truth == "true" => added.push(format!("--{long}").into()),
                [truth] if truth == "false" => {}
                _ => return Err(at(format!("{} is `true` or `false`", quote(&key.name)))),
            }
            continue;
        }
        let is_list = matches!(flag.get_action(), ArgAction::Append);
        if values.len() != 1 && !is_list {
            return Err(at(format!("{} has one value", quote(&key.name))));
        }
        added.extend(values.iter().map(|value| OsString::from(format!("--{long}={value}"))));
    }
    Ok(added)
}

/// The flag of a key, which is written as on the command line or in camel case.
fn flag<'c>(serve: &'c Command, key: &Key) -> Result<&'c Arg, String> {
    let mut wanted = String::new();
    for letter in key.name.chars() {
        if letter.is_ascii_uppercase() {
            wanted.push('-');
        }
        wanted.push(letter.to_ascii_lowercase());
    }
    let flags = || serve.get_arguments().filter(|arg| !["help", FILE].contains(&arg.get_id().as_str()));
    let found = flags().find(|arg| arg.get_long() == Some(&wanted) && wanted != FILE);
    found.ok_or_else(|| {
        let near = suggestion(&wanted, flags().filter_map(Arg::get_long));
        format!("`serve` has no flag {}{near}", quote(&key.name))
    })
}

fn values(node: &Node) -> Result<Vec<String>, String> {
    let scalar = |node: &Node| match &node.value {
        Value::Text(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Integer(_) | Value::Float(_) => Ok(node.to_json().to_string()),
        other => Err(format!("expected a value, found {}", other.describe())),
    };
    match &node.value {
        Value::List(items) => items.iter().map(scalar).collect(),
        _ => Ok(vec![scalar(node)?]),
    }
}

/// Whether a flag is on the command line or in the environment.
fn is_given(flag: &Arg, given: &[OsString]) -> bool {
    let long = format!("--{}", flag.get_long().unwrap_or_default());
    let starts = |argument: &OsString| {
        let text = argument.to_string_lossy();
        text == long || text.starts_with(&format!("{long}="))
    };
    given.iter().any(starts) || flag.get_env().and_then(|name: &OsStr| env::var_os(name)).is_some()
}
