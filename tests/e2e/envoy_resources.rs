//! Resources of Envoy that users wrote word for word, beside those that are generated.

use postern_tests::{Client, ControlPlane, Envoy, Site, Upstream, site::free_port, wait};

use crate::world::{KEY, users, users_with};

/// A listener, its routes, their cluster and its endpoints, none of which `Gateway` or `Service` could say so.
fn resources(listener: u16, upstream: u16, header: &str) -> String {
    format!(
        r#"
apiVersion: postern/v1
kind: EnvoyResource
metadata: {{ name: listener }}
spec:
  resource:
    "@type": type.googleapis.com/envoy.config.listener.v3.Listener
    name: raw
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: {listener} }} }}
    filter_chains:
      - filters:
          - name: envoy.filters.network.http_connection_manager
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
              stat_prefix: raw
              stream_idle_timeout: 12.5s
              rds: {{ route_config_name: raw-routes, config_source: {{ ads: {{}}, resource_api_version: V3 }} }}
              http_filters:
                - name: postern
                  config_discovery:
                    config_source: {{ ads: {{}}, resource_api_version: V3 }}
                    type_urls: [type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm]
                - name: envoy.filters.http.header_mutation
                  typed_config:
                    "@type": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation
                - name: postern-verify
                  config_discovery:
                    config_source: {{ ads: {{}}, resource_api_version: V3 }}
                    type_urls: [type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm]
                - name: envoy.filters.http.router
                  typed_config:
                    "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
---
apiVersion: postern/v1
kind: EnvoyResource
metadata: {{ name: routes }}
spec:
  resource:
    "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
    name: raw-routes
    response_headers_to_add:
      - header: {{ key: x-raw, value: {header} }}
    virtual_hosts:
      - name: all
        domains: ["*"]
        metadata: {{ filter_metadata: {{ team: {{ name: edge, floors: [1, 2] }} }} }}
        routes:
          - name: users
            match: {{ path_separated_prefix: /users }}
            route: {{ cluster: raw-cluster }}
          - match: {{ prefix: / }}
            route: {{ cluster: raw-cluster }}
---
apiVersion: postern/v1
kind: EnvoyResource
metadata: {{ name: cluster }}
spec:
  resource:
    "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
    name: raw-cluster
    type: EDS
    connect_timeout: 1s
    eds_cluster_config: {{ service_name: raw-endpoints, eds_config: {{ ads: {{}}, resource_api_version: V3 }} }}
---
apiVersion: postern/v1
kind: EnvoyResource
metadata: {{ name: endpoints }}
spec:
  resource:
    "@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
    cluster_name: raw-endpoints
    endpoints:
      - lb_endpoints:
          - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {upstream} }} }} }}
"#
    )
}

#[test]
fn raw_resources_serve_requests_beside_generated_ones() {
    let directory = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(0).unwrap();
    let site = Site::quickstart(directory.path().join("policies"), upstream.address(), 0).unwrap();
    let listener = free_port().unwrap();
    site.write("raw.yaml", &resources(listener, upstream.address().port(), "first")).unwrap();
    let control_plane = ControlPlane::start(site.directory()).unwrap();
    let envoy = Envoy::whole(control_plane.xds()).unwrap();
    let mut raw = Client::new(([127, 0, 0, 1], listener).into());
    wait::until_true("the raw listener to serve", || Ok(raw.get("/any")?.header("x-raw") == Some("first"))).unwrap();
    let mut generated = Client::new(site.listener());
    wait::until_true("the gateway to serve", || Ok(generated.send(&users_with(KEY))?.status == 200)).unwrap();
    // Policies find a route by its name, whoever wrote it.
    assert_eq!(raw.send(&users()).unwrap().status, 401);
    assert_eq!(raw.send(&users_with(KEY)).unwrap().echoed("x-guarded-by"), ["postern"]);

    // A change is in force as any other is.
    site.replace("raw.yaml", "value: first", "value: second").unwrap();
    wait::until_true("the change", || Ok(raw.get("/any")?.header("x-raw") == Some("second"))).unwrap();
    // A cluster that changes while its endpoints do not is not left warming.
    site.replace("raw.yaml", "connect_timeout: 1s", "connect_timeout: 2s").unwrap();
    wait::until_true("the changed cluster", || {
        let dump = Client::new(envoy.admin()).get("/config_dump?resource=dynamic_active_clusters")?.body;
        Ok(dump.contains("\"connect_timeout\": \"2s\""))
    })
    .unwrap();
    assert_eq!(envoy.stat("cluster_manager.warming_clusters").unwrap(), Some(0));
    assert_eq!(raw.get("/any").unwrap().status, 200);

    // One that clashes with a generated one is refused, with both places.
    site.replace("raw.yaml", "name: raw-cluster\n", "name: backend\n").unwrap();
    let status = control_plane.wait_for_status("the refusal", |status| status["refusedChange"].is_array()).unwrap();
    let refused = status["refusedChange"][0].as_str().unwrap();
    let clash =
        "EnvoyResource `cluster`: spec.resource.name: Cluster `backend` is already generated for Service `backend` (";
    assert!(refused.contains("raw.yaml:") && refused.contains(clash), "{refused}");
    assert_eq!(raw.get("/any").unwrap().status, 200);
}

/// The matching document's example: a proxy does not get what its service adds.
#[test]
fn a_proxy_omits_what_its_service_adds() {
    let cluster = |name: &str, target: &str, rest: &str| {
        format!(
            "---\napiVersion: postern/v1\nkind: EnvoyResource\nmetadata: {{ name: {name} }}\nspec:\n  targetRef: {target}\n{rest}  \
             resource:\n    \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\n    name: test-cluster\n"
        )
    };
    let added = cluster("pt-1", "{ kind: Service, name: edge }", "") + "    type: STATIC\n    connect_timeout: 5s\n";
    let omitted = cluster("pt-2", "{ kind: Proxy, name: special }", "  omit: true\n");
    let directory = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(0).unwrap();
    let site = Site::quickstart(directory.path().join("policies"), upstream.address(), 0).unwrap();
    site.write("raw.yaml", &added).unwrap();
    let control_plane = ControlPlane::start(site.directory()).unwrap();
    // Two Envoys on one machine cannot both have the gateway's port, and need not serve requests here.
    let envoys = [("id: edge-1", "id: plain"), ("id: edge-1", "id: special")]
        .map(|id| Envoy::start("whole.yaml", control_plane.xds(), &[id]).unwrap());
    let has = |envoy: &Envoy| {
        let dump = Client::new(envoy.admin()).get("/config_dump?resource=dynamic_active_clusters")?.body;
        Ok::<_, anyhow::Error>((dump.contains("\"backend\""), dump.contains("\"test-cluster\"")))
    };
    for envoy in &envoys {
        wait::until_true("the added cluster", || Ok(has(envoy)? == (true, true))).unwrap();
    }
    site.write("special.yaml", &omitted).unwrap();
    wait::until_true("the cluster to go", || Ok(has(&envoys[1])? == (true, false))).unwrap();
    assert_eq!(has(&envoys[0]).unwrap(), (true, true));
    // A more specific one replaces it.
    site.write(
        "special.yaml",
        &(omitted.replace("  omit: true\n", "") + "    type: STATIC\n    connect_timeout: 7s\n"),
    )
    .unwrap();
    wait::until_true("the other cluster", || {
        let dump = Client::new(envoys[1].admin()).get("/config_dump?resource=dynamic_active_clusters")?.body;
        Ok(dump.contains("\"connect_timeout\": \"7s\""))
    })
    .unwrap();
}
