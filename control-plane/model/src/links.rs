//! Rules across resources: unique names, and references. It checks only resources that are valid by themselves. A
//! RoutePolicy may target a route that no Gateway declares, because Envoys can have routes of their own.

use std::collections::{BTreeMap, BTreeSet};

use postern_base::diagnostic::{Diagnostic, quote, suggestion};

use super::{
    Backend, Bundle, Chains, Gateway, LogBackendRef, LogEntry, Resource, RoutePolicy, STDOUT, Step, TargetRef,
    claims::{collisions, owner, place},
    log_credentials, match_links, outbound_links,
    report::{Lacking, StepKey},
    shared_ports,
};

/// The names of all services, including services that are invalid otherwise.
#[derive(Default)]
pub(super) struct ServiceNames {
    /// Names by mesh.
    names: BTreeMap<String, BTreeSet<String>>,
    /// Whether something could not be read that may be a service. Then unknown services are not reported.
    incomplete: bool,
}

impl ServiceNames {
    pub(super) fn add(&mut self, mesh: &str, name: &str) {
        if !self.names.contains_key(mesh) {
            self.names.insert(mesh.to_owned(), BTreeSet::new());
        }
        if let Some(names) = self.names.get_mut(mesh).filter(|names| !names.contains(name)) {
            names.insert(name.to_owned());
        }
    }

    fn has(&self, mesh: &str, name: &str) -> bool {
        self.names.get(mesh).is_some_and(|names| names.contains(name))
    }

    fn of_mesh<'n>(&'n self, mesh: &str) -> impl Iterator<Item = &'n str> {
        self.names.get(mesh).into_iter().flatten().map(String::as_str)
    }

    /// Notes that there may be services with unknown names.
    pub(super) fn unknown(&mut self) {
        self.incomplete = true;
    }
}

/// Sorts the bundle, removes duplicates, and returns all errors across resources.
pub(super) fn check(bundle: &mut Bundle, services: &ServiceNames) -> Vec<Diagnostic> {
    let mut found = bundle.sort_unique();
    found.extend(one_settings(bundle));
    found.extend(settings_of_all_meshes(bundle));
    found.extend(routes(bundle));
    found.extend(outbound_links::check(bundle));
    found.extend(match_links::check(bundle));
    found.extend(listener_names(bundle));
    found.extend(shared_ports::check(bundle));
    found.extend(envoy_resources(bundle));
    found.extend(services_of_routes(bundle, services));
    found.extend(api_keys(bundle));
    found.extend(hmac_keys(bundle));
    found.extend(usernames(bundle));
    found.extend(log_backend_names(bundle));
    found.extend(log_backends(bundle));
    found.extend(log_credentials::check(bundle));
    found
}

/// The missing parameters of steps that have no other step of their name and policy to merge with. All others are
/// checked when steps are merged.
pub(super) fn unmet(bundle: &Bundle, lacking: Vec<Lacking>) -> Vec<Diagnostic> {
    if lacking.is_empty() {
        return Vec::new();
    }
    let mut declared = BTreeMap::new();
    for step in bundle.route_policies.iter().flat_map(|policy| steps(&policy.spec)) {
        let key = StepKey { name: step.name.clone(), policy: step.policy.clone() };
        *declared.entry(key).or_insert(0_usize) += 1;
    }
    let alone = |lacking: &Lacking| declared.get(&lacking.step).is_none_or(|steps| *steps < 2);
    lacking.into_iter().filter(alone).map(|lacking| lacking.error).collect()
}

fn steps(policy: &RoutePolicy) -> impl Iterator<Item = &Step> {
    let directed = policy.from.iter().chain(&policy.to).map(|entry| &entry.chains);
    [&policy.chains].into_iter().chain(directed).flat_map(|Chains { request, response }| request.iter().chain(response))
}

fn one_settings(bundle: &Bundle) -> Vec<Diagnostic> {
    let claims =
        bundle.settings.iter().map(|settings| (settings.mesh.as_str(), || settings.diagnose("metadata.name", "")));
    collisions(claims.collect(), |_, first| format!("there can be only one, and {} is already declared", owner(first)))
}

/// Reports fields that are set in more than one mesh and apply to all, since there is one history of revisions.
fn settings_of_all_meshes(bundle: &Bundle) -> Vec<Diagnostic> {
    let mut claims = Vec::new();
    for settings in &bundle.settings {
        let said = [("retention", settings.spec.retention.is_some()), ("rollout", settings.spec.rollout.is_some())];
        let said = said.into_iter().filter(|(_, said)| *said);
        claims.extend(said.map(|(field, _)| (field, move || settings.diagnose(&format!("spec.{field}"), ""))));
    }
    collisions(claims, |field, first| format!("{} holds for all meshes, and {} has it", quote(field), owner(first)))
}

