//! Where requests come from and go to, between two real Envoys: `from: Mesh` is all traffic, callers without a certificate
//! included; `from: MeshSubset` goes by the tags in a certificate; and `to:` by the service that gets the request.

use std::{fs, path::Path};

use postern_tests::{
    Upstream,
    pki::{Authority, Subject},
    site::free_port,
    wait,
};

use crate::{mtls::Side, world::assert_no_vm_failure};

/// The callers with a certificate: a name, a mesh, a service and a zone.
const CALLERS: [(&str, &str, &str, Option<&str>); 3] = [
    ("web", "default", "web", Some("eu")),
    ("batch", "default", "batch", None),
    ("foreigner", "elsewhere", "web", None),
];
/// Calls without a certificate.
const GUEST: &str = "guest";

/// What guards the routes of the backend.
const POLICIES: &str = "---
apiVersion: postern/v1
kind: TrafficPermission
metadata: { name: members }
spec:
  targetRef: { kind: MeshGatewayRoute, name: members }
  from: [{ targetRef: { kind: Mesh }, action: ALLOW }]
---
apiVersion: postern/v1
kind: TrafficPermission
metadata: { name: guests }
spec:
  targetRef: { kind: MeshGatewayRoute, name: guests }
  from: [{ targetRef: { kind: Mesh }, action: ALLOW, anonymous: true }]
---
apiVersion: postern/v1
kind: TrafficPermission
metadata: { name: closed }
spec:
  targetRef: { kind: MeshGatewayRoute, name: closed }
  from:
    - { targetRef: { kind: Mesh }, action: DENY }
    - { targetRef: { kind: Mesh }, action: ALLOW, anonymous: true }
---
apiVersion: postern/v1
kind: TrafficPermission
metadata: { name: zoned }
spec:
  targetRef: { kind: HTTPRoute, name: zoned }
  from: [{ targetRef: { kind: MeshSubset, tags: { zone: eu } }, action: ALLOW }]
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: steps }
spec:
  targetRef: { kind: MeshGatewayRoute, name: steps }
  from:
    - targetRef: { kind: MeshSubset, tags: { zone: eu } }
      request: [{ name: who, policy: headers, params: { set: { x-who: eu } } }]
    - targetRef: { kind: Mesh }
      request: [{ name: who, policy: headers, params: { set: { x-who: anyone } } }]
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: destinations }
spec:
  targetRef: { kind: Mesh }
  to:
    - targetRef: { kind: Service, name: other }
      request: [{ name: where, policy: headers, params: { set: { x-to: other } } }]
    - targetRef: { kind: HTTPRoute, name: guests }
      request: [{ name: where, policy: headers, params: { set: { x-to: guests } } }]
";

fn write_backend(directory: &Path, authority: &Authority, port: u16, upstream: u16) {
    fs::write(directory.join("ca.crt"), authority.certificate()).unwrap();
    authority.issue(&Subject::service("default", "backend")).unwrap().write(directory, "backend").unwrap();
    let mut text = format!(
        "apiVersion: postern/v1\nkind: Gateway\nmetadata: {{ name: backend }}\nspec:\n  listeners:\n    - name: mtls\n      port: \
         {port}\n      tls: {{ certificate: {{ file: backend.crt }}, key: {{ file: backend.key }}, clientCa: {{ file: ca.crt }}, \
         clientCertificate: request }}\n  routes:\n"
    );
    for (route, service) in [
        ("members", "app"),
        ("guests", "app"),
        ("closed", "app"),
        ("zoned", "app"),
        ("steps", "app"),
        ("other", "other"),
    ] {
        text += &format!(
            "    - {{ name: {route}, match: {{ path: {{ template: '/{{caller}}/{route}' }} }}, service: {service} }}\n"
        );
    }
    for service in ["app", "other"] {
        text += &format!(
            "---\napiVersion: postern/v1\nkind: Service\nmetadata: {{ name: {service} }}\nspec: {{ endpoints: [{{ address: \
             127.0.0.1, port: {upstream} }}] }}\n"
        );
    }
    fs::write(directory.join("backend.yaml"), text + POLICIES).unwrap();
}

fn write_callers(directory: &Path, authority: &Authority, port: u16, backend: u16) {
    fs::write(directory.join("ca.crt"), authority.certificate()).unwrap();
    let (mut routes, mut services) = (String::new(), String::new());
    let mut add = |caller: &str, certificate: &str| {
        routes +=
            &format!("    - {{ name: {caller}, match: {{ path: {{ prefix: /{caller} }} }}, service: {caller} }}\n");
        services += &format!(
            "---\napiVersion: postern/v1\nkind: Service\nmetadata: {{ name: {caller} }}\nspec:\n  endpoints: [{{ address: \
             127.0.0.1, port: {backend} }}]\n  tls: {{ {certificate}ca: {{ file: ca.crt }}, subjectAltNames: \
             ['spiffe://default/backend'] }}\n"
        );
    };
    for (caller, mesh, service, zone) in CALLERS {
        let subject = Subject::service(mesh, service);
        let subject = zone.map_or(subject.clone(), |zone| subject.tag("zone", zone));
        authority.issue(&subject).unwrap().write(directory, caller).unwrap();
        add(caller, &format!("certificate: {{ file: {caller}.crt }}, key: {{ file: {caller}.key }}, "));
    }
    add(GUEST, "");
    let gateway = format!(
        "apiVersion: postern/v1\nkind: Gateway\nmetadata: {{ name: callers }}\nspec:\n  listeners: [{{ name: http, port: {port} \
         }}]\n  routes:\n{routes}"
    );
    fs::write(directory.join("callers.yaml"), gateway + &services).unwrap();
}

