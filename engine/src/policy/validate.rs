//! `validate`: admits a message for which every rule is true. A refusal names the rules that are not.

use std::sync::Arc;

use postern_proto::plan::v1 as wire;

use super::{BuiltIn, Context, Flow, Known, least_cost, needs_of, unevaluated};
use crate::{
    cel::Expression,
    event::{Needs, Phase},
    load_error::LoadError,
    schema::{Ending, Field, Kind, Object, PolicySchema},
    text::json,
    verdict::{Denial, Response},
};

const RULE: Kind = Kind::Object(&Object {
    fields: &[
        Field::required("rule", Kind::Expression, "What must be true."),
        Field::required("message", Kind::Text, "What the caller is told if it is not."),
    ],
    exactly_one_of: &[],
});

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "validate",
    about: "Admits a request for which every rule is true, and tells the caller which are not.",
    phases: &[Phase::Request],
    params: Object {
        fields: &[
            Field::required("rules", Kind::List { item: &RULE, at_least: 1 }, "The rules."),
            Field::optional("status", Kind::Integer { min: 400, max: 499 }, "The status of a refusal.").or("400"),
        ],
        exactly_one_of: &[],
    },
    endings: &[
        Ending { status: "`status`", reason: "rule_broken", when: "a rule is false; `errors` has the messages" },
        Ending {
            status: "403",
            reason: "consumer_unknown",
            when: "a rule asks for the consumer of a caller who is none (a failure)",
        },
        Ending { status: "500", reason: "rule_failed", when: "a rule could not be evaluated (a failure)" },
    ],
    example: "\
- policy: validate
  params:
    rules:
      - { rule: \"size(request.query) < 1000\", message: the query is too long }
",
};

/// The loaded step.
#[derive(Debug)]
pub(crate) struct Validate {
    rules: Vec<Rule>,
    status: u16,
}

#[derive(Debug)]
struct Rule {
    expression: Arc<Expression>,
    message: Arc<str>,
}

impl BuiltIn for Validate {
    type Wire = wire::Validate;
    type State = ();

    fn load(wire: &wire::Validate, Known { strings, .. }: Known<'_>) -> Result<Self, LoadError> {
        let load = |rule: &wire::validate::Rule| {
            let expression = strings.expression(rule.expression)?.ok_or(LoadError::Missing("rule"))?;
            Ok(Rule { expression, message: strings.get(rule.message)? })
        };
        let rules = wire.rules.iter().map(load).collect::<Result<_, LoadError>>()?;
        Ok(Self { rules, status: strings.status(wire.status)? })
    }

    fn needs(&self, _: Phase) -> Needs {
        needs_of(self.rules.iter().map(|rule| &rule.expression))
    }

    fn evaluates(&self) -> bool {
        true
    }

    fn least_cost(&self) -> u64 {
        least_cost(self.rules.iter().map(|rule| &rule.expression))
    }

    #[inline(never)]
    fn run(&self, context: &mut Context<'_>, (): &mut ()) -> Flow {
        let mut broken = Vec::new();
        for rule in &self.rules {
            match rule.expression.test(&*context, context.budget) {
                Ok(true) => {}
                Ok(false) => broken.push(json::quote(&rule.message)),
                Err(error) => return Flow::Fail(unevaluated(&error, "rule_failed")),
            }
        }
        if broken.is_empty() {
            return Flow::Continue;
        }
        let errors = format!(r#","errors":[{}]"#, broken.join(","));
        let response = Response::problem_with(self.status, "the request is not valid", &errors);
        Flow::Deny(Denial { reason: "rule_broken", response })
    }
}
