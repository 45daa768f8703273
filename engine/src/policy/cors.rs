//! `cors`: cross-origin requests of browsers, as the Fetch standard defines them.
//!
//! A preflight is answered here and never reaches the upstream. Every other request goes on, and its response gets the
//! headers that let a page read it; those of the upstream are replaced. Answers of later steps get them too: a page
//! must be able to read that its token has expired.

use std::sync::Arc;

use postern_proto::plan::v1 as wire;

use super::{BuiltIn, Context, Flow, Known};
use crate::{
    budget::{Budget, Exhausted},
    cel::Pattern,
    event::{Needs, Phase},
    header::{Name, Value},
    load_error::LoadError,
    schema::{Ending, Field, Kind, Object, PolicySchema},
    text::origin::{Origin, OriginRule},
    verdict::{Denial, HeaderPair, Response},
};

const ALLOW_ORIGIN: &str = "access-control-allow-origin";
const ALLOW_CREDENTIALS: &str = "access-control-allow-credentials";
const ALLOW_METHODS: &str = "access-control-allow-methods";
const ALLOW_HEADERS: &str = "access-control-allow-headers";
const EXPOSE_HEADERS: &str = "access-control-expose-headers";
const MAX_AGE: &str = "access-control-max-age";
const ALLOW_PRIVATE_NETWORK: &str = "access-control-allow-private-network";
/// The response headers whose values from the upstream are replaced.
const OURS: [&str; 7] =
    [ALLOW_ORIGIN, ALLOW_CREDENTIALS, ALLOW_METHODS, ALLOW_HEADERS, EXPOSE_HEADERS, MAX_AGE, ALLOW_PRIVATE_NETWORK];
const VARY_PREFLIGHT: &str = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";
const HEADER_NAMES: Kind = Kind::List { item: &Kind::HeaderName, at_least: 1 };

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "cors",
    about: "Answers the preflights of browsers, and says on responses which pages may read them, in place of what the \
            upstream says. Put it first: then the refusals of later steps can be read by a page too.",
    phases: &[Phase::Request],
    params: Object {
        fields: &[
            Field::optional(
                "allowOrigins",
                Kind::List { item: &Kind::Text, at_least: 1 },
                "The origins that may read responses: `https://app.example.com`, `https://*.example.com` for every host \
                 below that one, `null`, or `*` for all.",
            ),
            Field::optional(
                "allowOriginRegexes",
                Kind::List { item: &Kind::Text, at_least: 1 },
                "The same as regular expressions that match a whole origin in lower case.",
            ),
            Field::optional(
                "allowMethods",
                Kind::List { item: &Kind::Method, at_least: 1 },
                "The methods that a page may use, or `*`.",
            )
            .or("[GET, HEAD, POST]"),
            Field::optional("allowHeaders", HEADER_NAMES, "The request headers that a page may set, or `*`."),
            Field::optional("exposeHeaders", HEADER_NAMES, "The response headers that a page may read, or `*`."),
            Field::optional("maxAge", Kind::Duration, "How long a browser may keep the answer to a preflight."),
            Field::optional("allowCredentials", Kind::Boolean, "Whether requests may carry cookies and the like.")
                .or("false"),
            Field::optional("allowPrivateNetwork", Kind::Boolean, "Whether a public page may ask a private network.")
                .or("false"),
            Field::optional(
                "enforce",
                Kind::Boolean,
                "Whether a request with another origin is refused. If not, it passes, and its page cannot read the answer.",
            )
            .or("false"),
        ],
        exactly_one_of: &[],
    },
    endings: &[
        Ending { status: "204", reason: "respond", when: "it is a preflight" },
        Ending { status: "403", reason: "origin_not_allowed", when: "with `enforce`, the origin is not allowed" },
    ],
    example: "\
- policy: cors
  params:
    allowOrigins: [https://app.example.com, 'https://*.preview.example.com']
    allowMethods: [GET, PUT]
    allowHeaders: [content-type, authorization]
    allowCredentials: true
    maxAge: 10m
",
};

/// The loaded step.
#[derive(Debug)]
pub(crate) struct Cors {
    rules: Vec<OriginRule>,
    patterns: Vec<Pattern>,
    /// Whether every origin is answered with `*`.
    any: bool,
    /// Headers of the answer to a preflight.
    preflight: Vec<(Name, Value)>,
    /// Headers of every other response.
    actual: Vec<(Name, Value)>,
    private_network: bool,
    enforce: bool,
    names: Names,
}

/// Header names and values that are used often, made once.
#[derive(Debug)]
struct Names {
    ours: [Name; 7],
    allow_origin: Name,
    vary: Name,
    origin: Value,
}

/// The origin that a request comes from.
enum From {
    /// It does not come from a page, or from a page of the same origin.
    Nowhere,
    /// From an allowed origin, with the value for `Access-Control-Allow-Origin`.
    Allowed(Value),
    Other,
}

impl BuiltIn for Cors {
    type Wire = wire::Cors;
    type State = ();

