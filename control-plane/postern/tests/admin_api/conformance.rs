//! Calls every operation of the API's description with right and wrong requests, and checks every answer against the
//! description.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use postern::{admin::description, http};
use postern_base::node::NodeIdentity;
use serde_json::{Map, Value, json};

use crate::server::{ApiResponse, RESOURCES, Server};

/// Polled by Envoys; described by their protocol, not by ours.
const POLLED: [&str; 6] = ["clusters", "endpoints", "extension_configs", "listeners", "routes", "secrets"];

/// Answers that cannot be provoked here, by operation and status: a full disk, sixty-five followers, a rollback to what
/// an older version wrote.
const NOT_TRIED: [(&str, u16); 8] = [
    ("apply", 507),
    ("sync", 507),
    ("confirmHeldChange", 422),
    ("confirmHeldChange", 507),
    ("followEvents", 429),
    ("followEvents", 503),
    ("rollback", 422),
    ("diffRevisions", 422),
];

/// A request and its expected status.
struct Example {
    path: String,
    headers: Vec<(&'static str, &'static str)>,
    body: Option<Value>,
    status: u16,
}

fn example(status: u16, path: impl Into<String>) -> Example {
    Example { path: path.into(), headers: Vec::new(), body: None, status }
}

impl Example {
    fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }
}

fn files(text: &str) -> Value {
    json!([{ "name": "r.yaml", "text": text }])
}

/// A consumer that was deleted.
const GONE: &str = "apiVersion: postern/v1\nkind: Consumer\nmetadata: { name: gone }\nspec: { groups: [a] }\n";
/// All resources that are left if most are removed.
const FEW: &str = "apiVersion: postern/v1\nkind: Consumer\nmetadata: { name: app }\nspec: { groups: [a] }\n";

