//! The control plane's memory does not grow, whether clients come and go or many changes follow each other.

use std::{ffi::OsStr, fmt::Write as _, net::SocketAddr, thread, time::Duration};

use envoy_types::pb::envoy::{
    config::core::v3::Node,
    service::discovery::v3::{
        DiscoveryRequest, DiscoveryResponse, aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
    },
};
use postern_base::digest::Digest;
use postern_compile::snapshot::ResourceType;
use postern_tests::{ControlPlane, Site, Upstream, wait};
use tokio::runtime::Runtime;
use tokio_stream::StreamExt;
use tonic::{Streaming, transport::Channel};

/// How many clients come and go at once: enough that what they left behind would show.
const CLIENTS: usize = 400;

/// The number of clients: that of `POSTERN_CLIENTS`, if it is set. Thousands need a higher limit of open files.
fn clients() -> usize {
    std::env::var("POSTERN_CLIENTS").map_or(CLIENTS, |clients| clients.parse().expect("POSTERN_CLIENTS is a number"))
}

#[test]
fn case_40_clients_that_vanish_leave_no_memory_behind() {
    let directory = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(0).unwrap();
    let site = Site::quickstart(directory.path(), upstream.address(), 0).unwrap();
    let options = ["--xds-keep-nodes", "1"].map(OsStr::new);
    let control_plane = ControlPlane::start_with(site.directory(), &options).unwrap();
    let before = settled(control_plane.id());
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let runtime = Runtime::new().unwrap();
        let streams = runtime.block_on(open_streams(control_plane.xds()));
        with.push(resident(control_plane.id()));
        // They say no good-bye: their connections end.
        runtime.shutdown_background();
        drop(streams);
        let forgotten = |status: &serde_json::Value| status["nodes"].as_array().is_some_and(Vec::is_empty);
        control_plane.wait_for_status("all to be forgotten", forgotten).unwrap();
        without.push(resident(control_plane.id()));
    }
    let clients = clients();
    println!("{clients} clients, five times: {before} kB before, {with:?} kB with them, {without:?} kB after them");
    let wave = with[0].saturating_sub(before);
    let grown = with[4].saturating_sub(with[1]);
    assert!(grown < wave, "three more times {clients} clients took {grown} kB more; once they cost {wave} kB");
    // What is free is given back some seconds later. What happened is remembered, up to a few thousand happenings: that is
    // the same after any number of clients, so that it counts among hundreds, and not among thousands.
    let most = if clients > CLIENTS { wave / 8 } else { wave };
    let given_back = || with[4].saturating_sub(resident(control_plane.id()));
    let left = || resident(control_plane.id()).saturating_sub(before);
    let waited = wait::until_true("memory to be given back", || Ok(given_back() > wave / 4 && left() < most));
    println!("{} kB are given back, {} kB are left after {waited:?}", given_back(), left());
    assert!(waited.is_ok(), "five times {clients} clients left {} kB behind; once they cost {wave} kB", left());
}

/// Opens this number of aggregated streams, each with a connection and a node of its own, and waits until each has its
/// clusters.
async fn open_streams(xds: SocketAddr) -> Vec<(Channel, Streaming<DiscoveryResponse>)> {
    let mut streams = Vec::new();
    for number in 0..clients() {
        let channel = Channel::from_shared(format!("http://{xds}")).unwrap().connect().await.unwrap();
        let node = Some(Node { id: format!("node-{number}"), ..Default::default() });
        let type_url = ResourceType::Cluster.type_url().to_owned();
        let request = DiscoveryRequest { node, type_url, ..Default::default() };
        let requests = tokio_stream::iter([request]).chain(tokio_stream::pending());
        let mut client = AggregatedDiscoveryServiceClient::new(channel.clone());
        let mut responses = client.stream_aggregated_resources(requests).await.unwrap().into_inner();
        responses.message().await.unwrap().unwrap();
        streams.push((channel, responses));
    }
    streams
}

/// The memory that a process uses once it has freed what it needed to start, which takes ten seconds.
fn settled(process: u32) -> u64 {
    let mut last = resident(process);
    let mut equal = 0;
    for _ in 0..60 {
        thread::sleep(Duration::from_millis(500));
        let now = resident(process);
        equal = if last.abs_diff(now) < last / 100 { equal + 1 } else { 0 };
        last = now;
        if equal == 6 {
            break;
        }
    }
    last
}

/// The memory that a process uses, in kB, without mapped files such as its own code.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// How many consumers there are while changes follow each other, and how many changes: more than revisions are kept.
const CONSUMERS: usize = 4_000;
const CHANGES: usize = 24;

#[test]
fn changes_that_follow_each_other_leave_no_memory_behind() {
    let directory = tempfile::tempdir().unwrap();
    let state = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(0).unwrap();
    let site = Site::quickstart(directory.path(), upstream.address(), 0).unwrap();
    let many: String = (0..CONSUMERS).fold(String::new(), |text, number| text + &consumer(&format!("many-{number}")));
    site.write("many.yaml", &many).unwrap();
    for options in [vec![], vec![OsStr::new("--state"), state.path().as_os_str()]] {
        site.write("one.yaml", &consumer("first")).unwrap();
        let control_plane = ControlPlane::start_with(site.directory(), &options).unwrap();
        let before = settled(control_plane.id());
        let mut most = before;
        for change in 0..CHANGES {
            let earlier = control_plane.wait_for_status("a revision", |status| status["revision"].is_string()).unwrap();
            site.write("one.yaml", &consumer(&format!("change-{change}"))).unwrap();
            let followed = |status: &serde_json::Value| status["revision"] != earlier["revision"];
            control_plane.wait_for_status("the next revision", followed).unwrap();
            most = most.max(resident(control_plane.id()));
        }
        // The revisions that are kept differ by one consumer. Room for a change under way is given back seconds later.
        let waited = wait::until_true("memory to be given back", || Ok(resident(control_plane.id()) < before * 3 / 2));
        let after = resident(control_plane.id());
        println!(
            "{options:?}: {before} kB before, {most} kB while {CHANGES} changes came, {after} kB after {waited:?}"
        );
        assert!(waited.is_ok(), "{options:?}: {CHANGES} changes left {after} kB; there were {before} kB before them");
    }
}

/// A consumer whose key is its name.
fn consumer(name: &str) -> String {
    let mut text = String::from("---\napiVersion: postern/v1\nkind: Consumer\n");
    let key = Digest::of(name.as_bytes());
    write!(text, "metadata: {{ name: {name} }}\nspec: {{ apiKeys: [{{ sha256: \"{key}\" }}] }}\n").unwrap();
    text
}
