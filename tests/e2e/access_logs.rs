//! Access logs in formats of their own, by gRPC, by OpenTelemetry, and of sources with tags, from a real Envoy.

use std::{fs, net::SocketAddr};

use envoy_types::pb::opentelemetry::proto::common::v1::{AnyValue, KeyValue, any_value};
use postern_tests::{
    Client, Collector, ControlPlane, Envoy, LogReceiver, Request, TlsClient, Upstream,
    pki::{Authority, Subject},
    site::free_port,
    wait,
};
use prost::Message;
use serde_json::{Value, json};

use crate::matching::{Deployment, resource, service};

const SERVICE: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";

fn gateway(port: u16) -> Value {
    let routes = json!([{"name": "web", "service": "web", "public": {"reason": "test"}}]);
    resource("Gateway", "edge", json!({"listeners": [{"name": "http", "port": port}], "routes": routes}))
}

fn settings(backends: Value) -> Value {
    resource("Settings", "s", json!({"logBackends": backends}))
}

/// An AccessLog of everything to these backends.
fn all_to(backends: &[&str]) -> Value {
    let backends: Vec<_> = backends.iter().map(|name| json!({"name": name})).collect();
    let to = json!([{"targetRef": {"kind": "Mesh"}, "backends": backends}]);
    resource("AccessLog", "all", json!({"targetRef": {"kind": "Mesh"}, "to": to}))
}

fn wait_until_serving(address: SocketAddr) {
    wait::until_true("the gateway to serve", || Ok(Client::new(address).get("/ready")?.status == 200)).unwrap();
}

#[test]
fn access_logs_say_what_a_format_says() {
    let (upstream, port, logs) = (Upstream::start(0).unwrap(), free_port().unwrap(), tempfile::tempdir().unwrap());
    let (text, members) = (logs.path().join("text"), logs.path().join("members"));
    let deployment = Deployment::start(&[
        service("web", upstream.address().port()),
        gateway(port),
        settings(json!([
            {"name": "text", "file": {"path": text}, "format": {"text": "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% 100%% %RESPONSE_CODE% %REQ(x-tenant):3%"}},
            {"name": "members", "file": {"path": members}, "format": {"json": {"code": "%RESPONSE_CODE%", "who": "%REQ(x-tenant)%", "by": "postern"}}},
        ])),
        all_to(&["text", "members"]),
    ]);
    let _envoy = deployment.node("edge-1", "edge", "{}");
    let address = ([127, 0, 0, 1], port).into();
    wait_until_serving(address);
    Client::new(address).send(&Request::get("/a?b=c").header("x-tenant", "acme")).unwrap();
    wait::until_true("the lines", || {
        let text = fs::read_to_string(&text).unwrap_or_default();
        let json = fs::read_to_string(&members).unwrap_or_default();
        let is_there = |line: &str| {
            serde_json::from_str::<Value>(line)
                .is_ok_and(|it| it == json!({"code": 200, "who": "acme", "by": "postern"}))
        };
        Ok(text.lines().any(|line| line == "GET /a?b=c 100% 200 acm") && json.lines().any(is_there))
    })
    .unwrap();
}

#[test]
fn access_logs_go_to_envoys_access_log_service() {
    let (upstream, port, receiver) = (Upstream::start(0).unwrap(), free_port().unwrap(), LogReceiver::start().unwrap());
    let other = LogReceiver::start().unwrap();
    let mut collector = service("collector", other.address().port());
    collector["spec"]["protocol"] = json!("grpc");
    let address = receiver.address();
    let deployment = Deployment::start(&[
        service("web", upstream.address().port()),
        collector,
        gateway(port),
        settings(json!([
            {"name": "als", "grpc": {"address": "127.0.0.1", "port": address.port(), "requestHeaders": ["x-tenant"]}},
            {"name": "by-service", "grpc": {"service": "collector", "logName": "edge log"}},
        ])),
        all_to(&["als", "by-service"]),
    ]);
    let _envoy = deployment.node("edge-1", "edge", "{}");
    let address = ([127, 0, 0, 1], port).into();
    wait_until_serving(address);
    Client::new(address)
        .send(&Request::get("/wanted").header("x-tenant", "acme").header("authorization", "Bearer x"))
        .unwrap();
    let wanted = |receiver: &LogReceiver| {
        let found = receiver.entries().into_iter().find_map(|(log, entry)| {
            let request = entry.request.clone()?;
            (request.path == "/wanted").then_some((log, request, entry.response?.response_code?.value))
        });
        Ok(found)
    };
    let ((log, request, status), _) = wait::until("an entry", || wanted(&receiver)).unwrap();
    assert_eq!((log.as_str(), status), ("als", 200));
    assert_eq!(request.request_headers.get("x-tenant").map(String::as_str), Some("acme"));
    assert!(!request.request_headers.contains_key("authorization"), "{request:?}");
    let ((log, ..), _) = wait::until("an entry at the Service", || wanted(&other)).unwrap();
    assert_eq!(log, "edge log");
}

