//! The policy lifecycle document (docs/rules.md, Lifecycle), step by step: its controller and leader are admission and
//! the gate here, its replicas are nodes.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use postern_base::{digest::Digest, node::NodeIdentity};
use postern_compile::{
    gate::Gate,
    keys::KeySets,
    pipeline::{CompileError, compile_bundle},
    revision::revision,
    snapshot::{FilterCode, ResourceType, Selection, Snapshot},
    wasm::{Filter, Limits},
};
use postern_model::{Bundle, File};
use postern_release::{
    catalogue::ResourceKey,
    condition::{ConditionType, Truth},
    fleet::{Nack, Sighting},
    publication::Publication,
    releases::{Admission, Applied, ApplyError, PlanUse, Proposal, Releases, RevisionState},
    rollout::{DEPARTED, State, Strategy},
    store::{Memory, Parent, Store},
};

/// The control plane's own admission, on the engine's gate or another.
struct OwnAdmission(FilterCode);

impl OwnAdmission {
    fn new() -> Self {
        Self(FilterCode::new(b"code".to_vec(), None))
    }

    /// A filter that refuses every plan.
    fn that_refuses(reason: &str) -> Self {
        let size = reason.len();
        let text = format!(
            r#"(module
  (import "env" "proxy_log" (func $log (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 1024) "{reason}")
  (func (export "malloc") (param i32) (result i32) (i32.const 8192))
  (func (export "proxy_abi_version_0_2_1"))
  (func (export "proxy_on_configure") (param i32 i32) (result i32)
    (drop (call $log (i32.const 4) (i32.const 1024) (i32.const {size}))) (i32.const 0)))"#
        );
        let filter = Filter::compile(&wat::parse_str(text).unwrap()).unwrap();
        Self(FilterCode::new(b"code".to_vec(), None).gated(Gate::of_filter(filter, Limits::default())))
    }
}

impl Admission for OwnAdmission {
    fn admit(&self, bundle: &Bundle) -> Result<Publication, CompileError> {
        compile_bundle(bundle, &KeySets::default(), &self.0).map(Publication::uniform)
    }

    fn digest(&self, bundle: &Bundle) -> Digest {
        revision(bundle, &KeySets::default(), self.0.digest())
    }
}

/// Releases with simulated nodes.
struct World {
    releases: Releases,
    line: OwnAdmission,
    nodes: BTreeMap<String, Sighting>,
    clock: u64,
}

const RESOURCE: &str = "RoutePolicy `users`";

fn policy(value: &str) -> Vec<File> {
    let text = format!(
        "apiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: users }}\nspec:\n  \
         targetRef: {{ kind: HTTPRoute, name: users }}\n  request:\n    \
         - {{ policy: headers, params: {{ set: {{ x-test: {value} }} }} }}\n"
    );
    vec![File { name: "p.yaml".to_owned(), bytes: text.into_bytes() }]
}

fn proposal(value: &str) -> Proposal {
    Proposal {
        files: policy(value),
        author: "alice".to_owned(),
        message: format!("x-test is {value}"),
        parent: Parent::Latest,
        again: false,
        allow_unguarded: false,
        ..Proposal::default()
    }
}

impl World {
    fn new() -> Self {
        Self::on(Arc::new(Memory::default()), 20)
    }

