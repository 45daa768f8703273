//! Which module a path leads to, through re-exports.

use super::modules::{Crate, ModulePath};

/// How many re-exports a path is followed through: names can be imported in a circle.
const MOST_TURNS: usize = 16;

/// The module that has what a path names, seen from the module at `here`; `None` if it leads out of the crate.
pub(crate) fn resolve(of: &Crate, here: &[String], path: &[String]) -> Option<ModulePath> {
    follow(of, here, path, MOST_TURNS)
}

fn follow(of: &Crate, here: &[String], path: &[String], turns: usize) -> Option<ModulePath> {
    let (first, rest) = path.split_first()?;
    let start = match first.as_str() {
        "crate" => Vec::new(),
        "self" => here.to_vec(),
        "super" => here.split_last()?.1.to_vec(),
        // A name of this module's own: a child, or what it imported.
        _ => return descend(of, here.to_vec(), path, turns).filter(|found| found != here),
    };
    descend(of, start, rest, turns)
}

/// Goes down from a module, by its children and by what it imports.
fn descend(of: &Crate, mut at: ModulePath, mut path: &[String], turns: usize) -> Option<ModulePath> {
    while let Some((name, rest)) = path.split_first() {
        if name == "super" {
            at.pop();
        } else {
            at.push(name.clone());
            if !of.modules.contains_key(&at) {
                at.pop();
                return Some(imported(of, &at, path, turns).unwrap_or(at));
            }
        }
        path = rest;
    }
    Some(at)
}

/// Where a name leads that a module imports.
fn imported(of: &Crate, at: &[String], path: &[String], turns: usize) -> Option<ModulePath> {
    let (name, rest) = path.split_first()?;
    let turns = turns.checked_sub(1)?;
    let imports = &of.modules.get(at)?.source.imports;
    let named = imports.iter().filter(|import| import.name == *name);
    let by_name = named.filter_map(|import| {
        let whole = [import.path.segments.as_slice(), rest].concat();
        if import.path.segments == path { None } else { follow(of, at, &whole, turns) }
    });
    let everything = imports.iter().filter(|import| import.name == "*");
    let by_glob = everything.filter_map(|import| {
        let from = follow(of, at, &import.path.segments, turns)?;
        let found = descend(of, from.clone(), path, turns)?;
        (found != from).then_some(found)
    });
    by_name.chain(by_glob).next()
}
