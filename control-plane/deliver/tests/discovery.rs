//! Policy discovery without sockets: the five cases of a request, and every row of the protocol's table of edge cases.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use postern_base::{digest::Digest, node::NodeIdentity};
use postern_deliver::discovery::{
    Acknowledgement, Assignment, ClientReport, ClientState, GroupReport, Registry, Session, Ticket,
    session::{Case, Request},
    update::Update,
};
use postern_proto::discovery::v1::Policy;
use postern_release::publication::{Audience, PolicySet};

/// The state that all streams of a control plane share.
struct ControlPlane {
    registry: Registry<&'static str>,
    /// What is in force, the same for all clients.
    in_force: Option<Assignment>,
    now: Instant,
}

impl ControlPlane {
    fn started() -> Self {
        Self { registry: Registry::default(), in_force: None, now: Instant::now() }
    }

    fn with(policies: &[&str]) -> Self {
        let mut started = Self::started();
        started.publish(policies);
        started
    }

    fn publish(&mut self, policies: &[&str]) {
        self.publish_at(policies, clock());
    }

    fn publish_at(&mut self, policies: &[&str], now: SystemTime) {
        let assignment = assignment(policies, &policies.join("+"));
        let assigned = self.registry.audiences().into_iter().map(|(ticket, _)| (ticket, assignment.clone()));
        self.registry.publish(assigned.collect::<Vec<_>>(), now);
        self.in_force = Some(assignment);
    }

    fn connect(&mut self, address: &str) -> Client {
        self.connect_as(address, Audience::Anyone)
    }

    fn connect_as(&mut self, address: &str, audience: Audience) -> Client {
        let (ticket, _) = self.registry.connect(address, Arc::new(audience), self.now, "cut");
        if let Some(assignment) = &self.in_force {
            self.registry.assign(&ticket, assignment, clock());
        }
        Client { ticket, session: Session::default() }
    }

    /// Connects a client that has applied everything so far.
    fn connect_in_sync(&mut self, address: &str) -> Client {
        let mut client = self.connect(address);
        let update = self.ask(&mut client, &empty()).unwrap();
        assert!(self.ask(&mut client, &ack(&update)).is_none());
        client
    }

    /// What a client is to have.
    fn due(&self, client: &Client) -> Arc<Update> {
        Arc::clone(self.registry.due(&client.ticket).unwrap())
    }

    /// What a client is sent in answer to a request.
    fn ask(&mut self, client: &mut Client, request: &Request) -> Option<Arc<Update>> {
        let due = self.registry.due(&client.ticket).cloned();
        let reaction = client.session.on_request(request.clone(), due.as_ref());
        if let Some(answer) = reaction.answer {
            self.registry.answered(&client.ticket, &due.unwrap().nonce, answer);
        }
        reaction.response
    }

    /// What a client is sent because of a change.
    fn push(&mut self, client: &mut Client) -> Option<Arc<Update>> {
        let due = self.due(client);
        let reaction = client.session.on_update(&due);
        if let Some(answer) = reaction.answer {
            self.registry.answered(&client.ticket, &due.nonce, answer);
        }
        reaction.response
    }

    fn clients(&self) -> Vec<ClientReport> {
        self.registry.report().into_iter().flat_map(|group| group.clients).collect()
    }

    fn report_of(&self, client: &Client) -> ClientReport {
        self.clients().into_iter().find(|report| report.address == client.ticket.address()).unwrap()
    }

    fn answer_of(&self, client: &Client) -> Option<Acknowledgement> {
        self.report_of(client).answer
    }
}

/// A clock that all control planes share, and that advances with each call.
fn clock() -> SystemTime {
    static SECONDS: AtomicU64 = AtomicU64::new(0);
    SystemTime::UNIX_EPOCH + Duration::from_secs(SECONDS.fetch_add(1, Ordering::Relaxed))
}

struct Client {
    ticket: Ticket,
    session: Session,
}

