//! `headers`: removes, sets and adds headers, on requests or on responses.

use postern_proto::plan::v1 as wire;

use super::{BuiltIn, Context, Flow, Known};
use crate::{
    edited::HeaderEdits,
    event::{Needs, Phase},
    header::{HeaderUse, Name, RemovableName, Value},
    load_error::LoadError,
    schema::{Field, Kind, Object, PolicySchema},
    strings::Strings,
};

const HEADER_MAP: Kind = Kind::Map { key: &Kind::EditedHeader(HeaderUse::Set), value: &Kind::HeaderValue };

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "headers",
    about: "Removes, sets and adds headers, and fills in missing ones, in this order. No step edits what frames a message or a \
            connection (`content-length`, `transfer-encoding`, `connection`, `te`, `upgrade` and the like), `host`, or a \
            pseudo-header; `x-envoy-` headers can only be removed.",
    phases: &[Phase::Request, Phase::Response],
    params: Object {
        fields: &[
            Field::optional(
                "remove",
                Kind::List { item: &Kind::EditedHeader(HeaderUse::Remove), at_least: 1 },
                "Headers to remove, with all their values.",
            ),
            Field::optional(
                "set",
                HEADER_MAP,
                "Headers to set, in place of all values that they had. What a caller sends in one of them never reaches the \
                 upstream or a condition, also where the step does not run (`when`, `from`, `mode: shadow`).",
            ),
            Field::optional("add", HEADER_MAP, "Headers to add, beside the values that they have."),
            Field::optional("default", HEADER_MAP, "Headers to set where there is none of that name yet."),
        ],
        exactly_one_of: &[],
    },
    endings: &[],
    example: "\
- policy: headers
  params:
    remove: [x-internal]
    set: { x-guarded-by: postern }
",
};

/// The loaded step.
#[derive(Debug)]
pub(crate) struct Headers {
    remove: Vec<RemovableName>,
    set: Vec<HeaderValue>,
    add: Vec<HeaderValue>,
    default: Vec<HeaderValue>,
}

#[derive(Debug)]
struct HeaderValue {
    name: Name,
    value: Value,
}

impl BuiltIn for Headers {
    type Wire = wire::Headers;
    type State = ();

    fn load(wire: &wire::Headers, Known { strings, .. }: Known<'_>) -> Result<Self, LoadError> {
        Ok(Self {
            remove: wire.remove.iter().map(|name| strings.removed_header(*name)).collect::<Result<_, _>>()?,
            set: load_values(&wire.set, strings)?,
            add: load_values(&wire.add, strings)?,
            default: load_values(&wire.default, strings)?,
        })
    }

    fn needs(&self, phase: Phase) -> Needs {
        let headers = match phase {
            Phase::Request => Needs::REQUEST_HEADERS,
            Phase::Response => Needs::RESPONSE_HEADERS,
        };
        headers.when(!self.default.is_empty())
    }

    /// Headers that are set are promised: their values never come from the caller.
    fn edits(&self) -> HeaderEdits {
        HeaderEdits::none()
            .editing(self.remove.iter().map(RemovableName::get))
            .editing(self.add.iter().chain(&self.default).map(|header| header.name.get()))
            .promising(self.set.iter().map(|header| &header.name))
    }

    #[inline(never)]
    fn run(&self, context: &mut Context<'_>, (): &mut ()) -> Flow {
        for name in &self.remove {
            context.edits.remove(context.step, name);
        }
        for HeaderValue { name, value } in &self.set {
            context.edits.set(context.step, name, value);
        }
        for HeaderValue { name, value } in &self.add {
            context.edits.add(context.step, name, value);
        }
        if !self.default.is_empty() {
            self.fill_in(context);
        }
        Flow::Continue
    }
}

impl Headers {
    #[cold]
    #[inline(never)]
    fn fill_in(&self, context: &mut Context<'_>) {
        let came = match context.phase {
            Phase::Request => &context.inputs.request_headers,
            Phase::Response => &context.inputs.response_headers,
        };
        for HeaderValue { name, value } in &self.default {
            if context.edits.values(came, name.get()).is_empty() {
                context.edits.set(context.step, name, value);
            }
        }
    }
}

fn load_values(values: &[wire::HeaderValue], strings: &Strings) -> Result<Vec<HeaderValue>, LoadError> {
    let load = |wire: &wire::HeaderValue| {
        Ok(HeaderValue { name: strings.set_header(wire.name)?, value: strings.set_value(wire.value)? })
    };
    values.iter().map(load).collect()
}
