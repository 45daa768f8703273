//! Certificates by host (SNI), ports that Gateways share, and certificates that expire: with real TLS clients.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    time::{Duration, SystemTime},
};

use postern_tests::{
    ControlPlane, Envoy, TlsClient, Upstream,
    http2::H2,
    pki::{Authority, Subject},
    site::free_port,
    wait,
};
use tempfile::TempDir;

const DAY: Duration = Duration::from_secs(86_400);

/// A control plane and an Envoy with resources that name certificates.
struct World {
    authority: Authority,
    clients: Authority,
    port: u16,
    control_plane: ControlPlane,
    envoy: Envoy,
    directory: TempDir,
    upstream: Upstream,
}

impl World {
    fn start(gateways: impl FnOnce(u16) -> String) -> Self {
        let (authority, clients) = (Authority::new("servers").unwrap(), Authority::new("clients").unwrap());
        let directory = tempfile::tempdir().unwrap();
        let (upstream, port) = (Upstream::start(0).unwrap(), free_port().unwrap());
        for name in ["default.test", "a.test", "*.wild.test", "secret.test", "b.test"] {
            let file = name.replace('*', "any");
            authority.issue(&Subject::host(name)).unwrap().write(directory.path(), &file).unwrap();
        }
        fs::write(directory.path().join("clients.crt"), clients.certificate()).unwrap();
        let service = format!(
            "apiVersion: postern/v1\nkind: Service\nmetadata: {{ name: app }}\nspec: {{ endpoints: [{{ address: 127.0.0.1, \
             port: {} }}] }}\n",
            upstream.address().port()
        );
        fs::write(directory.path().join("service.yaml"), service).unwrap();
        fs::write(directory.path().join("gateway.yaml"), gateways(port)).unwrap();
        let control_plane = ControlPlane::start(directory.path()).unwrap();
        let envoy = Envoy::whole(control_plane.xds()).unwrap();
        Self { authority, clients, port, control_plane, envoy, directory, upstream }
    }

    fn client(&self) -> TlsClient {
        let address: SocketAddr = ([127, 0, 0, 1], self.port).into();
        TlsClient::new(address, &self.authority).unwrap()
    }

    /// A client with a certificate.
    fn known(&self) -> TlsClient {
        self.client().showing(&self.clients.issue(&Subject::service("default", "web")).unwrap())
    }

    fn wait_for(&self, host: &str) {
        wait::until_true(&format!("{host} to be served"), || {
            Ok(self.client().http1(host, host, "/").is_ok_and(|status| status == 200))
        })
        .unwrap();
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.directory.path().join(file), text).unwrap();
    }
}

/// The status of a request for a host on an open connection.
fn status(connection: &mut H2, host: &str) -> Option<u16> {
    let headers = [(":method", "GET"), (":scheme", "https"), (":authority", host), (":path", "/")];
    connection.request(&headers).unwrap().status()
}

fn gateway(name: &str, listener: &str, routes: &str) -> String {
    format!(
        "apiVersion: postern/v1\nkind: Gateway\nmetadata: {{ name: {name} }}\nspec:\n  listeners: [{listener}]\n  routes: \
         [{routes}]\n"
    )
}

fn pair(name: &str) -> String {
    format!("certificate: {{ file: {name}.crt }}, key: {{ file: {name}.key }}")
}

/// A route for a host that everybody may call.
fn open(name: &str, hosts: &str) -> String {
    format!("{{ name: {name}, hosts: [{hosts}], service: app, public: {{ reason: test }} }}")
}

/// One listener with a default certificate, and others by name; clients of `secret.test` need a certificate.
fn several(port: u16) -> String {
    let listener = format!(
        "{{ name: https, port: {port}, tls: {{ {}, certificates: [{{ hosts: [A.test], {} }}, {{ hosts: ['*.wild.test'], {} \
         }}, {{ hosts: [secret.test], {}, clientCa: {{ file: clients.crt }} }}] }} }}",
        pair("default.test"),
        pair("a.test"),
        pair("any.wild.test"),
        pair("secret.test"),
    );
    let routes =
        [open("a", "a.test"), open("wild", "'*.wild.test'"), open("secret", "secret.test"), open("rest", "'*'")];
    gateway("edge", &listener, &routes.join(", "))
}