/// Requests by operation, in the order of the description. They do not affect each other.
fn examples(server: &Server) -> BTreeMap<&'static str, Vec<Example>> {
    let changed = RESOURCES.replace("x-api-key", "x-key");
    let wrong = "kind: Gatewya";
    let digest = server.plane.code().digest();
    let publication = server.plane.publications().latest().unwrap();
    let label = publication.snapshot_for(&NodeIdentity::default()).plan().label().to_owned();
    let unguarded = RESOURCES.replace("apiKeyAuth", "apiKeyAuht");
    let few = FEW;
    let open = RESOURCES.replace("policy: apiKeyAuth\n      params: { header: x-api-key }", "policy: headers");
    BTreeMap::from([
        ("healthz", vec![example(200, "/healthz")]),
        ("readyz", vec![example(200, "/readyz")]),
        ("getStatus", vec![example(200, "/status")]),
        ("getFilter", vec![example(200, format!("/filter/{digest}.wasm")), example(404, "/filter/none")]),
        (
            "apply",
            vec![
                example(200, "/api/v1/apply").body(json!({ "files": files(RESOURCES) })),
                example(200, "/api/v1/apply").body(json!({ "files": files(&changed), "dryRun": true })),
                example(200, "/api/v1/apply").body(json!({ "files": files(&changed), "message": "m", "author": "a" })),
                example(400, "/api/v1/apply").body(json!({ "files": [] })),
                example(200, "/api/v1/apply").body(json!({ "files": files("# nothing"), "dryRun": true })),
                example(409, "/api/v1/apply").body(json!({ "files": files(&open) })),
                example(200, "/api/v1/apply").body(json!({ "files": files(&open), "allowUnguarded": true })),
                example(200, "/api/v1/apply").body(json!({ "files": files(&changed) })),
                example(422, "/api/v1/apply").body(json!({ "files": files(wrong) })),
                example(422, "/api/v1/apply").body(json!({ "files": files(&unguarded), "dryRun": true })),
                example(412, "/api/v1/apply").body(json!({ "files": files(RESOURCES) })).header("if-match", "\"77\""),
                example(400, "/api/v1/apply").body(json!({ "files": files(RESOURCES) })).header("if-match", "one"),
            ],
        ),
        (
            "rollback",
            vec![
                example(409, "/api/v1/rollback").body(json!({ "revision": 5 })),
                example(200, "/api/v1/rollback").body(json!({ "revision": 5, "allowUnguarded": true })),
                example(200, "/api/v1/rollback").body(json!({ "revision": 1 })),
                example(404, "/api/v1/rollback").body(json!({ "revision": 99 })),
                example(412, "/api/v1/rollback").body(json!({ "revision": 4 })).header("if-match", "\"77\""),
                example(400, "/api/v1/rollback").body(json!({ "revision": 1 })).header("if-match", "one"),
                example(200, "/api/v1/rollback")
                    .body(json!({ "revision": 1, "only": [{ "kind": "Consumer", "name": "app", "mesh": "default" }] })),
                example(404, "/api/v1/rollback")
                    .body(json!({ "revision": 1, "only": [{ "kind": "Service", "name": "none" }] })),
            ],
        ),
        (
            "purgeResource",
            vec![
                example(200, "/api/v1/purge")
                    .body(json!({ "resource": { "kind": "Consumer", "name": "gone" }, "dryRun": true })),
                example(200, "/api/v1/purge")
                    .body(json!({ "resource": { "kind": "Consumer", "name": "gone" }, "author": "a" })),
                example(404, "/api/v1/purge").body(json!({ "resource": { "kind": "Consumer", "name": "gone" } })),
                example(404, "/api/v1/purge").body(json!({ "resource": { "kind": "Consmuer", "name": "gone" } })),
                example(409, "/api/v1/purge").body(json!({ "resource": { "kind": "Consumer", "name": "app" } })),
            ],
        ),
        ("getRollout", vec![example(200, "/api/v1/rollout")]),
        (
            "commandRollout",
            vec![
                example(204, "/api/v1/rollout/pause"),
                example(409, "/api/v1/rollout/pause"),
                example(204, "/api/v1/rollout/resume"),
                example(404, "/api/v1/rollout/stop"),
                example(400, "/api/v1/rollout/pause?now=true"),
            ],
        ),
        (
            "diff",
            vec![
                example(200, "/api/v1/diff").body(json!({ "files": files(&changed) })),
                example(200, "/api/v1/diff").body(json!({ "files": files(RESOURCES) })),
                example(422, "/api/v1/diff").body(json!({ "files": files(wrong) })),
            ],
        ),
        ("listResources", vec![example(200, "/api/v1/resources"), example(200, "/api/v1/resources?mesh=none")]),
        (
            "listResourcesOfKind",
            vec![example(200, "/api/v1/resources/routepolicy"), example(404, "/api/v1/resources/Gatewya")],
        ),
        (
            "getResource",
            vec![
                example(200, "/api/v1/resources/RoutePolicy/users-api"),
                example(200, "/api/v1/resources/Consumer/app?mesh=default"),
                example(404, "/api/v1/resources/RoutePolicy/none"),
            ],
        ),
        (
            "getResourceConditions",
            vec![
                example(200, "/api/v1/resources/RoutePolicy/users-api/conditions"),
                example(404, "/api/v1/resources/RoutePolicy/none/conditions"),
            ],
        ),
        (
            "deleteResource",
            vec![
                example(200, "/api/v1/resources/Consumer/app?dryRun=true&message=m&author=a"),
                example(200, "/api/v1/resources/RoutePolicy/users-api?dryRun=true&allowUnguarded=true"),
                example(409, "/api/v1/resources/RoutePolicy/users-api"),
                example(409, "/api/v1/resources/Service/backend"),
                example(404, "/api/v1/resources/Service/none"),
                example(412, "/api/v1/resources/Consumer/app").header("if-match", "\"77\""),
                example(400, "/api/v1/resources/Consumer/app").header("if-match", "one"),
            ],
        ),
        ("listRevisions", vec![example(200, "/api/v1/revisions")]),
        ("getRevision", vec![example(200, "/api/v1/revisions/1"), example(404, "/api/v1/revisions/99")]),
        (
            "getRevisionConditions",
            vec![example(200, "/api/v1/revisions/1/conditions"), example(404, "/api/v1/revisions/99/conditions")],
        ),
        (
            "getRevisionResources",
            vec![example(200, "/api/v1/revisions/1/resources"), example(404, "/api/v1/revisions/99/resources")],
        ),
        (
            "diffRevisions",
            vec![
                example(200, "/api/v1/revisions/1/diff"),
                example(200, "/api/v1/revisions/1/diff?against=1"),
                example(404, "/api/v1/revisions/99/diff"),
            ],
        ),
        ("getPlan", vec![example(200, format!("/api/v1/plans/{label}")), example(404, "/api/v1/plans/none")]),
        ("listClients", vec![example(200, "/api/v1/clients")]),
        ("listNodes", vec![example(200, "/api/v1/nodes")]),
        ("listAbsentNodes", vec![example(200, "/api/v1/nodes/absent")]),
        ("getNode", vec![example(200, "/api/v1/nodes/edge-2"), example(404, "/api/v1/nodes/edge-9")]),
        (
            "explain",
            vec![
                example(200, "/api/v1/explain").body(json!({ "node": { "id": "edge-2" }, "route": "users" })),
                example(200, "/api/v1/explain").body(json!({ "route": "users", "request": { "path": "/users" } })),
                example(200, "/api/v1/explain").body(json!({ "request": { "path": "/users" } })),
                example(422, "/api/v1/explain").body(json!({ "colour": "red" })),
                example(404, "/api/v1/explain").body(json!({ "node": { "id": "edge-9" } })),
            ],
        ),
        (
            "simulate",
            vec![
                example(200, "/api/v1/simulate").body(json!({ "route": "users", "request": { "method": "GET" } })),
                example(200, "/api/v1/simulate").body(json!({ "route": "none", "request": {} })),
                example(200, "/api/v1/simulate").body(json!({ "request": { "path": "/nowhere" } })),
                example(422, "/api/v1/simulate").body(json!({ "route": "users" })),
                example(422, "/api/v1/simulate").body(json!({ "gateway": "egde", "request": {} })),
                example(404, "/api/v1/simulate").body(json!({ "node": { "id": "edge-9" }, "request": {} })),
            ],
        ),
        (
            "followEvents",
            vec![
                example(200, "/api/v1/events?last=100&follow=false"),
                example(200, "/api/v1/events?follow=false").header("last-event-id", "0-1"),
                example(400, "/api/v1/events?last=many"),
            ],
        ),
        (
            "sync",
            vec![
                example(200, "/api/v1/sync").body(json!({ "files": files(&changed), "dryRun": true })),
                example(200, "/api/v1/sync").body(json!({ "files": files(&changed), "allowRemovals": true })),
                example(409, "/api/v1/sync").body(json!({ "files": files(few) })),
                example(409, "/api/v1/sync").body(json!({ "files": [], "allowRemovals": true, "removeMany": true })),
                example(422, "/api/v1/sync").body(json!({ "files": files(wrong) })),
                example(412, "/api/v1/sync").body(json!({ "files": files(RESOURCES) })).header("if-match", "\"77\""),
                example(400, "/api/v1/sync").body(json!({ "files": files(RESOURCES) })).header("if-match", "one"),
            ],
        ),
        ("getHeldChange", vec![example(404, "/api/v1/sync/held")]),
        ("confirmHeldChange", vec![example(409, "/api/v1/sync/confirm").body(json!({ "digest": "0", "author": "a" }))]),
        ("getMetrics", vec![example(200, "/metrics")]),
        ("getDescription", vec![example(200, "/api/v1/openapi.json")]),
    ])
}

