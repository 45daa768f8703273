//! Routes by what a request asks for: host, path and method. For Envoys whose routes have no names.
//!
//! The most specific match that fits is chosen. It must be chosen in every spelling of the request: where two spellings
//! have different chains, the request is refused. How specific a match is, the control plane knows ([`Specificity`]): a
//! plan has only the order of its matches.

mod pattern;
mod spelling;
#[cfg(test)]
mod tests;
mod tree;

use std::{cmp::Ordering, sync::Arc};

use postern_proto::plan::v1 as wire;

pub use self::pattern::{PathPattern, Segment, Shape, Specificity};
use self::tree::{Choice, TOP, Tree};
use crate::{budget::Budget, cel::Pattern, event::Headers, load_error::LoadError, strings::Strings, text::host::host};

/// What a request asks for, as it came.
#[derive(Debug, Clone, Copy)]
pub struct Requested<'r> {
    /// `:authority`.
    pub host: &'r [u8],
    /// `:path`, with the query.
    pub path: &'r [u8],
    /// `:method`.
    pub method: &'r [u8],
}

/// It is unclear what a request asks for: its spellings have different chains, or it has no host or path that everybody
/// reads alike. It must be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unclear;

impl<'r> Requested<'r> {
    /// What a request with these headers asks for. Without a host, path or method, these are empty. Envoy has each once.
    pub fn of(headers: &'r Headers) -> Self {
        let [host, path, method] =
            [":authority", ":path", ":method"].map(|name| headers.values(name).next().unwrap_or_default());
        Self { host, path, method }
    }
}

/// All matches of a plan.
#[derive(Debug)]
pub(crate) struct Matches {
    tree: Tree,
    /// Whether any match is for some hosts only.
    reads_host: bool,
    /// The chain of requests that no match fits.
    otherwise: Option<usize>,
}

impl Matches {
    /// Loads the matches of a plan. `chain_of` knows the chains of routes, and by the empty name that of all others.
    pub(crate) fn load(
        wire: &[wire::Match],
        strings: &Strings,
        chain_of: impl Fn(&str) -> Option<usize>,
    ) -> Result<Self, LoadError> {
        let mut matches = Self { tree: Tree::for_size(wire), reads_host: false, otherwise: chain_of("") };
        for wire in wire {
            let [route, host] = [wire.route, wire.host].map(|index| optional(strings, index.saturating_add(1)));
            let (route, host) = (route?.unwrap_or_default(), host?.unwrap_or_default());
            // `*` is the end of every host, and `*.a` of those that end in `.a`.
            let host = host.trim_start_matches('*');
            matches.reads_host |= !host.is_empty();
            let mut at = matches.tree.behind(TOP, Some(host.as_bytes()));
            for segment in &wire.segments {
                let segment = optional(strings, *segment)?.map(|text| spelling::unescaped(text.as_bytes()));
                at = matches.tree.behind(at, segment.as_deref());
            }
            let unfit = |text| LoadError::Unfit { what: "regular expression", text };
            let pattern = |text: Arc<str>| Pattern::compile(&text).map_err(|_| unfit(text));
            let pattern = optional(strings, wire.regex)?.map(pattern).transpose()?;
            let (method, rank, chain) = (optional(strings, wire.method)?, wire.rank, chain_of(&route));
            matches.tree.put(at, Choice { is_start: wire.is_start, pattern, method, rank, route, chain });
        }
        Ok(matches)
    }

    /// The route of a request. `None` if no match fits.
    pub(crate) fn route(&self, requested: &Requested<'_>, budget: &Budget) -> Result<Option<&Arc<str>>, Unclear> {
        let path = requested.path.split(|byte| *byte == b'?').next().unwrap_or_default();
        let (roots, forms) = (self.roots(requested.host)?, spelling::forms(path).ok_or(Unclear)?);
        // Some upstreams take `get` for `GET`.
        let upper = requested.method.to_ascii_uppercase();
        let mut chosen: Option<Option<&Choice>> = None;
        for form in &forms {
            for method in [requested.method, &upper] {
                let found = self.best(&roots, form, method, budget)?;
                let first = *chosen.get_or_insert(found);
                if self.chain(first) != self.chain(found) {
                    return Err(Unclear);
                }
                if method == upper {
                    break;
                }
            }
        }
        Ok(chosen.flatten().map(|choice| &choice.route))
    }

    fn chain(&self, chosen: Option<&Choice>) -> Option<usize> {
        chosen.map_or(self.otherwise, |choice| choice.chain)
    }

    /// The roots of all patterns that fit a host.
    fn roots(&self, authority: &[u8]) -> Result<Vec<u32>, Unclear> {
        let host = if self.reads_host { host(authority).ok_or(Unclear)?.into_bytes() } else { Vec::new() };
        let mut roots = Vec::new();
        for at in 0..=host.len() {
            let end = host.get(at..).unwrap_or_default();
            if at == 0 || matches!(end, [] | [b'.', ..]) {
                roots.extend(self.tree.child(TOP, Some(end)));
            }
        }
        Ok(roots)
    }

    /// The most specific match in one spelling. An error if two are alike and have different chains: which of two
    /// regular expressions is more specific cannot be told.
    fn best(&self, roots: &[u32], path: &[u8], method: &[u8], budget: &Budget) -> Result<Option<&Choice>, Unclear> {
        let mut best = Best { choice: None, is_tied: false };
        let mut patterns = Vec::new();
        self.tree.walk(roots, path, |choice| match &choice.pattern {
            _ if choice.method.as_ref().is_some_and(|wanted| wanted.as_bytes() != method) => {}
            Some(pattern) => patterns.push((pattern, choice)),
            None => best.consider(choice),
        });
        for (pattern, choice) in patterns {
            let may_win = best.choice.is_none_or(|best| best.rank <= choice.rank);
            if may_win && fits(pattern, path, budget)? {
                best.consider(choice);
            }
        }
        if best.is_tied { Err(Unclear) } else { Ok(best.choice) }
    }
}

/// Whether a pattern fits a path. A slash at the end of the path makes no difference, as for all other matches.
fn fits(pattern: &Pattern, path: &[u8], budget: &Budget) -> Result<bool, Unclear> {
    let path = String::from_utf8_lossy(path);
    let bare = path.strip_suffix('/').unwrap_or(&path);
    for path in [bare, &format!("{bare}/")] {
        if !path.is_empty() && pattern.is_match(path, budget).map_err(|_| Unclear)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The string of a field, which is 0 for none and otherwise an index plus 1.
#[inline(never)]
fn optional(strings: &Strings, field: u32) -> Result<Option<Arc<str>>, LoadError> {
    field.checked_sub(1).map(|index| strings.get(index)).transpose()
}

/// The most specific match so far.
struct Best<'m> {
    choice: Option<&'m Choice>,
    /// Whether another one is as specific, and has another chain.
    is_tied: bool,
}

impl<'m> Best<'m> {
    fn consider(&mut self, found: &'m Choice) {
        match self.choice.map_or(Ordering::Greater, |best| found.rank.cmp(&best.rank)) {
            Ordering::Less => {}
            Ordering::Equal => self.is_tied |= self.choice.is_some_and(|best| best.chain != found.chain),
            Ordering::Greater => (self.choice, self.is_tied) = (Some(found), false),
        }
    }
}
