//! Withholds fields from merging: a field that decides whether a step is enforced counts only if the most specific step
//! sets it, or inherits it explicitly. So merging alone never opens a route.

use postern_engine::{policy, schema::Object};
use postern_model::STEP;
use serde_json::{Map, Value as Json};

/// The fields of a step, with its index among the parts.
pub(super) type Written = (usize, Map<String, Json>);

/// A field that was not merged, because no part of higher priority sets or inherits it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withheld {
    /// The path in the step, such as `when` or `params.allowMissing`.
    pub field: String,
    /// The index of the part that sets it.
    pub part: usize,
}

/// Removes fields that are not inherited from parts, which are given by priority. Returns the removed fields.
pub(super) fn withhold(parts: &mut [Written]) -> Vec<Withheld> {
    let mut found = Vec::new();
    for name in own_fields(&STEP) {
        let asks = |part: &Map<String, Json>| {
            let inherit = part.get("inherit").and_then(Json::as_array);
            inherit.is_some_and(|inherit| inherit.iter().any(|asked| asked == name))
        };
        take_out(parts, name, |part| Some(part), asks, |part| found.push(Withheld { field: name.to_owned(), part }));
    }
    let policy = parts.first().and_then(|(_, part)| part.get("policy")).and_then(Json::as_str);
    let policy = policy.and_then(policy::schema);
    for name in policy.into_iter().flat_map(|policy| own_fields(&policy.params)) {
        // Parameters cannot be inherited explicitly, because repeating one is easy.
        take_out(parts, name, params, |_| false, |part| found.push(Withheld { field: format!("params.{name}"), part }));
    }
    found
}

fn params(part: &mut Map<String, Json>) -> Option<&mut Map<String, Json>> {
    part.get_mut("params")?.as_object_mut()
}

fn own_fields(object: &'static Object) -> impl Iterator<Item = &'static str> {
    object.fields.iter().filter(|field| !field.inherited).map(|field| field.name)
}

/// Removes a field from all parts that follow the first one that neither sets nor inherits it.
fn take_out(
    parts: &mut [Written],
    name: &str,
    within: impl Fn(&mut Map<String, Json>) -> Option<&mut Map<String, Json>>,
    asks: impl Fn(&Map<String, Json>) -> bool,
    mut note: impl FnMut(usize),
) {
    let mut heard = true;
    for (index, part) in parts {
        let asked = asks(part);
        let fields = within(part);
        let has = fields.as_ref().is_some_and(|fields| fields.contains_key(name));
        match (heard, has) {
            // Later values are overruled by merging, like those of any field.
            (true, true) => return,
            (true, false) => heard = asked,
            (false, true) => {
                fields.and_then(|fields| fields.remove(name));
                note(*index);
            }
            (false, false) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(parts: &[Json], expect: &[Json], withheld: &[(&str, usize)]) {
        let mut parts: Vec<Written> =
            parts.iter().enumerate().map(|(index, part)| (index, part.as_object().unwrap().clone())).collect();
        let found = withhold(&mut parts);
        let left: Vec<_> = parts.into_iter().map(|(_, part)| Json::Object(part)).collect();
        assert_eq!(left, expect);
        let found: Vec<_> = found.iter().map(|found| (found.field.as_str(), found.part)).collect();
        assert_eq!(found, withheld);
    }

    #[test]
    fn what_opens_a_step_is_not_inherited() {
        let open = json!({"policy": "rateLimit", "when": "a", "onFailure": "continue", "mode": "shadow", "params": {"burst": 1}});
        check(
            &[json!({"policy": "rateLimit"}), open],
            &[json!({"policy": "rateLimit"}), json!({"policy": "rateLimit", "params": {"burst": 1}})],
            &[("when", 1), ("onFailure", 1), ("mode", 1)],
        );
    }

    #[test]
    fn what_is_asked_for_is() {
        let (asks, plain) = (json!({"policy": "headers", "inherit": ["when"]}), json!({"policy": "headers"}));
        let condition = json!({"policy": "headers", "when": "a", "mode": "shadow"});
        let rest = json!({"policy": "headers", "when": "a"});
        check(&[asks.clone(), condition.clone()], &[asks.clone(), rest], &[("mode", 1)]);
        // A part in between that does not inherit ends the inheritance.
        check(&[asks.clone(), plain.clone(), condition], &[asks, plain.clone(), plain], &[("when", 2), ("mode", 2)]);
    }

    #[test]
    fn what_the_first_says_overrules_the_others() {
        let (first, second) = (json!({"policy": "headers", "when": "a"}), json!({"policy": "headers", "when": "b"}));
        check(&[first.clone(), second.clone()], &[first, second], &[]);
    }

    #[test]
    fn parameters_that_open_a_step_are_not_inherited() {
        let mesh = json!({"policy": "jwtValidation", "params": {"allowMissing": true, "issuers": ["a"]}});
        let route = json!({"policy": "jwtValidation", "params": {"audiences": ["x"]}});
        let rest = json!({"policy": "jwtValidation", "params": {"issuers": ["a"]}});
        check(&[route.clone(), mesh.clone()], &[route, rest.clone()], &[("params.allowMissing", 1)]);
        let bare = json!({"policy": "jwtValidation"});
        check(&[bare.clone(), mesh], &[bare, rest], &[("params.allowMissing", 1)]);
    }
}