fn policy(kind: &str, name: &str, spec: &str) -> Policy {
    Policy { name: name.to_owned(), kind: kind.to_owned(), spec: spec.to_owned() }
}

fn set(names: &[&str]) -> PolicySet {
    PolicySet::encoded(names.iter().map(|name| policy("RoutePolicy", name, "{}")).collect(), None)
}

fn assignment(names: &[&str], revision: &str) -> Assignment {
    Assignment { set: Arc::new(set(names)), revision: Digest::of(revision.as_bytes()) }
}

fn identified(id: &str) -> Audience {
    let node = NodeIdentity { id: id.to_owned(), service: "web".to_owned(), ..NodeIdentity::default() };
    Audience::Identified { node: Arc::new(node), plan: false }
}

fn request(version: &str, nonce: &str, error: Option<&str>) -> Request {
    Request { version: version.to_owned(), nonce: nonce.to_owned(), error: error.map(str::to_owned) }
}

fn empty() -> Request {
    Request::default()
}

fn ack(update: &Update) -> Request {
    request(update.version().as_str(), &update.nonce, None)
}

fn nack(update: &Update, stays_with: &str) -> Request {
    request(stays_with, &update.nonce, Some("it does not compile"))
}

fn refused() -> Option<Acknowledgement> {
    Some(Acknowledgement::Refused("it does not compile".to_owned()))
}

fn names(update: &Update) -> Vec<&str> {
    update.set.policies().iter().map(|policy| policy.name.as_str()).collect()
}

// 1. ACK: successful application

#[test]
fn case_1_an_ack_is_recorded_and_gets_no_response() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut client = control_plane.connect("one");
    let update = control_plane.ask(&mut client, &empty()).unwrap();
    assert_eq!(Case::of(&ack(&update), &update), Case::Ack);
    assert!(!control_plane.registry.all_acked());
    assert!(control_plane.ask(&mut client, &ack(&update)).is_none());
    assert_eq!(control_plane.answer_of(&client), Some(Acknowledgement::Accepted));
    assert!(control_plane.registry.all_acked());
}

#[test]
fn case_1_all_connected_clients_must_ack() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut clients = ["one", "two", "three"].map(|address| control_plane.connect(address));
    for client in &mut clients {
        assert!(!control_plane.registry.all_acked());
        let update = control_plane.ask(client, &empty()).unwrap();
        control_plane.ask(client, &ack(&update));
    }
    assert!(control_plane.registry.all_acked());
}

#[test]
fn case_1_an_ack_without_a_pending_version_is_ignored() {
    let mut control_plane = ControlPlane::started();
    let client = control_plane.connect("one");
    control_plane.registry.answered(&client.ticket, "1", Acknowledgement::Accepted);
    assert_eq!(control_plane.answer_of(&client), None);
    assert!(!control_plane.registry.all_acked(), "nothing is in force that could be acknowledged");
}

#[test]
fn case_1_duplicate_acks_count_once() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut one = control_plane.connect_in_sync("one");
    let mut two = control_plane.connect("two");
    let update = control_plane.due(&two);
    for _ in 0..3 {
        assert!(control_plane.ask(&mut one, &ack(&update)).is_none());
        assert!(!control_plane.registry.all_acked(), "the other has not answered");
    }
    control_plane.ask(&mut two, &empty());
    control_plane.ask(&mut two, &ack(&update));
    assert!(control_plane.registry.all_acked());
}

#[test]
fn case_1_a_client_that_vanished_counts_until_cleanup() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let _one = control_plane.connect_in_sync("one");
    let vanished = control_plane.connect("vanished");
    assert!(!control_plane.registry.all_acked());
    control_plane.registry.disconnect(&vanished.ticket);
    assert!(control_plane.registry.all_acked());
}

// 2. NACK: failed application

