//! `headers`: removes, sets and adds headers, on requests or on responses.

use postern_proto::plan::v1 as wire;

use super::{Context, Flow};
use crate::{
    edited::HeaderEdits,
    event::Phase,
    header::{HeaderUse, Name, RemovableName, Value},
    plan::LoadError,
    schema::{Field, Kind, Object, PolicySchema},
    strings::Strings,
};

const HEADER_MAP: Kind = Kind::Map { key: &Kind::EditedHeader(HeaderUse::Set), value: &Kind::HeaderValue };

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "headers",
    about: "Removes, sets and adds headers, in this order.",
    phases: &[Phase::Request, Phase::Response],
    params: Object {
        fields: &[
            Field::optional(
                "remove",
                Kind::List { item: &Kind::EditedHeader(HeaderUse::Remove), at_least: 1 },
                "Headers to remove, with all their values.",
            ),
            Field::optional("set", HEADER_MAP, "Headers to set, in place of all values that they had."),
            Field::optional("add", HEADER_MAP, "Headers to add, beside the values that they have."),
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
}

#[derive(Debug)]
struct HeaderValue {
    name: Name,
    value: Value,
}

impl Headers {
    pub(crate) fn load(wire: &wire::Headers, strings: &Strings) -> Result<Self, LoadError> {
        Ok(Self {
            remove: wire.remove.iter().map(|name| strings.removed_header(*name)).collect::<Result<_, _>>()?,
            set: load_values(&wire.set, strings)?,
            add: load_values(&wire.add, strings)?,
        })
    }

    /// What is set says what the step says, or nothing.
    pub(crate) fn edits(&self) -> HeaderEdits {
        HeaderEdits::none()
            .editing(self.remove.iter().map(RemovableName::get).chain(self.add.iter().map(|header| header.name.get())))
            .promising(self.set.iter().map(|header| &header.name))
    }

    #[inline(never)]
    pub(crate) fn run(&self, context: &mut Context<'_>) -> Flow {
        for name in &self.remove {
            context.edits.remove(context.step, name);
        }
        for HeaderValue { name, value } in &self.set {
            context.edits.set(context.step, name, value);
        }
        for HeaderValue { name, value } in &self.add {
            context.edits.add(context.step, name, value);
        }
        Flow::Continue
    }
}

fn load_values(values: &[wire::HeaderValue], strings: &Strings) -> Result<Vec<HeaderValue>, LoadError> {
    let load = |wire: &wire::HeaderValue| {
        Ok(HeaderValue { name: strings.set_header(wire.name)?, value: strings.set_value(wire.value)? })
    };
    values.iter().map(load).collect()
}
