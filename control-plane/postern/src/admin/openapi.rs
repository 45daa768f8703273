//! The description of the API (OpenAPI 3.1), derived from the operations and the types that they take and return.

use axum::Json;
use schemars::{
    Schema, SchemaGenerator,
    generate::{Contract, SchemaSettings},
};
use serde_json::{Map, Value, json};

use super::{
    operation::{DescribedAnswer, Operation, ParameterPlace},
    problem,
};

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::get("/api/v1/openapi.json", ("getDescription", "This description."), || async {
            Json(description())
        })
        .json::<Map<String, Value>>(200, "An OpenAPI 3.1 document."),
    ]
}

/// The description, as an OpenAPI 3.1 document.
pub fn description() -> Value {
    let (mut taken, mut given) = (generator(Contract::Deserialize), generator(Contract::Serialize));
    let mut paths: Map<String, Value> = Map::new();
    for operation in super::operations() {
        let described = describe(&operation, &mut taken, &mut given);
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        if let Some(path) = path.as_object_mut() {
            path.insert(operation.method.to_owned(), described);
        }
    }
    let mut schemas = given.take_definitions(true);
    schemas.extend(taken.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Postern",
            "summary": "The admin API of the control plane",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "paths": paths,
        "components": { "schemas": schemas },
    })
}

fn generator(contract: Contract) -> SchemaGenerator {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    settings.contract = contract;
    settings.into_generator()
}

fn describe(operation: &Operation, taken: &mut SchemaGenerator, given: &mut SchemaGenerator) -> Value {
    let mut parameters = Vec::new();
    for (place, describe) in &operation.parameters {
        parameters.extend(parameters_of(*place, &describe(taken)));
    }
    for (name, about) in &operation.headers {
        parameters.push(json!({ "name": name, "in": "header", "description": about, "schema": { "type": "string" } }));
    }
    let mut answers: Map<String, Value> = Map::new();
    for answer in &operation.answers {
        answers.insert(answer.status.to_string(), answer_of(answer, given));
    }
    answers.insert(
        "default".to_owned(),
        json!({
            "description": "What is wrong with the request, or went wrong here.",
            "content": { problem::TYPE: { "schema": problem::schema(given) } },
        }),
    );
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": answers,
    });
    if let (Some(body), Some(described)) = (operation.body, described.as_object_mut()) {
        let content = json!({ "application/json": { "schema": body(taken) } });
        described.insert("requestBody".to_owned(), json!({ "required": true, "content": content }));
    }
    described
}

/// The parameters that the fields of a structure describe.
fn parameters_of(place: ParameterPlace, structure: &Schema) -> Vec<Value> {
    let required = structure.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let properties = structure.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let parameter = |(name, mut schema): (String, Value)| {
        let about = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        let required = place == ParameterPlace::Path || required.iter().any(|other| *other == name);
        let place = if place == ParameterPlace::Path { "path" } else { "query" };
        json!({ "name": name, "in": place, "required": required, "description": about, "schema": schema })
    };
    properties.into_iter().map(parameter).collect()
}

fn answer_of(answer: &DescribedAnswer, given: &mut SchemaGenerator) -> Value {
    let content = answer.content.iter().map(|(kind, describe)| {
        let content = describe.map_or_else(|| json!({}), |describe| json!({ "schema": describe(given) }));
        ((*kind).to_owned(), content)
    });
    let content: Map<String, Value> = content.collect();
    let mut described = json!({ "description": answer.about });
    if let (false, Some(described)) = (content.is_empty(), described.as_object_mut()) {
        described.insert("content".to_owned(), Value::Object(content));
    }
    described
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_every_operation_once() {
        let operations = super::super::operations();
        let ids: BTreeSet<_> = operations.iter().map(|operation| operation.id).collect();
        assert_eq!(ids.len(), operations.len());
    }

    #[test]
    fn describes_every_parameter_of_a_path() {
        for operation in super::super::operations() {
            let named: BTreeSet<_> = operation.path.split(['{', '}']).skip(1).step_by(2).map(str::to_owned).collect();
            let mut taken = generator(Contract::Deserialize);
            let of_path = operation.parameters.iter().filter(|(place, _)| *place == ParameterPlace::Path);
            let described: BTreeSet<_> = of_path
                .flat_map(|(place, describe)| parameters_of(*place, &describe(&mut taken)))
                .map(|parameter| parameter["name"].as_str().unwrap_or_default().to_owned())
                .collect();
            assert_eq!(described, named, "of {}", operation.path);
        }
    }
}