    fn on(store: Arc<dyn Store>, keep: usize) -> Self {
        let releases = Releases::new(store, Strategy::AllAtOnce, keep);
        Self { releases, line: OwnAdmission::new(), nodes: BTreeMap::new(), clock: 0 }
    }

    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.clock)
    }

    fn apply(&mut self, value: &str) -> Result<u64, ApplyError> {
        self.propose(proposal(value))
    }

    /// Applies the policy together with settings.
    fn apply_with(&mut self, value: &str, settings: &str) -> Result<u64, ApplyError> {
        let mut proposal = proposal(value);
        let text = format!("apiVersion: postern/v1\nkind: Settings\nmetadata: {{ name: s }}\nspec: {settings}\n");
        proposal.files.push(File { name: "s.yaml".to_owned(), bytes: text.into_bytes() });
        self.propose(proposal)
    }

    fn propose(&mut self, proposal: Proposal) -> Result<u64, ApplyError> {
        match self.releases.apply(proposal, &self.line, self.now())? {
            Applied::Revision(revision) => Ok(revision.number),
            Applied::Unchanged(revision) => panic!("revision {} says the same", revision.number),
        }
    }

    fn join(&mut self, id: &str) {
        let (owned, service) = (id.to_owned(), "edge".to_owned());
        let node = Arc::new(NodeIdentity { id: owned, service, ..NodeIdentity::default() });
        let (connected, unsupported, revision, refused, refused_policies) = (true, false, None, Vec::new(), None);
        let sighting = Sighting { node, connected, unsupported, revision, refused, refused_policies };
        self.nodes.insert(id.to_owned(), sighting);
    }

    fn leave(&mut self, id: &str) {
        self.nodes.get_mut(id).unwrap().connected = false;
    }

    /// The snapshot that a node is served now.
    fn snapshot(&self, id: &str) -> Arc<Snapshot> {
        let node = NodeIdentity { id: id.to_owned(), ..NodeIdentity::default() };
        self.releases.publication().unwrap().snapshot_for(&node)
    }

    /// The version of the node's plan.
    fn offered(&self, id: &str) -> Digest {
        self.snapshot(id).select(ResourceType::ExtensionConfig, &Selection::Everything).version
    }

    fn ack(&mut self, id: &str) {
        let revision = self.snapshot(id).revision().clone();
        let node = self.nodes.get_mut(id).unwrap();
        (node.revision, node.refused) = (Some(revision), Vec::new());
    }

    fn nack(&mut self, id: &str, reason: &str) {
        let reason = Some(reason.to_owned());
        let (version, message) = (self.offered(id), "Unable to create Wasm plugin".to_owned());
        let refusal = Nack { version, message, resources: Vec::new(), carried: Vec::new(), reason, at: self.clock };
        let node = self.nodes.get_mut(id).unwrap();
        (node.revision, node.refused) = (None, vec![(ResourceType::ExtensionConfig, Arc::new(refusal))]);
    }

    /// Advances the time by a second and looks at the fleet.
    fn look(&mut self) {
        self.clock += 1;
        let fleet: Vec<_> = self.nodes.values().cloned().collect();
        self.releases.observe(&fleet, self.now());
    }

    fn state(&self) -> State {
        self.releases.report().unwrap().state
    }

    /// Checks the resource's conditions in a revision: type, node if any, status and reason.
    #[track_caller]
    fn check(&self, revision: u64, expect: &[(ConditionType, &str, Truth, &str)]) {
        let conditions = self.releases.lifecycles()[&revision].conditions_of(RESOURCE);
        let found: Vec<_> = conditions
            .iter()
            .map(|found| (found.kind, found.node.as_deref().unwrap_or(""), found.status, found.reason.as_str()))
            .collect();
        assert_eq!(found, expect, "revision {revision}");
    }
}

use ConditionType::{Initialized, Ready, Scheduled};
use Truth::{False, True, Unknown};

#[test]
fn policy_creation_lifecycle() {
    let mut world = World::new();
    world.join("edge-1");
    world.join("edge-2");
    // 1. The user creates a new policy. 2. A revision is made of it, and it is scheduled. 3. and 4. It is compiled and
    // the gate has the filter load it. 5. and 6. It is initialized, and the policy says so.
    assert_eq!(world.apply("one").unwrap(), 1);
    world.check(1, &[(Scheduled, "", True, "Accepted"), (Initialized, "", True, "Loaded")]);
    // 7. It is sent to every node. 8. and 9. Each reports, and the policy says so.
    let good = |world: &World| world.releases.report().unwrap().last_good;
    assert_eq!(world.offered("edge-1"), world.offered("edge-2"));
    world.look();
    let start = [(Scheduled, "", True, "Accepted"), (Initialized, "", True, "Loaded")];
    let ready = |expect: &[(ConditionType, &'static str, Truth, &'static str)]| [&start[..], expect].concat();
    world.check(
        1,
        &ready(&[
            (Ready, "", Unknown, "Pending"),
            (Ready, "edge-1", Unknown, "Pending"),
            (Ready, "edge-2", Unknown, "Pending"),
        ]),
    );
    world.ack("edge-1");
    world.look();
    world.check(
        1,
        &ready(&[
            (Ready, "", Unknown, "Pending"),
            (Ready, "edge-1", True, "Acked"),
            (Ready, "edge-2", Unknown, "Pending"),
        ]),
    );
    assert_eq!((world.state(), good(&world)), (State::Progressing, None), "one of two is not enough");
    // 10. and 11. When all have, it is ready to be used: it is the one to go back to. A node enforces it from its own
    // answer on, and no request names a revision.
    world.ack("edge-2");
    world.look();
    world.check(
        1,
        &ready(&[(Ready, "", True, "Acked"), (Ready, "edge-1", True, "Acked"), (Ready, "edge-2", True, "Acked")]),
    );
    assert_eq!((world.state(), good(&world)), (State::Completed, Some(1)));
}