#[test]
fn certificates_are_chosen_by_the_name_that_a_client_asks_for() {
    let world = World::start(several);
    world.wait_for("a.test");
    let client = world.client();
    // The client checks that the certificate is for the name.
    for host in ["a.test", "x.wild.test", "default.test"] {
        assert_eq!(client.http1(host, host, "/").unwrap(), 200, "{host}");
        assert_eq!(status(&mut client.http2(host).unwrap(), host), Some(200), "{host}");
    }
    let unnamed = world.client().without_name();
    assert_eq!(unnamed.http1("default.test", "default.test", "/").unwrap(), 200);
    assert_eq!(unnamed.http1("default.test", "elsewhere.test", "/").unwrap(), 200, "any host has a route");
    assert!(client.http2("unknown.test").is_err(), "the default certificate is not for this name");
    // Only one of the hosts wants a certificate of its clients.
    assert!(client.http1("secret.test", "secret.test", "/").is_err());
    assert_eq!(world.known().http1("secret.test", "secret.test", "/").unwrap(), 200);
}

#[test]
fn certificates_of_one_host_open_no_way_to_another() {
    let world = World::start(several);
    world.wait_for("a.test");
    // HTTP/2 lets a client ask for any host on a connection.
    let mut connection = world.client().http2("a.test").unwrap();
    for host in
        ["secret.test", "SECRET.test", "secret.test.", "secret.test:443", "x.wild.test", "default.test", "nobody.test"]
    {
        assert_eq!(status(&mut connection, host), Some(421), "{host}");
    }
    for host in ["a.test", "A.TEST", "a.test:8443", "a.test."] {
        assert_eq!(status(&mut connection, host), Some(200), "the connection is good still: {host}");
    }
    assert_eq!(status(&mut connection, "a.test,secret.test"), Some(400));
    let mut wild = world.client().http2("x.wild.test").unwrap();
    assert_eq!(status(&mut wild, "y.wild.test"), Some(200), "the certificate is for both");
    assert_eq!(status(&mut wild, "secret.test"), Some(421));
    // The default certificate serves no host that has one of its own, with or without a name.
    for client in [world.client(), world.client().without_name()] {
        let mut connection = client.http2("default.test").unwrap();
        for host in ["secret.test", "a.test", "x.wild.test"] {
            assert_eq!(status(&mut connection, host), Some(421), "{host}");
        }
        assert_eq!(status(&mut connection, "default.test"), Some(200));
    }
    let mut known = world.known().http2("secret.test").unwrap();
    assert_eq!([status(&mut known, "secret.test"), status(&mut known, "a.test")], [Some(200), Some(421)]);
    assert_eq!(world.client().http1("a.test", "secret.test", "/").unwrap(), 421);
    crate::world::assert_no_vm_failure(&world.envoy);
}

fn edge(port: u16) -> String {
    gateway("edge", &format!("{{ name: https, port: {port}, tls: {{ {} }} }}", pair("a.test")), &open("a", "a.test"))
}

/// A second Gateway on the same port, whose name comes before that of the first.
fn admin(port: u16, hosts: &str) -> String {
    let tls = format!("{}, clientCa: {{ file: clients.crt }}", pair("b.test"));
    let http = "maxHeaders: 40";
    let gateway = gateway("admin", &format!("{{ name: https, port: {port}, tls: {{ {tls} }} }}"), &open("b", hosts));
    gateway.replace("  routes:", &format!("  http: {{ {http} }}\n  routes:"))
}

#[test]
fn certificates_of_two_gateways_share_a_port() {
    let world = World::start(edge);
    world.wait_for("a.test");
    let unnamed = || world.client().without_name().http1("a.test", "a.test", "/");
    assert_eq!(unnamed().unwrap(), 200, "a port with one certificate needs no name");
    world.write("admin.yaml", &admin(world.port, "b.test"));
    let known = world.known();
    wait::until_true("the second gateway", || Ok(known.http1("b.test", "b.test", "/").is_ok_and(|it| it == 200)))
        .unwrap();
    assert_eq!(world.client().http1("a.test", "a.test", "/").unwrap(), 200);
    assert!(world.client().http1("b.test", "b.test", "/").is_err(), "it wants a certificate");
    let mut connection = world.client().http2("a.test").unwrap();
    assert_eq!([status(&mut connection, "b.test"), status(&mut connection, "a.test")], [Some(421), Some(200)]);
    assert!(unnamed().is_err(), "neither of them is the default");
    // The one can go again.
    fs::remove_file(world.directory.path().join("admin.yaml")).unwrap();
    wait::until_true("the port to be the first gateway's alone", || Ok(unnamed().is_ok_and(|it| it == 200))).unwrap();
    // What overlaps is refused, with both names.
    world.write("admin.yaml", &admin(world.port, "a.test, b.test"));
    let status = world
        .control_plane
        .wait_for_status("the refusal", |status| status["refusedChange"].as_array().is_some_and(|it| !it.is_empty()))
        .unwrap();
    let said = status["refusedChange"].to_string();
    for part in ["Gateway `edge`", "Gateway `admin`", "host `a.test` too"] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(unnamed().unwrap(), 200);
    drop(world.upstream);
}

