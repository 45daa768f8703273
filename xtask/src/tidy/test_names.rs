//! Reads the names of the tests of one Rust source: functions with an attribute whose path ends in `test`, in modules and
//! macros too. It works on text and opens no file.

use std::collections::BTreeSet;
use std::str::FromStr as _;

use proc_macro2::{TokenStream, TokenTree};

/// The names of the tests. Empty if the text is no Rust.
pub(crate) fn read(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    if let Ok(stream) = TokenStream::from_str(text) {
        scan(stream, &mut names);
    }
    names
}

fn scan(stream: TokenStream, names: &mut BTreeSet<String>) {
    let (mut is_test, mut after_hash, mut after_fn) = (false, false, false);
    for token in stream {
        let is_attribute = std::mem::take(&mut after_hash);
        let is_name = std::mem::take(&mut after_fn);
        match token {
            TokenTree::Punct(punct) => after_hash = punct.as_char() == '#',
            TokenTree::Group(group) if is_attribute => is_test |= marks_a_test(&group.stream()),
            // The body of a function, or what a module or macro has in it.
            TokenTree::Group(group) => scan(group.stream(), names),
            TokenTree::Ident(word) if is_name => {
                if std::mem::take(&mut is_test) {
                    names.insert(word.to_string());
                }
            }
            TokenTree::Ident(word) => after_fn = word == "fn",
            TokenTree::Literal(_) => {}
        }
    }
}

/// Whether an attribute is `test`, or a path that ends so, with or without arguments: `tokio::test(flavor = "…")`.
fn marks_a_test(attribute: &TokenStream) -> bool {
    let path = attribute.clone().into_iter().take_while(|token| !matches!(token, TokenTree::Group(_)));
    matches!(path.last(), Some(TokenTree::Ident(word)) if word == "test")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_tests_wherever_they_stand() {
        let text = "
            #[test] fn plain() { let a = [1, 2]; }
            #[tokio::test(flavor = \"multi_thread\")] async fn asynchronous() {}
            mod tests { #[test] #[should_panic] fn inside() {} }
            proptest! { #![config(a)] /// It holds. \n #[test] fn property(a in any()) {} }
        ";
        let names: Vec<_> = read(text).into_iter().collect();
        assert_eq!(names, ["asynchronous", "inside", "plain", "property"]);
    }

    #[test]
    fn takes_nothing_else_for_a_test() {
        let text = "
            #[cfg(test)] mod tests { fn helper() {} }
            // #[test] fn comment() {}
            const A: &str = \"#[test] fn text() {}\";
            #[test] fn real() { fn within() {} }
            fn after() {}
        ";
        assert_eq!(read(text).into_iter().collect::<Vec<_>>(), ["real"]);
        assert!(read("fn (").is_empty());
    }
}