/// Statuses that only a control plane without resources returns.
fn examples_without_resources() -> Vec<(&'static str, Example)> {
    let request = json!({ "request": {} });
    vec![
        ("readyz", example(503, "/readyz")),
        ("getRollout", example(404, "/api/v1/rollout")),
        ("explain", example(503, "/api/v1/explain").body(json!({}))),
        ("simulate", example(503, "/api/v1/simulate").body(request)),
        ("commandRollout", example(409, "/api/v1/rollout/abort")),
    ]
}

/// The API's description.
struct Description(Value);

impl Description {
    /// Every operation: name, method, path and description.
    fn operations(&self) -> Vec<(String, String, String, &Value)> {
        let mut found = Vec::new();
        for (path, methods) in self.0["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap().to_owned();
                found.push((id, method.clone(), path.clone(), operation));
            }
        }
        found
    }

    /// Checks a value against a schema of the description.
    #[track_caller]
    fn check(&self, schema: &Value, value: &Value, what: &str) {
        let mut root: Map<String, Value> = schema.as_object().unwrap().clone();
        root.insert("components".to_owned(), self.0["components"].clone());
        let validator = jsonschema::draft202012::new(&Value::Object(root)).unwrap();
        let errors: Vec<_> =
            validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(errors.is_empty(), "{what} is not as described: {errors:#?}\n{value:#}");
    }
}

