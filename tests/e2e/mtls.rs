//! Mutual TLS between two real Envoys: callers are known by their certificates, and policies decide on them.

use std::{fs, net::SocketAddr, path::Path};

use postern_tests::{
    Client, ControlPlane, Envoy, Received, Request, Upstream,
    pki::{Authority, Identity, Subject},
    site::free_port,
    wait,
};
use tempfile::TempDir;

use crate::world::assert_no_vm_failure;

/// One Envoy with a control plane and resources of its own.
pub struct Side {
    pub envoy: Envoy,
    pub control_plane: ControlPlane,
    address: SocketAddr,
    directory: TempDir,
}

impl Side {
    pub fn start(service: &str, port: u16, write: impl FnOnce(&Path)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path());
        let control_plane = ControlPlane::start(directory.path()).unwrap();
        let cluster = format!("cluster: {service}\n");
        let envoy = Envoy::start("whole.yaml", control_plane.xds(), &[("cluster: edge\n", &cluster)]).unwrap();
        Self { envoy, control_plane, address: ([127, 0, 0, 1], port).into(), directory }
    }

    pub fn get(&self, path: &str) -> Received {
        Client::new(self.address).send(&Request::get(path)).unwrap()
    }

    /// The answer of the admin interface.
    fn admin(&self, path: &str) -> String {
        Client::new(self.envoy.admin()).get(path).unwrap().body
    }

    /// Every output that could reveal a secret.
    fn everything_said(&self) -> String {
        [self.envoy.log().join("\n"), self.control_plane.log().join("\n"), self.admin("/config_dump?include_eds")]
            .concat()
    }

    /// The sum of all counters of this name, whatever they belong to.
    fn count(&self, name: &str) -> u64 {
        self.envoy.stats(name).unwrap().into_iter().map(|(_, value)| value).sum()
    }
}

/// Backend and frontend, and callers that pretend to be the frontend.
struct Mesh {
    backend: Side,
    frontend: Side,
    authority: Authority,
    keys: Vec<String>,
    _upstream: Upstream,
}

/// How each caller reaches the backend: the listener, whose certificate the caller shows, and which identity it expects
/// of the backend.
const CALLERS: [(&str, Listener, &str); 6] = [
    // The identity that a Service has by its name is what its certificate must say.
    ("backend", Listener::Strict, "certificate: { file: frontend.crt }, key: { file: frontend.key }"),
    (
        "intruder",
        Listener::Strict,
        "certificate: { file: intruder.crt }, key: { file: intruder.key }, subjectAltNames: ['spiffe://default/backend']",
    ),
    (
        "stranger",
        Listener::Strict,
        "certificate: { file: stranger.crt }, key: { file: stranger.key }, subjectAltNames: [backend.test]",
    ),
    ("nobody", Listener::Strict, "serverName: backend.test"),
    ("guest", Listener::Lenient, "serverName: backend.test"),
    // It expects somebody else where the backend is.
    ("mistaken", Listener::Lenient, "certificate: { file: frontend.crt }, key: { file: frontend.key }"),
];

/// Whether clients must show a certificate.
#[derive(Clone, Copy)]
enum Listener {
    Strict,
    Lenient,
}

/// Where the backend listens.
#[derive(Clone, Copy)]
struct Ports {
    strict: u16,
    lenient: u16,
}

impl Ports {
    fn of(self, listener: Listener) -> u16 {
        match listener {
            Listener::Strict => self.strict,
            Listener::Lenient => self.lenient,
        }
    }
}