/// The messages of OTLP for logs, as far as they are read here.
#[derive(Clone, PartialEq, Message)]
struct Export {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<ResourceLogs>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceLogs {
    #[prost(message, optional, tag = "1")]
    resource: Option<Attributes>,
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<ScopeLogs>,
}

#[derive(Clone, PartialEq, Message)]
struct Attributes {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeLogs {
    #[prost(message, repeated, tag = "2")]
    records: Vec<LogRecord>,
}

#[derive(Clone, PartialEq, Message)]
struct LogRecord {
    #[prost(message, optional, tag = "5")]
    body: Option<AnyValue>,
    #[prost(message, repeated, tag = "6")]
    attributes: Vec<KeyValue>,
}

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        other => format!("{other:?}"),
    }
}

fn pairs(attributes: &[KeyValue]) -> Value {
    attributes
        .iter()
        .map(|it| (it.key.clone(), json!(text(it.value.as_ref()))))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// The resource attributes, the body and the attributes of each record so far.
fn records(collector: &Collector) -> Vec<(Value, String, Value)> {
    let mut found = Vec::new();
    for post in collector.posts().into_iter().filter(|post| post.path.ends_with(SERVICE)) {
        let Ok(export) = Export::decode(&post.bytes[5..]) else { continue };
        for logs in export.resources {
            let resource = pairs(&logs.resource.unwrap_or_default().attributes);
            for record in logs.scopes.into_iter().flat_map(|scope| scope.records) {
                found.push((resource.clone(), text(record.body.as_ref()), pairs(&record.attributes)));
            }
        }
    }
    found
}

#[test]
fn access_logs_go_to_opentelemetry() {
    let (upstream, port) = (Upstream::start(0).unwrap(), free_port().unwrap());
    let collectors = [(); 3].map(|()| Collector::start_grpc().unwrap());
    let [plain, lines, members] =
        collectors.each_ref().map(|it| json!({"address": "127.0.0.1", "port": it.address().port()}));
    let mut named = members.clone();
    named["serviceName"] = json!("front");
    let deployment = Deployment::start(&[
        service("web", upstream.address().port()),
        gateway(port),
        settings(json!([
            {"name": "plain", "otlp": plain},
            {"name": "lines", "otlp": lines, "format": {"text": "%RESPONSE_CODE% %REQ(:PATH)%"}},
            {"name": "members", "otlp": named, "format": {"json": {"code": "%RESPONSE_CODE%", "path": "%REQ(:PATH)%"}}},
        ])),
        all_to(&["plain", "lines", "members"]),
    ]);
    let _envoy = deployment.node("edge-1", "edge", "{}");
    let address = ([127, 0, 0, 1], port).into();
    wait_until_serving(address);
    Client::new(address).send(&Request::get("/wanted")).unwrap();
    let [plain, lines, members] = &collectors;
    let find = |collector: &Collector, fits: &dyn Fn(&str, &Value) -> bool| {
        wait::until("a record", || Ok(records(collector).into_iter().find(|(_, body, members)| fits(body, members))))
            .unwrap()
            .0
    };
    let (_, _, attributes) = find(plain, &|_, members| members["path"] == "/wanted");
    assert_eq!((&attributes["status"], &attributes["route"]), (&json!("200"), &json!("web")), "{attributes}");
    find(lines, &|body, members| body == "200 /wanted" && members == &json!({}));
    let (resource, ..) = find(members, &|_, members| *members == json!({"code": "200", "path": "/wanted"}));
    assert_eq!(resource["service.name"], "front", "{resource}");
}

/// A listener that knows its callers, and logs by where they come from.
#[test]
fn access_logs_tell_sources_by_their_tags() {
    let authority = Authority::new("mesh").unwrap();
    let (upstream, port, directory) = (Upstream::start(0).unwrap(), free_port().unwrap(), tempfile::tempdir().unwrap());
    let logs = tempfile::tempdir().unwrap();
    authority.issue(&Subject::host("edge.test")).unwrap().write(directory.path(), "edge").unwrap();
    fs::write(directory.path().join("ca.crt"), authority.certificate()).unwrap();
    let tls = json!({"certificate": {"file": "edge.crt"}, "key": {"file": "edge.key"}, "clientCa": {"file": "ca.crt"}, "clientCertificate": "request"});
    let routes = json!([{"name": "web", "service": "web", "public": {"reason": "test"}}]);
    let names = ["v1", "web-v2", "rest"];
    let backends: Vec<_> = names
        .iter()
        .map(|name| json!({"name": name, "file": {"path": logs.path().join(name)}, "format": {"text": "%REQ(:PATH)%"}}))
        .collect();
    let entry = |target: Value, backend: &str| json!({"targetRef": target, "backends": [{"name": backend}]});
    let all = [
        service("web", upstream.address().port()),
        resource(
            "Gateway",
            "edge",
            json!({"listeners": [{"name": "https", "port": port, "tls": tls}], "routes": routes}),
        ),
        settings(json!(backends)),
        resource(
            "AccessLog",
            "all",
            json!({"targetRef": {"kind": "Mesh"}, "from": [
                entry(json!({"kind": "MeshSubset", "tags": {"version": "v1.0"}}), "v1"),
                entry(json!({"kind": "ServiceSubset", "name": "web", "tags": {"version": "v 2", "zone": "a"}}), "web-v2"),
                entry(json!({"kind": "Mesh"}), "rest"),
            ]}),
        ),
    ];
    let text: Vec<_> = all.iter().map(ToString::to_string).collect();
    fs::write(directory.path().join("all.yaml"), text.join("\n---\n")).unwrap();
    let control_plane = ControlPlane::start(directory.path()).unwrap();
    let _envoy = Envoy::whole(control_plane.xds()).unwrap();
    let client = || TlsClient::new(([127, 0, 0, 1], port).into(), &authority).unwrap();
    wait::until_true("the gateway", || {
        Ok(client().http1("edge.test", "edge.test", "/ready").is_ok_and(|it| it == 200))
    })
    .unwrap();
    let web = || Subject::service("default", "web");
    for (path, subject) in [
        ("/v1", Subject::service("default", "api").tag("version", "v1.0")),
        ("/not-v1", web().tag("version", "v1x0")),
        ("/longer", web().tag("version", "v1.0.1")),
        ("/v2", web().tag("zone", "a").tag("version", "v 2")),
        ("/no-zone", web().tag("version", "v 2")),
        ("/other-service", Subject::service("default", "api").tag("zone", "a").tag("version", "v 2")),
        ("/untagged", web()),
    ] {
        let identity = authority.issue(&subject).unwrap();
        assert_eq!(client().showing(&identity).http1("edge.test", "edge.test", path).unwrap(), 200);
    }
    client().http1("edge.test", "edge.test", "/nobody").unwrap();
    let lines = |name: &str| -> Vec<String> {
        let text = fs::read_to_string(logs.path().join(name)).unwrap_or_default();
        text.lines().filter(|line| *line != "/ready").map(str::to_owned).collect()
    };
    let rest = ["/not-v1", "/longer", "/no-zone", "/other-service", "/untagged", "/nobody"];
    wait::until_true("the rest", || Ok(lines("rest").iter().any(|line| line == "/nobody"))).unwrap();
    wait::until_true("the others", || Ok(!lines("v1").is_empty() && !lines("web-v2").is_empty())).unwrap();
    assert_eq!((lines("v1"), lines("web-v2")), (vec!["/v1".to_owned()], vec!["/v2".to_owned()]));
    assert_eq!(lines("rest"), rest);
}

#[test]
fn access_logs_show_no_credential() {
    let directory = tempfile::tempdir().unwrap();
    let validate = |format: Value| {
        let policy = resource(
            "RoutePolicy",
            "keys",
            json!({"targetRef": {"kind": "HTTPRoute", "name": "web"}, "request": [{"policy": "apiKeyAuth", "params": {"header": "x-shop-key"}}]}),
        );
        let backends = json!([{"name": "l", "file": {"path": "/l"}, "format": format}]);
        let all = [service("web", 1), gateway(1), settings(backends), all_to(&["l"]), policy];
        let text: Vec<_> = all.iter().map(ToString::to_string).collect();
        fs::write(directory.path().join("all.yaml"), text.join("\n---\n")).unwrap();
        let output = ControlPlane::command().unwrap().arg("validate").arg(directory.path()).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert!(validate(json!({"text": "%REQ(user-agent)%"})).0);
    for (format, expect) in [
        (
            json!({"text": "%REQ(Authorization)%"}),
            "spec.logBackends[0].format.text: `Authorization` carries credentials",
        ),
        (
            json!({"json": {"a": "%RESP(set-cookie)%"}}),
            "spec.logBackends[0].format.json.a: `set-cookie` carries credentials",
        ),
        (
            json!({"json": {"a": "%REQ(x-a?X-Shop-Key):4%"}}),
            "the header `X-Shop-Key` carries credentials, as RoutePolicy `keys` says: no access log may show it",
        ),
        (json!({"text": "%RESPONSE_COD%"}), "unknown operator `%RESPONSE_COD%`: did you mean `RESPONSE_CODE`?"),
    ] {
        let (valid, said) = validate(format);
        assert!(!valid && said.contains(expect), "{said}");
    }
}
