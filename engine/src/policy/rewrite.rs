//! `rewrite`: another path or host for the upstream.
//!
//! It does not edit `:path` or `:authority`: Envoy would choose the route again by them, and skip the policies of the
//! new route. It leaves the new path and host in the filter state, and routes take them from there. So later steps and
//! conditions see what the caller asked for; only a further `rewrite` starts from the result of this one.

use std::sync::Arc;

use postern_proto::plan::v1::{self as wire, rewrite::Path as WirePath, rewrite_part::Part as WirePart};

use super::{BuiltIn, Context, Flow, Known, failure};
use crate::{
    budget::{Budget, Exhausted},
    cel::Pattern,
    event::{Needs, Phase},
    load_error::LoadError,
    schema::{Ending, Field, Kind, Object, PolicySchema},
    strings::Strings,
    text::split_path,
    verdict::{Denial, Response},
};

/// The longest path that a match is looked for in.
const LONGEST: usize = 8 << 10;
/// The longest host name (RFC 1035, section 2.3.4).
const LONGEST_HOST: usize = 253;

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "rewrite",
    about: "Gives the upstream another path or host; the query stays. A path that does not match is refused, unless \
            `unmatched` is `pass`, and so is one of more than 8 KiB, in any case. So is a path that an upstream could read \
            as another one: a rewrite makes no `.` or `..` segment, no `//`, and no `;`, `\\`, `%2F` or `%5C` that neither \
            the path had nor the step's own text has (`path_unsafe`). Conditions and later steps still see what the caller asked for. Postern's own routes carry it out; routes \
            of your own need `path_rewrite: \"%FILTER_STATE(wasm.postern_path:PLAIN)%\"` and, for the host, \
            `host_rewrite` with a `%COALESCE(…)%` of `FILTER_STATE` `wasm.postern_host:PLAIN` and `REQ` `:authority`.",
    phases: &[Phase::Request],
    params: Object {
        fields: &[
            Field::optional("prefix", Kind::Object(&PREFIX), "Replaces the first segments of the path."),
            Field::optional("template", Kind::Object(&TEMPLATE), "Makes a path of the segments of another."),
            Field::optional("regex", Kind::Object(&REGEX), "Replaces the first match in the path."),
            Field::optional(
                "host",
                Kind::Text,
                "The host, perhaps with a port, and with the `{name}`s of the template. What a name stands for is part of \
                 a host name, never a port: anything else is refused.",
            ),
            Field::optional(
                "unmatched",
                Kind::Choice(&["deny", "pass"]),
                "What becomes of a request whose path does not match: it is refused, or passes with the path that it has.",
            )
            .or("deny"),
        ],
        exactly_one_of: &[],
    },
    endings: &[
        Ending { status: "500", reason: "path_invalid", when: "the path cannot be read, or would be none (a failure)" },
        Ending { status: "404", reason: "path_unmatched", when: "the path does not match, and `unmatched` is `deny`" },
        Ending { status: "414", reason: "path_too_long", when: "the path has more than 8 KiB" },
        Ending { status: "400", reason: "path_unsafe", when: "the new path would have `..`, `//`, `;` or the like" },
        Ending { status: "400", reason: "host_invalid", when: "the host would not be a host name" },
    ],
    example: "\
- policy: rewrite
  params: { prefix: { from: /api/v1, to: / }, host: users.internal }
",
};

const PREFIX: Object = Object {
    fields: &[
        Field::required("from", Kind::Path, "The segments to replace."),
        Field::required("to", Kind::Path, "What comes in their place; `/` for nothing."),
    ],
    exactly_one_of: &[],
};

const TEMPLATE: Object = Object {
    fields: &[
        Field::required(
            "match",
            Kind::Path,
            "The whole path: `{name}` stands for one segment, and as the last one `{name=**}` for all the rest.",
        ),
        Field::required("to", Kind::Path, "The new path, with the same names."),
    ],
    exactly_one_of: &[],
};

const REGEX: Object = Object {
    fields: &[
        Field::required("pattern", Kind::Text, "What to replace; linear in time, without look-around."),
        Field::required(
            "substitution",
            Kind::Text,
            r"What comes in its place; `\1` is the first group, `\0` all of it.",
        ),
    ],
    exactly_one_of: &[],
};

/// The loaded step.
#[derive(Debug)]
pub(crate) struct Rewrite {
    path: Path,
    host: Vec<Part>,
    /// Whether a path that does not match stays as it is.
    pass_unmatched: bool,
}