/// What a filter says that refuses the policy's only step.
const REFUSAL: &str = "plan refused: not today [at=1;chain=0;phase=request;step=headers]";

#[test]
fn policy_creation_lifecycle_with_an_error_before_it_is_initialized() {
    let mut world = World::new();
    world.line = OwnAdmission::that_refuses(REFUSAL);
    let error = world.apply("one").unwrap_err().to_string();
    let expect = "p.yaml:7:7: RoutePolicy `users`: spec.request[0]: the filter refuses this: not today";
    assert_eq!(error, expect);
    assert!(world.releases.store().latest().unwrap().is_none(), "a change must be valid whole");
    assert!(world.releases.publication().is_none());
    assert!(world.releases.lifecycles().is_empty(), "there is no revision that could have a condition");
}

#[test]
fn policy_creation_lifecycle_with_an_error_on_a_replica() {
    let mut world = World::new();
    world.join("edge-1");
    world.apply("one").unwrap();
    world.nack("edge-1", "it is odd");
    world.look();
    let conditions = world.releases.lifecycles()[&1].conditions_of(RESOURCE);
    let ready = conditions.get(Ready, Some("edge-1")).unwrap();
    assert_eq!((ready.status, ready.message.as_str()), (False, "ECDS: it is odd"));
    let all = conditions.get(Ready, None).unwrap();
    assert_eq!((all.status, all.message.as_str()), (False, "node `edge-1`: ECDS: it is odd"));
}

/// Two nodes that run revision 1.
fn running() -> World {
    let mut world = World::new();
    world.join("edge-1");
    world.join("edge-2");
    world.apply("one").unwrap();
    world.ack("edge-1");
    world.ack("edge-2");
    world.look();
    assert_eq!(world.state(), State::Completed);
    world
}

#[test]
fn policy_update_lifecycle() {
    let mut world = running();
    // 1. The user updates the policy. 2. to 6. A second revision is made, scheduled and initialized; the first one is
    // still there.
    assert_eq!(world.apply("two").unwrap(), 2);
    world.check(2, &[(Scheduled, "", True, "Accepted"), (Initialized, "", True, "Loaded")]);
    assert_eq!(world.releases.report().unwrap().last_good, Some(1));
    // 7. to 9. Nodes load it and report.
    world.look();
    world.ack("edge-1");
    world.look();
    assert_eq!(world.state(), State::Progressing);
    world.ack("edge-2");
    world.look();
    // 10. and 12. All have: it is the one to go back to.
    assert_eq!((world.state(), world.releases.report().unwrap().last_good), (State::Completed, Some(2)));
    let conditions = world.releases.lifecycles()[&2].conditions_of(RESOURCE);
    assert!(conditions.holds(Ready, None) && conditions.holds(Ready, Some("edge-2")));
}

