//! Routes whose declaration or chain differs, at one group of nodes.

use std::collections::{BTreeMap, BTreeSet};

use postern_compile::attach::{Attachment, Destination, Scope, attach, destinations};
use postern_engine::event::Phase;
use postern_model::{Gateway, Resource, Route};
use postern_release::catalogue::hide_field;
use serde_json::{Map, Value, json};

use super::{
    Change, FieldChange, RouteDifference, StepChange,
    resources::{between, fields},
};
use crate::explain::{FieldLine, StepLine, object, permissions, steps};

/// What is attached at a group of nodes, by route.
pub(super) struct View<'a> {
    scope: &'a Scope<'a>,
    attachment: Attachment<'a>,
    declared: BTreeMap<&'a str, (&'a Resource<Gateway>, &'a Route)>,
}

impl<'a> View<'a> {
    pub(super) fn of(scope: &'a Scope<'a>) -> Self {
        let routes = scope
            .gateways
            .iter()
            .flat_map(|gateway| gateway.spec.routes.iter().map(|route| (route.name.as_str(), (*gateway, route))));
        Self { attachment: attach(scope), declared: routes.collect(), scope }
    }

    /// The name of every known route, and the empty name for all others.
    fn names(&self) -> impl Iterator<Item = &'a str> {
        let guarded = self.attachment.routes.keys().copied();
        guarded.chain(self.declared.keys().copied()).chain(self.attachment.default.map(|_| ""))
    }

    fn chain(&self, route: &str) -> Option<usize> {
        self.attachment.routes.get(route).copied().or(self.attachment.default)
    }

    /// The declaration of a route by its gateway, and what holds for calls of its services.
    fn declaration(&self, route: &str) -> Value {
        let Some((gateway, route)) = self.declared.get(route) else { return json!({}) };
        let mut fields = object(*route);
        fields.remove("name");
        fields.insert("gateway".to_owned(), json!(gateway.name));
        let calls = destinations(self.scope, route).into_iter().map(calls);
        fields.insert("destinations".to_owned(), Value::Object(calls.collect()));
        Value::Object(fields)
    }

    /// The settings of a chain as a whole.
    fn whole(&self, chain: Option<usize>) -> Value {
        let Some(chain) = chain.and_then(|chain| self.attachment.chains.get(chain)) else { return json!({}) };
        let rules = permissions(chain).into_iter().enumerate().map(|(index, rule)| {
            (format!("{:03}", index + 1), json!(format!("{} {}", json!(rule.action), rule.source).replace('"', "")))
        });
        let rules: Map<String, Value> = rules.collect();
        json!({ "shadow": chain.shadow, "maxBodySize": chain.body_limit, "permissions": rules })
    }

    fn steps(&self, chain: Option<usize>, phase: Phase) -> Vec<StepLine> {
        steps(chain.and_then(|chain| self.attachment.chains.get(chain)), phase)
    }
}

/// The name of a service, and what is attached to calls of it.
fn calls(destination: Destination<'_>) -> (String, Value) {
    let Destination { service, timeout, circuit_breaker, retry, health_check } = destination;
    let attached = json!({
        "timeout": object(&timeout.conf),
        "circuitBreaker": object(&circuit_breaker.conf),
        "retry": object(&retry.conf),
        "healthCheck": object(&health_check.conf),
    });
    (service.to_owned(), attached)
}

/// The indices of a route's chains on both sides.
type ChainPair = (Option<usize>, Option<usize>);

pub(super) fn changes(was: &View<'_>, is: &View<'_>) -> Vec<(String, RouteDifference)> {
    let names: BTreeSet<_> = was.names().chain(is.names()).collect();
    // Computed once for each pair, since thousands of routes share a few chains.
    let mut chains: BTreeMap<ChainPair, (Vec<FieldChange>, Vec<StepChange>)> = BTreeMap::new();
    let mut found = Vec::new();
    for name in names {
        let pair = (was.chain(name), is.chain(name));
        let (whole, steps) = chains
            .entry(pair)
            .or_insert_with(|| (fields(was.whole(pair.0), is.whole(pair.1)), step_changes(was, is, pair)));
        let change = match (was.declared.contains_key(name), is.declared.contains_key(name)) {
            (false, true) => Change::Added,
            (true, false) => Change::Removed,
            _ => Change::Changed,
        };
        let mut differ = match change {
            Change::Changed => fields(was.declaration(name), is.declaration(name)),
            _ => Vec::new(),
        };
        if change == Change::Changed && differ.is_empty() && steps.is_empty() && whole.is_empty() {
            continue;
        }
        // If only one side has a chain, its steps say everything but the permissions.
        if pair.0.is_some() && pair.1.is_some() {
            differ.extend(whole.iter().cloned());
        } else {
            differ.extend(whole.iter().filter(|field| field.field.starts_with("permissions")).cloned());
        }
        found.push((name.to_owned(), RouteDifference { change, fields: differ, steps: steps.clone() }));
    }
    found
}