#[derive(Debug)]
enum Path {
    Stays,
    Prefix { from: Arc<str>, to: Arc<str> },
    Template { segments: Vec<Option<Arc<str>>>, rest: bool, to: Vec<Part> },
    Regex { pattern: Pattern, to: Vec<Part> },
}

/// The new path, if it changes, and the captured parts of the old one.
type Applied<'a> = (Option<String>, Vec<&'a str>);

#[derive(Debug)]
enum Part {
    Text(Arc<str>),
    Capture(usize),
}

impl BuiltIn for Rewrite {
    type Wire = wire::Rewrite;
    type State = ();

    fn load(wire: &wire::Rewrite, Known { strings, .. }: Known<'_>) -> Result<Self, LoadError> {
        let (path, captures) = match &wire.path {
            None => (Path::Stays, 0),
            Some(WirePath::Prefix(prefix)) => {
                (Path::Prefix { from: strings.get(prefix.from)?, to: strings.get(prefix.to)? }, 0)
            }
            Some(WirePath::Template(template)) => {
                let segment = |index: &u32| index.checked_sub(1).map(|index| strings.get(index)).transpose();
                let segments = template.segments.iter().map(segment).collect::<Result<Vec<_>, _>>()?;
                let captures = segments.iter().filter(|segment| segment.is_none()).count();
                let to = load_parts(&template.to, captures, strings)?;
                (Path::Template { segments, rest: template.rest, to }, captures)
            }
            Some(WirePath::Regex(regex)) => {
                let text = strings.get(regex.pattern)?;
                let unfit = |_| LoadError::Unfit { what: "regular expression", text: Arc::clone(&text) };
                let pattern = Pattern::compile(&text).map_err(unfit)?;
                let captures = pattern.groups();
                (Path::Regex { to: load_parts(&regex.to, captures, strings)?, pattern }, captures)
            }
        };
        let host = load_parts(&wire.host, captures, strings)?;
        let text = |part: &Part| if let Part::Text(text) = part { Some(Arc::clone(text)) } else { None };
        let port = host.iter().position(|part| text(part).is_some_and(|text| text.contains([':', '[', ']'])));
        let behind = host.iter().skip(port.unwrap_or(usize::MAX));
        if behind.clone().any(|part| matches!(part, Part::Capture(_))) {
            let text = behind.filter_map(text).collect::<Vec<_>>().concat().into();
            return Err(LoadError::Unfit { what: "host with a name behind its port", text });
        }
        Ok(Self { path, host, pass_unmatched: wire.pass_unmatched })
    }

    fn needs(&self, _: Phase) -> Needs {
        Needs::REQUEST_HEADERS
    }

    fn least_cost(&self) -> u64 {
        match &self.path {
            Path::Regex { pattern, .. } => pattern.cost_of_captures(1),
            Path::Stays | Path::Prefix { .. } | Path::Template { .. } => 0,
        }
    }

    #[inline(never)]
    fn run(&self, context: &mut Context<'_>, (): &mut ()) -> Flow {
        let came = context.inputs.request_headers.values(":path").next().map(|path| split_path(path).0);
        let Some(came) = came.and_then(|path| str::from_utf8(path).ok()) else {
            return Flow::Fail(failure("path_invalid"));
        };
        let path = context.edits.path().map_or_else(|| came.to_owned(), str::to_owned);
        // Before anything looks for a match, which takes time in proportion to the path.
        if path.len() > LONGEST && !matches!(self.path, Path::Stays) {
            return refuse(414, "path_too_long", "the request's path is too long");
        }
        let (new, captures) = match self.path.apply(&path, context.budget) {
            Err(exhausted) => return Flow::Fail(exhausted.into()),
            Ok(Some(applied)) => applied,
            Ok(None) if self.pass_unmatched => return Flow::Continue,
            Ok(None) => return refuse(404, "path_unmatched", "nothing is served at the request's path"),
        };
        let Some(host) = self.host(&captures) else {
            return refuse(400, "host_invalid", "the request's path cannot be served");
        };
        match new {
            Some(new) if !is_path(&new) => return Flow::Fail(failure("path_invalid")),
            Some(new) if oddities(&new) & !oddities(&path) & !self.path.written() != 0 => {
                return refuse(400, "path_unsafe", "the request's path cannot be served");
            }
            Some(new) => context.edits.set_path(&new),
            None => {}
        }
        if !host.is_empty() {
            context.edits.set_host(context.step, &host);
        }
        Flow::Continue
    }
}