#[test]
fn case_2_a_nack_is_recorded_with_its_error_and_not_retried() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut client = control_plane.connect("one");
    let update = control_plane.ask(&mut client, &empty()).unwrap();
    let nack = nack(&update, "");
    assert_eq!(Case::of(&nack, &update), Case::Nack("it does not compile".to_owned()));
    assert!(control_plane.ask(&mut client, &nack).is_none());
    assert_eq!(control_plane.answer_of(&client), refused());
    assert!(control_plane.push(&mut client).is_none(), "no retry");
}

#[test]
fn case_2_a_nack_unblocks_who_waits_for_all() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut good = control_plane.connect("good");
    let mut bad = control_plane.connect("bad");
    let update = control_plane.ask(&mut good, &empty()).unwrap();
    control_plane.ask(&mut bad, &empty());
    control_plane.ask(&mut bad, &nack(&update, ""));
    assert!(!control_plane.registry.all_acked());
    control_plane.ask(&mut good, &ack(&update));
    assert!(control_plane.registry.all_acked());
}

#[test]
fn case_2_a_nack_affects_only_its_client() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let good = control_plane.connect_in_sync("good");
    let mut bad = control_plane.connect("bad");
    let update = control_plane.ask(&mut bad, &empty()).unwrap();
    control_plane.ask(&mut bad, &nack(&update, ""));
    assert_eq!(control_plane.answer_of(&good), Some(Acknowledgement::Accepted));
    assert_eq!(control_plane.answer_of(&bad), refused());
    assert_eq!(control_plane.due(&good).version(), update.version(), "the version stays in force");
}

// 3. Stale nonce: missed update

#[test]
fn case_3_a_stale_nonce_gets_the_full_snapshot() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let before = control_plane.connect_in_sync("one");
    let old = control_plane.due(&before);
    control_plane.publish(&["a", "b"]);
    let mut client = control_plane.connect("one");
    assert_eq!(Case::of(&ack(&old), &control_plane.due(&client)), Case::StaleNonce);
    let update = control_plane.ask(&mut client, &ack(&old)).unwrap();
    assert_eq!(names(&update), ["a", "b"]);
    assert_eq!(control_plane.answer_of(&client), None, "an answer to an earlier version is none to this one");
}

#[test]
fn case_3_a_restarted_control_plane_has_another_nonce_for_the_same_version() {
    let mut first = ControlPlane::with(&["a"]);
    let client = first.connect_in_sync("one");
    let before = first.due(&client);
    let mut restarted = ControlPlane::with(&["a"]);
    let mut client = restarted.connect("one");
    let update = restarted.ask(&mut client, &ack(&before)).unwrap();
    assert_eq!(update.version(), before.version());
    assert_ne!(update.nonce, before.nonce);
}

#[test]
fn case_3_a_client_that_asks_with_the_same_stale_nonce_again_is_sent_the_snapshot_again() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut client = control_plane.connect_in_sync("one");
    let old = control_plane.due(&client);
    control_plane.publish(&["b"]);
    assert!(control_plane.push(&mut client).is_some());
    // It has acknowledged that one before, so this is not a late answer.
    assert!(control_plane.ask(&mut client, &ack(&old)).is_some());
    assert!(control_plane.ask(&mut client, &ack(&old)).is_some());
}

#[test]
fn case_3_an_ack_that_crossed_a_newer_update_does_not_have_it_sent_twice() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut client = control_plane.connect("one");
    let first = control_plane.ask(&mut client, &empty()).unwrap();
    control_plane.publish(&["b"]);
    let second = control_plane.push(&mut client).unwrap();
    assert!(control_plane.ask(&mut client, &ack(&first)).is_none());
    assert_eq!(control_plane.answer_of(&client), None);
    assert!(control_plane.ask(&mut client, &ack(&second)).is_none());
    assert_eq!(control_plane.answer_of(&client), Some(Acknowledgement::Accepted));
}

// 4. Initial connection: empty state