fn said(arguments: &[&str]) -> String {
    let output = ControlPlane::command().unwrap().args(arguments).output().unwrap();
    [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
}

fn issue(authority: &Authority, directory: &Path, from: SystemTime, until: SystemTime) {
    let subject = Subject::host("a.test").valid(from, until);
    authority.issue(&subject).unwrap().write(directory, "a.test").unwrap();
}

#[test]
fn certificates_that_expire_are_warned_of() {
    let world = World::start(edge);
    let directory = world.directory.path();
    let (validate, server) =
        (["validate", directory.to_str().unwrap()], format!("http://{}", world.control_plane.http()));
    let now = SystemTime::now();
    assert!(!said(&validate).contains("warning"), "{}", said(&validate));
    issue(&world.authority, directory, now - 80 * DAY, now + 5 * DAY + DAY / 2);
    let place = "Gateway `edge`: spec.listeners[0].tls.certificate: expires on ";
    assert!(said(&validate).contains(place) && said(&validate).contains(", in 5 days"), "{}", said(&validate));
    // A certificate that lives for a day is not about to expire all day long.
    issue(&world.authority, directory, now - DAY / 2, now + DAY / 2);
    assert!(!said(&validate).contains("warning"), "{}", said(&validate));
    issue(&world.authority, directory, now - 80 * DAY, now - 5 * DAY - DAY / 2);
    let expired = said(&validate);
    assert!(expired.contains("expired on ") && expired.contains(", 5 days ago [certificate-expired]"), "{expired}");
    // It is no error: the control plane takes it, and goes on to warn.
    let status = world
        .control_plane
        .wait_for_status("the warning", |status| status["warnings"].to_string().contains("certificate-expired"))
        .unwrap();
    assert!(status["refusedChange"].is_null(), "{status}");
    let status = said(&["status", "--server", &server]);
    assert!(status.contains("warning   ") && status.contains("expired on "), "{status}");
    let metrics = postern_tests::Client::new(world.control_plane.http()).get("/metrics").unwrap().body;
    let line = metrics.lines().find(|line| line.starts_with("postern_certificate_not_after_timestamp_seconds{"));
    let line = line.unwrap_or_else(|| panic!("{metrics}"));
    assert!(line.contains("resource=\"Gateway/edge\",field=\"spec.listeners[0].tls.certificate\""), "{line}");
    let until: u64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
    let expect = (now - 5 * DAY - DAY / 2).duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(until, expect);
}

#[test]
fn certificates_for_other_hosts_are_warned_of() {
    let world = World::start(several);
    let directory = world.directory.path().to_str().unwrap();
    let read = || fs::read_to_string(world.directory.path().join("gateway.yaml")).unwrap();
    assert!(!said(&["validate", directory]).contains("warning"));
    world.write("gateway.yaml", &read().replace("hosts: [A.test]", "hosts: [A.test, other.test]"));
    let other = said(&["validate", directory]);
    let place = "Gateway `edge`: spec.listeners[0].tls.certificates[0]";
    let message = "the certificate is not for `other.test`: clients refuse it there [certificate-names]";
    assert!(other.contains(&format!("{place}.certificate: {message}")), "{other}");
    // A key of another certificate is an error.
    world.write(
        "gateway.yaml",
        &read().replace(&pair("secret.test"), &pair("secret.test").replace("secret.test.key", "a.test.key")),
    );
    assert!(said(&["validate", directory]).contains("tls.certificates[2].key: the key does not fit the certificate"));
}
