//! Merging of steps: the first part that sets a field wins, and parameters are merged as trees, by the schema of their
//! policy. A field that decides whether a step is enforced counts only if the most specific step sets it, or inherits it
//! explicitly. So merging alone never opens a route.

use postern_base::diagnostic::push_field;
use postern_engine::policy;
use postern_model::{DenyWith, Inheritable, Mode, Step};
use serde_json::Value as Json;

use super::merge::{Fields, merge_into};

/// A step as a user wrote it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written<'a> {
    /// Its index among the parts.
    pub(super) index: usize,
    pub(super) step: &'a Step,
    /// Its mode, which may be that of its resource.
    pub(super) mode: Option<Mode>,
}

/// A merged step.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    pub(super) step: Step,
    pub(super) fields: Fields,
    pub(super) withheld: Vec<Withheld>,
}

/// A field that was not merged, because no part of higher priority sets or inherits it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withheld {
    /// The path in the step, such as `when` or `params.allowMissing`.
    pub field: String,
    /// The index of the part that sets it.
    pub part: usize,
}

/// Merges parts, which are given by priority. A part of another policy than the first is overruled whole.
pub(super) fn inherit(parts: &[Written<'_>]) -> Inherited {
    let mut merged = Inherited::default();
    let Some(first) = parts.first().map(|part| part.step) else { return merged };
    let (alike, others): (Vec<_>, Vec<_>) = parts.iter().partition(|part| part.step.policy == first.policy);
    let mut step = first.clone();
    merged.first(&alike, "name", |part| Some(&part.step.name));
    merged.first(&alike, "policy", |part| Some(&part.step.policy));
    others.iter().for_each(|part| merged.fields.overrule("policy", part.index));
    step.when = merged.own(&alike, Inheritable::When, |part| part.step.when.as_ref());
    step.on_failure = merged.own(&alike, Inheritable::OnFailure, |part| part.step.on_failure.as_ref());
    step.mode = merged.own(&alike, Inheritable::Mode, |part| part.mode.as_ref());
    step.inherit.clear();
    merged.params(&mut step.params, &alike);
    step.deny_with = merged.deny_with(&alike);
    Inherited { step, ..merged }
}

impl Inherited {
    /// The value of the first part that sets a field.
    fn first<T: Clone>(
        &mut self,
        parts: &[&Written<'_>],
        field: &str,
        get: impl for<'p> Fn(&'p Written<'_>) -> Option<&'p T>,
    ) -> Option<T> {
        let mut setting = parts.iter().filter_map(|part| Some((part.index, get(part)?)));
        let (by, value) = setting.next()?;
        self.fields.provide(field.to_owned(), by);
        setting.for_each(|(part, _)| self.fields.overrule(field, part));
        Some(value.clone())
    }

    /// Like [`Self::first`], for a field that counts only up to the first part that neither sets nor inherits it.
    fn own<T: Clone>(
        &mut self,
        parts: &[&Written<'_>],
        field: Inheritable,
        get: impl for<'p> Fn(&'p Written<'_>) -> Option<&'p T>,
    ) -> Option<T> {
        let mut heard = true;
        for part in parts {
            match (get(part).is_some(), heard) {
                (true, true) => return self.first(parts, field.field(), get),
                (true, false) => {
                    self.withheld.push(Withheld { field: field.field().to_owned(), part: part.index });
                }
                (false, true) => heard = part.step.inherit.contains(&field),
                (false, false) => {}
            }
        }
        None
    }

    /// Merges the parameters of further parts into those of the first.
    fn params(&mut self, first: &mut Json, parts: &[&Written<'_>]) {
        let Some((of_first, rest)) = parts.split_first() else { return };
        self.fields.provide("params".to_owned(), of_first.index);
        let (Some(schema), Json::Object(into)) = (policy::schema(&of_first.step.policy), first) else { return };
        let rest = rest.iter().filter_map(|part| Some((part.index, part.step.params.as_object()?.clone())));
        let mut rest: Vec<_> = rest.collect();
        // Parameters cannot be inherited explicitly, because repeating one is easy.
        let own = schema.params.fields.iter().filter(|field| !field.inherited && !into.contains_key(field.name));
        for field in own {
            let found = rest.iter_mut().filter_map(|(part, params)| params.remove(field.name).map(|_| *part));
            self.withheld.extend(found.map(|part| Withheld { field: format!("params.{}", field.name), part }));
        }
        for part in rest {
            merge_into(into, &mut self.fields, &schema.params, "params", part);
        }
    }

    fn deny_with(&mut self, parts: &[&Written<'_>]) -> Option<DenyWith> {
        let mut saying = parts.iter().filter_map(|part| Some((part.index, part.step.deny_with.as_ref()?)));
        let (by, first) = saying.next()?;
        self.fields.provide("denyWith".to_owned(), by);
        let mut merged = first.clone();
        for (part, DenyWith { status, headers, body }) in saying {
            self.fill(&mut merged.status, status, "denyWith.status", part);
            self.fill(&mut merged.body, body, "denyWith.body", part);
            for (name, value) in headers {
                // Names of headers are compared without case.
                let there = merged.headers.keys().find(|there| there.eq_ignore_ascii_case(name));
                let path = push_field("denyWith.headers".to_owned(), there.unwrap_or(name));
                if there.is_some() {
                    self.fields.overrule(&path, part);
                } else {
                    self.fields.provide(path, part);
                    merged.headers.insert(name.clone(), value.clone());
                }
            }
        }
        Some(merged)
    }

    /// Fills in a value of a part, unless there is one already.
    fn fill<T: Clone>(&mut self, into: &mut Option<T>, value: &Option<T>, path: &str, part: usize) {
        match (&into, value) {
            (_, None) => {}
            (Some(_), Some(_)) => self.fields.overrule(path, part),
            (None, Some(value)) => {
                self.fields.provide(path.to_owned(), part);
                *into = Some(value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Merges steps, and compares the fields that users set, and what was withheld.
    fn check(parts: &[Json], expect: Json, withheld: &[(&str, usize)]) {
        let steps: Vec<Step> = parts.iter().map(|part| serde_json::from_value(part.clone()).unwrap()).collect();
        let written: Vec<_> =
            steps.iter().enumerate().map(|(index, step)| Written { index, step, mode: step.mode }).collect();
        let merged = inherit(&written);
        assert_eq!(merged.step, serde_json::from_value(expect).unwrap());
        let found: Vec<_> = merged.withheld.iter().map(|found| (found.field.as_str(), found.part)).collect();
        assert_eq!(found, withheld);
    }

    #[test]
    fn what_opens_a_step_is_not_inherited() {
        let open = json!({"policy": "rateLimit", "when": "a", "onFailure": "continue", "mode": "shadow", "params": {"burst": 1}});
        check(
            &[json!({"policy": "rateLimit"}), open],
            json!({"policy": "rateLimit", "params": {"burst": 1}}),
            &[("when", 1), ("onFailure", 1), ("mode", 1)],
        );
    }

    #[test]
    fn what_is_asked_for_is() {
        let (asks, plain) = (json!({"policy": "headers", "inherit": ["when"]}), json!({"policy": "headers"}));
        let condition = json!({"policy": "headers", "when": "a", "mode": "shadow"});
        check(&[asks.clone(), condition.clone()], json!({"policy": "headers", "when": "a"}), &[("mode", 1)]);
        // A part in between that does not inherit ends the inheritance.
        check(&[asks, plain.clone(), condition], plain, &[("when", 2), ("mode", 2)]);
    }

    #[test]
    fn what_the_first_says_overrules_the_others() {
        let (first, second) = (json!({"policy": "headers", "when": "a"}), json!({"policy": "headers", "when": "b"}));
        check(&[first.clone(), second], first, &[]);
    }

    #[test]
    fn parameters_that_open_a_step_are_not_inherited() {
        let mesh = json!({"policy": "jwtValidation", "params": {"allowMissing": true, "issuers": ["a"]}});
        let route = json!({"policy": "jwtValidation", "params": {"audiences": ["x"]}});
        let merged = json!({"policy": "jwtValidation", "params": {"audiences": ["x"], "issuers": ["a"]}});
        check(&[route, mesh.clone()], merged, &[("params.allowMissing", 1)]);
        let bare = json!({"policy": "jwtValidation"});
        let merged = json!({"policy": "jwtValidation", "params": {"issuers": ["a"]}});
        check(&[bare, mesh], merged, &[("params.allowMissing", 1)]);
    }

    #[test]
    fn refusals_are_merged_field_by_field() {
        let first = json!({"policy": "headers", "denyWith": {"status": 451, "headers": {"X-A": "1"}}});
        let second = json!({"policy": "headers", "denyWith": {"status": 404, "headers": {"x-a": "2", "x-b": "3"}, "body": "no"}});
        let merged = json!({"status": 451, "headers": {"X-A": "1", "x-b": "3"}, "body": "no"});
        check(&[first, second], json!({"policy": "headers", "denyWith": merged}), &[]);
    }
}