#[test]
fn case_4_an_empty_state_gets_the_full_snapshot() {
    let mut control_plane = ControlPlane::with(&["b", "a"]);
    let mut client = control_plane.connect("one");
    assert_eq!(Case::of(&empty(), &control_plane.due(&client)), Case::Initial);
    let update = control_plane.ask(&mut client, &empty()).unwrap();
    assert_eq!(names(&update), ["a", "b"]);
    assert_eq!(update.version(), set(&["a", "b"]).version());
}

#[test]
fn case_4_a_client_that_lost_its_state_gets_it_again_on_the_same_stream_and_on_another() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut client = control_plane.connect_in_sync("one");
    assert!(control_plane.ask(&mut client, &empty()).is_some());
    let mut restarted = control_plane.connect("one");
    assert!(control_plane.ask(&mut restarted, &empty()).is_some());
}

// 5. No update required

#[test]
fn case_5_a_client_that_has_the_version_in_force_gets_nothing() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut client = control_plane.connect("one");
    let current = control_plane.due(&client);
    let by_version = request(current.version().as_str(), "", None);
    assert_eq!(Case::of(&by_version, &current), Case::NoUpdate);
    assert!(control_plane.ask(&mut client, &by_version).is_none());
    assert!(control_plane.push(&mut client).is_none());
    assert!(control_plane.registry.all_acked(), "nobody waits for a client that has it");
}

#[test]
fn case_5_unmatched_versions_and_nonces_get_nothing() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut client = control_plane.connect_in_sync("one");
    let current = control_plane.due(&client);
    for request in
        [request("other", "", None), request("other", &current.nonce, None), request("", &current.nonce, None)]
    {
        assert_eq!(Case::of(&request, &current), Case::NoUpdate, "{request:?}");
        assert!(control_plane.ask(&mut client, &request).is_none(), "{request:?}");
    }
}

#[test]
fn case_5_a_stream_that_begins_with_another_version_is_pushed_the_one_in_force() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut client = control_plane.connect("one");
    let update = control_plane.ask(&mut client, &request(set(&["old"]).version().as_str(), "", None)).unwrap();
    assert_eq!(names(&update), ["a"]);
}

// Versions and updates