#[test]
fn an_update_with_an_error_before_it_is_initialized_leaves_the_first_as_it_was() {
    let mut world = running();
    let (served, conditions) = (world.offered("edge-1"), world.releases.lifecycles().clone());
    world.line = OwnAdmission::that_refuses(REFUSAL);
    let error = world.apply("two").unwrap_err().to_string();
    assert!(error.ends_with("spec.request[0]: the filter refuses this: not today"), "{error}");
    world.look();
    assert_eq!(world.releases.store().latest().unwrap().map(|revision| revision.number), Some(1));
    assert_eq!(world.offered("edge-1"), served);
    assert_eq!(*world.releases.lifecycles(), conditions);
    assert_eq!((world.state(), world.releases.report().unwrap().last_good), (State::Completed, Some(1)));
}

#[test]
fn policy_update_lifecycle_overtaken_by_another_update() {
    let mut world = running();
    world.apply("two").unwrap();
    world.ack("edge-1");
    world.look();
    world.apply("three").unwrap();
    // No node is to run the second one any more, and the conditions say so.
    let start = [(Scheduled, "", True, "Accepted"), (Initialized, "", True, "Loaded")];
    world.check(2, &[&start[..], &[(Ready, "", Unknown, "Superseded")]].concat());
    assert_eq!(world.releases.report().unwrap().last_good, Some(1));
}

#[test]
fn policy_update_lifecycle_garbage_collects_old_revisions() {
    let mut world = World::on(Arc::new(Memory::default()), 3);
    world.join("edge-1");
    for value in ["a", "b", "c", "d", "e"] {
        world.apply(value).unwrap();
        world.ack("edge-1");
        world.look();
    }
    let kept: Vec<_> = world.releases.store().revisions().unwrap().iter().map(|revision| revision.number).collect();
    assert_eq!(kept, [5, 4, 3]);
    assert_eq!(world.releases.lifecycles().keys().copied().collect::<Vec<_>>(), [3, 4, 5]);
}

#[test]
fn policy_update_lifecycle_with_an_error_keeps_the_previous_policy() {
    let mut world = running();
    let before = world.offered("edge-1");
    world.apply("two").unwrap();
    assert_ne!(world.offered("edge-1"), before);
    world.ack("edge-1");
    world.nack("edge-2", "it is odd");
    world.look();
    let expect = State::RolledBack { node: "edge-2".to_owned(), reason: "ECDS: it is odd".to_owned() };
    assert_eq!(world.state(), expect);
    assert_eq!(world.offered("edge-1"), before, "every node is sent the last good one again");
    assert_eq!(world.offered("new"), before, "and new ones never get the other");
    // It is tried again only on request.
    let again = world.releases.apply(proposal("two"), &world.line, world.now()).unwrap();
    assert!(matches!(again, Applied::Unchanged(_)));
    let again = world.releases.apply(Proposal { again: true, ..proposal("two") }, &world.line, world.now()).unwrap();
    assert!(matches!(again, Applied::Revision(revision) if revision.number == 3));
}

#[test]
fn rollback_to_any_revision_that_is_kept() {
    let mut world = World::on(Arc::new(Memory::default()), 3);
    let served: Vec<_> = ["one", "two", "three", "four"]
        .map(|value| {
            world.apply(value).unwrap();
            world.offered("edge-1")
        })
        .into();
    for (number, expect) in [(2, 5), (3, 6), (4, 7)] {
        let proposal = world.releases.rollback(number, "bob".to_owned(), Parent::Latest);
        // Each way back is a revision, and only the last three are kept.
        let Ok(proposal) = proposal else {
            assert!(world.releases.store().revision(number).unwrap().is_none(), "revision {number} is kept");
            continue;
        };
        let Applied::Revision(revision) = world.releases.apply(proposal, &world.line, world.now()).unwrap() else {
            panic!("nothing was done")
        };
        assert_eq!((revision.number, revision.author.as_str()), (expect, "bob"));
        assert_eq!(revision.message, format!("rollback to revision {number}"));
        assert_eq!(revision.parent, Some(expect - 1));
        let before = &served[usize::try_from(number).unwrap() - 1];
        assert_eq!(world.offered("edge-1"), *before, "the same content is the same to a node");
    }
    for gone in [1, 9] {
        let error = world.releases.rollback(gone, "bob".to_owned(), Parent::Latest).unwrap_err().to_string();
        assert_eq!(error, format!("revision {gone} is not kept: `postern revisions` lists those that are"));
    }
}