fn routes(bundle: &Bundle) -> Vec<Diagnostic> {
    let claims = gateway_items(bundle, "routes", "name", |gateway| {
        gateway.spec.routes.iter().map(|route| route.name.as_str()).collect()
    });
    collisions(claims, |(_, name), first| format!("route {} is already declared by {}", quote(name), owner(first)))
}

fn listener_names(bundle: &Bundle) -> Vec<Diagnostic> {
    let claims = gateway_items(bundle, "listeners", "name", |gateway| {
        gateway.spec.listeners.iter().map(|listener| (gateway.name.as_str(), listener.name.as_str())).collect()
    });
    collisions(claims, |(_, (_, name)), first| {
        format!("listener {} is already declared ({})", quote(name), place(first))
    })
}

fn services_of_routes(bundle: &Bundle, services: &ServiceNames) -> Vec<Diagnostic> {
    if services.incomplete {
        return Vec::new();
    }
    let mut found = Vec::new();
    for gateway in &bundle.gateways {
        for (index, route) in gateway.spec.routes.iter().enumerate() {
            for (rank, Backend { service, .. }) in route.backends.iter().enumerate() {
                if !services.has(&gateway.mesh, service) {
                    let near = suggestion(service, services.of_mesh(&gateway.mesh));
                    let message = format!("unknown service {}{near}", quote(service));
                    found.push(gateway.diagnose(&backend_field(gateway, index, rank), message));
                }
            }
        }
    }
    found
}

/// The path of a route's service: in the route itself, or in its list of services.
fn backend_field(gateway: &Resource<Gateway>, route: usize, rank: usize) -> String {
    let listed = format!("spec.routes[{route}].services[{rank}].service");
    if gateway.has(&listed) { listed } else { format!("spec.routes[{route}].service") }
}

/// Reports names that two resources in Envoy's format share for one target: neither is more specific. Names of generated
/// resources are checked by the snapshot.
fn envoy_resources(bundle: &Bundle) -> Vec<Diagnostic> {
    let claims = bundle.envoy_resources.iter().map(|written| {
        let resource = &written.spec.resource;
        let target = written.spec.target_ref.as_ref().unwrap_or(&TargetRef::Mesh);
        let key = (resource.type_name(), resource.name(), written.mesh(), target);
        (key, || written.diagnose(&resource.name_field(), ""))
    });
    collisions(claims.collect(), |(kind, name, ..), first| {
        format!("{kind} {} is already declared by {} for the same target", quote(name), owner(first))
    })
}

fn api_keys(bundle: &Bundle) -> Vec<Diagnostic> {
    let claims = bundle.consumers.iter().flat_map(|consumer| {
        let keys = consumer.spec.api_keys.iter().enumerate();
        keys.map(move |(index, key)| {
            ((&consumer.mesh, key.sha256), move || consumer.diagnose(&format!("spec.apiKeys[{index}]"), ""))
        })
    });
    collisions(claims.collect(), |_, first| format!("this API key is already that of {}", owner(first)))
}

fn hmac_keys(bundle: &Bundle) -> Vec<Diagnostic> {
    let claims = bundle.consumers.iter().flat_map(|consumer| {
        let keys = consumer.spec.hmac.iter().enumerate();
        keys.map(move |(index, key)| {
            ((&consumer.mesh, key.key_id.as_str()), move || consumer.diagnose(&format!("spec.hmac[{index}].keyId"), ""))
        })
    });
    collisions(claims.collect(), |(_, id), first| format!("HMAC key {} is already that of {}", quote(id), owner(first)))
}

fn usernames(bundle: &Bundle) -> Vec<Diagnostic> {
    let claims = bundle.consumers.iter().filter_map(|consumer| {
        let basic_auth = consumer.spec.basic_auth.as_ref()?;
        Some(((&consumer.mesh, basic_auth.username.as_str()), || consumer.diagnose("spec.basicAuth.username", "")))
    });
    collisions(claims.collect(), |(_, name), first| {
        format!("user name {} is already that of {}", quote(name), owner(first))
    })
}