#[test]
fn versions_depend_on_content_alone() {
    assert_eq!(set(&["a", "b"]).version(), set(&["b", "a"]).version());
    assert_ne!(set(&["a", "b"]).version(), set(&["a"]).version());
    assert_ne!(set(&["ab"]).version(), set(&["a", "b"]).version());
    // The values were computed by a Python script from the protocol's text: SHA-256 over the name and then the encoded
    // message of each policy, by kind and name; and the same followed by the 32 bytes of SHA-256("plan").
    let policies = [
        policy("TrafficPermission", "login", "{}"),
        policy("RoutePolicy", "users", "{}"),
        policy("RoutePolicy", "login", r#"{"request":[]}"#),
    ];
    let version = |plan: Option<&'static str>| {
        let plan = plan.map(|plan| plan.as_bytes().into());
        PolicySet::encoded(policies.to_vec(), plan).version().to_string()
    };
    assert_eq!(version(None), "54fc7b6b80f0800b4ab00b7428da46750f675574c0d1de8e7136529abffe0edc");
    assert_eq!(version(Some("plan")), "1ed1c33f2aec48d58b7fee4ab52e78d4ec98317d4ebd14a212ce7505d5c5aa45");
    assert_ne!(version(Some("plan")), version(Some("another plan")), "a revoked key changes the plan alone");
    assert_eq!(set(&[]).version().as_str(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

#[test]
fn nonces_are_times_in_nanoseconds_and_never_repeat_even_in_one_instant() {
    let mut control_plane = ControlPlane::started();
    let client = control_plane.connect("one");
    let now = SystemTime::UNIX_EPOCH + Duration::new(1_800_000_000, 123_456_789);
    let mut nonces = Vec::new();
    // The same instant twice, and then a clock that was set back.
    for (policies, now) in [("a", now), ("b", now), ("c", now - Duration::from_secs(3600))] {
        control_plane.publish_at(&[policies], now);
        nonces.push(control_plane.due(&client).nonce.clone());
    }
    assert_eq!(nonces, ["1800000000123456789", "1800000000123456790", "1800000000123456791"]);
    // Two groups that begin at once have different nonces as well.
    let other = control_plane.connect("two");
    control_plane.registry.assign(&other.ticket, &assignment(&["d"], "d"), now);
    assert_eq!(control_plane.due(&other).nonce, "1800000000123456792");
}

#[test]
fn an_update_is_pushed_without_being_asked_for() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut client = control_plane.connect_in_sync("one");
    control_plane.publish(&["a", "b"]);
    assert!(!control_plane.registry.all_acked());
    assert_eq!(names(&control_plane.push(&mut client).unwrap()), ["a", "b"]);
    assert!(control_plane.push(&mut client).is_none(), "once");
}

#[test]
fn a_deleted_policy_is_missing_from_the_next_snapshot() {
    let mut control_plane = ControlPlane::with(&["a", "b"]);
    let mut client = control_plane.connect_in_sync("one");
    control_plane.publish(&["b"]);
    assert_eq!(names(&control_plane.push(&mut client).unwrap()), ["b"]);
}

#[test]
fn the_same_policies_again_are_no_update() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let client = control_plane.connect_in_sync("one");
    let before = control_plane.due(&client);
    control_plane.publish(&["a"]);
    assert_eq!(control_plane.due(&client).nonce, before.nonce);
    assert_eq!(control_plane.answer_of(&client), Some(Acknowledgement::Accepted));
}

// Edge cases and scenarios, row by row

#[test]
fn network_partition_a_request_with_an_old_nonce_gets_the_snapshot_again() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let client = control_plane.connect_in_sync("one");
    let old = control_plane.due(&client);
    // The stream breaks on one side first, so that the update never arrives.
    drop(client);
    control_plane.publish(&["b"]);
    let mut back = control_plane.connect("one");
    assert_eq!(names(&control_plane.ask(&mut back, &ack(&old)).unwrap()), ["b"]);
}

#[test]
fn client_restarts_during_update_and_gets_a_full_snapshot_even_if_it_acks_its_old_state() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let client = control_plane.connect_in_sync("one");
    let old = control_plane.due(&client);
    control_plane.publish(&["b"]);
    control_plane.registry.disconnect(&client.ticket);
    let mut restarted = control_plane.connect("one");
    let update = control_plane.ask(&mut restarted, &empty()).unwrap();
    assert_eq!(names(&update), ["b"]);
    assert!(control_plane.ask(&mut restarted, &ack(&old)).is_some(), "its old state is not the one in force");
    assert_eq!(control_plane.answer_of(&restarted), None);
    control_plane.ask(&mut restarted, &ack(&update));
    assert!(control_plane.registry.all_acked());
}

#[test]
fn rapid_sequential_updates_leave_the_latest_pending_and_earlier_acks_are_ignored() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut client = control_plane.connect_in_sync("one");
    let mut sent = Vec::new();
    for policies in [["b"], ["c"], ["d"]] {
        control_plane.publish(&policies);
        sent.push(control_plane.push(&mut client).unwrap());
    }
    for earlier in &sent[..2] {
        assert!(control_plane.ask(&mut client, &ack(earlier)).is_none());
        assert!(!control_plane.registry.all_acked());
    }
    control_plane.ask(&mut client, &ack(&sent[2]));
    assert!(control_plane.registry.all_acked());
}

#[test]
fn empty_policy_set_is_sent_as_an_empty_snapshot() {
    let mut control_plane = ControlPlane::with(&[]);
    let mut client = control_plane.connect("one");
    let update = control_plane.ask(&mut client, &empty()).unwrap();
    assert_eq!(names(&update), Vec::<&str>::new());
    assert!(!update.version().as_str().is_empty());
    control_plane.ask(&mut client, &ack(&update));
    assert!(control_plane.registry.all_acked());
}