impl Rewrite {
    /// The new host; empty if it does not change, `None` if the captured parts do not make a host name.
    ///
    /// Only the template can bring a port: what a caller writes can only be part of a name.
    fn host(&self, captures: &[&str]) -> Option<String> {
        let host = render(&self.host, captures);
        if !self.host.iter().any(|part| matches!(part, Part::Capture(_))) {
            return Some(host);
        }
        let port = self.host.iter().find_map(|part| match part {
            Part::Text(text) => text.find(':').and_then(|colon| text.get(colon..)),
            Part::Capture(_) => None,
        });
        is_host_name(host.strip_suffix(port.unwrap_or_default())?).then_some(host)
    }
}

fn refuse(status: u16, reason: &'static str, detail: &str) -> Flow {
    Flow::Deny(Denial { reason, response: Response::problem(status, detail) })
}

impl Path {
    /// The oddities of the user's own text, which are allowed. Dots and slashes are not included, since they might join
    /// those of a caller.
    fn written(&self) -> u8 {
        let text = |part: &Part| if let Part::Text(text) = part { oddities(text) } else { 0 };
        let found = match self {
            Self::Stays => 0,
            Self::Prefix { to, .. } => oddities(to),
            Self::Template { to, .. } | Self::Regex { to, .. } => to.iter().map(text).fold(0, |all, some| all | some),
        };
        found & !(DOTS | EMPTY)
    }

    /// Applies the rule to a path. `None` if the path does not match.
    fn apply<'a>(&self, path: &'a str, budget: &Budget) -> Result<Option<Applied<'a>>, Exhausted> {
        Ok(match self {
            Self::Stays => Some((None, Vec::new())),
            Self::Prefix { from, to } => replace_prefix(path, from, to).map(|new| (Some(new), Vec::new())),
            Self::Template { segments, rest, to } => {
                captured(segments, *rest, path).map(|captures| (Some(render(to, &captures)), captures))
            }
            Self::Regex { pattern, to } => pattern.captures(path, budget)?.and_then(|(found, captures)| {
                let (before, after) = (path.get(..found.start)?, path.get(found.end..)?);
                Some((Some([before, &render(to, &captures), after].concat()), captures))
            }),
        })
    }
}

fn replace_prefix(path: &str, from: &str, to: &str) -> Option<String> {
    let rest = path.strip_prefix(from).filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
    let new = [to, rest].concat();
    Some(if new.is_empty() { "/".to_owned() } else { new })
}

/// The segments of a path that a template captures; `None` if it does not match. Without a capture of the rest, all
/// segments must match.
fn captured<'a>(segments: &[Option<Arc<str>>], rest: bool, path: &'a str) -> Option<Vec<&'a str>> {
    let mut left = Some(path.strip_prefix('/')?);
    let mut captures = Vec::new();
    for (index, segment) in segments.iter().enumerate() {
        let text = left?;
        if rest && index.saturating_add(1) == segments.len() {
            captures.push(text);
            left = None;
            break;
        }
        let (found, behind) = text.split_once('/').map_or((text, None), |(found, behind)| (found, Some(behind)));
        match segment {
            Some(literal) if **literal == *found => {}
            None if !found.is_empty() => captures.push(found),
            _ => return None,
        }
        left = behind;
    }
    left.is_none().then_some(captures)
}

fn render(parts: &[Part], captures: &[&str]) -> String {
    let part = |part: &Part| match part {
        Part::Text(text) => text.to_string(),
        Part::Capture(index) => captures.get(*index).copied().unwrap_or_default().to_owned(),
    };
    parts.iter().map(part).collect()
}

fn load_parts(wire: &[wire::RewritePart], captures: usize, strings: &Strings) -> Result<Vec<Part>, LoadError> {
    let load = |part: &wire::RewritePart| match part.part.as_ref().ok_or(LoadError::Missing("part"))? {
        WirePart::Text(index) => strings.get(*index).map(Part::Text),
        WirePart::Capture(index) => match usize::try_from(*index) {
            Ok(place) if place < captures => Ok(Part::Capture(place)),
            _ => Err(LoadError::Index { what: "capture", index: *index, size: captures }),
        },
    };
    wire.iter().map(load).collect()
}

