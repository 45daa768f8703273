//! `respond`: answers in place of the upstream: always the same, with a redirect, or with a template filled in.

use std::sync::Arc;

use postern_proto::plan::v1::{self as wire, TemplateEscape};

use super::{BuiltIn, Context, Flow, Known, failure, least_cost, needs_of, unevaluated};
use crate::{
    budget::steps,
    cel::{Expression, Value, format_double},
    event::{Needs, Phase},
    header::HeaderUse,
    load_error::LoadError,
    schema::{Ending, Field, Kind, Object, PolicySchema},
    strings::Strings,
    text::{json, split_path},
    verdict::{Denial, Response},
};

/// The largest body that a template makes.
const LARGEST: usize = 1 << 20;

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "respond",
    about: "Answers in place of the upstream: with a body, with a template that is filled in, or with a redirect.",
    phases: &[Phase::Request],
    params: Object {
        fields: &[
            Field::optional("status", Kind::Integer { min: 200, max: 599 }, "The status.")
                .or("200")
                .unless(&["redirect"]),
            Field::optional(
                "headers",
                Kind::Map { key: &Kind::EditedHeader(HeaderUse::Set), value: &Kind::HeaderValue },
                "The headers of the answer.",
            ),
            Field::optional("body", Kind::Text, "The body of the answer."),
            Field::optional(
                "template",
                Kind::Text,
                "The body of the answer, with `{{ }}` around CEL expressions. By the `content-type` in `headers`, values \
                 are escaped for JSON (quoted where the template does not) or HTML.",
            ),
            Field::optional("redirect", Kind::Object(&REDIRECT), "Where the caller should go instead."),
        ],
        exactly_one_of: &[],
    },
    endings: &[
        Ending { status: "`status`", reason: "respond", when: "always" },
        Ending {
            status: "403",
            reason: "consumer_unknown",
            when: "the template asks for the consumer of a caller who is none (a failure)",
        },
        Ending { status: "500", reason: "template_failed", when: "an expression could not be evaluated (a failure)" },
        Ending { status: "400", reason: "host_invalid", when: "a redirect to the request's own host finds none" },
    ],
    example: "\
- policy: respond
  params: { status: 404, headers: { content-type: text/plain }, body: there is nothing here }
",
};

const REDIRECT: Object = Object {
    fields: &[
        Field::optional("to", Kind::Text, "A whole URL or a path; instead of the following."),
        Field::optional("scheme", Kind::Choice(&["http", "https"]), "The scheme; the request's if left out."),
        Field::optional("host", Kind::Text, "The host, perhaps with a port; the request's if left out."),
        Field::optional("path", Kind::Path, "The path; the request's if left out."),
        Field::optional("prefix", Kind::Object(&PREFIX), "Replaces the first segments of the request's path."),
        Field::optional("status", Kind::Integer { min: 301, max: 308 }, "301, 302, 303, 307 or 308.").or("302"),
        Field::optional("keepQuery", Kind::Boolean, "Whether the request's query goes along.").or("true"),
    ],
    exactly_one_of: &[],
};

const PREFIX: Object = Object {
    fields: &[
        Field::required("from", Kind::Path, "The segments to replace."),
        Field::required("to", Kind::Path, "What comes in their place; `/` for nothing."),
    ],
    exactly_one_of: &[],
};

/// The loaded step.
#[derive(Debug)]
pub(crate) struct Respond {
    answer: Response,
    filling: Filling,
}

/// How the answer is made.
#[derive(Debug)]
enum Filling {
    Nothing,
    Template(Vec<Part>),
    Location(Redirect),
}

#[derive(Debug)]
enum Part {
    Text(Arc<str>),
    Value(Arc<Expression>, TemplateEscape),
}

#[derive(Debug)]
struct Redirect {
    /// The whole location; empty if it is made of the parts below.
    to: Arc<str>,
    /// This part and the next two are the request's own if they are empty.
    scheme: Arc<str>,
    host: Arc<str>,
    path: Arc<str>,
    prefix: Option<(Arc<str>, Arc<str>)>,
    keep_query: bool,
}

impl BuiltIn for Respond {
    type Wire = wire::Respond;
    type State = ();

    fn load(wire: &wire::Respond, Known { strings, .. }: Known<'_>) -> Result<Self, LoadError> {
        let answer = strings.answer(wire.answer.as_ref().ok_or(LoadError::Missing("answer"))?)?;
        let filling = match &wire.redirect {
            Some(redirect) => Filling::Location(Redirect::load(redirect, strings)?),
            None if wire.template.is_empty() => Filling::Nothing,
            None => {
                Filling::Template(wire.template.iter().map(|part| Part::load(part, strings)).collect::<Result<_, _>>()?)
            }
        };
        Ok(Self { answer, filling })
    }

    fn needs(&self, _: Phase) -> Needs {
        match &self.filling {
            Filling::Nothing => Needs::NONE,
            Filling::Location(_) => Needs::REQUEST_HEADERS,
            Filling::Template(parts) => needs_of(expressions(parts)),
        }
    }

    fn evaluates(&self) -> bool {
        true
    }

    fn least_cost(&self) -> u64 {
        match &self.filling {
            Filling::Template(parts) => least_cost(expressions(parts)),
            Filling::Nothing | Filling::Location(_) => 0,
        }
    }

