//! `trafficPermission`: admits a source by the identity in its certificate. A source that no rule admits is refused.

use std::sync::Arc;

use postern_proto::plan::v1 as wire;

use super::{BuiltIn, Context, Flow, Known};
use crate::{
    event::{Needs, Phase, Property},
    load_error::LoadError,
    schema::{Ending, Field, Kind, Object, PolicySchema},
    selector::{Selector, spiffe},
    verdict::{Denial, Response},
};

const SOURCE: Object = Object {
    fields: &[
        Field::optional("services", Kind::List { item: &Kind::Name, at_least: 1 }, "Sources of these services."),
        Field::optional("mesh", Kind::Boolean, "Every source that has an identity."),
        Field::optional("anyone", Kind::Boolean, "Every source, with an identity or without."),
    ],
    exactly_one_of: &["services", "mesh", "anyone"],
};

const RULE: Kind = Kind::Object(&Object {
    fields: &[
        Field::required("from", Kind::Object(&SOURCE), "Which sources the rule is for."),
        Field::required("action", Kind::Choice(&["ALLOW", "DENY"]), "What becomes of their requests."),
    ],
    exactly_one_of: &[],
});

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "trafficPermission",
    about: "Admits a source by the SPIFFE identity in its certificate. The first rule that fits decides; without one, the request is refused.",
    phases: &[Phase::Request],
    params: Object {
        fields: &[Field::required("rules", Kind::List { item: &RULE, at_least: 1 }, "The rules, in order.")],
        exactly_one_of: &[],
    },
    endings: &[
        Ending { status: "403", reason: "source_denied", when: "the first rule that fits says `DENY`" },
        Ending { status: "403", reason: "source_unknown", when: "no rule fits" },
    ],
    example: "\
- policy: trafficPermission
  params:
    rules:
      - { from: { services: [web] }, action: ALLOW }
",
};

/// The loaded step.
#[derive(Debug)]
pub(crate) struct TrafficPermission {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    from: Source,
    allow: bool,
}

#[derive(Debug)]
enum Source {
    Anyone,
    Identified,
    Services(Vec<Arc<str>>),
    Selected(Selector),
}

impl BuiltIn for TrafficPermission {
    type Wire = wire::TrafficPermission;
    type State = ();

    fn load(wire: &wire::TrafficPermission, Known { strings, .. }: Known<'_>) -> Result<Self, LoadError> {
        let load = |rule: &wire::traffic_permission::Rule| {
            let services = rule.services.iter().map(|service| strings.get(*service)).collect::<Result<Vec<_>, _>>()?;
            let from = match (&rule.source, rule.anyone, services.is_empty()) {
                (Some(source), _, _) => Source::Selected(Selector::load(source, strings)?),
                (None, true, _) => Source::Anyone,
                (None, false, true) => Source::Identified,
                (None, false, false) => Source::Services(services),
            };
            Ok(Rule { from, allow: rule.allow })
        };
        Ok(Self { rules: wire.rules.iter().map(load).collect::<Result<_, LoadError>>()? })
    }

    fn needs(&self, _: Phase) -> Needs {
        let selectors = self.rules.iter().filter_map(|rule| match &rule.from {
            Source::Selected(selector) => Some(selector.needs()),
            _ => None,
        });
        selectors.fold(Needs::of(Property::PeerUriSan), Needs::union)
    }

    #[inline(never)]
    fn run(&self, context: &mut Context<'_>, (): &mut ()) -> Flow {
        // A certificate without an identity that we understand is no identity.
        let service = context.principal().ok().and_then(spiffe).map(|(_, service)| service);
        let fits = |rule: &&Rule| match (&rule.from, service) {
            (Source::Selected(selector), _) => selector.selects(context.inputs),
            (Source::Anyone, _) | (Source::Identified, Some(_)) => true,
            (Source::Services(services), Some(service)) => services.iter().any(|name| **name == *service),
            (_, None) => false,
        };
        match self.rules.iter().find(fits) {
            Some(rule) if rule.allow => Flow::Continue,
            Some(_) => Flow::Deny(forbidden("source_denied")),
            None => Flow::Deny(forbidden("source_unknown")),
        }
    }
}

fn forbidden(reason: &'static str) -> Denial {
    Denial { reason, response: Response::problem(403, "the source may not call this") }
}