fn log_backend_names(bundle: &Bundle) -> Vec<Diagnostic> {
    let mut claims = Vec::new();
    for settings in &bundle.settings {
        for (index, backend) in settings.spec.log_backends.iter().enumerate() {
            let at = move || settings.diagnose(&format!("spec.logBackends[{index}].name"), "");
            claims.push((backend.name.as_str(), at));
        }
    }
    let built_in = claims.iter().filter(|(name, _)| *name == STDOUT);
    let built_in = built_in.map(|(_, at)| Diagnostic { message: "`stdout` is always there".to_owned(), ..at() });
    let mut found: Vec<_> = built_in.collect();
    found.extend(collisions(claims, |name, first| {
        format!("log backend {} is already declared ({})", quote(name), place(first))
    }));
    found
}

fn log_backends(bundle: &Bundle) -> Vec<Diagnostic> {
    let declared = bundle.settings.iter().flat_map(|settings| &settings.spec.log_backends);
    let known: BTreeSet<_> = declared.map(|backend| backend.name.as_str()).chain([STDOUT]).collect();
    let mut found = Vec::new();
    for log in &bundle.access_logs {
        let lists: [(&str, &[LogEntry]); 2] = [("to", &log.spec.to), ("from", &log.spec.from)];
        for (list, entries) in lists {
            for (index, entry) in entries.iter().enumerate() {
                for (backend, LogBackendRef { name }) in entry.backends.iter().enumerate() {
                    if !known.contains(name.as_str()) {
                        let field = format!("spec.{list}[{index}].backends[{backend}].name");
                        let near = suggestion(name, known.iter().copied());
                        let message = format!(
                            "unknown log backend {}{near}: Settings declare them in `logBackends`",
                            quote(name)
                        );
                        found.push(log.diagnose(&field, message));
                    }
                }
            }
        }
    }
    found
}