    fn load(wire: &wire::Cors, Known { strings, .. }: Known<'_>) -> Result<Self, LoadError> {
        let rules = strings.origins(&wire.origins)?;
        let any = rules.contains(&OriginRule::Any);
        let patterns =
            wire.origin_patterns.iter().map(|index| whole(&strings.get(*index)?)).collect::<Result<_, _>>()?;
        let value = |name, index: u32| Ok::<_, LoadError>((Name::built_in(name), strings.set_value(index)?));
        let mut actual = vec![value(EXPOSE_HEADERS, wire.expose_headers)?];
        let mut preflight = vec![
            value(ALLOW_METHODS, wire.allow_methods)?,
            value(ALLOW_HEADERS, wire.allow_headers)?,
            value(MAX_AGE, wire.max_age)?,
        ];
        if wire.allow_credentials {
            if any || preflight.iter().chain(&actual).any(|(_, value)| &**value.get() == "*") {
                return Err(LoadError::Unfit { what: "list with credentials", text: "*".into() });
            }
            let credentials = (Name::built_in(ALLOW_CREDENTIALS), Value::built_in("true"));
            actual.push(credentials.clone());
            preflight.push(credentials);
        }
        actual.retain(|(_, value)| !value.get().is_empty());
        preflight.retain(|(_, value)| !value.get().is_empty());
        let names = Names {
            ours: OURS.map(Name::built_in),
            allow_origin: Name::built_in(ALLOW_ORIGIN),
            vary: Name::built_in("vary"),
            origin: Value::built_in("Origin"),
        };
        let (private_network, enforce) = (wire.allow_private_network, wire.enforce);
        Ok(Self { rules, patterns, any, preflight, actual, private_network, enforce, names })
    }

    fn needs(&self, _: Phase) -> Needs {
        Needs::REQUEST_HEADERS
    }

    #[inline(never)]
    fn run(&self, context: &mut Context<'_>, (): &mut ()) -> Flow {
        let from = match self.from(context) {
            Ok(from) => from,
            Err(exhausted) => return Flow::Fail(exhausted.into()),
        };
        if matches!(from, From::Other) && self.enforce {
            let response = Response::problem(403, "this origin is not admitted").with_header("vary", "Origin");
            return Flow::Deny(Denial { reason: "origin_not_allowed", response });
        }
        if is_preflight(context) {
            return Flow::Respond(self.answer(context, &from));
        }
        self.mark(context, &from);
        Flow::Continue
    }
}

impl Cors {
    fn from(&self, context: &Context<'_>) -> Result<From, Exhausted> {
        let values = context.request_header("origin");
        Ok(match values.as_slice() {
            [] if self.any => From::Allowed(Value::built_in("*")),
            [] => From::Nowhere,
            _ if self.any => From::Allowed(Value::built_in("*")),
            [value] => self.admitted(value, context.budget)?.map_or(From::Other, From::Allowed),
            _ => From::Other,
        })
    }

    /// The value for `Access-Control-Allow-Origin`, if the origin is allowed: the origin as it came.
    fn admitted(&self, value: &[u8], budget: &Budget) -> Result<Option<Value>, Exhausted> {
        let Ok(text) = str::from_utf8(value) else { return Ok(None) };
        if text == "null" {
            return Ok(self.rules.contains(&OriginRule::Null).then(|| Value::built_in("null")));
        }
        let Some(origin) = Origin::parse(text) else { return Ok(None) };
        let listed = self.rules.iter().any(|rule| rule.admits(&origin));
        let fits = listed || (!self.patterns.is_empty() && self.fits(&origin.normal(), budget)?);
        Ok(if fits { Value::new(text) } else { None })
    }

    fn fits(&self, normal: &str, budget: &Budget) -> Result<bool, Exhausted> {
        for pattern in &self.patterns {
            if pattern.is_match(normal, budget)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn answer(&self, context: &Context<'_>, from: &From) -> Response {
        let mut headers = vec![(Arc::clone(self.names.vary.get()), VARY_PREFLIGHT.into())];
        if let From::Allowed(origin) = from {
            headers.push(pair(&self.names.allow_origin, origin));
            headers.extend(self.preflight.iter().map(|(name, value)| pair(name, value)));
            let asked = context.request_header("access-control-request-private-network");
            if self.private_network && asked.as_slice() == [b"true"] {
                headers.push((ALLOW_PRIVATE_NETWORK.into(), "true".into()));
            }
        }
        Response { status: 204, headers, body: Vec::new() }
    }

    /// Sets the headers of the response to this request, whether it comes from the upstream or from us.
    fn mark(&self, context: &mut Context<'_>, from: &From) {
        for name in &self.names.ours {
            context.facts.rare().response.remove(context.step, name);
        }
        if !self.any {
            // Also without an origin: a cache must not show this response to a page.
            context.facts.rare().response.add(context.step, &self.names.vary, &self.names.origin);
            context.facts.rare().answers.push(pair(&self.names.vary, &self.names.origin));
        }
        if let From::Allowed(origin) = from {
            let allow = [(self.names.allow_origin.clone(), origin.clone())];
            for (name, value) in allow.iter().chain(&self.actual) {
                context.facts.rare().response.set(context.step, name, value);
                context.facts.rare().answers.push(pair(name, value));
            }
        }
    }
}

fn pair(name: &Name, value: &Value) -> HeaderPair {
    (Arc::clone(name.get()), Arc::clone(value.get()))
}

fn is_preflight(context: &Context<'_>) -> bool {
    let has = |name| !context.request_header(name).is_empty();
    context.request_header(":method").as_slice() == [b"OPTIONS"]
        && has("origin")
        && has("access-control-request-method")
}

/// Compiles a pattern that must match a whole text. The text alone must be a pattern: `a)|(b` is refused.
fn whole(pattern: &str) -> Result<Pattern, LoadError> {
    let unfit = |_| LoadError::Unfit { what: "regular expression", text: pattern.into() };
    Pattern::compile(pattern).map_err(unfit)?;
    Pattern::compile(&["^(?:", pattern, ")$"].concat()).map_err(unfit)
}