/// Checks an answer against the description of its operation.
#[track_caller]
fn check_answer(description: &Description, operation: &Value, status: u16, answer: &ApiResponse) {
    let what = format!("{} {status}", operation["operationId"]);
    assert_eq!(answer.status, status, "{what}: {}", answer.body);
    let declared = &operation["responses"][status.to_string()];
    assert!(declared.is_object(), "{what} is not declared");
    let Some(content) = declared["content"].as_object() else {
        assert_eq!(answer.body, "", "{what} has a body");
        return;
    };
    let kind = answer.content_type.split(';').next().unwrap();
    let media = content.get(kind).unwrap_or_else(|| panic!("{what} answers with `{kind}`, not with {content:?}"));
    let value = match kind {
        "application/yaml" => {
            let bytes = answer.body.clone().into_bytes();
            postern_model::read_document(&postern_model::File { name: what.clone(), bytes }).unwrap()
        }
        kind if kind.ends_with("json") => answer.json(),
        _ => return,
    };
    description.check(&media["schema"], &value, &what);
}

#[test]
fn is_as_it_describes_itself() {
    let server = Server::running();
    let description = Description(server.get("/api/v1/openapi.json").json());
    assert_eq!(description.0["openapi"], "3.1.0");
    assert_eq!(server.apply(GONE).status, 200);
    assert_eq!(server.send("delete", "/api/v1/resources/Consumer/gone", &[], None).status, 200);
    let mut examples = examples(&server);
    let mut tried = BTreeSet::new();
    for (id, method, _, operation) in description.operations() {
        let examples = examples.remove(id.as_str()).unwrap_or_else(|| panic!("no example of {id}"));
        for Example { path, headers, body, status } in examples {
            if let Some(body) = body.as_ref().filter(|_| status != 422) {
                let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
                description.check(schema, body, &format!("the body of {id}"));
            }
            let answer = server.send(&method, &path, &headers, body.as_ref());
            check_answer(&description, operation, status, &answer);
            if status == 200 && operation["responses"]["200"]["content"]["application/yaml"].is_object() {
                let headers = [headers, vec![("accept", "application/yaml")]].concat();
                let answer = server.send(&method, &path, &headers, body.as_ref());
                assert_eq!(answer.content_type, "application/yaml", "{id}");
                check_answer(&description, operation, status, &answer);
            }
            tried.insert((id.clone(), status));
        }
    }
    assert_eq!(examples.keys().collect::<Vec<_>>(), Vec::<&&str>::new(), "examples of what is not described");
    server.plane.commands().follow(crate::lifecycle::followed(FEW)).wait().unwrap();
    let held = server.get("/api/v1/sync/held");
    let digest = held.json()["digest"].clone();
    let confirmed = server.send("post", "/api/v1/sync/confirm", &[], Some(&json!({ "digest": digest })));
    for (id, answer) in [("getHeldChange", held), ("confirmHeldChange", confirmed)] {
        let operations = description.operations();
        let (.., operation) = operations.iter().find(|(other, ..)| other == id).unwrap();
        check_answer(&description, operation, 200, &answer);
        tried.insert((id.to_owned(), 200));
    }
    let empty = Server::empty();
    for (id, Example { path, headers, body, status }) in examples_without_resources() {
        let operations = description.operations();
        let (_, method, _, operation) = operations.iter().find(|(other, ..)| other == id).unwrap();
        check_answer(&description, operation, status, &empty.send(method, &path, &headers, body.as_ref()));
        tried.insert((id.to_owned(), status));
    }
    tried.extend(NOT_TRIED.map(|(id, status)| (id.to_owned(), status)));
    let declared = description.operations().into_iter().flat_map(|(id, _, _, operation)| {
        let statuses = operation["responses"].as_object().unwrap().keys().filter_map(|status| status.parse().ok());
        statuses.map(|status: u16| (id.clone(), status)).collect::<Vec<_>>()
    });
    let untried: Vec<_> = declared.filter(|pair| !tried.contains(pair)).collect();
    assert_eq!(untried, Vec::<(String, u16)>::new(), "declared, but not tried");
}

