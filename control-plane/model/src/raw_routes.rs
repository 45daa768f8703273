//! Finds the routes inside a resource in Envoy's format: in virtual hosts and in matchers, at any depth.

use postern_base::diagnostic::{push_field, push_item};
use serde_json::Value as Json;

/// A route in Envoy's format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawRoute {
    /// Its name, which policies refer to. Never empty.
    pub name: String,
    /// The path of the name, such as `virtual_hosts[0].routes[1].name`.
    pub field: String,
    /// Whether Envoy answers itself, without an upstream.
    pub answers: bool,
}

/// All named routes in document order. Their fields start with `path`.
pub(super) fn named_routes(resource: &Json, path: &str) -> Vec<RawRoute> {
    let mut found = Vec::new();
    walk(resource, path.to_owned(), &mut found);
    found
}

fn walk(value: &Json, path: String, found: &mut Vec<RawRoute>) {
    match value {
        Json::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, push_item(path.clone(), index), found);
            }
        }
        Json::Object(fields) => {
            let is_route = fields.get("@type").and_then(Json::as_str).is_some_and(|kind| kind.ends_with(".v3.Route"));
            if is_route {
                found.extend(route(value, &path));
            }
            let is_host = fields.contains_key("domains");
            for (name, field) in fields {
                let path = push_field(path.clone(), name);
                if let (true, "routes", Json::Array(routes)) = (is_host, name.as_str(), field) {
                    let routes = routes.iter().enumerate();
                    found.extend(routes.filter_map(|(index, found)| route(found, &push_item(path.clone(), index))));
                }
                walk(field, path, found);
            }
        }
        _ => {}
    }
}

fn route(route: &Json, path: &str) -> Option<RawRoute> {
    let name = route.get("name").and_then(Json::as_str).filter(|name| !name.is_empty())?;
    let answers = ["redirect", "direct_response", "directResponse"].iter().any(|field| route.get(field).is_some());
    Some(RawRoute { name: name.to_owned(), field: push_field(path.to_owned(), "name"), answers })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn finds_routes_of_virtual_hosts_and_matchers_at_any_depth() {
        let route = |name: &str| json!({"name": name, "match": {"prefix": "/"}, "route": {"cluster": "c"}});
        let matched =
            json!({"@type": "type.googleapis.com/envoy.config.route.v3.Route", "name": "matched", "redirect": {}});
        let listener = json!({"filter_chains": [{"filters": [{"typed_config": {"route_config": {"virtual_hosts": [
            {"name": "all", "domains": ["*"], "routes": [route("a"), {"match": {}}, route("")]},
            {"name": "tree", "domains": ["x"], "matcher": {"on_no_match": {"action": {"typed_config": matched}}}},
        ]}}}]}]});
        let found = named_routes(&listener, "spec.resource");
        let found: Vec<_> =
            found.iter().map(|found| (found.name.as_str(), found.field.as_str(), found.answers)).collect();
        let host = "spec.resource.filter_chains[0].filters[0].typed_config.route_config.virtual_hosts";
        assert_eq!(
            found,
            [
                ("a", format!("{host}[0].routes[0].name").as_str(), false),
                ("matched", format!("{host}[1].matcher.on_no_match.action.typed_config.name").as_str(), true),
            ]
        );
    }
}
