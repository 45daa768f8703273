//! `csrf`: refuses a request that a page of another site made a browser send.
//!
//! A browser says where a request comes from, in headers that no page can set: `Sec-Fetch-Site`, to addresses that it
//! trusts (https, localhost); `Origin`, with every method that may change something and with every WebSocket handshake;
//! and mostly `Referer`. The first counts where it is there: a page that sends no referrer posts to its own site with
//! `Origin: null` and `Sec-Fetch-Site: same-origin`. What cannot be read is never an origin that is allowed.
//!
//! Instead, a page may prove that it can read a cookie of its site, by repeating its value in a header.

use postern_proto::plan::v1 as wire;

use super::{BuiltIn, Context, Flow, Known, Source};
use crate::{
    edits::Only,
    event::{Needs, Phase},
    load_error::LoadError,
    schema::{Ending, Field, Kind, Object, PolicySchema},
    secret::same,
    text::origin::{Origin, OriginRule},
    verdict::{Denial, Response},
};

/// RFC 9110, section 9.2.1. Methods have a case, so that `get` is none of them.
const SAFE: [&[u8]; 4] = [b"GET", b"HEAD", b"OPTIONS", b"TRACE"];
/// The fewest bytes of a token: 12 random bytes in base64, or 8 in hexadecimal.
const SHORTEST: usize = 16;