/// Whether a text can be the path of a request line.
fn is_path(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|byte| !byte.is_ascii_control() && !b" ?#".contains(&byte))
}

/// A segment of one or two dots, also if they are escaped or have parameters.
const DOTS: u8 = 1;
/// Two slashes in a row.
const EMPTY: u8 = 2;
/// `;`, or `%3B`.
const PARAMETERS: u8 = 4;
/// `\`.
const BACKSLASH: u8 = 8;
/// `%2F` or `%5C`.
const ESCAPED: u8 = 16;

/// The oddities of a path, as bits: what upstreams read in different ways, so that they may take it for another path.
fn oddities(path: &str) -> u8 {
    let (mut rest, mut found, mut before) = (path.as_bytes(), 0, 0);
    // Of the segment so far, if it has nothing else.
    let mut dots = None;
    loop {
        let (byte, oddity, behind) = match rest {
            [b'%', b'2', b'e' | b'E', behind @ ..] => (b'.', 0, behind),
            [b'%', b'2', b'f' | b'F', behind @ ..] | [b'%', b'5', b'c' | b'C', behind @ ..] => (b'\\', ESCAPED, behind),
            [b'%', b'3', b'b' | b'B', behind @ ..] | [b';', behind @ ..] => (b';', PARAMETERS, behind),
            [b'\\', behind @ ..] => (b'\\', BACKSLASH, behind),
            [b'/', behind @ ..] => (b'/', if before == b'/' { EMPTY } else { 0 }, behind),
            [byte, behind @ ..] => (*byte, 0, behind),
            [] => (0, 0, rest),
        };
        found |= oddity;
        if matches!(byte, b'/' | b'\\' | b';' | 0) && matches!(dots, Some(1 | 2)) {
            found |= DOTS;
        }
        dots = match byte {
            0 => return found,
            b'/' | b'\\' => Some(0_u8),
            b'.' => dots.map(|dots| dots.saturating_add(1)),
            _ => None,
        };
        (rest, before) = (behind, byte);
    }
}

/// Whether a text is a host name: labels separated by dots, none of them empty (RFC 1123, section 2.1, and `_`). A port
/// or an address in brackets is not one.
fn is_host_name(host: &str) -> bool {
    let in_label = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(in_label);
    host.len() <= LONGEST_HOST && host.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(segments: &[&str], rest: bool, path: &str, expect: Option<&[&str]>) {
        let segment = |text: &&str| (*text != "*").then(|| Arc::from(*text));
        let segments: Vec<_> = segments.iter().map(segment).collect();
        assert_eq!(captured(&segments, rest, path).as_deref(), expect, "{path}");
    }

    #[test]
    fn sees_what_upstreams_do_not_read_alike() {
        let check = |expect: u8, paths: &[&str]| {
            paths.iter().for_each(|path| assert_eq!(oddities(path), expect, "{path}"));
        };
        check(0, &["/", "/a/b.c/", "/a..", "/..a", "/...", "/a/.b", "/%2", "/%41", "/a.%2e", "/@1"]);
        check(DOTS, &["/..", "/.", "/a/../b", "/a/./b", "/%2e%2E", "/.%2e/b", "/a/%2e"]);
        check(DOTS | PARAMETERS, &["/..;x", "/a/.;/b", "/%2e.%3bx/a"]);
        check(DOTS | ESCAPED, &["/a/..%2fb", "/a%5C../b"]);
        check(DOTS | BACKSLASH, &[r"/a/..\b", r"/a\.."]);
        check(EMPTY, &["//", "//a", "/a//b", "/a//"]);
        check(PARAMETERS, &["/a;b", "/a%3Bb", "/a%3b", "/;"]);
        check(ESCAPED, &["/a%2Fb", "/a%5cb"]);
    }

    #[test]
    fn captures_segments() {
        check(&["users", "*"], false, "/users/7", Some(&["7"]));
        check(&["users", "*"], false, "/users/7/", None);
        check(&["users", "*"], false, "/users/", None);
        check(&["users", "*"], false, "/users", None);
        check(&["users", "*"], false, "/user/7", None);
        check(&["users", "*", "posts"], false, "/users/7/posts", Some(&["7"]));
        check(&["files", "*"], true, "/files/a/b", Some(&["a/b"]));
        check(&["files", "*"], true, "/files/", Some(&[""]));
        check(&["files", "*"], true, "/files", None);
        check(&[""], false, "/", Some(&[]));
    }
}
