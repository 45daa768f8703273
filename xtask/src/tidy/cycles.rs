//! Finds cycles between sibling modules. Each use of another module counts between the two siblings that it crosses.
//! Uses between a module and its own children do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::finding::Finding;
use super::known::KnownCycle;
use super::modules::{Crate, Module, ModulePath};
use super::resolve::resolve;

/// The uses of one sibling by another, as files and lines.
type Uses = BTreeMap<(String, String), Vec<(String, usize)>>;

/// The file with the list of known cycles.
const LIST: &str = "xtask/src/tidy/known.rs";

/// How many places are shown for each edge of a cycle.
const SHOWN: usize = 3;

/// All cycles of a crate that are not known, and all known ones that no longer exist.
pub(crate) fn check(of: &Crate, root: &str, known: &[KnownCycle], shown: &dyn Fn(&Path) -> String) -> Vec<Finding> {
    let mut findings = Vec::new();
    let levels = levels(of, shown);
    let mut knots: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (level, uses) in &levels {
        let excused = excused(known, root, level);
        for knot in knots_of(uses) {
            knots.entry(name_of(level)).or_default().extend(knot.iter().cloned());
            if knot.iter().any(|module| !excused.contains(module.as_str())) {
                findings.push(complain(root, level, &knot, uses, &excused));
            }
        }
    }
    for known in known.iter().filter(|known| known.root == root) {
        let knot = knots.get(known.level).cloned().unwrap_or_default();
        for module in known.modules.iter().filter(|module| !knot.contains(**module)) {
            let message =
                format!("module `{module}` of `{}` is in no cycle any more: take it off the list", known.level);
            findings.push(Finding::new(LIST, 0, message));
        }
    }
    findings
}

/// Entries of the list for crates that no longer exist.
pub(crate) fn check_roots(known: &[KnownCycle], is_there: impl Fn(&str) -> bool) -> Vec<Finding> {
    let roots: BTreeSet<_> = known.iter().map(|known| known.root).filter(|root| !is_there(root)).collect();
    let message = |root| format!("`{root}` is not there any more: take its modules off the list");
    roots.into_iter().map(|root| Finding::new(LIST, 0, message(root))).collect()
}

fn excused<'a>(known: &'a [KnownCycle], root: &str, level: &[String]) -> BTreeSet<&'a str> {
    let here = known.iter().filter(|known| known.root == root && known.level == name_of(level));
    here.flat_map(|known| known.modules.iter().copied()).collect()
}

fn name_of(level: &[String]) -> String {
    if level.is_empty() { "crate".to_owned() } else { level.join("::") }
}

/// The uses between siblings, at each level.
fn levels(of: &Crate, shown: &dyn Fn(&Path) -> String) -> BTreeMap<ModulePath, Uses> {
    let mut levels: BTreeMap<ModulePath, Uses> = BTreeMap::new();
    for (place, module) in &of.modules {
        for (path, line) in used(module) {
            let Some(target) = resolve(of, place, path) else { continue };
            let common = place.iter().zip(&target).take_while(|(one, other)| one == other).count();
            let (Some(from), Some(to)) = (place.get(common), target.get(common)) else { continue };
            let level = target.iter().take(common).cloned().collect();
            let uses = levels.entry(level).or_default().entry((from.clone(), to.clone())).or_default();
            let at = (shown(&module.file), line);
            if !uses.contains(&at) {
                uses.push(at);
            }
        }
    }
    levels
}

/// The paths that a module imports or names, without the re-exports of `mod.rs` and `lib.rs`.
fn used(module: &Module) -> impl Iterator<Item = (&[String], usize)> {
    let is_index = ["mod.rs", "lib.rs"].iter().any(|name| module.file.ends_with(name));
    let imports = module.source.imports.iter().filter(move |import| !(is_index && import.public));
    let paths = imports.map(|import| &import.path).chain(&module.source.paths);
    paths.map(|path| (path.segments.as_slice(), path.line))
}

/// The sets of two or more siblings each of which leads to all others.
fn knots_of(uses: &Uses) -> Vec<BTreeSet<String>> {
    let names: BTreeSet<&String> = uses.keys().map(|(from, _)| from).collect();
    let reached: BTreeMap<&String, BTreeSet<&String>> = names.iter().map(|name| (*name, reach(uses, name))).collect();
    let reaches = |from: &String, to: &String| reached.get(from).is_some_and(|reached| reached.contains(to));
    let mut knots: Vec<BTreeSet<String>> = Vec::new();
    for name in names.iter().filter(|name| reaches(name, name)) {
        if !knots.iter().any(|knot| knot.contains(*name)) {
            let others = names.iter().filter(|other| reaches(name, other) && reaches(other, name));
            knots.push(others.map(|other| (*other).clone()).collect());
        }
    }
    knots
}

/// All modules that one leads to, directly or not.
fn reach<'a>(uses: &'a Uses, from: &'a String) -> BTreeSet<&'a String> {
    let (mut reached, mut ahead) = (BTreeSet::new(), vec![from]);
    while let Some(at) = ahead.pop() {
        let next = uses.keys().filter(|(from, _)| from == at).map(|(_, to)| to);
        ahead.extend(next.filter(|to| reached.insert(*to)));
    }
    reached
}