#[test]
fn mesh_is_all_traffic_and_a_subset_goes_by_tags() {
    let authority = Authority::new("mesh").unwrap();
    let upstream = Upstream::start(0).unwrap();
    let (inner, outer) = (free_port().unwrap(), free_port().unwrap());
    let backend = Side::start("backend", inner, |directory| {
        write_backend(directory, &authority, inner, upstream.address().port())
    });
    let callers = Side::start("callers", outer, |directory| write_callers(directory, &authority, outer, inner));
    wait::until_true("the way through", || Ok(callers.get("/web/members").status == 200)).unwrap();
    let check = |route: &str, expect: [u16; 4]| {
        let status = |caller: &str| callers.get(&format!("/{caller}/{route}")).status;
        assert_eq!(["web", "batch", "foreigner", GUEST].map(status), expect, "{route}");
    };
    // Those who say who they are.
    check("members", [200, 200, 403, 403]);
    check("guests", [200, 200, 200, 200]);
    check("closed", [403, 403, 403, 403]);
    check("zoned", [200, 403, 403, 403]);
    let echoed = |path: &str, header: &str| callers.get(path).echoed(header);
    for (caller, who) in [("web", "eu"), ("batch", "anyone"), ("foreigner", "anyone"), (GUEST, "anyone")] {
        assert_eq!(echoed(&format!("/{caller}/steps"), "x-who"), [who], "{caller}");
    }
    assert_eq!(echoed("/web/other", "x-to"), ["other"]);
    assert_eq!(echoed("/web/guests", "x-to"), ["guests"]);
    assert_eq!(echoed("/web/members", "x-to"), Vec::<String>::new());
    // It was `DENY` from `Mesh` that refused them, not that no entry was for them.
    let closed = || {
        let decisions = backend.envoy.access_log().into_iter();
        let decisions = decisions.filter_map(|line| line["decision"].as_str().map(str::to_owned));
        decisions.filter(|decision| decision.contains(" route=closed ")).collect::<Vec<_>>()
    };
    // Envoy writes its log a little later than it answers.
    wait::until_true("four refusals in the log", || Ok(closed().len() >= 4)).unwrap();
    let closed = closed();
    assert!(closed.len() == 4 && closed.iter().all(|decision| decision.contains("reason=source_denied")), "{closed:?}");
    assert_no_vm_failure(&backend.envoy);
}

/// Two overlapping AccessLogs, each with `to` and `from`: the mesh's, and that of the service.
fn write_logs(directory: &Path) {
    let backends = ["everyone", "web", "any-service", "other"];
    let file = |name: &str| format!("{{ name: {name}, file: {{ path: {} }} }}", directory.join(name).display());
    let backends = backends.map(file).join(", ");
    let text = format!(
        "apiVersion: postern/v1
kind: Settings
metadata: {{ name: s }}
spec: {{ logBackends: [{backends}] }}
---
apiVersion: postern/v1
kind: AccessLog
metadata: {{ name: base }}
spec:
  targetRef: {{ kind: Mesh }}
  to: [{{ targetRef: {{ kind: Mesh }}, backends: [{{ name: any-service }}] }}]
  from: [{{ targetRef: {{ kind: Mesh }}, backends: [{{ name: everyone }}] }}]
---
apiVersion: postern/v1
kind: AccessLog
metadata: {{ name: own }}
spec:
  targetRef: {{ kind: Service, name: backend }}
  to: [{{ targetRef: {{ kind: Service, name: other }}, backends: [{{ name: other }}] }}]
  from: [{{ targetRef: {{ kind: Service, name: web }}, backends: [{{ name: web }}] }}]
"
    );
    fs::write(directory.join("logs.yaml"), text).unwrap();
}

#[test]
fn overlapping_access_logs_merge_by_source_and_by_destination_independently() {
    let authority = Authority::new("mesh").unwrap();
    let upstream = Upstream::start(0).unwrap();
    let logs = tempfile::tempdir().unwrap();
    let (inner, outer) = (free_port().unwrap(), free_port().unwrap());
    let backend = Side::start("backend", inner, |directory| {
        write_backend(directory, &authority, inner, upstream.address().port());
        write_logs(logs.path());
        fs::copy(logs.path().join("logs.yaml"), directory.join("logs.yaml")).unwrap();
    });
    let callers = Side::start("callers", outer, |directory| write_callers(directory, &authority, outer, inner));
    wait::until_true("the way through", || Ok(callers.get("/web/members").status == 200)).unwrap();
    let paths = |file: &str| -> Vec<String> {
        let text = fs::read_to_string(logs.path().join(file)).unwrap_or_default();
        let line =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?["path"].as_str().map(str::to_owned);
        text.lines().filter_map(line).filter(|path| path.ends_with("/guests") || path.ends_with("/other")).collect()
    };
    for caller in ["web", "batch", GUEST] {
        for route in ["guests", "other"] {
            assert_eq!(callers.get(&format!("/{caller}/{route}")).status, 200, "{caller} {route}");
        }
    }
    let expect = [
        // By source: the service's entry for `web` comes before the mesh's for all traffic.
        ("web", vec!["/web/guests", "/web/other"]),
        ("everyone", vec!["/batch/guests", "/batch/other", "/guest/guests", "/guest/other"]),
        // By destination, whoever calls.
        ("other", vec!["/web/other", "/batch/other", "/guest/other"]),
        ("any-service", vec!["/web/guests", "/batch/guests", "/guest/guests"]),
    ];
    for (file, expect) in expect {
        wait::until_true(&format!("{file}: {expect:?}, not {:?}", paths(file)), || Ok(paths(file) == expect)).unwrap();
    }
    assert_no_vm_failure(&backend.envoy);
}
