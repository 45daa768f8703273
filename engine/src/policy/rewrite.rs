//! `rewrite`: another path or host for the upstream.
//!
//! Nothing of it touches `:path` or `:authority`: Envoy would choose the route anew by them, past the policies of the
//! route that it lands on. What is written here reaches the router as a wish of its own, and routes carry it out. So
//! later steps and conditions see what the caller asked for; only a further `rewrite` goes on from what this one made.

use std::sync::Arc;

use postern_proto::plan::v1::{self as wire, rewrite::Path as WirePath, rewrite_part::Part as WirePart};

use super::{Context, Flow, failure};
use crate::{
    cel::Pattern,
    event::Phase,
    plan::LoadError,
    schema::{Ending, Field, Kind, Object, PolicySchema},
    strings::Strings,
    text::split_path,
    verdict::{Denial, Response},
};

/// The longest path that a regular expression looks at.
const LONGEST: usize = 8 << 10;

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "rewrite",
    about: "Gives the upstream another path or host; the query stays. A path that does not match stays as it is. \
            Conditions and later steps still see what the caller asked for. Postern's own routes carry it out; routes \
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
                "The host, perhaps with a port, and with the `{name}`s of the template.",
            ),
        ],
        exactly_one_of: &[],
    },
    endings: &[
        Ending { status: "500", reason: "path_invalid", when: "the path cannot be read, or would be none (a failure)" },
        Ending { status: "400", reason: "host_invalid", when: "a segment that is no part of a host would be one" },
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
}

#[derive(Debug)]
enum Path {
    Stays,
    Prefix { from: Arc<str>, to: Arc<str> },
    Template { segments: Vec<Option<Arc<str>>>, rest: bool, to: Vec<Part> },
    Regex { pattern: Pattern, to: Vec<Part> },
}

#[derive(Debug)]
enum Part {
    Text(Arc<str>),
    Capture(usize),
}

impl Rewrite {
    pub(crate) fn load(wire: &wire::Rewrite, strings: &Strings) -> Result<Self, LoadError> {
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
        Ok(Self { path, host: load_parts(&wire.host, captures, strings)? })
    }

    #[inline(never)]
    pub(crate) fn run(&self, context: &mut Context<'_>) -> Flow {
        let came = context.inputs.request_headers.values(":path").next().map(|path| split_path(path).0);
        let Some(came) = came.and_then(|path| str::from_utf8(path).ok()) else {
            return Flow::Fail(failure("path_invalid"));
        };
        let path = context.edits.path().map_or_else(|| came.to_owned(), str::to_owned);
        let Some((new, captures)) = self.path.apply(&path) else { return Flow::Continue };
        let host = render(&self.host, &captures);
        if !host.is_empty() && !host.bytes().all(is_host_byte) {
            let response = Response::problem(400, "the request's path cannot be served");
            return Flow::Deny(Denial { reason: "host_invalid", response });
        }
        match new {
            Some(new) if !is_path(&new) => return Flow::Fail(failure("path_invalid")),
            Some(new) => context.edits.set_path(&new),
            None => {}
        }
        if !host.is_empty() {
            context.edits.set_host(context.step, &host);
        }
        Flow::Continue
    }
}

impl Path {
    /// The new path, if there is one, and what was captured; `None` if the path does not match.
    fn apply<'a>(&self, path: &'a str) -> Option<(Option<String>, Vec<&'a str>)> {
        match self {
            Self::Stays => Some((None, Vec::new())),
            Self::Prefix { from, to } => {
                let rest = path.strip_prefix(&**from).filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
                let new = [to, rest].concat();
                Some((Some(if new.is_empty() { "/".to_owned() } else { new }), Vec::new()))
            }
            Self::Template { segments, rest, to } => {
                let captures = captured(segments, *rest, path)?;
                Some((Some(render(to, &captures)), captures))
            }
            Self::Regex { pattern, to } => {
                let (found, captures) = pattern.captures(path).filter(|_| path.len() <= LONGEST)?;
                let (before, after) = (path.get(..found.start)?, path.get(found.end..)?);
                Some((Some([before, &render(to, &captures), after].concat()), captures))
            }
        }
    }
}

/// The segments of a path that a template captures, if it fits. Without a capture of the rest, all segments must fit.
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

/// What can stand in a request line as a path.
fn is_path(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|byte| !byte.is_ascii_control() && !b" ?#".contains(&byte))
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte)
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