impl Mesh {
    fn start() -> Self {
        let (authority, foreign) = (Authority::new("mesh").unwrap(), Authority::new("elsewhere").unwrap());
        let upstream = Upstream::start(0).unwrap();
        let ports = Ports { strict: free_port().unwrap(), lenient: free_port().unwrap() };
        let outer = free_port().unwrap();
        let backend = authority.issue(&Subject::service("default", "backend").dns("backend.test")).unwrap();
        let callers = [
            ("frontend", authority.issue(&Subject::service("default", "frontend").tag("version", "v 1")).unwrap()),
            ("intruder", authority.issue(&Subject::service("default", "intruder")).unwrap()),
            ("stranger", foreign.issue(&Subject::service("default", "frontend")).unwrap()),
        ];
        let mut keys: Vec<_> = callers.iter().map(|(_, caller)| caller.key.clone()).collect();
        keys.push(backend.key.clone());
        let backend = Side::start("backend", ports.strict, |directory| {
            write_backend(directory, &authority, &backend, ports, upstream.address().port());
        });
        let frontend = Side::start("frontend", outer, |directory| {
            fs::write(directory.join("ca.crt"), authority.certificate()).unwrap();
            callers.iter().for_each(|(name, caller)| caller.write(directory, name).unwrap());
            fs::write(directory.join("frontend.yaml"), frontend_resources(outer, ports)).unwrap();
        });
        let mesh = Self { backend, frontend, authority, keys, _upstream: upstream };
        wait::until_true("the way to the backend", || Ok(mesh.frontend.get("/backend/permitted").status == 200))
            .unwrap();
        mesh
    }
}

fn write_backend(directory: &Path, authority: &Authority, identity: &Identity, ports: Ports, upstream: u16) {
    fs::write(directory.join("ca.crt"), authority.certificate()).unwrap();
    identity.write(directory, "backend").unwrap();
    let own = "certificate: { file: backend.crt }, key: { file: backend.key }, clientCa: { file: ca.crt }";
    let Ports { strict, lenient } = ports;
    let resources = format!(
        "apiVersion: postern/v1
kind: Gateway
metadata: {{ name: backend }}
spec:
  listeners:
    - {{ name: strict, port: {strict}, tls: {{ {own} }} }}
    - {{ name: lenient, port: {lenient}, tls: {{ {own}, clientCertificate: request }} }}
  routes:
    - {{ name: permitted, match: {{ path: {{ regex: '/[a-z]+/permitted' }} }}, service: app }}
    - {{ name: validated, match: {{ path: {{ regex: '/[a-z]+/validated' }} }}, service: app }}
    - {{ name: open, service: app }}
---
apiVersion: postern/v1
kind: Service
metadata: {{ name: app }}
spec: {{ endpoints: [{{ address: 127.0.0.1, port: {upstream} }}] }}
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: {{ name: permitted }}
spec:
  targetRef: {{ kind: HTTPRoute, name: permitted }}
  request:
    - policy: trafficPermission
      params: {{ rules: [{{ from: {{ services: [frontend] }}, action: ALLOW }}] }}
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: {{ name: validated }}
spec:
  targetRef: {{ kind: HTTPRoute, name: validated }}
  request:
    - policy: validate
      params: {{ status: 403, rules: [{{ rule: source.principal == 'spiffe://default/frontend', message: not you }}] }}
"
    );
    fs::write(directory.join("backend.yaml"), resources).unwrap();
}

fn frontend_resources(port: u16, backend: Ports) -> String {
    let routes: String = CALLERS
        .iter()
        .map(|(name, ..)| {
            format!("    - {{ name: {name}, match: {{ path: {{ prefix: /{name} }} }}, service: {name} }}\n")
        })
        .collect();
    let mut resources = format!(
        "apiVersion: postern/v1\nkind: Gateway\nmetadata: {{ name: frontend }}\nspec:\n  listeners: [{{ name: http, port: \
         {port} }}]\n  routes:\n{routes}"
    );
    for (name, listener, tls) in CALLERS {
        // The first speaks HTTP/2, so that both protocols are tried.
        let protocol = if name == "backend" { "http2" } else { "http1" };
        resources += &format!(
            "---\napiVersion: postern/v1\nkind: Service\nmetadata: {{ name: {name} }}\nspec:\n  protocol: {protocol}\n  \
             endpoints: [{{ address: 127.0.0.1, port: {} }}]\n  tls: {{ ca: {{ file: ca.crt }}, {tls} }}\n",
            backend.of(listener)
        );
    }
    resources
}

