//! Which revision each node is reported to run, while revisions spread over nodes that get different parts of them.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use postern::control_plane::ControlPlane;
use postern_base::{digest::Digest, node::NodeIdentity};
use postern_compile::snapshot::FilterCode;
use postern_deliver::xds::session::Event;
use postern_model::File;
use postern_release::{
    fleet::Learnt,
    publication::Publication,
    releases::{Proposal, Releases},
    rollout::{Pick, State, Step, Strategy},
    store::{Memory, Parent},
};

/// A control plane without sockets, with simulated nodes.
struct World {
    plane: ControlPlane,
    nodes: Vec<(NodeIdentity, u64)>,
}

impl World {
    fn new(strategy: Strategy) -> Self {
        let releases = Releases::new(Arc::new(Memory::default()), strategy, 20);
        Self {
            plane: ControlPlane::with_releases(FilterCode::new(b"code".to_vec(), None), releases),
            nodes: Vec::new(),
        }
    }

    fn join(&mut self, id: &str, service: &str) {
        let (id, service) = (id.to_owned(), service.to_owned());
        let node = NodeIdentity { id, service, ..NodeIdentity::default() };
        let stream = self.plane.fleet().connect(&node, SystemTime::now()).stream;
        self.nodes.push((node, stream));
    }

    /// One policy for every service.
    fn apply(&self, value: &str) {
        let policy = |service: &str| {
            format!(
                "apiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: {service} }}\nspec:\n  \
                 targetRef: {{ kind: Service, name: {service} }}\n  request:\n    \
                 - {{ policy: headers, params: {{ set: {{ x-test: {value}-{service} }} }} }}\n"
            )
        };
        let text = ["web", "orders"].map(policy).join("---\n");
        let files = vec![File { name: "p.yaml".to_owned(), bytes: text.into_bytes() }];
        let (author, message) = ("alice".to_owned(), String::new());
        self.plane
            .commands()
            .apply(Proposal {
                files,
                author,
                message,
                parent: Parent::Latest,
                again: false,
                allow_unguarded: false,
                ..Proposal::default()
            })
            .wait()
            .unwrap();
    }

    fn publication(&self) -> Arc<Publication> {
        self.plane.publications().latest().unwrap()
    }

    /// Lets a node accept all that it is served now.
    fn accept(&self, id: &str) {
        let (node, stream) = self.nodes.iter().find(|(node, _)| node.id == id).unwrap();
        let revision = self.publication().release_for(node).revision().clone();
        let learnt = Learnt { events: vec![Event::Settled { revision }], reason: None };
        self.plane.fleet().record(id, *stream, learnt, SystemTime::now());
    }

    fn look(&self) -> State {
        self.plane.commands().look().wait().unwrap();
        self.plane.in_force().rollout_report().unwrap().state
    }

    /// The revision that a node runs, by its report.
    fn runs(&self, id: &str) -> Option<Digest> {
        self.plane.fleet().report().into_iter().find(|node| node.id == id).unwrap().revision
    }
}

#[test]
fn a_revision_is_complete_when_each_node_runs_the_part_that_concerns_it() {
    let mut world = World::new(Strategy::AllAtOnce);
    world.join("edge-1", "web");
    world.join("edge-2", "orders");
    world.apply("one");
    let parts: Vec<_> = world.nodes.iter().map(|(node, _)| world.publication().snapshot_for(node)).collect();
    assert_ne!(parts[0].revision(), parts[1].revision(), "they get different parts");
    world.accept("edge-1");
    assert_eq!(world.look(), State::Progressing);
    world.accept("edge-2");
    assert_eq!(world.look(), State::Completed);
    assert_eq!(world.runs("edge-1").as_ref(), Some(world.publication().revision()));
}

#[test]
fn a_node_that_a_canary_leaves_out_is_not_said_to_run_it() {
    let step = Step { nodes: Pick::Share(50), pause: Duration::ZERO };
    let mut world = World::new(Strategy::Canary(vec![step]));
    world.join("edge-1", "web");
    world.join("edge-2", "web");
    let both = |world: &World| ["edge-1", "edge-2"].iter().for_each(|id| world.accept(id));
    world.apply("one");
    both(&world);
    assert_eq!(world.look(), State::Completed);
    let first = world.publication().revision().clone();

    world.apply("two");
    assert_eq!(world.look(), State::Progressing);
    both(&world);
    let second = world.publication().revision().clone();
    let mut runs = ["edge-1", "edge-2"].map(|id| world.runs(id).unwrap());
    let mut expect = [first, second.clone()];
    runs.sort();
    expect.sort();
    assert_eq!(runs, expect);
    // The next step is for both of them, and one has still to answer.
    assert_eq!(world.look(), State::Progressing);
    assert_eq!(world.look(), State::Progressing, "nobody answered since");
    both(&world);
    assert_eq!(world.look(), State::Completed);
    assert_eq!(["edge-1", "edge-2"].map(|id| world.runs(id).unwrap()), [second.clone(), second]);
}

#[test]
fn streams_are_not_told_of_a_rollout_that_ends_where_they_are() {
    let mut world = World::new(Strategy::AllAtOnce);
    world.join("edge-1", "web");
    let mut publications = world.plane.publications().follow();
    let mut told = || {
        let told = publications.has_changed().unwrap();
        publications.mark_unchanged();
        told
    };
    world.apply("one");
    assert!(told());
    world.accept("edge-1");
    assert_eq!(world.look(), State::Completed);
    assert!(!told(), "there is nothing new for anybody");
    world.apply("two");
    assert!(told());
    // A node that connects now gets it, too.
    world.join("edge-2", "web");
    for id in ["edge-1", "edge-2"] {
        world.accept(id);
    }
    assert_eq!(world.look(), State::Completed);
    assert!(!told());
}