#[test]
fn client_nacks_update_and_is_done_without_a_retry_while_the_next_update_reaches_it() {
    let mut control_plane = ControlPlane::with(&["good"]);
    let mut client = control_plane.connect_in_sync("one");
    let good = control_plane.due(&client);
    control_plane.publish(&["bad"]);
    let bad = control_plane.push(&mut client).unwrap();
    assert!(control_plane.ask(&mut client, &nack(&bad, good.version().as_str())).is_none());
    assert!(control_plane.registry.all_acked());
    assert_eq!(control_plane.answer_of(&client), refused());
    control_plane.publish(&["mended"]);
    assert_eq!(names(&control_plane.push(&mut client).unwrap()), ["mended"]);
}

/// The protocol allows an empty snapshot here. We do not send one: it would mean that nothing is guarded.
#[test]
fn early_connection_before_policies_are_loaded_is_answered_when_they_are() {
    let mut control_plane = ControlPlane::started();
    let mut client = control_plane.connect("one");
    assert!(control_plane.ask(&mut client, &empty()).is_none());
    assert!(!control_plane.registry.all_acked());
    control_plane.publish(&["a"]);
    assert_eq!(names(&control_plane.push(&mut client).unwrap()), ["a"]);
}

#[test]
fn concurrent_policy_version_changes_leave_every_client_on_the_latest() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut clients = ["one", "two"].map(|address| control_plane.connect_in_sync(address));
    control_plane.publish(&["b"]);
    assert!(control_plane.push(&mut clients[0]).is_some(), "one sees the version in between, the other does not");
    control_plane.publish(&["c"]);
    for client in &mut clients {
        let update = control_plane.push(client).unwrap();
        assert_eq!(names(&update), ["c"]);
        control_plane.ask(client, &ack(&update));
    }
    assert!(control_plane.registry.all_acked());
}

#[test]
fn pod_restart_after_partial_ack_triggers_a_full_resync() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut one = control_plane.connect_in_sync("one");
    let two = control_plane.connect_in_sync("two");
    control_plane.publish(&["b"]);
    let update = control_plane.push(&mut one).unwrap();
    control_plane.ask(&mut one, &ack(&update));
    control_plane.registry.disconnect(&two.ticket);
    assert!(control_plane.registry.all_acked(), "who is gone is not waited for");
    let mut two = control_plane.connect("two");
    assert!(!control_plane.registry.all_acked());
    assert_eq!(names(&control_plane.ask(&mut two, &empty()).unwrap()), ["b"]);
    control_plane.ask(&mut two, &ack(&update));
    assert!(control_plane.registry.all_acked());
}

#[test]
fn leader_election_a_client_that_reconnects_to_another_replica_keeps_its_version() {
    let mut leader = ControlPlane::with(&["a"]);
    let client = leader.connect_in_sync("one");
    let old = leader.due(&client);
    drop(leader);
    let mut successor = ControlPlane::with(&["a"]);
    let mut client = successor.connect("one");
    // With a nonce of the old leader, it is brought up to date; with the version alone, it is known to be.
    assert_eq!(successor.ask(&mut client, &ack(&old)).unwrap().version(), old.version());
    let mut client = successor.connect("two");
    assert!(successor.ask(&mut client, &request(old.version().as_str(), "", None)).is_none());
}

// Health checks