#[test]
fn applies_the_same_content_once() {
    let mut world = running();
    let applied = world.releases.apply(proposal("one"), &world.line, world.now()).unwrap();
    assert!(matches!(applied, Applied::Unchanged(revision) if revision.number == 1));
}

#[test]
fn scaling_up() {
    let mut world = running();
    // A new replica starts with what is in force, and is not known to be ready until it says so.
    world.join("edge-3");
    assert_eq!(world.offered("edge-3"), world.offered("edge-1"));
    world.look();
    let conditions = world.releases.lifecycles()[&1].conditions_of(RESOURCE);
    assert_eq!(conditions.get(Ready, Some("edge-3")).unwrap().status, Unknown);
    assert_eq!(conditions.get(Ready, None).unwrap().message, "2 of 3 nodes run it");
    world.ack("edge-3");
    world.look();
    assert!(world.releases.lifecycles()[&1].conditions().holds(Ready, None));
}

#[test]
fn a_node_that_left_counts_in_no_condition() {
    let mut world = running();
    world.join("edge-3");
    world.nack("edge-3", "it is odd");
    world.look();
    assert_eq!(world.releases.lifecycles()[&1].conditions().get(Ready, None).unwrap().status, False);
    // The node that reported errors is gone, and its errors no longer count.
    world.leave("edge-3");
    world.look();
    let conditions = world.releases.lifecycles()[&1].conditions();
    assert!(conditions.holds(Ready, None));
    assert_eq!(conditions.get(Ready, Some("edge-3")), None);
}

#[test]
fn scaling_down() {
    let mut world = running();
    world.join("edge-3");
    world.ack("edge-3");
    world.look();
    world.apply("two").unwrap();
    let offered = world.offered("edge-1");
    world.ack("edge-1");
    world.nack("edge-3", "it is odd");
    world.look();
    assert!(matches!(world.state(), State::RolledBack { node, .. } if node == "edge-3"));
    world.ack("edge-1");
    world.ack("edge-2");
    world.look();
    // The only node that reported errors is removed. Nobody applies anything: the update goes on by itself.
    world.leave("edge-3");
    world.look();
    world.clock += DEPARTED.as_secs();
    world.look();
    assert_eq!(
        (world.state(), world.offered("edge-1"), world.offered("edge-2")),
        (State::Progressing, offered.clone(), offered)
    );
    world.ack("edge-1");
    world.ack("edge-2");
    world.look();
    let report = world.releases.report().unwrap();
    assert_eq!((&report.state, report.last_good), (&State::Completed, Some(2)));
    assert_eq!(report.without.into_iter().collect::<Vec<_>>(), ["edge-3"]);
    assert!(world.releases.lifecycles()[&2].conditions_of(RESOURCE).holds(Ready, None));
}

#[test]
fn bootstrap_from_the_store() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let mut world = World::on(Arc::clone(&store), 20);
    world.join("edge-1");
    for value in ["zero", "one"] {
        world.apply(value).unwrap();
        world.ack("edge-1");
        world.look();
    }
    let good = world.offered("edge-1");
    world.apply("two").unwrap();
    world.nack("edge-1", "it is odd");
    world.look();

    let mut world = World::on(store, 20);
    let restored = world.releases.restore(&world.line, world.now()).unwrap();
    assert_eq!(restored.map(|revision| revision.number), Some(3));
    assert_eq!(world.releases.view().live().collect::<Vec<_>>(), [3, 2], "what is not enabled is not loaded");
    assert_eq!(world.offered("edge-1"), good, "what was refused is not served after a restart either");
    let applied = world.releases.apply(proposal("two"), &world.line, world.now()).unwrap();
    assert!(matches!(applied, Applied::Unchanged(_)), "nor because it is still in the directory");
    assert_eq!(world.offered("edge-1"), good);
}

