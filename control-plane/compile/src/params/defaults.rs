//! Fills in absent parameters from the defaults of the policy's schema. No other code has defaults.

use std::{collections::HashMap, sync::LazyLock};

use postern_engine::{
    policy::SCHEMAS,
    schema::{Applies, Field, Kind, Object},
};
use postern_model::{File, read_document};
use serde_json::{Map, Value as Json};

/// All defaults as JSON, by their text in the schema.
static DEFAULTS: LazyLock<HashMap<&'static str, Json>> = LazyLock::new(|| {
    let mut texts = Vec::new();
    SCHEMAS.iter().for_each(|schema| collect(&schema.params, &mut texts));
    texts.into_iter().filter_map(|text| Some((text, parse(text)?))).collect()
});

fn collect(object: &'static Object, texts: &mut Vec<&'static str>) {
    for field in object.fields {
        texts.extend(field.default);
        if let Kind::Object(inner) | Kind::List { item: Kind::Object(inner), .. } = &field.kind {
            collect(inner, texts);
        }
    }
}

/// Parses a default, which is written as a user would write it.
fn parse(text: &str) -> Option<Json> {
    let file = File { name: "default".to_owned(), bytes: format!("value: {text}").into_bytes() };
    read_document(&file).ok()?.get_mut("value").map(Json::take)
}

/// The parameters with all defaults that apply.
pub(super) fn filled(params: &Json, schema: &Object) -> Json {
    let Json::Object(written) = params else { return params.clone() };
    let mut all: Map<_, _> = written.iter().map(|(name, value)| (name.clone(), nested(value, schema, name))).collect();
    for field in schema.fields.iter().filter(|field| !written.contains_key(field.name)) {
        if let Some(value) = default(field, written) {
            all.insert(field.name.to_owned(), nested(&value, schema, field.name));
        }
    }
    Json::Object(all)
}

fn nested(value: &Json, schema: &Object, name: &str) -> Json {
    let kind = schema.fields.iter().find(|field| field.name == name).map(|field| &field.kind);
    match (kind, value) {
        (Some(Kind::Object(inner)), value) => filled(value, inner),
        (Some(Kind::List { item: Kind::Object(inner), .. }), Json::Array(items)) => {
            items.iter().map(|item| filled(item, inner)).collect()
        }
        (_, value) => value.clone(),
    }
}

fn default(field: &Field, written: &Map<String, Json>) -> Option<Json> {
    let text = field.default?;
    let applies = match field.applies {
        Applies::Always => true,
        Applies::Unless(others) => !others.iter().any(|other| written.contains_key(*other)),
        Applies::With(other) => written.contains_key(other),
        Applies::SameAs => return written.get(text).cloned(),
    };
    applies.then(|| DEFAULTS.get(text).cloned()).flatten()
}

#[cfg(test)]
mod tests {
    use postern_engine::policy;
    use serde_json::json;

    use super::*;

    fn check(name: &str, params: &Json, expect: &Json) {
        let filled = filled(params, &policy::schema(name).unwrap().params);
        for (field, value) in expect.as_object().unwrap() {
            assert_eq!(filled.get(field).unwrap_or(&Json::Null), value, "{name}: {field} of {filled}");
        }
    }

    #[test]
    fn reads_every_default() {
        let mut texts = Vec::new();
        SCHEMAS.iter().for_each(|schema| collect(&schema.params, &mut texts));
        assert!(texts.len() > 50 && texts.iter().all(|text| DEFAULTS.contains_key(text)), "{texts:?}");
    }

    #[test]
    fn fills_in_what_is_left_out() {
        check(
            "cors",
            &json!({}),
            &json!({ "allowMethods": ["GET", "HEAD", "POST"], "enforce": false, "maxAge": null }),
        );
        check("cors", &json!({ "enforce": true }), &json!({ "enforce": true }));
        check("rateLimit", &json!({ "requests": 7 }), &json!({ "burst": 7, "maxKeys": 65536 }));
        check("auditLog", &json!({}), &json!({ "to": { "log": true }, "sample": 100 }));
        let to = |path| json!({ "to": { "log": false, "http": { "service": "s", "path": path } } });
        check("auditLog", &json!({ "to": { "http": { "service": "s" } } }), &to("/"));
    }

    #[test]
    fn fills_in_nothing_that_does_not_go_with_the_rest() {
        check("respond", &json!({}), &json!({ "status": 200 }));
        check("respond", &json!({ "redirect": {} }), &json!({ "status": null }));
        check("roleCheck", &json!({ "roles": [] }), &json!({ "rolesClaim": "roles", "scopesClaim": null }));
        check("jwtValidation", &json!({}), &json!({ "header": "authorization" }));
        check("jwtValidation", &json!({ "cookie": "c" }), &json!({ "header": null }));
    }
}