const REFUSED: &str = "csrf_origin_refused";
const MISSING: &str = "csrf_origin_missing";
const TOKEN_MISSING: &str = "csrf_token_missing";
const TOKEN_REPEATED: &str = "csrf_token_repeated";
const TOKEN_WRONG: &str = "csrf_token_wrong";

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "csrf",
    about: "Refuses requests that a page of another site makes a browser send with the cookies of this one (cross-site \
            request forgery). Every method but GET, HEAD, OPTIONS and TRACE is checked, and every request with `Upgrade`: \
            a page of any site may open a WebSocket. So GET must not change anything; leave method overrides of GET, such \
            as `?_method=DELETE`, off in the upstream. `Sec-Fetch-Site: same-origin` or `none` passes. Any other value \
            passes only if `Origin` is in `allowOrigins`. Without it, `Origin`, or else the origin of `Referer`, must be \
            the request's own (scheme, host and port as Envoy sees them) or in `allowOrigins`; `null` never is. Where TLS \
            ends before Envoy, and Envoy is not told so, list the own `https` origin. A `when` leaves requests out, such \
            as webhooks. It is no authentication: a request without any of these headers passes, unless `missing` is \
            `deny`.",
    phases: &[Phase::Request],
    params: Object {
        fields: &[
            Field::optional(
                "allowOrigins",
                Kind::List { item: &Kind::Text, at_least: 1 },
                "The other origins whose pages may send requests: `https://app.example.com`, or \
                 `https://*.example.com` for every host below that one. Each is trusted as much as the site itself.",
            ),
            Field::optional(
                "missing",
                Kind::Choice(&["allow", "deny"]),
                "What becomes of a request without `Sec-Fetch-Site`, `Origin` and `Referer`. Browsers since 2020 send \
                 `Origin` with all that is checked, and other clients, which nobody can trick, send none of them: `deny` \
                 refuses these too.",
            )
            .or("allow"),
            Field::optional(
                "token",
                Kind::Object(&TOKEN),
                "Checks a token in place of the origin (double-submit cookie). A request with `Upgrade`, to which no page \
                 can add a header, is checked by its origin all the same; for both checks, use two steps.",
            ),
        ],
        exactly_one_of: &[],
    },
    endings: &[
        Ending { status: "403", reason: REFUSED, when: "it comes from another origin, or it is unclear from which" },
        Ending { status: "403", reason: MISSING, when: "with `missing: deny`, it does not say where it comes from" },
        Ending { status: "403", reason: TOKEN_MISSING, when: "it has no cookie or no header with the token" },
        Ending { status: "403", reason: TOKEN_REPEATED, when: "it has several: another host may have set one" },
        Ending { status: "403", reason: TOKEN_WRONG, when: "the two differ, or have less than 16 bytes" },
    ],
    example: "\
- policy: csrf
  params: { allowOrigins: [https://app.example.com] }
- policy: csrf
  name: token
  params: { token: { cookie: __Host-csrf, header: x-csrf-token } }
",
};

const TOKEN: Object = Object {
    fields: &[
        Field::required(
            "cookie",
            Kind::HeaderName,
            "The cookie that the upstream sets to a random value of at least 16 bytes. Call it `__Host-…`, so that no \
             other host below the same domain can set it. Whether the value belongs to the session is not checked.",
        ),
        Field::required("header", Kind::HeaderName, "The request header in which the page repeats the cookie's value."),
    ],
    exactly_one_of: &[],
};

/// The loaded step.
#[derive(Debug)]
pub(crate) struct Csrf {
    rules: Vec<OriginRule>,
    deny_missing: bool,
    token: Option<Token>,
}

/// The two places that must have the same value.
#[derive(Debug)]
struct Token {
    cookie: Source,
    header: Source,
}

impl BuiltIn for Csrf {
    type Wire = wire::Csrf;
    type State = ();

    fn load(wire: &wire::Csrf, Known { strings, .. }: Known<'_>) -> Result<Self, LoadError> {
        let rules = strings.origins(&wire.allow_origins)?;
        if !rules.iter().all(OriginRule::is_of_hosts) {
            return Err(LoadError::Unfit { what: "origin", text: "*".into() });
        }
        let token = match (wire.token_cookie, wire.token_header) {
            (None, None) => None,
            (Some(cookie), Some(header)) => Some(Token {
                cookie: Source::Cookie(strings.get(cookie)?),
                header: Source::Header(strings.header_name(header)?),
            }),
            _ => return Err(LoadError::Missing("token")),
        };
        Ok(Self { rules, deny_missing: wire.deny_missing, token })
    }

    fn needs(&self, _: Phase) -> Needs {
        Needs::REQUEST_HEADERS
    }

    fn credential(&self) -> Option<&Source> {
        self.token.as_ref().map(|token| &token.header)
    }

    #[inline(never)]
    fn run(&self, context: &mut Context<'_>, (): &mut ()) -> Flow {
        let upgrades = !matches!(only(context, "upgrade"), Only::None);
        let is_safe = matches!(only(context, ":method"), Only::One(method) if SAFE.contains(&method));
        let checked = match &self.token {
            _ if is_safe && !upgrades => Ok(()),
            Some(token) if !upgrades => token.check(context),
            _ => self.origin(context),
        };
        match checked {
            Ok(()) => Flow::Continue,
            Err(reason) => Flow::Deny(forbidden(reason)),
        }
    }
}

impl Csrf {
    /// Why the request does not come from where it may.
    fn origin(&self, context: &Context<'_>) -> Result<(), &'static str> {
        let (site, origin) = (only(context, "sec-fetch-site"), only(context, "origin"));
        let own = match site {
            Only::One(b"same-origin" | b"none") => return Ok(()),
            Only::None => own(context),
            // Another origin, whatever ours looks like from here.
            Only::One(_) | Only::Several => None,
        };
        let from = match (origin, site) {
            (Only::One(origin), _) => parse(origin),
            (Only::None, Only::None) => match only(context, "referer") {
                Only::None if self.deny_missing => return Err(MISSING),
                Only::None => return Ok(()),
                Only::One(url) => parse(before_path(url)),
                Only::Several => None,
            },
            _ => None,
        };
        let admitted = from
            .is_some_and(|from| own.is_some_and(|own| own == from) || self.rules.iter().any(|rule| rule.admits(&from)));
        if admitted { Ok(()) } else { Err(REFUSED) }
    }
}

impl Token {
    /// Why the header does not repeat the cookie.
    fn check(&self, context: &Context<'_>) -> Result<(), &'static str> {
        match (self.cookie.values(context).as_slice(), self.header.values(context).as_slice()) {
            ([], _) | (_, []) => Err(TOKEN_MISSING),
            ([cookie], [header]) if cookie.len() >= SHORTEST && same(cookie, header) => Ok(()),
            ([_], [_]) => Err(TOKEN_WRONG),
            _ => Err(TOKEN_REPEATED),
        }
    }
}

/// It is called often, and must not be there as often.
#[inline(never)]
fn only<'a>(context: &'a Context<'_>, name: &str) -> Only<'a> {
    context.edits.only(&context.inputs.request_headers, name)
}

/// The origin that the request goes to; none without a host (HTTP/1.0).
fn own(context: &Context<'_>) -> Option<Origin> {
    let (Only::One(scheme), Only::One(authority)) = (only(context, ":scheme"), only(context, ":authority")) else {
        return None;
    };
    parse(&[scheme, b"://", authority].concat())
}

#[inline(never)]
fn parse(origin: &[u8]) -> Option<Origin> {
    str::from_utf8(origin).ok().and_then(Origin::parse)
}

/// What of a URL stands before its path, query or fragment, all of which are behind two slashes.
fn before_path(url: &[u8]) -> &[u8] {
    let mut slashes = 0_usize;
    let is_end = |byte: &u8| {
        slashes = slashes.saturating_add((*byte == b'/').into());
        slashes > 2 || matches!(*byte, b'?' | b'#')
    };
    let end = url.iter().position(is_end).unwrap_or(url.len());
    url.get(..end).unwrap_or_default()
}

#[cold]
#[inline(never)]
fn forbidden(reason: &'static str) -> Denial {
    Denial { reason, response: Response::problem(403, "this request may come from another site") }
}