#[test]
fn decides_by_the_identity_in_the_certificate() {
    let mesh = Mesh::start();
    let (frontend, backend) = (&mesh.frontend, &mesh.backend);
    for path in ["/backend/permitted", "/backend/validated", "/backend/open"] {
        let answer = frontend.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
    }
    assert!(frontend.count("cluster.backend.upstream_cx_http2_total") > 0);

    // Another service of the mesh gets through the handshake, and no further than policies let it.
    for path in ["/intruder/permitted", "/intruder/validated"] {
        assert_eq!(frontend.get(path).status, 403, "{path}");
    }
    assert_eq!(frontend.get("/intruder/open").status, 200);

    // A certificate of another authority, or none, does not get through the handshake, whatever name it bears.
    assert_eq!(frontend.get("/stranger/open").status, 503);
    wait::until_true("the refused certificate", || Ok(backend.count("ssl.fail_verify_error") > 0)).unwrap();
    assert_eq!(frontend.get("/nobody/open").status, 503);
    wait::until_true("the missing certificate", || Ok(backend.count("ssl.fail_verify_no_cert") > 0)).unwrap();
    assert!(Client::new(backend.address).send(&Request::get("/backend/open")).is_err(), "it answers in the clear");

    // Where a certificate is only asked for, policies decide about those who have none.
    assert_eq!(frontend.get("/guest/open").status, 200);
    assert_eq!(frontend.get("/guest/permitted").status, 403);
    // And whoever takes the backend for somebody else does not talk to it.
    assert_eq!(frontend.get("/mistaken/open").status, 503);
    assert!(frontend.count("cluster.mistaken.ssl.fail_verify_san") > 0);

    let (refused, _) = wait::until("the refusal in the access log", || {
        let log = backend.envoy.access_log();
        Ok(log.into_iter().find(|line| line["route"] == "permitted" && line["status"] == 403))
    })
    .unwrap();
    let decision = refused["decision"].as_str().unwrap();
    assert!(decision.starts_with("verdict=deny step=trafficPermission reason=source_unknown"), "{decision}");
    assert_no_vm_failure(&backend.envoy);
}

#[test]
fn shows_no_key_and_replaces_certificates_without_a_new_listener() {
    let mesh = Mesh::start();
    for side in [&mesh.backend, &mesh.frontend] {
        let said = side.everything_said();
        assert!(said.contains("/identity"), "the dump names no secret");
        for key in &mesh.keys {
            let line = key.lines().nth(1).unwrap();
            let encoded = base64(key);
            assert!(!said.contains(line) && !said.contains(&encoded), "a key was shown");
        }
    }

    // The new certificate comes first: with the old key it does not fit, and nothing changes until the new key is there.
    let renewed = mesh.authority.issue(&Subject::service("default", "backend").tag("renewed", "yes")).unwrap();
    let listener = listener_version(&mesh.backend);
    let directory = mesh.backend.directory.path();
    fs::write(directory.join("backend.crt"), &renewed.certificate).unwrap();
    wait::until_true("the misfit to be reported", || {
        Ok(mesh.backend.control_plane.log().iter().any(|line| line.contains("the key does not fit the certificate")))
    })
    .unwrap();
    assert_eq!(mesh.frontend.get("/backend/permitted").status, 200);
    fs::write(directory.join("backend.key"), &renewed.key).unwrap();
    wait::until_true("the new certificate", || Ok(mesh.backend.admin("/certs").contains("postern://tag/renewed/yes")))
        .unwrap();
    assert_eq!(listener_version(&mesh.backend), listener);
    // A connection of a new client meets the new certificate; the identity in it is the same.
    assert_eq!(mesh.frontend.get("/intruder/open").status, 200);
    assert_eq!(mesh.frontend.get("/backend/permitted").status, 200);
}

fn listener_version(side: &Side) -> String {
    let status = side
        .control_plane
        .wait_for_status("the listener", |status| status["nodes"][0]["types"]["listener"]["running"].is_string())
        .unwrap();
    status["nodes"][0]["types"]["listener"]["running"].as_str().unwrap().to_owned()
}

/// The start of what a dump would show of a key: it writes bytes in base64.
fn base64(key: &str) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    // What stands before the key itself is the same for all keys.
    STANDARD.encode(key).get(60..160).unwrap().to_owned()
}