#[test]
fn why_a_revision_failed_is_kept_over_later_ones_and_a_restart() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let mut world = World::on(Arc::clone(&store), 20);
    world.join("edge-1");
    world.apply("one").unwrap();
    world.ack("edge-1");
    world.look();
    world.apply("two").unwrap();
    world.nack("edge-1", "it is odd");
    world.look();
    for value in ["three", "four"] {
        world.apply(value).unwrap();
        world.ack("edge-1");
        world.look();
    }
    let failed = RevisionState::RolledBack { node: "edge-1".to_owned(), reason: "ECDS: it is odd".to_owned() };
    let expect = [RevisionState::Superseded, failed, RevisionState::Superseded, RevisionState::InForce];
    let states = |world: &World| (1..=4).map(|number| world.releases.view().state(number)).collect::<Vec<_>>();
    assert_eq!(states(&world), expect);
    let mut world = World::on(store, 20);
    world.releases.restore(&world.line, world.now()).unwrap();
    assert_eq!(states(&world), expect);
    let ready = world.releases.lifecycles()[&2].conditions().get(Ready, None).unwrap().clone();
    assert_eq!((ready.status, ready.message.as_str()), (False, "node `edge-1`: ECDS: it is odd"));
}

#[test]
fn bootstrap_initializes_what_an_earlier_process_only_stored() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let mut world = World::on(Arc::clone(&store), 20);
    world.join("edge-1");
    world.apply("one").unwrap();
    world.ack("edge-1");
    world.look();
    let first = world.offered("edge-1");
    // It ended between the revision and its first step.
    let draft = postern_release::store::Draft {
        digest: "stored".to_owned(),
        author: "alice".to_owned(),
        message: String::new(),
        at: UNIX_EPOCH,
        documents: postern_release::store::split(&policy("two")).into(),
    };
    store.append(draft, Parent::Latest).unwrap();

    let mut world = World::on(store, 20);
    world.releases.restore(&world.line, world.now()).unwrap();
    world.check(2, &[(Scheduled, "", True, "Accepted"), (Initialized, "", True, "Loaded")]);
    assert_eq!((world.state(), world.releases.report().unwrap().last_good), (State::Progressing, Some(1)));
    assert_ne!(world.offered("edge-1"), first, "and it spreads");
}

#[test]
fn bootstrap_serves_what_has_become_invalid_as_a_refusal() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let mut world = World::on(Arc::clone(&store), 20);
    world.apply("one").unwrap();
    // A policy that an older version admitted and this one does not know.
    let text = String::from_utf8(policy("one").remove(0).bytes).unwrap().replace("policy: headers", "policy: hedaers");
    let other = text.replace("hedaers", "headers").replace("users", "orders");
    let text = format!("{text}---\n{other}");
    let files = vec![File { name: "p.yaml".to_owned(), bytes: text.into_bytes() }];
    let draft = postern_release::store::Draft {
        digest: "of another version".to_owned(),
        author: "alice".to_owned(),
        message: String::new(),
        at: UNIX_EPOCH,
        documents: postern_release::store::split(&files).into(),
    };
    store.append(draft, Parent::Latest).unwrap();

    let mut world = World::on(store, 20);
    world.releases.restore(&world.line, world.now()).unwrap();
    let snapshot = world.releases.publication().unwrap().snapshot_for(&NodeIdentity::default());
    let plan = <postern_proto::plan::v1::Plan as prost::Message>::decode(snapshot.plan().bytes()).unwrap();
    let routes: Vec<_> = plan.routes.iter().map(|route| plan.strings[route.name as usize].as_str()).collect();
    assert_eq!(routes, ["orders", "users"], "the route is still guarded");
    let refused: Vec<_> =
        plan.chains.iter().flat_map(|chain| &chain.request).flat_map(|steps| &steps.unsupported).collect();
    assert_eq!(refused.len(), 1, "the chain is refused whole, with the answer that settings say");
    let lifecycle = &world.releases.lifecycles()[&2];
    let mine = lifecycle.conditions_of(RESOURCE).get(Initialized, None).unwrap().clone();
    assert_eq!((mine.status, mine.reason.as_str()), (False, "Invalid"));
    assert!(mine.message.starts_with("p.yaml:7:"), "{}", mine.message);
    let other = lifecycle.conditions_of("RoutePolicy `orders`").get(Initialized, None).unwrap().clone();
    assert_eq!((other.status, other.reason.as_str()), (True, "Loaded"), "the others are as good as before");
}

