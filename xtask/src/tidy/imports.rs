//! The trees of `use`: one entry for each name that one brings in.

use std::iter::Peekable;
use std::vec::IntoIter;

use proc_macro2::{Delimiter, Spacing, TokenTree};

/// The rest of a list of tokens.
pub(crate) type Tokens = Peekable<IntoIter<TokenTree>>;

/// One name that a `use` brings in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Import {
    pub(crate) path: Named,
    /// Its name in this module; `*` for everything.
    pub(crate) name: String,
    /// Whether it is a `pub use`.
    pub(crate) public: bool,
}

/// A path and its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
}

/// Reads what follows `use`, up to its semicolon.
pub(crate) fn read(tokens: &mut Tokens, public: bool) -> Vec<Import> {
    let mut found = Vec::new();
    tree(tokens, &[], public, &mut found);
    found
}

/// One branch: a path that ends in a name, in everything, or in further branches.
fn tree(tokens: &mut Tokens, prefix: &[String], public: bool, found: &mut Vec<Import>) {
    let mut segments = prefix.to_vec();
    skip_colons(tokens);
    while let Some(token) = tokens.next_if(|token| !is_end(token)) {
        let line = token.span().start().line;
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                let mut inner = group.stream().into_iter().collect::<Vec<_>>().into_iter().peekable();
                while inner.peek().is_some() {
                    tree(&mut inner, &segments, public, found);
                    inner.next_if(is_end);
                }
                return;
            }
            TokenTree::Punct(_) => {
                found.push(Import { path: Named { segments, line }, name: "*".to_owned(), public });
                return;
            }
            token => segments.push(token.to_string().trim_start_matches("r#").to_owned()),
        }
        if !skip_colons(tokens) {
            let name = alias(tokens);
            found.extend(import(segments, name, line, public));
            return;
        }
    }
}

/// `self` at the end stands for what is before it.
fn import(mut segments: Vec<String>, name: Option<String>, line: usize, public: bool) -> Option<Import> {
    if segments.len() > 1 && segments.last().is_some_and(|last| last == "self") {
        segments.pop();
    }
    let name = name.or_else(|| segments.last().cloned())?;
    Some(Import { path: Named { segments, line }, name, public })
}

/// What follows `as`, if that is there.
fn alias(tokens: &mut Tokens) -> Option<String> {
    tokens.next_if(|token| matches!(token, TokenTree::Ident(word) if word == "as"))?;
    tokens.next().map(|name| name.to_string())
}

fn is_end(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if [',', ';'].contains(&punct.as_char()))
}

/// Goes past `::`, if that is next.
pub(crate) fn skip_colons(tokens: &mut Tokens) -> bool {
    let first = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':' && punct.spacing() == Spacing::Joint);
    tokens.next_if(first).and_then(|_| tokens.next()).is_some()
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use super::*;

    #[test]
    fn has_one_entry_for_each_name() {
        let text = "crate::{a::{self, b as c}, d::*, e::{f, g::H},}, x;";
        let mut tokens =
            proc_macro2::TokenStream::from_str(text).unwrap().into_iter().collect::<Vec<_>>().into_iter().peekable();
        let found = read(&mut tokens, true);
        let shown: Vec<_> =
            found.iter().map(|one| format!("{} = {}", one.name, one.path.segments.join("::"))).collect();
        assert_eq!(shown, ["a = crate::a", "c = crate::a::b", "* = crate::d", "f = crate::e::f", "H = crate::e::g::H"]);
    }
}