    #[inline(never)]
    fn run(&self, context: &mut Context<'_>, (): &mut ()) -> Flow {
        let mut answer = self.answer.clone();
        match &self.filling {
            Filling::Nothing => {}
            Filling::Template(parts) => match fill(parts, context) {
                Ok(body) => answer.body = body.into_bytes(),
                Err(denial) => return Flow::Fail(denial),
            },
            Filling::Location(redirect) => match redirect.location(context) {
                Some(location) => answer = answer.with_header("location", &location),
                None => {
                    let response = Response::problem(400, "the request has no usable host");
                    return Flow::Deny(Denial { reason: "host_invalid", response });
                }
            },
        }
        Flow::Respond(answer)
    }
}

impl Part {
    fn load(wire: &wire::TemplatePart, strings: &Strings) -> Result<Self, LoadError> {
        let escape = TemplateEscape::try_from(wire.escape).map_err(|_| LoadError::Missing("escape"))?;
        match strings.expression(wire.expression)? {
            Some(expression) => Ok(Self::Value(expression, escape)),
            None => strings.get(wire.text).map(Self::Text),
        }
    }
}

fn expressions(parts: &[Part]) -> impl Iterator<Item = &Arc<Expression>> {
    parts.iter().filter_map(|part| match part {
        Part::Text(_) => None,
        Part::Value(expression, _) => Some(expression),
    })
}

fn fill(parts: &[Part], context: &Context<'_>) -> Result<String, Denial> {
    let failed = || failure("template_failed");
    let mut body = String::new();
    for part in parts {
        match part {
            Part::Text(text) => body.push_str(text),
            Part::Value(expression, how) => {
                let value = expression.evaluate(context, context.budget);
                let value = value.map_err(|error| unevaluated(&error, "template_failed"))?;
                if let Value::String(text) = &value {
                    context.budget.spend(steps(text.len()))?;
                }
                body.push_str(&escaped(&value, *how).ok_or_else(failed)?);
            }
        }
        if body.len() > LARGEST {
            return Err(failed());
        }
    }
    Ok(body)
}

/// A value as text, escaped so that it cannot be more than a value where it stands. `None` for lists, maps and other
/// types that have no text.
fn escaped(value: &Value, how: TemplateEscape) -> Option<String> {
    let text: Arc<str> = match value {
        Value::String(text) => Arc::clone(text),
        Value::Int(number) => number.to_string().into(),
        Value::Uint(number) => number.to_string().into(),
        Value::Bool(truth) => truth.to_string().into(),
        Value::Null => "null".into(),
        Value::Double(number) if number.is_finite() => format_double(*number).into(),
        _ => return None,
    };
    Some(match (how, value) {
        (TemplateEscape::JsonValue, Value::String(_)) => json::quote(&text),
        (TemplateEscape::JsonString, _) => {
            let quoted = json::quote(&text);
            quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or_default().to_owned()
        }
        (TemplateEscape::Html, _) => html(&text),
        (TemplateEscape::None | TemplateEscape::JsonValue, _) => text.to_string(),
    })
}

fn html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

impl Redirect {
    fn load(wire: &wire::Redirect, strings: &Strings) -> Result<Self, LoadError> {
        let prefix = wire.prefix.as_ref().map(|prefix| Ok((strings.get(prefix.from)?, strings.get(prefix.to)?)));
        Ok(Self {
            to: strings.header_value(wire.to)?,
            scheme: strings.header_value(wire.scheme)?,
            host: strings.header_value(wire.host)?,
            path: strings.header_value(wire.path)?,
            prefix: prefix.transpose().map_err(|error: LoadError| error)?,
            keep_query: wire.keep_query,
        })
    }

    fn location(&self, context: &Context<'_>) -> Option<String> {
        let came = context.inputs.request_headers.values(":path").next().unwrap_or_default();
        let (path, query) = split_path(came);
        let target = if self.to.is_empty() {
            [self.site(context)?, self.path(&visible(path))].concat()
        } else {
            self.to.to_string()
        };
        Some(match query.filter(|query| self.keep_query && !query.is_empty()) {
            None => target,
            Some(query) => [target.as_str(), if target.contains('?') { "&" } else { "?" }, &visible(query)].concat(),
        })
    }

    /// Scheme and host; empty if the user sets neither, so that a path is enough. `None` if the request's host is
    /// needed and cannot be used.
    fn site(&self, context: &Context<'_>) -> Option<String> {
        if self.scheme.is_empty() && self.host.is_empty() {
            return Some(String::new());
        }
        let came =
            |name| context.inputs.request_headers.values(name).next().and_then(|value| str::from_utf8(value).ok());
        let scheme = match (&*self.scheme, came(":scheme")) {
            ("", Some("https")) => "https",
            ("", _) => "http",
            (scheme, _) => scheme,
        };
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        let host = if self.host.is_empty() { came(":authority")? } else { &self.host };
        (!host.is_empty() && host.bytes().all(is_host)).then(|| [scheme, "://", host].concat())
    }

    /// The path of the location. It never starts with two slashes: as a location, that would be another host.
    fn path(&self, came: &str) -> String {
        let path = match &self.prefix {
            _ if !self.path.is_empty() => self.path.to_string(),
            None => came.to_owned(),
            Some((from, to)) => match came.strip_prefix(&**from) {
                Some(rest) if rest.is_empty() || rest.starts_with('/') => [to, rest].concat(),
                _ => came.to_owned(),
            },
        };
        ["/", path.trim_start_matches(['/', '\\'])].concat()
    }
}

/// Escapes the bytes that a URL cannot have, as `%` and two digits.
fn visible(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            0x21..=0x7e if !b"\"<>\\^`{|}".contains(byte) => text.push(char::from(*byte)),
            _ => {
                let digit = |digit: u8| char::from_digit(digit.into(), 16).unwrap_or('0').to_ascii_uppercase();
                text.extend(['%', digit(byte >> 4), digit(byte & 0xf)]);
            }
        }
    }
    text
}
