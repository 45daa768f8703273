//! Another route after an edit. Envoy chooses the route again after a filter edited a request's headers. The chain that
//! ran must be the chain of the route that Envoy takes, or the request is refused.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use postern_tests::{
    Client, ControlPlane, Envoy, Request, Upstream,
    http2::H2,
    site::{free_port, repository},
    wait,
};
use tempfile::TempDir;

use crate::world::assert_no_vm_failure;

const CONSUMER: &str = "
apiVersion: postern/v1
kind: Consumer
metadata: { name: mobile }
spec: { apiKeys: [{ key: demo-key }], basicAuth: { username: u, password: pass-word-1 } }
---
";

/// A policy of the route `preview`, and one of the route `a` that requires a key.
fn policies(preview: &str) -> String {
    format!(
        "{CONSUMER}
apiVersion: postern/v1
kind: RoutePolicy
metadata: {{ name: preview }}
spec:
  targetRef: {{ kind: HTTPRoute, name: preview }}
  request:
{preview}
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: {{ name: a }}
spec:
  targetRef: {{ kind: HTTPRoute, name: a }}
  request: [{{ policy: apiKeyAuth, params: {{ header: x-api-key }} }}]
"
    )
}

fn step(policy: &str, params: &str) -> String {
    format!("    - {{ policy: {policy}, params: {params} }}")
}

fn write(directory: &TempDir, file: &str, text: &str) {
    postern_tests::site::write_whole(directory.path(), file, text).unwrap();
}

/// The route table of the attack: `preview` is `a` with a header.
fn gateway(listener: u16, upstream: SocketAddr, header: &str) -> String {
    format!(
        "
apiVersion: postern/v1
kind: Gateway
metadata: {{ name: edge }}
spec:
  listeners: [{{ name: http, port: {listener} }}]
  routes:
    - name: preview
      match: {{ path: {{ prefix: /a }}, headers: [{{ name: {header}, present: true }}] }}
      service: backend
    - {{ name: a, match: {{ path: {{ prefix: /a }} }}, service: backend }}
    - {{ name: welcome, match: {{ path: {{ exact: /welcome }} }}, service: backend }}
---
apiVersion: postern/v1
kind: Service
metadata: {{ name: backend }}
spec: {{ endpoints: [{{ address: 127.0.0.1, port: {} }}] }}
",
        upstream.port()
    )
}

#[derive(Debug, Clone, Copy)]
pub enum Version {
    Http1,
    Http2,
}

fn get(listener: SocketAddr, path: &str, headers: &[(&str, &str)]) -> u16 {
    let request = headers.iter().fold(Request::get(path), |request, (name, value)| request.header(name, value));
    Client::new(listener).send(&request).unwrap().status
}