/// One finding for a whole knot, at the first of the uses that make it. Where taking away one use would untie it, only such
/// uses are listed: one of them is likely the new one.
fn complain(root: &str, level: &[String], knot: &BTreeSet<String>, uses: &Uses, excused: &BTreeSet<&str>) -> Finding {
    let is_new = |name: &String| !excused.contains(name.as_str());
    let inside = |(from, to): &(String, String)| knot.contains(from) && knot.contains(to);
    let within: Uses =
        uses.iter().filter(|(edge, _)| inside(edge)).map(|(edge, at)| (edge.clone(), at.clone())).collect();
    let is_untied_without = |edge: &(String, String)| {
        let mut rest = within.clone();
        rest.remove(edge);
        !knots_of(&rest).iter().flatten().any(is_new)
    };
    // In a knot that is known, what its known modules have with each other is nothing new.
    let edges: Vec<_> = within.iter().filter(|((from, to), _)| is_new(from) || is_new(to)).collect();
    let single: Vec<_> = edges.iter().copied().filter(|(edge, _)| is_untied_without(edge)).collect();
    let (edges, note) =
        if single.is_empty() { (edges, "") } else { (single, "; taking away any one of these unties them") };
    let lines = edges.iter().map(|((from, to), places)| {
        let places: Vec<_> = places.iter().take(SHOWN).map(|(file, line)| format!("{file}:{line}")).collect();
        format!("\n    {from} uses {to}: {}", places.join(", "))
    });
    let names: Vec<_> = knot.iter().map(|name| format!("`{name}`")).collect();
    let (level, names, lines) = (name_of(level), names.join(", "), lines.collect::<String>());
    let first = edges.first().and_then(|(_, places)| places.first());
    let (file, line) = first.map_or((root, 0), |(file, line)| (file.as_str(), *line));
    Finding::new(file, line, format!("modules of `{level}` need each other: {names}{note}{lines}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate of these files, all below `src`.
    fn check_crate(files: &[(&str, &str)], known: &[KnownCycle]) -> Vec<String> {
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new("src").join(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        };
        let found = Crate::read(Path::new("src/lib.rs"), &read).unwrap();
        let findings = check(&found, "src/lib.rs", known, &|path| path.display().to_string());
        findings.iter().map(ToString::to_string).collect()
    }

    const RING: [(&str, &str); 3] = [
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::b::B;"),
        ("b.rs", "//! Uses a.\nfn b() { crate::c::c() }"),
    ];

    fn with(last: &'static str) -> Vec<(&'static str, &'static str)> {
        RING.into_iter().chain([("c.rs", last)]).collect()
    }

    #[test]
    fn finds_a_ring_and_names_every_edge_of_it() {
        assert!(check_crate(&with("fn c() {}"), &[]).is_empty());
        let findings = check_crate(&with("fn c(x: super::a::A) {}"), &[]);
        assert_eq!(
            findings,
            [
                "src/a.rs:1: modules of `crate` need each other: `a`, `b`, `c`; taking away any one of these unties them\n    \
              a uses b: src/a.rs:1\n    b uses c: src/b.rs:2\n    c uses a: src/c.rs:1"
            ]
        );
    }

    #[test]
    fn names_the_one_use_that_ties_a_large_knot() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::{b::B, c::C};"),
            ("b.rs", "use crate::d::D;"),
            ("c.rs", "use crate::d::D;"),
            ("d.rs", "\nuse crate::a::A;"),
        ];
        let findings = check_crate(&files, &[]);
        let end = "taking away any one of these unties them\n    d uses a: src/d.rs:2";
        assert!(findings.len() == 1 && findings[0].ends_with(end), "{findings:?}");
    }

    #[test]
    fn leaves_out_tests_and_what_a_child_has_with_its_parent() {
        assert!(check_crate(&with("#[cfg(test)]\nmod tests { use crate::a::A; }"), &[]).is_empty());
        let files =
            [("lib.rs", "mod a;"), ("a/mod.rs", "mod b;\nuse b::B;\npub struct A;"), ("a/b.rs", "use super::A;")];
        assert!(check_crate(&files, &[]).is_empty());
    }

    #[test]
    fn sees_through_re_exports_and_modules_in_place() {
        let root = "mod a; mod b; pub use a::A; mod c { pub use crate::b::B; }";
        let files = [("lib.rs", root), ("a.rs", "use crate::c::B;"), ("b.rs", "use crate::A;")];
        let findings = check_crate(&files, &[]);
        assert!(findings.iter().any(|finding| finding.contains("`a`, `b`")), "{findings:?}");
    }

    #[test]
    fn finds_a_ring_at_any_level() {
        let files = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod b; mod c;"),
            ("a/b.rs", "use super::c::C;"),
            ("a/c.rs", "use crate::a::{b};"),
        ];
        let findings = check_crate(&files, &[]);
        assert!(
            findings.len() == 1 && findings[0].contains("modules of `a` need each other: `b`, `c`"),
            "{findings:?}"
        );
    }

    #[test]
    fn excuses_what_is_known_and_nothing_else() {
        let ring = with("fn c(x: super::a::A) {}");
        let known = |modules| [KnownCycle { root: "src/lib.rs", level: "crate", modules }];
        assert!(check_crate(&ring, &known(&["a", "b", "c"])).is_empty());
        let findings = check_crate(&ring, &known(&["a", "b"]));
        assert!(findings.len() == 1 && !findings[0].contains("a uses b"), "{findings:?}");
        assert!(check_roots(&known(&["a"]), |root| root == "src/lib.rs").is_empty());
        assert_eq!(check_roots(&known(&["a"]), |_| false).len(), 1);
        let findings = check_crate(&with("fn c() {}"), &known(&["a"]));
        assert_eq!(
            findings,
            ["xtask/src/tidy/known.rs: module `a` of `crate` is in no cycle any more: take it off the list"]
        );
    }
}
