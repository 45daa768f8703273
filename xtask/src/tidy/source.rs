//! Reads one Rust source: the modules that it declares, its imports, and the paths that it names. Comments, strings and
//! code for tests are left out. It works on text and opens no file.

use std::str::FromStr as _;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};

use super::imports::{self, Import, Named, Tokens};

/// A source, or the body of a module in one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) modules: Vec<Module>,
    pub(crate) imports: Vec<Import>,
    /// Paths of two segments or more outside of `use`, such as `super::Name`.
    pub(crate) paths: Vec<Named>,
}

/// A `mod` item.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Module {
    pub(crate) name: String,
    /// The value of `#[path]`.
    pub(crate) path: Option<String>,
    /// Whether it is compiled for tests only.
    pub(crate) test: bool,
    /// The body; `None` for a module in a file of its own.
    pub(crate) body: Option<Source>,
}

impl Source {
    /// Reads the text of a source.
    pub(crate) fn read(text: &str) -> Result<Self> {
        let stream = TokenStream::from_str(text).map_err(|error| anyhow!("this is no Rust: {error}"))?;
        let mut source = Self::default();
        source.scan(stream);
        Ok(source)
    }

    fn scan(&mut self, stream: TokenStream) {
        let mut tokens = stream.into_iter().collect::<Vec<_>>().into_iter().peekable();
        let mut attributes = Attributes::default();
        let mut public = false;
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    attributes.read(&mut tokens);
                    continue;
                }
                TokenTree::Ident(word) if word == "pub" => {
                    public = true;
                    // `pub(crate)`
                    tokens.next_if(|next| is_group(next, Delimiter::Parenthesis));
                    continue;
                }
                TokenTree::Ident(word) => self.item(&word, &mut tokens, &attributes, public),
                TokenTree::Group(group) if !attributes.test => self.scan(group.stream()),
                _ => {}
            }
            (attributes, public) = (Attributes::default(), false);
        }
    }

    /// An item, or any other part of one, that starts with this word.
    fn item(&mut self, word: &Ident, tokens: &mut Tokens, attributes: &Attributes, public: bool) {
        match word.to_string().as_str() {
            "mod" => self.module(tokens, attributes),
            word if attributes.test => skip_item(word, tokens),
            "use" => self.imports.extend(imports::read(tokens, public)),
            _ => self.path(word, tokens),
        }
    }

    /// What follows `mod`.
    fn module(&mut self, tokens: &mut Tokens, attributes: &Attributes) {
        let Some(TokenTree::Ident(name)) = tokens.next_if(|token| matches!(token, TokenTree::Ident(_))) else { return };
        let body = match tokens.next_if(|next| is_group(next, Delimiter::Brace)) {
            Some(TokenTree::Group(group)) => {
                let mut body = Self::default();
                body.scan(group.stream());
                Some(body)
            }
            _ => None,
        };
        let name = name.to_string().trim_start_matches("r#").to_owned();
        self.modules.push(Module { name, path: attributes.path.clone(), test: attributes.test, body });
    }

    /// A path that starts with this word, if it goes on.
    fn path(&mut self, word: &Ident, tokens: &mut Tokens) {
        let line = word.span().start().line;
        let mut segments = vec![word.to_string()];
        while imports::skip_colons(tokens) {
            match tokens.next_if(|token| matches!(token, TokenTree::Ident(_))) {
                Some(next) => segments.push(next.to_string()),
                None => break,
            }
        }
        if segments.len() > 1 {
            self.paths.push(Named { segments, line });
        }
    }
}

/// The attributes of an item that matter here.
#[derive(Default)]
struct Attributes {
    test: bool,
    path: Option<String>,
}

impl Attributes {
    /// What follows `#`.
    fn read(&mut self, tokens: &mut Tokens) {
        tokens.next_if(|token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == '!'));
        let Some(TokenTree::Group(group)) = tokens.next_if(|token| matches!(token, TokenTree::Group(_))) else {
            return;
        };
        let parts: Vec<_> = group.stream().into_iter().collect();
        match parts.as_slice() {
            [TokenTree::Ident(name), TokenTree::Group(condition)] if name == "cfg" => {
                self.test |= is_for_tests(&condition.stream());
            }
            [TokenTree::Ident(name), _, TokenTree::Literal(text)] if name == "path" => {
                self.path = Some(text.to_string().trim_matches('"').to_owned());
            }
            _ => {}
        }
    }
}

/// Whether a condition holds in tests only: `test`, or `all(test, …)`.
fn is_for_tests(condition: &TokenStream) -> bool {
    let parts: Vec<_> = condition.clone().into_iter().collect();
    match parts.as_slice() {
        [TokenTree::Ident(name)] => name == "test",
        [TokenTree::Ident(name), TokenTree::Group(group)] if name == "all" => {
            group.stream().into_iter().any(|part| matches!(part, TokenTree::Ident(name) if name == "test"))
        }
        _ => false,
    }
}

fn is_group(token: &TokenTree, delimiter: Delimiter) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == delimiter)
}

/// Leaves out the rest of an item that starts with this word.
fn skip_item(word: &str, tokens: &mut Tokens) {
    let ends_in_semicolon = ["use", "const", "static", "type", "let"].contains(&word);
    for token in tokens.by_ref() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ';' => return,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && !ends_in_semicolon => return,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let source = Source::read(text).unwrap();
        source.paths.iter().map(|path| format!("{}:{}", path.line, path.segments.join("::"))).collect()
    }

    #[test]
    fn finds_paths_wherever_they_stand_in_code() {
        let text =
            "fn a() -> super::B {\n    vec![crate::c::D, other(&self::e::f)]\n}\nimpl<T: crate::x::Y> Z for T {}";
        assert_eq!(paths(text), ["1:super::B", "2:crate::c::D", "2:self::e::f", "4:crate::x::Y"]);
    }

    #[test]
    fn leaves_out_comments_strings_and_tests() {
        let text = r##"
            //! crate::a::b
            /* crate::a::b /* nested */ crate::a::c */
            /// crate::a::b
            const A: &str = "crate::a::b"; const B: &str = r#"crate::"a"::b"#; const C: char = '"';
            #[cfg(test)]
            use crate::a::{b, c};
            #[cfg(all(test, unix))]
            fn a<'a>(b: crate::a::B) -> [u8; 2] { crate::a::b() }
            #[cfg(test)]
            const D: crate::a::B = crate::a::B { c: 1 };
            #[cfg(test)]
            mod tests { use crate::a::b; }
            fn kept() { crate::kept::it() }
        "##;
        let source = Source::read(text).unwrap();
        assert_eq!(paths(text).len(), 1);
        assert!(source.imports.is_empty());
        assert!(source.modules.iter().all(|module| module.test));
    }

    #[test]
    fn finds_modules_in_files_and_in_place() {
        let source =
            Source::read("pub mod a;\n#[path = \"x/y.rs\"]\nmod b;\nmod c { mod d; }\n#[cfg(test)]\nmod e;").unwrap();
        let [a, b, c, e] = source.modules.as_slice() else { panic!("{:?}", source.modules) };
        assert_eq!((a.name.as_str(), a.test, b.path.as_deref()), ("a", false, Some("x/y.rs")));
        assert_eq!(c.body.as_ref().unwrap().modules.len(), 1);
        assert!(e.test);
    }
}
