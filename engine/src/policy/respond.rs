//! `respond`: answers in place of the upstream.

use postern_proto::plan::v1 as wire;

use super::Flow;
use crate::{
    event::Phase,
    plan::LoadError,
    schema::{Ending, Field, Kind, Object, PolicySchema},
    strings::Strings,
    verdict::Response,
};

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "respond",
    about: "Answers in place of the upstream.",
    phases: &[Phase::Request],
    params: Object {
        fields: &[
            Field::optional("status", Kind::Integer { min: 200, max: 599 }, "The status.").or("200"),
            Field::optional(
                "headers",
                Kind::Map { key: &Kind::HeaderName, value: &Kind::HeaderValue },
                "The headers of the answer.",
            ),
            Field::optional("body", Kind::Text, "The body of the answer."),
        ],
        exactly_one_of: &[],
    },
    endings: &[Ending { status: "`status`", reason: "respond", when: "always" }],
    example: "\
- policy: respond
  params: { status: 404, headers: { content-type: text/plain }, body: there is nothing here }
",
};

/// The loaded step.
#[derive(Debug)]
pub(crate) struct Respond {
    answer: Response,
}

impl Respond {
    pub(crate) fn load(wire: &wire::Respond, strings: &Strings) -> Result<Self, LoadError> {
        let answer = wire.answer.as_ref().ok_or(LoadError::Missing("answer"))?;
        Ok(Self { answer: strings.answer(answer)? })
    }

    pub(crate) fn run(&self) -> Flow {
        Flow::Respond(self.answer.clone())
    }
}
