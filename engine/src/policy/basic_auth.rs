//! `basicAuth`: admits a request only if it carries the user name and password of a consumer (RFC 7617).

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use postern_proto::plan::v1 as wire;

use super::{BuiltIn, Context, Flow, Known};
use crate::{
    consumers::Consumer,
    edited::HeaderEdits,
    event::{Needs, Phase},
    header::Name,
    load_error::LoadError,
    schema::{Ending, Field, Kind, Object, PolicySchema},
    verdict::{Denial, Response},
};

/// The longest credentials, as they are sent.
const LONGEST: usize = 1024;
const HEADER: &str = "authorization";

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "basicAuth",
    about: "Admits a request that carries the user name and password of a consumer. A password is kept as a hash of at \
            most 10000 rounds of PBKDF2: a proxy cannot afford more for every wrong one, so passwords should be generated \
            ones that cannot be guessed, and a `rateLimit` belongs before this step.",
    phases: &[Phase::Request],
    params: Object {
        fields: &[
            Field::optional(
                "realm",
                Kind::HeaderValue,
                "What the caller is told that the password is for; without `\"` and `\\`.",
            )
            .or("api"),
            Field::optional("forward", Kind::Boolean, "Whether the upstream gets the credentials.").or("true"),
        ],
        exactly_one_of: &[],
    },
    endings: &[
        Ending { status: "401", reason: "credentials_missing", when: "no credentials, or of another scheme" },
        Ending {
            status: "401",
            reason: "credentials_malformed",
            when: "repeated, too long or not as RFC 7617 has them",
        },
        Ending { status: "401", reason: "credentials_wrong", when: "no such user, or another password" },
    ],
    example: "\
- policy: rateLimit
  params: { requests: 10, per: 1s, key: source.address }
- policy: basicAuth
  params: { realm: orders, forward: false }
",
};

/// The loaded step.
#[derive(Debug)]
pub(crate) struct BasicAuth {
    challenge: String,
    /// The header to remove, if the upstream must not get the credentials.
    removed: Option<Name>,
}

impl BuiltIn for BasicAuth {
    type Wire = wire::BasicAuth;
    type State = ();

    fn load(wire: &wire::BasicAuth, Known { strings, .. }: Known<'_>) -> Result<Self, LoadError> {
        let realm = strings.header_value(wire.realm)?;
        if realm.contains(['"', '\\']) {
            return Err(LoadError::Unfit { what: "realm", text: realm });
        }
        let removed = wire.remove.then(|| Name::built_in(HEADER));
        Ok(Self { challenge: format!("Basic realm=\"{realm}\", charset=\"UTF-8\""), removed })
    }

    fn needs(&self, _: Phase) -> Needs {
        Needs::REQUEST_HEADERS
    }

    fn edits(&self) -> HeaderEdits {
        HeaderEdits::none().editing(self.removed.iter().map(Name::get))
    }

    #[inline(never)]
    fn run(&self, context: &mut Context<'_>, (): &mut ()) -> Flow {
        match caller(context) {
            Ok(consumer) => {
                context.facts.consumer = Some(consumer);
                if let Some(header) = &self.removed {
                    context.edits.remove(context.step, header);
                }
                Flow::Continue
            }
            Err(reason) => Flow::Deny(self.unauthorized(reason)),
        }
    }
}

impl BasicAuth {
    /// One answer for every cause: a caller must not learn from it whether a user exists.
    fn unauthorized(&self, reason: &'static str) -> Denial {
        let response = Response::problem(401, "a valid user name and password are required")
            .with_header("www-authenticate", &self.challenge);
        Denial { reason, response }
    }
}

/// The consumer that the caller proves to be, or the reason for a denial.
fn caller(context: &Context<'_>) -> Result<Arc<Consumer>, &'static str> {
    let value = match context.request_header(HEADER).as_slice() {
        [] => return Err("credentials_missing"),
        [value] => *value,
        [_, ..] => return Err("credentials_malformed"),
    };
    let encoded = encoded(value).ok_or("credentials_missing")?;
    let decoded = decode(encoded).ok_or("credentials_malformed")?;
    let (username, password) = split(&decoded).ok_or("credentials_malformed")?;
    context.directory.consumers.by_password(username, password, context.budget).cloned().ok_or("credentials_wrong")
}

/// What follows the scheme, in any case, and one or more spaces (RFC 9110, section 11.4). `None` for another scheme.
fn encoded(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(5)?;
    let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
    (scheme.eq_ignore_ascii_case(b"basic") && spaces > 0).then(|| rest.get(spaces..).unwrap_or_default())
}

/// Decodes base64 in its one canonical form (RFC 4648, section 4).
fn decode(encoded: &[u8]) -> Option<Vec<u8>> {
    (encoded.len() <= LONGEST).then(|| STANDARD.decode(encoded).ok())?
}

/// Splits into a user name without colons and a password, both without control characters (RFC 7617, section 2).
fn split(decoded: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let (username, password) = decoded.split_at_checked(colon)?;
    let plain = !decoded.iter().any(u8::is_ascii_control);
    plain.then(|| (username, password.get(1..).unwrap_or_default()))
}
