//! A real Envoy with a stream for each type and no aggregated one: what is generated names the source that it came by.

use postern_tests::{ControlPlane, Envoy, Site, Upstream, site::repository};

use crate::streamless;

/// A bootstrap that names the same cluster for each type, under another name than our own bootstraps give it.
fn bootstrap(api_type: &str, xds: u16, admin: u16) -> String {
    let text = std::fs::read_to_string(repository().join("envoy-config/whole.yaml")).unwrap();
    let source = format!(
        "{{ resource_api_version: V3, api_config_source: {{ api_type: {api_type}, transport_api_version: V3, grpc_services: \
         [{{ envoy_grpc: {{ cluster_name: control-plane }} }}] }} }}"
    );
    let (head, rest) = text.split_once("  ads_config:\n").unwrap();
    let (_, tail) = rest.split_once("  cds_config:").unwrap();
    [head, "  cds_config:", tail]
        .concat()
        .replace("{ ads: {}, resource_api_version: V3 }", &source)
        .replace("name: postern\n", "name: control-plane\n")
        .replace("port_value: 18000", &format!("port_value: {xds}"))
        .replace("port_value: 9901", &format!("port_value: {admin}"))
}

#[test]
fn an_envoy_with_a_stream_for_each_type_gets_everything_and_follows_changes() {
    for api_type in ["GRPC", "DELTA_GRPC"] {
        let directory = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(0).unwrap();
        let site = Site::quickstart(directory.path().join("policies"), upstream.address(), 0).unwrap();
        let control_plane = ControlPlane::start(site.directory()).unwrap();
        let admin = postern_tests::site::free_port().unwrap();
        let text = bootstrap(api_type, control_plane.xds().port(), admin);
        assert!(!text.contains("ads"), "{text}");
        let envoy = Envoy::from_bootstrap(&text, ([127, 0, 0, 1], admin).into()).unwrap();
        streamless::check_that_it_follows(&envoy, &site, &upstream);
        // Every type is acknowledged, and the node as a whole runs the revision.
        let settled = |status: &serde_json::Value| {
            let node = &status["nodes"][0];
            node["types"].as_object().is_some_and(|types| types.len() >= 5)
                && node["revision"].is_string()
                && status["rollout"]["state"] == "completed"
        };
        let status = control_plane.wait_for_status("all types", settled).unwrap();
        assert_eq!(status["nodes"].as_array().unwrap().len(), 1, "{status}");
    }
}