fn get_over_http2(listener: SocketAddr, path: &str, headers: &[(&str, &str)]) -> u16 {
    let pseudo = [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", path)];
    let outcome = H2::connect(listener).unwrap().request(&[&pseudo, headers].concat()).unwrap();
    outcome.status().unwrap()
}

mod whole {
    use super::*;

    /// `postern validate` refuses an edit of a header that routes of the gateway match on, and names both.
    fn refuses(header: &str, step: &str) {
        let directory = tempfile::tempdir().unwrap();
        write(&directory, "gateway.yaml", &gateway(10000, ([127, 0, 0, 1], 10001).into(), header));
        write(&directory, "policies.yaml", &policies(step));
        let output = ControlPlane::command().unwrap().arg("validate").arg(directory.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success(), "{header} was admitted: {said}");
        assert!(said.contains(&format!("`{header}`")) && said.contains("route `preview`"), "{said}");
        assert!(said.contains("policies.yaml:"), "{said}");
    }

    #[test]
    fn refuses_every_edit_of_a_header_that_a_route_matches_on() {
        refuses("x-preview", &step("headers", "{ remove: [x-preview] }"));
        refuses("x-preview", &step("headers", "{ set: { X-Preview: '2' } }"));
        refuses("x-preview", &step("headers", "{ add: { x-preview: '2' } }"));
        refuses("authorization", &step("basicAuth", "{ forward: false }"));
        refuses("x-request-id", &step("requestId", "{}"));
    }

    #[test]
    fn runs_the_chain_of_the_route_that_is_taken_while_other_headers_are_edited() {
        let (directory, upstream) = (tempfile::tempdir().unwrap(), Upstream::start(0).unwrap());
        let port = free_port().unwrap();
        write(&directory, "gateway.yaml", &gateway(port, upstream.address(), "x-preview"));
        write(&directory, "policies.yaml", &policies(&step("headers", "{ set: { x-other: '1' }, remove: [x-gone] }")));
        let control_plane = ControlPlane::start(directory.path()).unwrap();
        let envoy = Envoy::whole(control_plane.xds()).unwrap();
        let listener = SocketAddr::from(([127, 0, 0, 1], port));
        envoy.wait_until_serving(listener, &Request::get("/welcome")).unwrap();
        let mut client = Client::new(listener);
        assert_eq!(client.get("/a/x").unwrap().status, 401);
        assert_eq!(get_over_http2(listener, "/a/x", &[]), 401);
        assert_eq!(get_over_http2(listener, "/a/x", &[("x-preview", "1"), ("x-gone", "1")]), 200);
        let preview = client.send(&Request::get("/a/x").header("x-preview", "1").header("x-gone", "1")).unwrap();
        assert_eq!((preview.status, preview.echoed("x-other")), (200, vec!["1".to_owned()]));
        assert_eq!(preview.echoed("x-preview"), ["1"]);
        assert_no_vm_failure(&envoy);
    }

    /// A plan is applied before the route table that it was made for: requests on a route that only the older table has
    /// must not pass without the chain that it had.
    #[test]
    fn lets_nobody_in_while_a_guarded_route_is_renamed() {
        rename_under_load(20, |_, _, _| {});
    }

    /// In each round, Envoy or the control plane is killed between the change and its effect.
    #[test]
    fn lets_nobody_in_while_a_guarded_route_is_renamed_and_parts_restart() {
        rename_under_load(8, |round, envoy, control_plane| match round % 2 {
            0 => envoy.kill_and_restart().unwrap(),
            _ => control_plane.kill_and_restart().unwrap(),
        });
    }

    /// Two tables of routes in which `/secret` is guarded, each by another route: `site` means something else in each.
    const SWAPPED: [&str; 2] = [
        "  routes: [{ name: site, service: backend }]
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: guard }
spec: { targetRef: { kind: HTTPRoute, name: site }, request: [{ policy: apiKeyAuth, params: { header: x-api-key } }] }
",
        "  routes:
    - { name: site, match: { path: { prefix: /docs } }, public: { reason: documentation }, service: backend }
    - { name: private, service: backend }
---
apiVersion: postern/v1
kind: RoutePolicy
metadata: { name: guard }
spec: { targetRef: { kind: HTTPRoute, name: private }, request: [{ policy: apiKeyAuth, params: { header: x-api-key } }] }
",
    ];

    #[test]
    fn lets_nobody_in_while_a_name_comes_to_mean_another_route() {
        let (directory, upstream) = (tempfile::tempdir().unwrap(), Upstream::start(0).unwrap());
        let port = free_port().unwrap();
        let text = gateway(port, upstream.address(), "x-preview");
        let (head, rest) = text.split_once("  routes:\n").unwrap();
        let (_, service) = rest.split_once("---\n").unwrap();
        let write_table = |round: usize| {
            write(&directory, "all.yaml", &[head, SWAPPED[round % 2], "---\n", service].concat());
        };
        write_table(0);
        let control_plane = ControlPlane::start(directory.path()).unwrap();
        let envoy = Envoy::whole(control_plane.xds()).unwrap();
        let listener = SocketAddr::from(([127, 0, 0, 1], port));
        let status = || Client::new(listener).get("/secret").map_or(0, |answer| answer.status);
        wait::until_true("the guard", || Ok(status() == 401)).unwrap();
        let (stop, passed, refused) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
        let mut in_force = Ok(Duration::ZERO);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut client = Client::new(listener);
                    while !stop.load(Ordering::Relaxed) {
                        match client.get("/secret").map(|answer| answer.status) {
                            Ok(200) => passed.fetch_add(1, Ordering::Relaxed),
                            Ok(_) => refused.fetch_add(1, Ordering::Relaxed),
                            Err(_) => 0,
                        };
                    }
                });
            }
            for round in 1..=20 {
                write_table(round);
                in_force = wait::until_true("the other table", || {
                    let dump = Client::new(envoy.admin()).get("/config_dump?resource=dynamic_route_configs")?.body;
                    Ok(dump.contains("\"name\": \"private") == (round % 2 == 1))
                });
                if in_force.is_err() {
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        in_force.unwrap();
        assert_eq!(passed.into_inner(), 0, "requests without a key reached the upstream");
        assert!(refused.into_inner() > 20);
    }

    /// Renames the guarded route `rounds` times while callers without a key try it, and calls `disturb` after each
    /// change.
    fn rename_under_load(rounds: usize, disturb: impl Fn(usize, &mut Envoy, &mut ControlPlane)) {
        let (directory, upstream) = (tempfile::tempdir().unwrap(), Upstream::start(0).unwrap());
        let port = free_port().unwrap();
        let write_as = |name: &str| {
            let rename = |text: String| text.replace("name: a,", &format!("name: {name},"));
            let all = gateway(port, upstream.address(), "x-preview")
                + "---"
                + &policies(&step("headers", "{ set: { x-other: '1' } }"))
                    .replace("name: a }", &format!("name: {name} }}"));
            write(&directory, "all.yaml", &rename(all));
        };
        write_as("a0");
        let mut control_plane = ControlPlane::start(directory.path()).unwrap();
        let mut envoy = Envoy::whole(control_plane.xds()).unwrap();
        let listener = SocketAddr::from(([127, 0, 0, 1], port));
        envoy.wait_until_serving(listener, &Request::get("/welcome")).unwrap();
        let (stop, refused, passed) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
        let mut renamed = Ok(Duration::ZERO);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut client = Client::new(listener);
                    while !stop.load(Ordering::Relaxed) {
                        match client.get("/a/x").map(|answer| answer.status) {
                            Ok(200) => passed.fetch_add(1, Ordering::Relaxed),
                            Ok(_) => refused.fetch_add(1, Ordering::Relaxed),
                            Err(_) => 0,
                        };
                    }
                });
            }
            for round in 1..=rounds {
                write_as(&format!("a{round}"));
                disturb(round, &mut envoy, &mut control_plane);
                let name = format!("\"name\": \"a{round}#");
                renamed = wait::until_true("the renamed route", || {
                    let dump = Client::new(envoy.admin()).get("/config_dump?resource=dynamic_route_configs")?.body;
                    Ok(dump.contains(&name))
                });
                if renamed.is_err() {
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        renamed.unwrap();
        assert_eq!(passed.into_inner(), 0, "requests without a key reached the upstream");
        assert!(refused.into_inner() > rounds);
    }
}