#[test]
fn has_no_route_that_it_does_not_describe() {
    let server = Server::empty();
    let described: BTreeSet<String> = description()["paths"].as_object().unwrap().keys().cloned().collect();
    let polled = POLLED.map(|kind| format!("/v3/discovery:{kind}"));
    let expect: BTreeSet<_> = described.into_iter().chain(polled).collect();
    // The only place where the router shows its routes is its debug output.
    let shown = format!("{:?}", http::router(Arc::clone(&server.plane), http::Names::new(80, Vec::new(), Vec::new())));
    let paths = shown.split('"').skip(1).step_by(2).filter(|text| text.len() > 1 && text.starts_with('/'));
    let found: BTreeSet<_> = paths.filter(|path| !path.contains("__private__")).map(str::to_owned).collect();
    assert_eq!(found, expect);
}

#[test]
fn answers_with_a_problem_document_whatever_is_wrong() {
    let server = Server::running();
    let check = |method: &str, path: &str, body: Option<Value>, status: u16, detail: &str| {
        let answer = server.send(method, path, &[], body.as_ref());
        let kind = (answer.status, answer.content_type.as_str());
        assert_eq!(kind, (status, "application/problem+json"), "{method} {path}: {}", answer.body);
        let problem = answer.json();
        assert_eq!(problem["status"], status);
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{problem}");
    };
    check("get", "/api/v2/nodes", None, 404, "there is nothing at `/api/v2/nodes`: `/api/v1/openapi.json` lists");
    check("post", "/api/v1/nodes", None, 405, "`/api/v1/nodes` does not take POST");
    check("get", "/api/v1/revisions/one", None, 400, "one");
    check("get", "/api/v1/resources?colour=red", None, 400, "unknown field `colour`");
    check("get", "/api/v1/resources/Gatewya", None, 404, "unknown kind `Gatewya`: did you mean `Gateway`?");
    check("get", "/api/v1/resources/Pod", None, 404, "unknown kind `Pod`: the kinds are Gateway, Service,");
    check(
        "get",
        "/api/v1/resources/RoutePolicy/user-api",
        None,
        404,
        "RoutePolicy `user-api` is not in force: did you mean `users-api`?",
    );
    check("get", "/api/v1/nodes/edge-3", None, 404, "no node `edge-3` is known: did you mean `edge-1`?");
    check("post", "/api/v1/explain", Some(json!({ "colour": 1 })), 422, "unknown field `colour`");
    // One byte more than the limit, so that everything has been read when it is refused.
    let empty = json!({ "request": { "body": "" } }).to_string().len();
    let large = json!({ "request": { "body": "x".repeat((1 << 20) + 1 - empty) } });
    check("post", "/api/v1/simulate", Some(large), 413, "length limit exceeded");
}
