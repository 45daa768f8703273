//! The path of a match, as a user wrote it, in its normal form, and how specific it is. For the control plane: a filter
//! has the normal forms, by their order.

use super::spelling;

/// The path that a match asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathPattern<'t> {
    /// The whole path.
    Exact(&'t str),
    /// The start of the path, of whole segments.
    Prefix(&'t str),
    /// The whole path, in which `{name}` stands for one segment and, as the last one, `{name=**}` for all the rest.
    Template(&'t str),
    /// A regular expression for the whole path.
    Regex(&'t str),
}

/// A path pattern in its normal form: two with equal shapes match the same paths.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shape {
    /// These segments, and whatever follows if it is the start of a path.
    Segments {
        /// The segments.
        segments: Vec<Segment>,
        /// Whether more may follow.
        is_start: bool,
    },
    /// A regular expression for the whole path.
    Regex(String),
}

/// One segment of a pattern.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    /// Any segment that is not empty.
    Any,
    /// This text, without escapes.
    Text(Vec<u8>),
}

/// How specific a match is: by its host, then by its path, then by whether it has a method. The greatest of those that
/// fit is chosen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Specificity {
    host: HostRank,
    path: PathRank,
    has_method: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum HostRank {
    /// `*`.
    Any,
    /// `*.` and a name, by its length.
    Suffix(usize),
    Exact,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PathRank {
    tier: Tier,
    /// Segment by segment, whether it is text. Of two starts, the longer one is greater.
    text: Vec<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    Start,
    Regex,
    Whole,
}

impl PathPattern<'_> {
    /// The normal form. `None` if no request could take a route of this path, since its own spellings differ: it has
    /// parameters, a `\`, an escaped slash, dot segments or doubled slashes.
    pub fn shape(&self) -> Option<Shape> {
        let (text, is_start) = match self {
            Self::Exact(text) | Self::Template(text) => (text, false),
            Self::Prefix(text) => (text, true),
            Self::Regex(text) => return Some(Shape::Regex((*text).to_owned())),
        };
        let is_template = matches!(self, Self::Template(_));
        let mut shape = (Vec::new(), is_start);
        for segment in text.strip_prefix('/')?.trim_end_matches('/').split('/').filter(|_| text.len() > 1) {
            match segment {
                rest if is_template && rest.ends_with("=**}") => shape.1 = true,
                name if is_template && name.starts_with('{') => shape.0.push(Segment::Any),
                text => shape.0.push(Segment::Text(settled(text)?)),
            }
        }
        Some(Shape::Segments { segments: shape.0, is_start: shape.1 })
    }
}

/// The text of a segment without its escapes. `None` if its spellings differ.
fn settled(segment: &str) -> Option<Vec<u8>> {
    let mut found = spelling::forms(format!("/{segment}").as_bytes())?.into_iter().map(|form| {
        let mut segments = spelling::segments(&form).map(spelling::unescaped);
        segments.next().filter(|_| segments.next().is_none())
    });
    let first = found.next()??;
    found.all(|other| other.as_ref() == Some(&first)).then_some(first)
}

impl Shape {
    /// The pattern that matches every path.
    pub const fn any() -> Self {
        Self::Segments { segments: Vec::new(), is_start: true }
    }

    fn rank(&self) -> PathRank {
        match self {
            Self::Regex(_) => PathRank { tier: Tier::Regex, text: Vec::new() },
            Self::Segments { segments, is_start } => PathRank {
                tier: if *is_start { Tier::Start } else { Tier::Whole },
                text: segments.iter().map(|segment| matches!(segment, Segment::Text(_))).collect(),
            },
        }
    }
}

impl Specificity {
    /// How specific a match is. `host` is `*`, `*.` and a name, or a name.
    pub fn of(host: &str, shape: &Shape, has_method: bool) -> Self {
        let host = match host.strip_prefix('*') {
            None => HostRank::Exact,
            Some("") => HostRank::Any,
            Some(suffix) => HostRank::Suffix(suffix.len()),
        };
        Self { host, path: shape.rank(), has_method }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(pattern: PathPattern<'_>) -> PathRank {
        pattern.shape().unwrap().rank()
    }

    #[test]
    fn ranks_paths() {
        use PathPattern::{Exact, Prefix, Regex, Template};
        let rising = [
            Prefix("/"),
            Prefix("/a"),
            Template("/a/{x}/{rest=**}"),
            Prefix("/a/b"),
            Regex("/a.*"),
            Template("/{x}/b"),
            Template("/a/{x}"),
            Exact("/a/b"),
        ];
        for pair in rising.windows(2) {
            assert!(rank(pair[0]) < rank(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn ranks_hosts_before_paths_before_methods() {
        let of = |host: &str, path: &str, has_method: bool| {
            Specificity::of(host, &PathPattern::Prefix(path).shape().unwrap(), has_method)
        };
        let rising = [
            of("*", "/", false),
            of("*", "/", true),
            of("*", "/a", false),
            of("*.b", "/", false),
            of("*.a.b", "/", false),
            of("a.b", "/", false),
        ];
        for pair in rising.windows(2) {
            assert!(pair[0] < pair[1], "{pair:?}");
        }
    }

    #[test]
    fn has_one_shape_for_one_meaning() {
        use PathPattern::{Exact, Prefix, Template};
        let same = |one: PathPattern<'_>, other: PathPattern<'_>| assert_eq!(one.shape(), other.shape(), "{one:?}");
        same(Exact("/a/"), Exact("/a"));
        same(Exact("/@me"), Exact("/%40me"));
        same(Prefix("/a"), Template("/a/{rest=**}"));
        same(Template("/a/{x}"), Template("/a/{y}/"));
        same(Exact("/a/b"), Template("/a/b"));
        assert_eq!(Prefix("/").shape(), Some(Shape::any()));
        assert_ne!(Exact("/").shape(), Prefix("/").shape());
        assert_ne!(Exact("/{x}").shape(), Template("/{x}").shape());
    }

    #[test]
    fn refuses_what_no_request_could_take() {
        for path in ["/a;b", "/a%3bb", "/a%2fb", "/a\\b", "/a/../b", "/a/./b", "//a", "/a//b", "/a%00", "/a%23", "a"] {
            assert_eq!(PathPattern::Exact(path).shape(), None, "{path}");
            assert_eq!(PathPattern::Prefix(path).shape(), None, "{path}");
        }
        assert_eq!(PathPattern::Exact("/%2541").shape(), None);
        assert!(PathPattern::Exact("/100%25").shape().is_some());
        assert!(PathPattern::Exact("/.well-known/x").shape().is_some());
    }
}