#[test]
fn silence_ends_the_waiting_for_a_client_and_not_its_stream() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let longest = Duration::from_secs(60);
    let mut checked = control_plane.connect_in_sync("checked");
    let mut silent = control_plane.connect("silent");
    let later = control_plane.now + Duration::from_secs(50);
    let version = set(&["a"]).version().clone();
    assert_eq!(control_plane.registry.health_check("checked", later), (true, Some(version)));
    assert_eq!(control_plane.registry.flush(control_plane.now + longest, longest), [""; 0], "not longer than that");
    assert!(!control_plane.registry.all_acked());
    let after = later + Duration::from_secs(20);
    assert_eq!(control_plane.registry.flush(after, longest), ["silent"]);
    assert_eq!(control_plane.registry.flush(after, longest), [""; 0], "it is said once");
    assert!(control_plane.registry.all_acked(), "nobody waits for a client that was flushed");
    assert_eq!(control_plane.report_of(&silent).state(), ClientState::Silent);
    assert_eq!(control_plane.report_of(&checked).last_health_check, Some(later));

    // Its stream is still open: it gets what is new, and counts again as soon as it is heard of.
    control_plane.publish(&["b"]);
    let update = control_plane.push(&mut silent);
    assert!(update.is_none(), "a stream that has asked for nothing is sent nothing");
    let update = control_plane.push(&mut checked).unwrap();
    control_plane.ask(&mut checked, &ack(&update));
    assert!(control_plane.registry.all_acked());
    control_plane.registry.active(&silent.ticket, after);
    assert!(!control_plane.registry.all_acked());
    let update = control_plane.ask(&mut silent, &empty()).unwrap();
    assert_eq!(names(&update), ["b"]);
    control_plane.ask(&mut silent, &ack(&update));
    assert_eq!(control_plane.report_of(&silent).state(), ClientState::Ready);
}

#[test]
fn a_client_that_has_answered_is_ready_however_long_it_is_quiet() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut quiet = control_plane.connect_in_sync("quiet");
    control_plane.registry.flush(control_plane.now + Duration::from_secs(86_400), Duration::from_secs(60));
    assert_eq!(control_plane.report_of(&quiet).state(), ClientState::Ready);
    control_plane.publish(&["b"]);
    assert_eq!(names(&control_plane.push(&mut quiet).unwrap()), ["b"], "and is sent what is new");
}

#[test]
fn a_request_counts_as_a_sign_of_life() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let client = control_plane.connect("one");
    let later = control_plane.now + Duration::from_secs(50);
    control_plane.registry.active(&client.ticket, later);
    assert_eq!(control_plane.registry.flush(later + Duration::from_secs(20), Duration::from_secs(60)), [""; 0]);
}

#[test]
fn a_health_check_of_a_client_without_a_stream_says_so() {
    let mut control_plane = ControlPlane::with(&["a"]);
    assert_eq!(control_plane.registry.health_check("unknown", control_plane.now), (false, None));
    assert_eq!(control_plane.clients(), []);
}

#[test]
fn a_second_stream_of_a_client_takes_the_place_of_the_first() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let first = control_plane.connect_in_sync("one");
    let nonce = control_plane.due(&first).nonce.clone();
    let anyone = Arc::new(Audience::Anyone);
    let (second, cut) = control_plane.registry.connect("one", anyone, control_plane.now, "another cut");
    assert_eq!(cut, Some("cut"));
    control_plane.registry.assign(&second, &assignment(&["a"], "a"), clock());
    assert_eq!(
        control_plane.registry.due(&second).unwrap().nonce,
        nonce,
        "the version is the same, and so is its nonce"
    );
    control_plane.registry.disconnect(&first.ticket);
    assert_eq!(control_plane.clients().len(), 1, "the end of the first is not the end of the second");
    control_plane.registry.answered(&first.ticket, &nonce, Acknowledgement::Accepted);
    assert!(!control_plane.registry.all_acked(), "the first speaks for nobody any more");
    control_plane.registry.disconnect(&second);
    assert_eq!(control_plane.clients(), []);
}

// Groups: clients that are to have the same version