mod overlay {
    use super::*;

    const ROUTES: &str = "                        - name: users
                          match: { path_separated_prefix: /users }
                          route: { cluster: backend }
";
    const OWN_ROUTES: &str = "                        - name: preview
                          match: { path_separated_prefix: /a, headers: [{ name: x-preview, present_match: true }] }
                          route: { cluster: backend }
                          response_headers_to_add: [{ header: { key: x-taken, value: preview } }]
                        - name: a
                          match: { path_separated_prefix: /a }
                          route: { cluster: backend }
                        - name: b
                          match: { path_separated_prefix: /b, headers: [{ name: x-preview, present_match: true }] }
                          route: { cluster: backend }
                        - name: open
                          match: { path_separated_prefix: /b }
                          route: { cluster: backend }
";
    const BEFORE: &str = "                http_filters:\n";
    const AFTER: &str = "                  # Filters of your own may stand here.\n";
    const VERIFY: &str = "                  - name: postern-verify
                    config_discovery:
                      config_source: { ads: {}, resource_api_version: V3 }
                      type_urls: [type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm]
";

    /// A foreign filter that edits the request's headers as the header `x-edit` of the request says: `+name` or `-name`.
    fn lua(place: &str) -> String {
        format!(
            "                  - name: lua-{place}
                    typed_config:
                      \"@type\": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
                      default_source_code:
                        inline_string: |
                          function envoy_on_request(handle)
                            local edit = handle:headers():get(\"x-edit-{place}\")
                            if edit == nil then return end
                            if edit:sub(1, 1) == \"+\" then handle:headers():replace(edit:sub(2), \"1\")
                            else handle:headers():remove(edit:sub(2)) end
                          end
"
        )
    }

    pub struct Overlay {
        pub envoy: Envoy,
        pub listener: SocketAddr,
        pub control_plane: ControlPlane,
        _upstream: Upstream,
        _directory: TempDir,
    }

    impl Overlay {
        /// An Envoy with the routes of the attack, and foreign filters on both sides of ours.
        pub fn start(policies: &str, verifies: bool) -> Self {
            let (directory, upstream) = (tempfile::tempdir().unwrap(), Upstream::start(0).unwrap());
            write(&directory, "policies.yaml", policies);
            let control_plane = ControlPlane::start(directory.path()).unwrap();
            let port = free_port().unwrap();
            let ports = [format!("port_value: {}", upstream.address().port()), format!("port_value: {port}")];
            let (before, after) = (format!("{BEFORE}{}", lua("before")), format!("{}{AFTER}", lua("after")));
            let mut replace = vec![
                ("port_value: 10001", ports[0].as_str()),
                ("port_value: 10000", ports[1].as_str()),
                (ROUTES, OWN_ROUTES),
                (BEFORE, before.as_str()),
                (AFTER, after.as_str()),
            ];
            if !verifies {
                replace.push((VERIFY, ""));
            }
            let envoy = Envoy::start("overlay.yaml", control_plane.xds(), &replace).unwrap();
            let listener = SocketAddr::from(([127, 0, 0, 1], port));
            envoy.wait_until_serving(listener, &Request::get("/welcome")).unwrap();
            Self { envoy, listener, control_plane, _upstream: upstream, _directory: directory }
        }

        /// The status of a request with these headers, and the reason from the access log.
        pub fn send(&self, path: &str, headers: &[(&str, &str)], version: Version) -> (u16, String) {
            let before = self.envoy.access_log_len();
            let status = match version {
                Version::Http1 => get(self.listener, path, headers),
                Version::Http2 => get_over_http2(self.listener, path, headers),
            };
            let (line, _) =
                wait::until("its line in the access log", || Ok(self.envoy.access_log_line(before))).unwrap();
            let decision = line["decision"].as_str().unwrap_or_default();
            let reason = decision.split(' ').find_map(|pair| pair.strip_prefix("reason=")).unwrap_or_default();
            (status, reason.to_owned())
        }
    }

    fn check(overlay: &Overlay, path: &str, headers: &[(&str, &str)], status: u16, reason: &str) {
        for version in [Version::Http1, Version::Http2] {
            let got = overlay.send(path, headers, version);
            assert_eq!(got, (status, reason.to_owned()), "{version:?} {path} {headers:?}");
        }
    }

    #[test]
    fn refuses_a_request_that_takes_another_route_after_our_own_edit() {
        let steps = step("headers", "{ remove: [x-preview], set: { x-other: '1' } }");
        let overlay = Overlay::start(&policies(&steps), true);
        check(&overlay, "/a/x", &[], 401, "key_missing");
        check(&overlay, "/a/x", &[("x-api-key", "demo-key")], 200, "");
        check(&overlay, "/a/x", &[("x-preview", "1")], 500, "route_changed");
        check(&overlay, "/a/x", &[("x-preview", "1"), ("x-api-key", "demo-key")], 500, "route_changed");
        check(&overlay, "/b/x", &[], 200, "");
        assert_no_vm_failure(&overlay.envoy);
    }

    #[test]
    fn sees_the_edits_of_foreign_filters_before_and_after() {
        let overlay = Overlay::start(&policies(&step("headers", "{ set: { x-other: '1' } }")), true);
        check(&overlay, "/a/x", &[("x-preview", "1")], 200, "");
        // Before: the chain of the route that Envoy takes then runs.
        check(&overlay, "/a/x", &[("x-preview", "1"), ("x-edit-before", "-x-preview")], 401, "key_missing");
        check(&overlay, "/a/x", &[("x-edit-before", "+x-preview")], 200, "");
        // After: it has run already, and another cannot.
        check(&overlay, "/a/x", &[("x-preview", "1"), ("x-edit-after", "-x-preview")], 500, "route_changed");
        let keyed = [("x-api-key", "demo-key"), ("x-edit-after", "+x-preview")];
        check(&overlay, "/a/x", &keyed, 500, "route_changed");
        check(&overlay, "/a/x", &[("x-preview", "1"), ("x-edit-after", "+x-unrelated")], 200, "");
        // Neither route has a chain.
        check(&overlay, "/b/x", &[("x-edit-after", "+x-preview")], 200, "");
        check(&overlay, "/b/x", &[("x-preview", "1"), ("x-edit-after", "-x-preview")], 200, "");
        assert_no_vm_failure(&overlay.envoy);
    }

    #[test]
    fn answers_by_the_chain_of_the_request_though_another_filter_changes_its_route_in_between() {
        let marks = |route: &str| {
            format!(
                "---\napiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: {route} }}\nspec:\n  targetRef: {{ kind: \
                 HTTPRoute, name: {route} }}\n  response: [{{ policy: headers, params: {{ set: {{ x-chain: {route} }} }} }}]\n"
            )
        };
        // Nothing verifies the route here, so that a request whose route changes is not refused.
        let overlay = Overlay::start(&(marks("a") + &marks("preview")), false);
        let check = |headers: &[(&str, &str)], chain: &str, taken: Option<&str>| {
            let mut request = Request::get("/a/x");
            for (name, value) in headers {
                request = request.header(name, value);
            }
            let answer = Client::new(overlay.listener).send(&request).unwrap();
            assert_eq!((answer.header("x-chain"), answer.header("x-taken")), (Some(chain), taken), "{headers:?}");
        };
        check(&[], "a", None);
        check(&[("x-preview", "1")], "preview", Some("preview"));
        check(&[("x-edit-after", "+x-preview")], "a", Some("preview"));
        check(&[("x-preview", "1"), ("x-edit-after", "-x-preview")], "preview", None);
        assert_no_vm_failure(&overlay.envoy);
    }

    #[test]
    fn runs_no_chain_that_edits_headers_where_nothing_verifies() {
        let overlay = Overlay::start(&policies(&step("headers", "{ set: { x-other: '1' } }")), false);
        check(&overlay, "/a/x", &[("x-preview", "1")], 500, "route_unverified");
        check(&overlay, "/a/x", &[], 401, "key_missing");
        check(&overlay, "/a/x", &[("x-api-key", "demo-key")], 200, "");
        assert_no_vm_failure(&overlay.envoy);
        // The operator is told why.
        let warned = |status: &serde_json::Value| {
            let warning = status["nodes"][0]["types"]["extensionConfig"]["warning"].as_str();
            warning.is_some_and(|warning| warning.contains("postern-verify"))
        };
        overlay.control_plane.wait_for_status("the warning", warned).unwrap();
    }

    /// The listener of `overlay.yaml` as a file that Envoy watches.
    fn listener_file(bootstrap: &str) -> (String, String) {
        let (head, rest) = bootstrap.split_once("  listeners:\n").unwrap();
        let (listener, tail) = rest.split_at(rest.find("  clusters:\n").unwrap());
        let listener = listener.replacen(
            "    - name: http\n",
            "    - \"@type\": type.googleapis.com/envoy.config.listener.v3.Listener\n      name: http\n",
            1,
        );
        (format!("resources:\n{listener}"), [head, tail].concat())
    }

    /// A listener that loses the entry runs no chain that edits headers any more, and does again once it is back.
    #[test]
    fn notices_when_a_listener_loses_and_regains_what_verifies() {
        let (directory, upstream) = (tempfile::tempdir().unwrap(), Upstream::start(0).unwrap());
        let watched = tempfile::tempdir().unwrap();
        write(&directory, "policies.yaml", &policies(&step("headers", "{ remove: [x-preview] }")));
        let control_plane = ControlPlane::start(directory.path()).unwrap();
        let (port, admin) = (free_port().unwrap(), free_port().unwrap());
        let text = std::fs::read_to_string(repository().join("envoy-config/overlay.yaml")).unwrap();
        let text = [
            ("port_value: 10001", format!("port_value: {}", upstream.address().port())),
            ("port_value: 10000", format!("port_value: {port}")),
            ("port_value: 9901", format!("port_value: {admin}")),
            ("port_value: 18000", format!("port_value: {}", control_plane.xds().port())),
            (ROUTES, OWN_ROUTES.to_owned()),
        ]
        .iter()
        .fold(text, |text, (from, to)| postern_tests::site::replaced(&text, from, to).unwrap());
        let (listeners, bootstrap) = listener_file(&text);
        let file = watched.path().join("listeners.yaml");
        let source = format!(
            "dynamic_resources:\n  lds_config: {{ resource_api_version: V3, path_config_source: {{ path: {}, watched_directory: \
             {{ path: {} }} }} }}\n",
            file.display(),
            watched.path().display()
        );
        let bootstrap = bootstrap.replacen("dynamic_resources:\n", &source, 1);
        write(&watched, "listeners.yaml", &listeners);
        let envoy = Envoy::from_bootstrap_draining_for(&bootstrap, ([127, 0, 0, 1], admin).into(), 1).unwrap();
        let listener = SocketAddr::from(([127, 0, 0, 1], port));
        envoy.wait_until_serving(listener, &Request::get("/welcome")).unwrap();
        // Without a key by way of `preview`, whose chain removes what made Envoy take it.
        let reason = || {
            let before = envoy.access_log_len();
            get(listener, "/a/x", &[("x-preview", "1")]);
            let (line, _) = wait::until("its line in the access log", || Ok(envoy.access_log_line(before))).unwrap();
            line["decision"].as_str().unwrap_or_default().to_owned()
        };
        for (listeners, expect) in [
            (listeners.clone(), "reason=route_changed "),
            (listeners.replace(VERIFY, ""), "reason=route_unverified "),
            (listeners, "reason=route_changed "),
        ] {
            write(&watched, "listeners.yaml", &listeners);
            wait::until_true(expect, || Ok(reason().contains(expect))).unwrap();
        }
    }

    #[test]
    fn edits_what_no_route_matches_on_where_settings_say_so() {
        let settings = "---
apiVersion: postern/v1
kind: Settings
metadata: { name: mesh }
spec: { routeHeaders: [X-Preview] }
";
        let other = policies(&step("headers", "{ set: { x-other: '1' } }")) + settings;
        let overlay = Overlay::start(&other, false);
        check(&overlay, "/a/x", &[("x-preview", "1")], 200, "");
        let matched = policies(&step("headers", "{ remove: [x-preview] }")) + settings;
        let overlay = Overlay::start(&matched, false);
        check(&overlay, "/a/x", &[("x-preview", "1")], 500, "route_unverified");
    }
}
