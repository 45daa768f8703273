//! `roleCheck`: admits a caller by the groups of its consumer.

use std::sync::Arc;

use postern_proto::plan::v1 as wire;

use super::{Context, Flow};
use crate::{
    event::Phase,
    plan::LoadError,
    schema::{Ending, Field, Kind, Object, PolicySchema},
    strings::Strings,
    verdict::{Denial, Response},
};

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "roleCheck",
    about: "Admits a caller by the groups of its consumer; an earlier step must have identified it.",
    phases: &[Phase::Request],
    params: Object {
        fields: &[
            Field::required("groups", Kind::List { item: &Kind::Text, at_least: 1 }, "The groups that count."),
            Field::optional(
                "match",
                Kind::Choice(&["any", "all"]),
                "Whether one of the groups is enough, or all are needed.",
            )
            .or("any"),
        ],
        exactly_one_of: &[],
    },
    endings: &[
        Ending { status: "401", reason: "caller_unknown", when: "no earlier step has identified the caller" },
        Ending { status: "403", reason: "group_missing", when: "the caller lacks the groups" },
    ],
    example: "\
- policy: apiKeyAuth
  params: { header: x-api-key }
- policy: roleCheck
  params: { groups: [admins] }
",
};

/// The loaded step.
#[derive(Debug)]
pub(crate) struct RoleCheck {
    groups: Vec<Arc<str>>,
    all: bool,
}

impl RoleCheck {
    pub(crate) fn load(wire: &wire::RoleCheck, strings: &Strings) -> Result<Self, LoadError> {
        if wire.groups.is_empty() {
            return Err(LoadError::Missing("groups"));
        }
        let groups = wire.groups.iter().map(|group| strings.get(*group)).collect::<Result<_, _>>()?;
        Ok(Self { groups, all: wire.all })
    }

    pub(crate) fn run(&self, context: &mut Context<'_>) -> Flow {
        let Some(consumer) = &context.facts.consumer else {
            let response = Response::problem(401, "the caller is not known");
            return Flow::Deny(Denial { reason: "caller_unknown", response });
        };
        let belongs = |group: &Arc<str>| consumer.groups.contains(group);
        let admitted = if self.all { self.groups.iter().all(belongs) } else { self.groups.iter().any(belongs) };
        if admitted {
            return Flow::Continue;
        }
        let response = Response::problem(403, "the caller may not do this");
        Flow::Deny(Denial { reason: "group_missing", response })
    }
}