#[test]
fn each_group_has_a_nonce_and_an_all_acked_of_its_own() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let [mut one, mut two, mut other] = ["one", "two", "other"].map(|address| control_plane.connect(address));
    control_plane.registry.assign(&other.ticket, &assignment(&["b"], "a"), clock());
    let update = control_plane.ask(&mut one, &empty()).unwrap();
    assert_eq!(
        control_plane.ask(&mut two, &empty()).unwrap().nonce,
        update.nonce,
        "clients of a group share an update"
    );
    let others = control_plane.ask(&mut other, &empty()).unwrap();
    assert_ne!(others.nonce, update.nonce);
    let acked = |control_plane: &ControlPlane| {
        let version = |group: &GroupReport| group.version().unwrap().clone();
        let groups = control_plane.registry.report();
        groups.iter().map(|group| (version(group), group.all_acked)).collect::<std::collections::BTreeMap<_, _>>()
    };
    let expect =
        |first: bool, second: bool| [(update.version().clone(), first), (others.version().clone(), second)].into();
    assert_eq!(acked(&control_plane), expect(false, false));
    // A nonce of another group is stale here, and no answer.
    assert!(control_plane.ask(&mut other, &request(others.version().as_str(), &update.nonce, None)).is_some());
    assert_eq!(control_plane.answer_of(&other), None);
    control_plane.ask(&mut other, &nack(&others, ""));
    assert_eq!(acked(&control_plane), expect(false, true), "a refusal ends the waiting, of this group alone");
    control_plane.ask(&mut two, &ack(&update));
    assert_eq!(acked(&control_plane), expect(false, true));
    control_plane.ask(&mut one, &ack(&update));
    assert_eq!(acked(&control_plane), expect(true, true));
    assert!(control_plane.registry.all_acked());
    // A change of one group leaves the other as it is.
    control_plane.registry.assign(&other.ticket, &assignment(&["c"], "c"), clock());
    assert_eq!(control_plane.due(&one).nonce, update.nonce);
    assert_eq!(control_plane.answer_of(&one), Some(Acknowledgement::Accepted));
    assert_eq!(control_plane.answer_of(&other), None);
}

#[test]
fn a_client_that_refuses_is_shown_with_what_it_runs_still() {
    let mut control_plane = ControlPlane::with(&["good"]);
    let mut client = control_plane.connect_in_sync("one");
    let good = control_plane.due(&client);
    control_plane.publish(&["bad"]);
    let bad = control_plane.push(&mut client).unwrap();
    control_plane.ask(&mut client, &nack(&bad, good.version().as_str()));
    let report = control_plane.report_of(&client);
    assert_eq!((report.state(), report.running.as_ref()), (ClientState::Refusing, Some(good.version())));
}

// Rollouts: a client that says who it is counts as a node

#[test]
fn an_identified_client_is_seen_by_rollouts_with_the_revision_that_it_runs_or_refuses() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let _anyone = control_plane.connect("anyone");
    let mut client = control_plane.connect_as("point-1", identified("point-1"));
    let seen = |control_plane: &ControlPlane| {
        let [sighting] = control_plane.registry.sightings().try_into().expect("one client says who it is");
        assert_eq!((sighting.node.id.as_str(), sighting.refused.len()), ("point-1", 0));
        (sighting.connected, sighting.revision, sighting.refused_policies)
    };
    let revision = |name: &str| Digest::of(name.as_bytes());
    assert_eq!(seen(&control_plane), (true, None, None), "it has not answered");
    let update = control_plane.ask(&mut client, &empty()).unwrap();
    control_plane.ask(&mut client, &ack(&update));
    assert_eq!(seen(&control_plane), (true, Some(revision("a")), None));

    // A revision that changes nothing for the client is run by it at once.
    control_plane.registry.assign(&client.ticket, &assignment(&["a"], "another"), clock());
    assert_eq!(seen(&control_plane), (true, Some(revision("another")), None));

    control_plane.publish(&["b"]);
    assert_eq!(seen(&control_plane), (true, None, None));
    let update = control_plane.push(&mut client).unwrap();
    control_plane.ask(&mut client, &nack(&update, ""));
    assert_eq!(seen(&control_plane), (true, None, Some((revision("b"), "it does not compile".to_owned()))));

    // A silent client that has not answered counts as disconnected.
    control_plane.publish(&["c"]);
    control_plane.registry.flush(control_plane.now + Duration::from_secs(61), Duration::from_secs(60));
    assert_eq!(seen(&control_plane), (false, None, None));
}
