//! `requestSize`: limits on the size of a request.
//!
//! A body with a `content-length` is judged by it at once. The bytes of any other body are counted while it passes,
//! without buffering: the host ends the request where it gets too large.

use std::sync::Arc;

use postern_proto::plan::v1 as wire;

use super::{BuiltIn, Context, Flow, Known};
use crate::{
    edits::Allowance,
    event::{Needs, Phase},
    load_error::LoadError,
    schema::{Ending, Field, Kind, Object, PolicySchema},
    text::{content_length, split_path},
    verdict::{Denial, Response},
};

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "requestSize",
    about: "Limits the size of requests: of the body, without buffering it, and of headers, path and query. Headers are \
            counted as Envoy shows them, with the few that it adds itself, such as `x-forwarded-for`.",
    phases: &[Phase::Request],
    params: Object {
        fields: &[
            Field::optional("maxBody", Kind::Size, "The largest body."),
            Field::optional("maxHeaders", Kind::Integer { min: 1, max: 10_000 }, "The most headers."),
            Field::optional("maxHeaderBytes", Kind::Size, "The most bytes of all names and values of headers."),
            Field::optional("maxPath", Kind::Size, "The longest path, without the query."),
            Field::optional("maxQuery", Kind::Size, "The longest query, without the `?`."),
            Field::optional("requireContentLength", Kind::Boolean, "Whether a body must say how large it is.")
                .or("false"),
        ],
        exactly_one_of: &[],
    },
    endings: &[
        Ending { status: "413", reason: "body_too_large", when: "the body is larger than `maxBody`" },
        Ending { status: "431", reason: "too_many_headers", when: "there are more headers than `maxHeaders`" },
        Ending { status: "431", reason: "headers_too_large", when: "they are larger than `maxHeaderBytes`" },
        Ending { status: "414", reason: "path_too_long", when: "the path is longer than `maxPath`" },
        Ending { status: "414", reason: "query_too_long", when: "the query is longer than `maxQuery`" },
        Ending { status: "411", reason: "length_required", when: "a body does not say how large it is" },
        Ending { status: "400", reason: "length_invalid", when: "`content-length` is no number" },
    ],
    example: "\
- policy: requestSize
  params: { maxBody: 1MiB, maxHeaderBytes: 16KiB, maxPath: 2KiB }
",
};

/// The loaded step.
#[derive(Debug)]
pub(crate) struct RequestSize {
    body: Option<u64>,
    headers: Option<u64>,
    header_bytes: Option<u64>,
    path: Option<u64>,
    query: Option<u64>,
    require_length: bool,
}

impl BuiltIn for RequestSize {
    type Wire = wire::RequestSize;
    type State = ();

    fn load(wire: &wire::RequestSize, _: Known<'_>) -> Result<Self, LoadError> {
        Ok(Self {
            body: wire.body,
            headers: wire.headers,
            header_bytes: wire.header_bytes,
            path: wire.path,
            query: wire.query,
            require_length: wire.require_length,
        })
    }

    fn needs(&self, _: Phase) -> Needs {
        Needs::REQUEST_HEADERS.union(Needs::HAS_BODY.when(self.require_length))
    }

    #[inline(never)]
    fn run(&self, context: &mut Context<'_>, (): &mut ()) -> Flow {
        match self.head(context).and_then(|()| self.length(context)) {
            Err(denial) => Flow::Deny(denial),
            Ok(()) => {
                if let Some(most) = self.body {
                    context.edits.allow_body(Allowance { most, step: Arc::clone(context.name), consumer: None });
                }
                Flow::Continue
            }
        }
    }
}

impl RequestSize {
    fn head(&self, context: &Context<'_>) -> Result<(), Denial> {
        let fields = || context.inputs.request_headers.iter().filter(|(name, _)| !name.starts_with(b":"));
        let size = |(name, value): (&[u8], &[u8])| name.len().saturating_add(value.len());
        if exceeds(self.headers, fields().count()) {
            return refuse(431, "too_many_headers", "the request has too many headers");
        }
        if exceeds(self.header_bytes, fields().map(size).fold(0, usize::saturating_add)) {
            return refuse(431, "headers_too_large", "the request's headers are too large");
        }
        let (path, query) = context.inputs.request_headers.values(":path").next().map(split_path).unwrap_or_default();
        if exceeds(self.path, path.len()) {
            return refuse(414, "path_too_long", "the request's path is too long");
        }
        if exceeds(self.query, query.unwrap_or_default().len()) {
            return refuse(414, "query_too_long", "the request's query is too long");
        }
        Ok(())
    }

    fn length(&self, context: &Context<'_>) -> Result<(), Denial> {
        let values: Vec<_> = context.inputs.request_headers.values("content-length").collect();
        let length = match values.as_slice() {
            [] if self.require_length && context.inputs.has_body => {
                return refuse(411, "length_required", "the request must say how large its body is");
            }
            // What was buffered for an earlier step is known already.
            [] => u64::try_from(context.inputs.body.len()).unwrap_or(u64::MAX),
            [value] => match content_length(value) {
                Some(length) => length,
                None => return refuse(400, "length_invalid", "the request's content-length is no number"),
            },
            _ => return refuse(400, "length_invalid", "the request's content-length is no number"),
        };
        match self.body {
            Some(most) if length > most => Err(Denial::body_too_large()),
            _ => Ok(()),
        }
    }
}

fn exceeds(most: Option<u64>, size: usize) -> bool {
    most.is_some_and(|most| u64::try_from(size).is_ok_and(|size| size > most))
}

fn refuse(status: u16, reason: &'static str, detail: &str) -> Result<(), Denial> {
    Err(Denial { reason, response: Response::problem(status, detail) })
}
