//! Permissions by service and by tag, between real Envoys with mutual TLS: the example of the matching document
//! (docs/rules.md).

use std::{fs, path::Path};

use postern_tests::{
    Envoy, Upstream,
    pki::{Authority, Subject},
    site::free_port,
    wait,
};

use crate::{mtls::Side, world::assert_no_vm_failure};

/// A name for the route, the mesh and the service of its certificate, and the tags in it.
type Caller = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

/// Who calls.
const CALLERS: [Caller; 6] = [
    ("old-web", "default", "web", &[("version", "v1")]),
    ("new-web", "default", "web", &[("zone", "v1"), ("version", "v2")]),
    ("monitoring", "default", "infra-monitoring", &[]),
    ("logger", "default", "infra-logger", &[]),
    ("batch", "default", "batch", &[("version", "v1")]),
    ("foreigner", "elsewhere", "infra-logger", &[]),
];

const PERMISSIONS: &str = "---
apiVersion: postern/v1
kind: TrafficPermission
metadata: { name: allow-only-infra }
spec:
  targetRef: { kind: Mesh }
  from:
    - { targetRef: { kind: Service, name: infra-monitoring }, action: ALLOW }
    - { targetRef: { kind: Service, name: infra-logger }, action: ALLOW }
    - { targetRef: { kind: Mesh }, action: DENY }
---
apiVersion: postern/v1
kind: TrafficPermission
metadata: { name: backend-permissions }
spec:
  targetRef: { kind: Service, name: backend }
  from:
    - { targetRef: { kind: ServiceSubset, name: web, tags: { version: v1 } }, action: DENY }
    - { targetRef: { kind: Mesh }, action: ALLOW }
";

/// What guards both services, and where they listen.
fn write_services(directory: &Path, authority: &Authority, ports: [(&str, u16); 2], upstream: u16) {
    fs::write(directory.join("ca.crt"), authority.certificate()).unwrap();
    let mut resources = format!(
        "apiVersion: postern/v1\nkind: Service\nmetadata: {{ name: app }}\nspec: {{ endpoints: [{{ address: 127.0.0.1, port: \
         {upstream} }}] }}\n"
    );
    for (service, port) in ports {
        let identity = authority.issue(&Subject::service("default", service)).unwrap();
        identity.write(directory, service).unwrap();
        resources += &format!(
            "---\napiVersion: postern/v1\nkind: Gateway\nmetadata: {{ name: {service} }}\nspec:\n  targetRef: {{ kind: Service, \
             name: {service} }}\n  listeners:\n    - name: mtls\n      port: {port}\n      tls: {{ certificate: {{ file: \
             {service}.crt }}, key: {{ file: {service}.key }}, clientCa: {{ file: ca.crt }} }}\n  routes: [{{ name: \
             {service}-all, service: app }}]\n"
        );
    }
    fs::write(directory.join("services.yaml"), resources + PERMISSIONS).unwrap();
}

/// A way to each service for each caller, with its certificate.
fn write_callers(directory: &Path, authority: &Authority, port: u16, services: [(&str, u16); 2]) {
    fs::write(directory.join("ca.crt"), authority.certificate()).unwrap();
    let (mut routes, mut clusters) = (String::new(), String::new());
    for (caller, mesh, service, tags) in CALLERS {
        let subject =
            tags.iter().fold(Subject::service(mesh, service), |subject, (name, value)| subject.tag(name, value));
        authority.issue(&subject).unwrap().write(directory, caller).unwrap();
        for (target, port) in services {
            let name = format!("{caller}-{target}");
            routes += &format!("    - {{ name: {name}, match: {{ path: {{ exact: /{name} }} }}, service: {name} }}\n");
            clusters += &format!(
                "---\napiVersion: postern/v1\nkind: Service\nmetadata: {{ name: {name} }}\nspec:\n  endpoints: [{{ address: \
                 127.0.0.1, port: {port} }}]\n  tls: {{ certificate: {{ file: {caller}.crt }}, key: {{ file: {caller}.key }}, ca: \
                 {{ file: ca.crt }}, subjectAltNames: ['spiffe://default/{target}'] }}\n"
            );
        }
    }
    let gateway = format!(
        "apiVersion: postern/v1\nkind: Gateway\nmetadata: {{ name: callers }}\nspec:\n  listeners: [{{ name: http, port: {port} \
         }}]\n  routes:\n{routes}"
    );
    fs::write(directory.join("callers.yaml"), gateway + &clusters).unwrap();
}

#[test]
fn decide_by_service_and_by_tag_as_the_example_says() {
    let authority = Authority::new("mesh").unwrap();
    let upstream = Upstream::start(0).unwrap();
    let services = [("backend", free_port().unwrap()), ("payments", free_port().unwrap())];
    let port = free_port().unwrap();
    let backend = Side::start("backend", services[0].1, |directory| {
        write_services(directory, &authority, services, upstream.address().port());
    });
    // Another service of the same control plane, for which only the mesh's permissions hold.
    let replace = [("id: edge-1\n", "id: payments-1\n"), ("cluster: edge\n", "cluster: payments\n")];
    let payments = Envoy::start("whole.yaml", backend.control_plane.xds(), &replace).unwrap();
    let callers = Side::start("callers", port, |directory| write_callers(directory, &authority, port, services));
    for ready in ["/logger-backend", "/logger-payments"] {
        wait::until_true(ready, || Ok(callers.get(ready).status == 200)).unwrap();
    }
    let check = |path: &str, expect: u16| {
        let answer = callers.get(path);
        assert_eq!(answer.status, expect, "{path}: {answer:?}");
    };
    check("/old-web-backend", 403);
    check("/new-web-backend", 200);
    check("/monitoring-backend", 200);
    check("/logger-backend", 200);
    check("/batch-backend", 200);
    // It has a certificate of our authority, but for another mesh: `DENY` from `Mesh` is for everybody.
    check("/foreigner-backend", 403);

    check("/old-web-payments", 403);
    check("/new-web-payments", 403);
    check("/monitoring-payments", 200);
    check("/batch-payments", 403);
    check("/foreigner-payments", 403);

    let decisions = |envoy: &Envoy| -> Vec<String> {
        let log = envoy.access_log();
        log.iter().filter_map(|line| Some(line["decision"].as_str()?.split(" route=").next()?.to_owned())).collect()
    };
    for envoy in [&backend.envoy, &payments] {
        let expect = "verdict=deny step=TrafficPermission reason=source_denied".to_owned();
        wait::until_true(&expect, || Ok(decisions(envoy).contains(&expect))).unwrap();
        assert_no_vm_failure(envoy);
    }
}