fn step_changes(was: &View<'_>, is: &View<'_>, pair: ChainPair) -> Vec<StepChange> {
    let phases = [("request", Phase::Request), ("response", Phase::Response)];
    let of = |(name, phase): (&'static str, Phase)| {
        let (old, new) = (was.steps(pair.0, phase), is.steps(pair.1, phase));
        let mut found = Vec::new();
        found.extend(
            old.iter().filter(|step| same(step, &new).is_none()).map(|step| step_change(name, step, Change::Removed)),
        );
        // Compares the order of the common steps only, so that a step does not count as moved when others around it
        // did.
        let ranks = |steps: &[StepLine], others: &[StepLine]| -> Vec<(String, Option<String>)> {
            steps.iter().filter(|step| same(step, others).is_some()).map(identity).collect()
        };
        let (before, after) = (ranks(&old, &new), ranks(&new, &old));
        for step in &new {
            let Some(earlier) = same(step, &old) else {
                let fields =
                    step.fields.iter().filter(|line| line.inherited).map(|line| inherited(None, line)).collect();
                found.push(StepChange { fields, ..step_change(name, step, Change::Added) });
                continue;
            };
            let differ = differing(earlier, step);
            let rank = |order: &[(String, Option<String>)]| order.iter().position(|other| *other == identity(step));
            if !differ.is_empty() || earlier.policy != step.policy {
                found.push(StepChange { fields: differ, ..step_change(name, step, Change::Changed) });
            } else if rank(&before) != rank(&after) {
                found.push(step_change(name, step, Change::Moved));
            }
        }
        found
    };
    phases.into_iter().flat_map(of).collect()
}

fn step_change(phase: &str, step: &StepLine, change: Change) -> StepChange {
    let (name, policy, source) = (step.name.clone(), step.policy.clone(), step.source.clone());
    StepChange { phase: phase.to_owned(), step: name, policy, source, change, fields: Vec::new() }
}

/// What identifies a step in another chain: its name and its source.
fn identity(step: &StepLine) -> (String, Option<String>) {
    (step.name.clone(), step.source.clone())
}

fn same<'s>(step: &StepLine, among: &'s [StepLine]) -> Option<&'s StepLine> {
    among.iter().find(|other| other.name == step.name && other.source == step.source)
}

/// The change of a field that is inherited from a less specific step.
fn inherited(before: Option<&FieldLine>, line: &FieldLine) -> FieldChange {
    FieldChange {
        field: line.field.clone(),
        before: before.map(|before| before.value.clone()),
        after: Some(line.value.clone()),
        inherited_from: Some(line.origin.resource.clone()),
    }
}

/// The fields of a step, by path.
fn content(step: &StepLine) -> BTreeMap<String, Value> {
    step.fields.iter().map(|line| (line.field.clone(), line.value.clone())).collect()
}

/// The fields of a step that differ, without credentials.
fn differing(earlier: &StepLine, step: &StepLine) -> Vec<FieldChange> {
    let mut found = between(content(earlier), content(step));
    // A field that is newly inherited is a change even if its value is equal: from now on a less specific resource can
    // open the step.
    for line in step.fields.iter().filter(|line| line.inherited) {
        let before = earlier.fields.iter().find(|other| other.field == line.field);
        match found.iter_mut().find(|change| change.field == line.field) {
            Some(change) => change.inherited_from = Some(line.origin.resource.clone()),
            None if before.is_some_and(|before| before.inherited) => {}
            None => found.push(inherited(before, line)),
        }
    }
    for FieldChange { field, before, after, .. } in &mut found {
        before.iter_mut().chain(after).for_each(|value| hide_field(field, value));
    }
    found
}