#[test]
fn a_revision_spreads_by_the_settings_in_force_before_it() {
    let mut world = World::new();
    ["a", "b", "c", "d"].iter().for_each(|id| world.join(id));
    world.apply_with("v1", "{ rollout: { steps: [{ share: 25, pause: 5s }] } }").unwrap();
    // Nobody has anything to go back to: the first of all goes to all.
    ["a", "b", "c", "d"].iter().for_each(|id| world.ack(id));
    (0..10).for_each(|_| world.look());
    assert_eq!(world.state(), State::Completed);
    let first = world.offered("a");
    world.apply_with("v2", "{ rollout: { steps: [{ share: 50 }] } }").unwrap();
    world.look();
    let picked = |world: &World| ["a", "b", "c", "d"].into_iter().filter(|id| world.offered(id) != first).count();
    assert_eq!(picked(&world), 1, "a quarter of four");
    // Settings that have not reached all nodes do not count yet, and deleted ones still do.
    world.apply("v3").unwrap();
    world.look();
    assert_eq!(picked(&world), 1);
    // The next one after it goes by what the server was started with.
    for _ in 0..20 {
        ["a", "b", "c", "d"].iter().for_each(|id| world.ack(id));
        world.look();
    }
    assert_eq!(world.state(), State::Completed);
    let third = world.offered("a");
    world.apply("v4").unwrap();
    world.look();
    assert_eq!(["a", "b", "c", "d"].into_iter().filter(|id| world.offered(id) != third).count(), 4);
}

#[test]
fn settings_say_how_many_revisions_are_kept() {
    let mut world = World::new();
    let kept = |world: &World| -> Vec<u64> {
        world.releases.store().revisions().unwrap().iter().map(|revision| revision.number).collect()
    };
    for value in ["v1", "v2", "v3", "v4"] {
        world.apply(value).unwrap();
    }
    assert_eq!(kept(&world), [4, 3, 2, 1]);
    world.apply_with("v5", "{ retention: { revisions: 2 } }").unwrap();
    assert_eq!(kept(&world), [5, 4]);
    world.apply_with("v6", "{ retention: { revisions: 3 } }").unwrap();
    assert_eq!(kept(&world), [6, 5, 4]);
}

#[test]
fn remembers_which_revisions_brought_a_plan_to_which_nodes() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let mut world = World::on(Arc::clone(&store), 20);
    let label = |world: &World| world.snapshot("a").plan().label().to_owned();
    let shown = |world: &World, label: &str| -> Vec<String> {
        let show = |used: &PlanUse| {
            let nodes: Vec<_> = used.nodes.iter().map(|(node, since)| format!("{node}@{}", since / 1000)).collect();
            let until = used.until.map_or("now".to_owned(), |until| (until / 1000).to_string());
            format!("{}: {} to {until} {} [{}]", used.revision, used.since / 1000, used.acknowledged, nodes.join(" "))
        };
        world.releases.plan_uses(label).iter().map(show).collect()
    };
    ["a", "b"].iter().for_each(|id| world.join(id));
    world.apply("one").unwrap();
    let one = label(&world);
    world.ack("a");
    world.look();
    world.ack("b");
    world.look();
    assert_eq!(shown(&world, &one), ["1: 0 to now 2 [a@1 b@2]"]);
    // A change that does not affect the plan keeps its label.
    world.apply_with("one", "{ retention: { revisions: 2 } }").unwrap();
    assert_eq!(label(&world), one);
    world.ack("a");
    world.look();
    assert_eq!(shown(&world, &one), ["2: 2 to now 1 [a@3]", "1: 0 to now 2 [a@1 b@2]"]);
    world.ack("b");
    world.look();
    assert_eq!(shown(&world, &one), ["2: 2 to now 2 [a@3 b@4]", "1: 0 to 4 2 [a@1 b@2]"]);
    // It outlives the process and the revision.
    let mut world = World::on(store, 1);
    world.clock = 10;
    world.releases.restore(&world.line, world.now()).unwrap();
    ["a", "b"].iter().for_each(|id| world.join(id));
    world.apply("two").unwrap();
    ["a", "b"].iter().for_each(|id| world.ack(id));
    world.look();
    assert_eq!(world.releases.store().revisions().unwrap().len(), 1);
    assert_eq!(shown(&world, &one), ["2: 2 to 11 2 [a@3 b@4]", "1: 0 to 4 2 [a@1 b@2]"]);
    assert_eq!(shown(&world, &label(&world)), ["3: 10 to now 2 [a@11 b@11]"]);
    assert!(shown(&world, "none").is_empty());
}

