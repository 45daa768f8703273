//! What commands read resources from: directories, files and the standard input.

use std::{
    collections::BTreeSet,
    io::{IsTerminal as _, Read as _, stdin},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use postern_base::regular_file;
use postern_model::{
    File,
    attachment::{is_attachment, named_from},
    directory,
};
use postern_release::{catalogue::named_by, store::split};
use serde_json::{Value, json};

/// The name of the standard input in errors.
const STDIN: &str = "stdin";
/// The largest file, in bytes: that of a bundle.
const LARGEST: u64 = 64 << 20;

/// The files of all sources, each once, as the API takes them. `-` is the standard input.
pub(super) fn files(sources: &[PathBuf]) -> anyhow::Result<Vec<Value>> {
    let (mut files, mut seen) = (Vec::new(), BTreeSet::new());
    for source in sources {
        for file in read(source)? {
            let place = Path::new(&file.name).canonicalize().unwrap_or_else(|_| PathBuf::from(&file.name));
            if seen.insert(place) {
                files.push(file);
            }
        }
    }
    sent(files)
}

/// A directory as the API takes it.
pub(super) fn directory(path: &Path) -> anyhow::Result<Vec<Value>> {
    ensure!(
        !path.is_file() && path.as_os_str() != "-",
        "{}: `sync` makes what is in force exactly a directory, and this is none; to add and change, use `postern apply`",
        path.display()
    );
    sent(directory::read(path)?)
}

fn sent(files: Vec<File>) -> anyhow::Result<Vec<Value>> {
    let file = |file: File| {
        let text = String::from_utf8(file.bytes).with_context(|| format!("{} is not text", file.name))?;
        Ok(json!({ "name": file.name, "text": text }))
    };
    files.into_iter().map(file).collect()
}

fn read(source: &Path) -> anyhow::Result<Vec<File>> {
    if source.as_os_str() == "-" {
        return standard_input();
    }
    if source.is_dir() {
        return Ok(directory::read(source)?);
    }
    let file = one(source)?;
    let mut all = beside(&file)?;
    all.insert(0, file);
    Ok(all)
}

fn standard_input() -> anyhow::Result<Vec<File>> {
    if stdin().is_terminal() {
        eprintln!("reading resources from the terminal; Ctrl-D ends them");
    }
    let mut bytes = Vec::new();
    stdin().take(LARGEST.saturating_add(1)).read_to_end(&mut bytes).context(STDIN)?;
    ensure!(bytes.len() as u64 <= LARGEST, "{STDIN}: more than {LARGEST} bytes");
    ensure!(!bytes.trim_ascii().is_empty(), "{STDIN}: there are no resources in it");
    Ok(vec![File { name: STDIN.to_owned(), bytes }])
}

fn one(path: &Path) -> anyhow::Result<File> {
    let bytes = regular_file::read(path, LARGEST).with_context(|| path.display().to_string())?;
    ensure!(!bytes.trim_ascii().is_empty(), "{}: the file is empty", path.display());
    Ok(File { name: path.display().to_string(), bytes })
}

/// The certificates and keys that a file names, if they are in its own folder or below. Others are left to the control
/// plane, which may have them, or says that they are missing.
fn beside(file: &File) -> anyhow::Result<Vec<File>> {
    let folder = Path::new(&file.name).parent().filter(|folder| !folder.as_os_str().is_empty());
    let Ok(folder) = folder.unwrap_or(Path::new(".")).canonicalize() else { return Ok(Vec::new()) };
    let documents = split(std::slice::from_ref(file));
    let names: BTreeSet<_> = documents.iter().filter_map(named_by).flatten().collect();
    let paths = names.iter().map(|name| named_from(&file.name, name)).filter(|path| is_attachment(path));
    let inside = |path: &PathBuf| path.canonicalize().is_ok_and(|path| path.starts_with(&folder));
    paths.filter(inside).map(|path| one(&path)).collect()
}