/// The key that each item of a list claims in its gateway's mesh, with an error at `spec.<list>[<index>].<field>`.
fn gateway_items<'b, K>(
    bundle: &'b Bundle,
    list: &'static str,
    field: &'static str,
    keys: impl Fn(&'b Resource<Gateway>) -> Vec<K>,
) -> Vec<((&'b str, K), impl Fn() -> Diagnostic)> {
    let mut claims = Vec::new();
    for gateway in &bundle.gateways {
        for (index, key) in keys(gateway).into_iter().enumerate() {
            let at = move || gateway.diagnose(&format!("spec.{list}[{index}].{field}"), "");
            claims.push(((gateway.mesh.as_str(), key), at));
        }
    }
    claims
}

#[cfg(test)]
mod tests {
    use crate::{File, read};

    /// Reads the texts as files named `0`, `1` and so on, and compares the errors.
    fn check(files: &[&str], expect: &[&str]) {
        let named = files.iter().enumerate();
        let files: Vec<_> =
            named.map(|(index, text)| File { name: index.to_string(), bytes: text.as_bytes().to_vec() }).collect();
        let errors = read(&files).err().map(|errors| errors.to_string()).unwrap_or_default();
        assert_eq!(errors.lines().collect::<Vec<_>>(), expect);
    }

    fn document(kind: &str, name: &str, spec: &str) -> String {
        format!("---\napiVersion: postern/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n")
    }

    fn service(name: &str) -> String {
        document("Service", name, "{endpoints: [{address: 127.0.0.1, port: 80}]}")
    }

    fn gateway(name: &str, port: u16, route: &str, service: &str) -> String {
        let listeners = format!("[{{name: http, port: {port}}}]");
        document(
            "Gateway",
            name,
            &format!("{{listeners: {listeners}, routes: [{{name: {route}, service: {service}}}]}}"),
        )
    }

    fn policy(name: &str, route: &str) -> String {
        let target = format!("{{kind: HTTPRoute, name: {route}}}");
        document("RoutePolicy", name, &format!("{{targetRef: {target}, request: [{{policy: headers}}]}}"))
    }

    #[test]
    fn refuses_a_second_resource_of_one_kind_and_name() {
        check(
            &[&service("a"), &format!("{}{}", service("b"), service("a"))],
            &["1:9:18: Service `a`: metadata.name: Service `a` is already declared (0:4)"],
        );
        check(&[&service("a"), &gateway("a", 80, "r", "a")], &[]);
    }

    #[test]
    fn reports_a_copied_resource_once() {
        let gateway = gateway("edge", 80, "r", "a");
        check(
            &[&service("a"), &gateway, &gateway],
            &["2:4:18: Gateway `edge`: metadata.name: Gateway `edge` is already declared (1:4)"],
        );
    }

    #[test]
    fn refuses_a_second_route_of_one_name_in_any_gateway() {
        check(
            &[&service("s"), &gateway("z", 80, "users", "s"), &gateway("a", 81, "users", "s")],
            &["2:5:61: Gateway `a`: spec.routes[0].name: route `users` is already declared by Gateway `z` (1:5)"],
        );
    }

    #[test]
    fn refuses_a_second_listener_of_one_name_in_a_gateway() {
        let gateway = document(
            "Gateway",
            "edge",
            "{listeners: [{name: a, port: 80},\n {name: a, port: 81}], routes: [{name: r, service: s}]}",
        );
        check(
            &[&service("s"), &gateway],
            &["1:6:9: Gateway `edge`: spec.listeners[1].name: listener `a` is already declared (1:5)"],
        );
        let other = self::gateway("other", 90, "r", "s");
        check(&[&service("s"), &self::gateway("edge", 80, "q", "s"), &other], &[]);
    }

    #[test]
    fn refuses_a_second_listener_of_one_address() {
        let other = document(
            "Gateway",
            "other",
            "{listeners: [{name: x, address: 127.0.0.1, port: 80}, {name: y, address: '::1', port: 80}],\n \
             routes: [{name: r2, service: s}]}",
        );
        check(
            &[&service("s"), &gateway("edge", 80, "r1", "s"), &other],
            &[
                "2:5:56: Gateway `other`: spec.listeners[0].port: `127.0.0.1:80` is already used by Gateway `edge` (1:5): \
                 only listeners that all have `tls` can share a port",
            ],
        );
    }

    #[test]
    fn refuses_a_route_to_a_service_that_does_not_exist() {
        let place = "1:5:73: Gateway `edge`: spec.routes[0].service";
        let near = format!("{place}: unknown service `usres`: did you mean `users`?");
        check(&[&service("users"), &gateway("edge", 80, "r", "usres")], &[&near]);
        let far = format!("{place}: unknown service `orders`");
        check(&[&service("users"), &gateway("edge", 80, "r", "orders")], &[&far]);
    }

    #[test]
    fn takes_a_service_that_is_wrong_otherwise_as_declared() {
        check(
            &[&document("Service", "users", "{endpoints: []}"), &gateway("edge", 80, "r", "users")],
            &["0:5:19: Service `users`: spec.endpoints: expected at least 1 item, found 0"],
        );
    }

    #[test]
    fn misses_no_service_while_something_could_not_be_read() {
        check(
            &["{", &gateway("edge", 80, "r", "users")],
            &["0:2:1: not valid YAML: while parsing a node, did not find expected node content"],
        );
        let mistyped = service("users").replace("kind: Service", "kind: Servce");
        check(
            &[&mistyped, &gateway("edge", 80, "r", "users")],
            &["0:3:7: kind: unknown kind `Servce`: did you mean `Service`?"],
        );
    }

    #[test]
    fn refuses_an_api_key_of_two_consumers() {
        let digest = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";
        let by_digest = document("Consumer", "bob", &format!("{{apiKeys: [{{key: b}}, {{sha256: {digest}}}]}}"));
        check(
            &[&document("Consumer", "alice", "{apiKeys: [{key: a}]}"), &by_digest],
            &["1:5:28: Consumer `bob`: spec.apiKeys[1]: this API key is already that of Consumer `alice` (0:5)"],
        );
    }

    #[test]
    fn refuses_a_user_name_of_two_consumers() {
        let user = "{basicAuth: {username: a, password: b}}";
        check(
            &[&document("Consumer", "alice", user), &document("Consumer", "bob", user)],
            &[
                "1:5:30: Consumer `bob`: spec.basicAuth.username: user name `a` is already that of Consumer `alice` (0:5)",
            ],
        );
    }

    #[test]
    fn takes_what_a_step_lacks_if_another_of_its_name_may_bring_it() {
        let policy = |name: &str, params: &str, step: &str| {
            let step = format!("{{name: {step}, policy: rateLimit, params: {params}}}");
            document("RoutePolicy", name, &format!("{{targetRef: {{kind: Mesh}}, request: [{step}]}}"))
        };
        let (whole, part) = ("{requests: 5, per: 1s}", "{burst: 7}");
        let missing = |at: &str, field: &str| {
            format!("{at} RoutePolicy `b`: spec.request[0].params.{field}: missing required field `{field}`")
        };
        check(&[&policy("a", whole, "limit"), &policy("b", part, "limit")], &[]);
        check(
            &[&policy("a", whole, "limit"), &policy("b", part, "other")],
            &[&missing("1:5:84:", "per"), &missing("1:5:84:", "requests")],
        );
    }

    #[test]
    fn refuses_log_backends_that_nobody_declares() {
        let log = |backend: &str| {
            let entry = format!("{{targetRef: {{kind: Mesh}}, backends: [{{name: {backend}}}]}}");
            document("AccessLog", "l", &format!("{{targetRef: {{kind: Mesh}}, from: [{entry}]}}"))
        };
        let settings = document("Settings", "s", "{logBackends: [{name: audit, file: {path: /var/log/a}}]}");
        check(&[&log("stdout"), &settings], &[]);
        check(&[&log("audit"), &settings], &[]);
        check(
            &[&log("audits"), &settings],
            &[
                "0:5:84: AccessLog `l`: spec.from[0].backends[0].name: unknown log backend `audits`: did you mean `audit`?: \
               Settings declare them in `logBackends`",
            ],
        );
        let twice = document(
            "Settings",
            "s",
            "{logBackends: [{name: a, file: {path: /a}}, {name: a, file: {path: /b}},\n {name: stdout, file: {path: /c}}]}",
        );
        check(
            &[&twice],
            &[
                "0:5:58: Settings `s`: spec.logBackends[1].name: log backend `a` is already declared (0:5)",
                "0:6:9: Settings `s`: spec.logBackends[2].name: `stdout` is always there",
            ],
        );
    }

    #[test]
    fn accepts_a_policy_for_a_route_that_no_gateway_declares() {
        check(&[&policy("x", "elsewhere")], &[]);
    }

    /// The document in another mesh.
    fn in_mesh(mesh: &str, document: &str) -> String {
        document.replace("metadata: {", &format!("metadata: {{mesh: {mesh}, "))
    }

    #[test]
    fn lets_every_mesh_have_the_same_names() {
        let user = document("Consumer", "alice", "{apiKeys: [{key: a}], basicAuth: {username: a, password: b}}");
        let settings = document("Settings", "all", "{}");
        let all = [service("s"), gateway("edge", 80, "r", "s"), policy("p", "r"), user, settings].concat();
        check(&[&all, &in_mesh("other", &all)], &[]);
        let place = "1:4:31: Settings `all`: metadata.name: Settings `all` is already declared (0:4)";
        let settings = in_mesh("other", &document("Settings", "all", "{}"));
        check(&[&settings, &settings], &[place]);
    }

    #[test]
    fn allows_one_settings_a_mesh() {
        let settings = |name: &str| document("Settings", name, "{}");
        let place = "1:4:18: Settings `b`: metadata.name";
        check(
            &[&settings("a"), &settings("b"), &in_mesh("other", &settings("c"))],
            &[&format!("{place}: there can be only one, and Settings `a` (0:4) is already declared")],
        );
    }

    #[test]
    fn lets_one_mesh_say_what_holds_for_all() {
        let settings = document("Settings", "a", "{retention: {revisions: 3}, rollout: {steps: []}, logSampling: 5}");
        let other = in_mesh("other", &document("Settings", "b", "{rollout: {steps: []}, logSampling: 5}"));
        let place = "1:5:17: Settings `b`: spec.rollout";
        check(
            &[&settings, &other],
            &[&format!("{place}: `rollout` holds for all meshes, and Settings `a` (0:5) has it")],
        );
    }

    #[test]
    fn refuses_a_route_to_a_service_of_another_mesh() {
        check(
            &[&in_mesh("other", &service("users")), &gateway("edge", 80, "r", "users")],
            &["1:5:73: Gateway `edge`: spec.routes[0].service: unknown service `users`"],
        );
    }

    #[test]
    fn misses_no_service_of_a_mesh_that_could_not_be_read() {
        check(
            &[&in_mesh("7", &service("users")), &gateway("edge", 80, "r", "users")],
            &["0:4:18: Service `users`: metadata.mesh: expected a string, found a number: put it in quotes"],
        );
    }

    #[test]
    fn wants_the_name_of_a_mesh() {
        check(
            &[&in_mesh("'a b'", &service("users"))],
            &[
                "0:4:18: Service `users`: metadata.mesh: expected a name of at most 253 letters, digits, `.`, `_` and `-` \
               that starts with a letter or digit, found `a b`",
            ],
        );
    }
}
