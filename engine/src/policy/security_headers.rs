//! `securityHeaders`: response headers by which browsers protect a page.

use postern_proto::plan::v1 as wire;

use super::{BuiltIn, Context, Flow, Known};
use crate::{
    edited::HeaderEdits,
    event::{Needs, Phase},
    header::{HeaderUse, Name, RemovableName, Value},
    load_error::LoadError,
    schema::{Field, Kind, Object, PolicySchema},
};

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "securityHeaders",
    about: "Sets the headers that tell browsers to be careful, and removes those that tell others what runs here. Each \
            parameter is the value of one header; `off` leaves that header alone. Envoy writes a `server` of its own.",
    phases: &[Phase::Response],
    params: Object {
        fields: &[
            Field::optional("strictTransportSecurity", Kind::HeaderValue, "HSTS: the site is for HTTPS only.")
                .or("max-age=31536000; includeSubDomains"),
            Field::optional(
                "contentTypeOptions",
                Kind::Choice(&["nosniff", "off"]),
                "The type of a response is what it says.",
            )
            .or("nosniff"),
            Field::optional(
                "frameOptions",
                Kind::Choice(&["DENY", "SAMEORIGIN", "off"]),
                "Who may show a page in a frame.",
            )
            .or("DENY"),
            Field::optional(
                "referrerPolicy",
                Kind::Choice(&[
                    "no-referrer",
                    "no-referrer-when-downgrade",
                    "origin",
                    "origin-when-cross-origin",
                    "same-origin",
                    "strict-origin",
                    "strict-origin-when-cross-origin",
                    "unsafe-url",
                    "off",
                ]),
                "What other sites learn about where a visitor came from.",
            )
            .or("strict-origin-when-cross-origin"),
            Field::optional(
                "contentSecurityPolicy",
                Kind::HeaderValue,
                "What a page may load and run. There is no policy that fits every page.",
            )
            .or("off"),
            Field::optional("permissionsPolicy", Kind::HeaderValue, "Which features of a browser a page may use.")
                .or("off"),
            Field::optional(
                "crossOriginOpenerPolicy",
                Kind::Choice(&[
                    "same-origin",
                    "same-origin-allow-popups",
                    "noopener-allow-popups",
                    "unsafe-none",
                    "off",
                ]),
                "Which windows may hold on to each other.",
            )
            .or("same-origin"),
            Field::optional(
                "crossOriginResourcePolicy",
                Kind::Choice(&["same-origin", "same-site", "cross-origin", "off"]),
                "Which sites may load a response into their pages.",
            )
            .or("same-origin"),
            Field::optional(
                "crossOriginEmbedderPolicy",
                Kind::Choice(&["require-corp", "credentialless", "unsafe-none", "off"]),
                "What a page may load from other sites.",
            )
            .or("off"),
            Field::optional(
                "override",
                Kind::Boolean,
                "Whether these win over the same headers of the upstream; if not, the upstream's do.",
            )
            .or("true"),
            Field::optional(
                "remove",
                Kind::List { item: &Kind::EditedHeader(HeaderUse::Remove), at_least: 0 },
                "The upstream's headers to remove.",
            )
            .or("[server, x-powered-by]"),
        ],
        exactly_one_of: &[],
    },
    endings: &[],
    example: "\
- policy: securityHeaders
  params: { frameOptions: SAMEORIGIN, contentSecurityPolicy: default-src 'self' }
",
};

/// The loaded step.
#[derive(Debug)]
pub(crate) struct SecurityHeaders {
    set: Vec<(Name, Value)>,
    remove: Vec<RemovableName>,
    keep_upstream: bool,
}

impl BuiltIn for SecurityHeaders {
    type Wire = wire::SecurityHeaders;
    type State = ();

    fn load(wire: &wire::SecurityHeaders, Known { strings, .. }: Known<'_>) -> Result<Self, LoadError> {
        let set = |header: &wire::HeaderValue| Ok((strings.set_header(header.name)?, strings.set_value(header.value)?));
        Ok(Self {
            set: wire.set.iter().map(set).collect::<Result<_, LoadError>>()?,
            remove: wire.remove.iter().map(|name| strings.removed_header(*name)).collect::<Result<_, _>>()?,
            keep_upstream: wire.keep_upstream,
        })
    }

    fn needs(&self, _: Phase) -> Needs {
        Needs::RESPONSE_HEADERS.when(self.keep_upstream)
    }

    fn edits(&self) -> HeaderEdits {
        HeaderEdits::none()
            .editing(self.remove.iter().map(RemovableName::get).chain(self.set.iter().map(|(name, _)| name.get())))
    }

    #[inline(never)]
    fn run(&self, context: &mut Context<'_>, (): &mut ()) -> Flow {
        for name in &self.remove {
            context.edits.remove(context.step, name);
        }
        for (name, value) in &self.set {
            if !self.keep_upstream || context.edits.values(&context.inputs.response_headers, name.get()).is_empty() {
                context.edits.set(context.step, name, value);
            }
        }
        Flow::Continue
    }
}