fn key(kind: &str, name: &str) -> ResourceKey {
    ResourceKey { kind: kind.to_owned(), mesh: "default".to_owned(), name: name.to_owned() }
}

/// The generation of the policy in each of the first revisions.
fn generations(world: &World, kind: &str, name: &str) -> Vec<Option<u64>> {
    let view = world.releases.view();
    let latest = view.latest().unwrap();
    (1..=latest).map(|revision| view.generation(revision, &key(kind, name))).collect()
}

#[test]
fn counts_the_changes_of_each_resource_also_across_a_restart() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let mut world = World::on(Arc::clone(&store), 20);
    world.join("edge-1");
    world.apply_with("one", "{}").unwrap();
    world.apply_with("one", "{ retention: { revisions: 5 } }").unwrap();
    world.apply_with("two", "{ retention: { revisions: 5 } }").unwrap();
    assert_eq!(generations(&world, "RoutePolicy", "users"), [Some(1), Some(1), Some(2)]);
    assert_eq!(generations(&world, "Settings", "s"), [Some(1), Some(2), Some(2)]);

    let mut world = World::on(Arc::clone(&store), 20);
    world.releases.restore(&world.line, world.now()).unwrap();
    world.join("edge-1");
    // The same resource in another format, at another place, says the same.
    let mut same = proposal("two");
    same.files[0].bytes.splice(0..0, b"# a comment\n".iter().copied());
    assert_eq!(world.propose(same).unwrap(), 4);
    assert_eq!(generations(&world, "RoutePolicy", "users"), [Some(1), Some(1), Some(2), Some(2)]);
    assert_eq!(generations(&world, "Settings", "s"), [Some(1), Some(2), Some(2), None], "it was deleted");
    world.look();
    let nodes: Vec<_> = world.nodes.values().map(|sighting| NodeIdentity::clone(&sighting.node)).collect();
    let view = world.releases.view();
    let concerns = view.concerns(4, &nodes).unwrap();
    let conditions = view.resource_conditions(4, &key("RoutePolicy", "users"), &concerns).unwrap();
    assert!(conditions.iter().count() > 3);
    assert!(conditions.iter().all(|condition| condition.observed_generation == Some(2)), "{conditions:?}");
    // Going back is a change, too.
    let back = world.releases.rollback(1, "bob".to_owned(), Parent::Latest).unwrap();
    world.propose(back).unwrap();
    assert_eq!(generations(&world, "RoutePolicy", "users")[4], Some(3));
    assert_eq!(generations(&world, "Settings", "s")[4], Some(3), "it goes on where it was");
}

#[test]
fn generations_begin_with_one_in_a_store_of_an_earlier_version_and_miss_no_revision() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let mut world = World::on(Arc::clone(&store), 20);
    world.apply("one").unwrap();
    world.apply("two").unwrap();
    store.put_note("generations", None).unwrap();
    let mut world = World::on(Arc::clone(&store), 20);
    world.releases.restore(&world.line, world.now()).unwrap();
    assert_eq!(generations(&world, "RoutePolicy", "users"), [None, Some(1)]);
    // A process that ended between the revision and the note.
    world.apply("three").unwrap();
    let noted = store.note("generations").unwrap().unwrap();
    world.apply("four").unwrap();
    store.put_note("generations", Some(&noted)).unwrap();
    let mut world = World::on(store, 20);
    world.releases.restore(&world.line, world.now()).unwrap();
    assert_eq!(generations(&world, "RoutePolicy", "users"), [None, Some(1), Some(2), Some(3)]);
}
