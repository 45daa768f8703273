//! `roleCheck`: admits a caller by the groups of its consumer, and by the roles, scopes and other claims of its token.

use std::sync::Arc;

use postern_proto::plan::v1 as wire;

use super::{BuiltIn, Context, Flow, Known, exhausted};
use crate::{
    budget::steps,
    cel::{Map, Value},
    event::{Needs, Phase},
    jwt::ClaimPath,
    load_error::LoadError,
    schema::{Ending, Field, Kind, Object, PolicySchema},
    verdict::{Denial, Response},
};

/// The cost of comparing two values. A number is formatted for it.
const STEPS_A_COMPARISON: u64 = 4;

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "roleCheck",
    about: "Admits a caller by its consumer's groups and its token's claims; an earlier step must have identified it. \
            Each of `groups`, `roles`, `scopes` and `claims` that is there must be met.",
    phases: &[Phase::Request],
    params: Object {
        fields: &[
            Field::optional("groups", Kind::List { item: &Kind::Text, at_least: 1 }, "Groups of the consumer."),
            Field::optional("roles", Kind::List { item: &Kind::Text, at_least: 1 }, "Roles that the token gives."),
            Field::optional("scopes", Kind::List { item: &Kind::Text, at_least: 1 }, "Scopes that the token grants."),
            Field::optional(
                "claims",
                Kind::Map { key: &Kind::Text, value: &Kind::List { item: &Kind::Text, at_least: 1 } },
                "For each of these claims, by name or by path, the values that count.",
            ),
            Field::optional(
                "match",
                Kind::Choice(&["any", "all"]),
                "Whether one entry of a list is enough, or all are needed.",
            )
            .or("any"),
            Field::optional("rolesClaim", Kind::Text, "The claim that has the roles: a list, or one role.")
                .or("roles")
                .with("roles"),
            Field::optional("scopesClaim", Kind::Text, "The claim that has the scopes: a list, or text with spaces.")
                .or("scope")
                .with("scopes"),
        ],
        exactly_one_of: &[],
    },
    endings: &[
        Ending { status: "401", reason: "caller_unknown", when: "no earlier step has identified the caller" },
        Ending { status: "403", reason: "group_missing", when: "the caller lacks the groups" },
        Ending { status: "403", reason: "role_missing", when: "the token lacks the roles" },
        Ending { status: "403", reason: "scope_missing", when: "the token lacks the scopes (RFC 6750)" },
        Ending { status: "403", reason: "claim_mismatch", when: "a claim has none of the values that count" },
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
    rules: Vec<Rule>,
}

/// The values that a claim must have.
#[derive(Debug)]
struct Rule {
    kind: RuleKind,
    path: ClaimPath,
    values: Vec<Arc<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RuleKind {
    Role,
    Scope,
    Claim,
}

impl BuiltIn for RoleCheck {
    type Wire = wire::RoleCheck;
    type State = ();

    fn load(wire: &wire::RoleCheck, Known { strings, .. }: Known<'_>) -> Result<Self, LoadError> {
        let all = |indexes: &[u32]| indexes.iter().map(|index| strings.get(*index)).collect::<Result<Vec<_>, _>>();
        let rule = |kind, path: u32, values: &[u32]| {
            Ok::<_, LoadError>(Rule { kind, path: ClaimPath::new(&strings.get(path)?), values: all(values)? })
        };
        let mut rules = Vec::new();
        if !wire.roles.is_empty() {
            rules.push(rule(RuleKind::Role, wire.roles_claim, &wire.roles)?);
        }
        if !wire.scopes.is_empty() {
            rules.push(rule(RuleKind::Scope, wire.scopes_claim, &wire.scopes)?);
        }
        for claim in &wire.claims {
            if claim.values.is_empty() {
                return Err(LoadError::Missing("values"));
            }
            rules.push(rule(RuleKind::Claim, claim.path, &claim.values)?);
        }
        if wire.groups.is_empty() && rules.is_empty() {
            return Err(LoadError::Missing("groups"));
        }
        Ok(Self { groups: all(&wire.groups)?, all: wire.all, rules })
    }

    fn needs(&self, _: Phase) -> Needs {
        Needs::CLAIMS
    }

    #[inline(never)]
    fn run(&self, context: &mut Context<'_>, (): &mut ()) -> Flow {
        let (consumer, claims) = (&context.facts.consumer, &context.facts.claims);
        if consumer.is_none() && claims.is_none() {
            let response = Response::problem(401, "the caller is not known");
            return Flow::Deny(Denial { reason: "caller_unknown", response });
        }
        let groups = consumer.as_ref().map(|consumer| consumer.groups.as_slice()).unwrap_or_default();
        if !self.groups.is_empty() && !self.met(&self.groups, |group| groups.contains(group)) {
            return Flow::Deny(forbidden("group_missing"));
        }
        let cost = |claims: &Arc<Map>| self.rules.iter().map(|rule| rule.cost(claims)).fold(0, u64::saturating_add);
        if context.budget.spend(claims.as_ref().map_or(0, cost)).is_err() {
            return Flow::Fail(exhausted());
        }
        let unmet = self.rules.iter().find(|rule| !claims.as_ref().is_some_and(|claims| self.satisfies(claims, rule)));
        match unmet.map(|rule| rule.kind) {
            None => Flow::Continue,
            Some(RuleKind::Role) => Flow::Deny(forbidden("role_missing")),
            Some(RuleKind::Claim) => Flow::Deny(forbidden("claim_mismatch")),
            Some(RuleKind::Scope) => {
                let Denial { reason, response } = forbidden("scope_missing");
                let challenge = "Bearer error=\"insufficient_scope\"";
                Flow::Deny(Denial { reason, response: response.with_header("www-authenticate", challenge) })
            }
        }
    }
}

impl RoleCheck {
    fn met(&self, wanted: &[Arc<str>], has: impl Fn(&Arc<str>) -> bool) -> bool {
        if self.all { wanted.iter().all(has) } else { wanted.iter().any(has) }
    }

    fn satisfies(&self, claims: &Map, rule: &Rule) -> bool {
        let Some(value) = rule.path.find(claims) else { return false };
        self.met(&rule.values, |wanted| match value {
            Value::List(items) => items.iter().any(|item| says(item, wanted)),
            Value::String(text) if rule.kind == RuleKind::Scope => text.split(' ').any(|scope| scope == &**wanted),
            value => says(value, wanted),
        })
    }
}

impl Rule {
    /// The cost of looking for all values in a claim.
    fn cost(&self, claims: &Map) -> u64 {
        let entries = match self.path.find(claims) {
            Some(Value::List(items)) => items.len(),
            Some(Value::String(text)) => text.len() / 8,
            _ => 0,
        };
        steps(entries.saturating_add(1)).saturating_mul(steps(self.values.len())).saturating_mul(STEPS_A_COMPARISON)
    }
}

/// Whether a single value, written as text, equals `wanted`. False for lists and maps.
fn says(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => &**text == wanted,
        Value::Bool(truth) => wanted == if *truth { "true" } else { "false" },
        Value::Int(number) => number.to_string() == wanted,
        Value::Uint(number) => number.to_string() == wanted,
        Value::Double(number) => number.to_string() == wanted,
        _ => false,
    }
}

fn forbidden(reason: &'static str) -> Denial {
    Denial { reason, response: Response::problem(403, "the caller may not do this") }
}
